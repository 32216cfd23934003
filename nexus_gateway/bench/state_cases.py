"""What time to first argument is measured on: requests and their tools, as the chunks of tokens that are decoded.

A case's prompt is the system text, then the tool, then the request; each is decoded by itself. The system text is
the gateway's own and the same in all arms. A tool is shown in full as hosts show it, or as the gateway's signature.
Knows prompts and files of tools; knows no context and no clock.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from adapters.llama_cpp.prompt import PromptEncoder
from adapters.ports import Segment, SegmentKind
from adapters.state_port import Chunk
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.routing_data import RoutingQuery, require_known
from nexus_gateway.routing.made_requests import RequestMaker
from nexus_gateway.turn.prompt import SYSTEM, segments
from tool_registry.catalog import ToolCatalog
from tool_registry.index import CompiledTool, compile_tool
from tool_registry.text import identifier_words
from tool_registry.tool import Tool

BESIDE = 9
"""Tools whose schemas stand before the model together with the right one's."""

_PARTS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """One request, its tool, and the tools that stand beside it where all are shown."""

    compiled: CompiledTool
    request: str
    beside: tuple[Tool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """The same in tokens.

    Attributes:
        label: the tool, `server/name`.
        system: the same for every case of a model.
        schema: the tool in full.
        signature: the tool as the gateway shows it.
        concatenated: it and `BESIDE` others in full, in a drawn order.
        request: ends where the answer starts.
    """

    label: str
    system: Chunk
    schema: Chunk
    signature: Chunk
    concatenated: Chunk
    request: Chunk


def draw_requests(tools: ToolCatalog, queries: Sequence[RoutingQuery], limit: int, seed: int) -> list[Drawn]:
    """At most `limit` of the requests whose right tool is there. Raises BenchError where there is none."""
    require_known(tools, queries)
    by_key = {str(tool.id): tool for tool in tools}
    known = [query for query in queries if any(key in by_key for key in query.gold)]
    rng = random.Random(seed)  # noqa: S311 - no secret
    chosen = rng.sample(known, min(limit, len(known)))
    golds = [next(by_key[key] for key in query.gold if key in by_key) for query in chosen]
    return [_drawn(rng, tools, tool, query.text) for tool, query in zip(golds, chosen, strict=True)]


def draw_uniform(tools: ToolCatalog, limit: int, seed: int) -> list[Drawn]:
    """At most `limit` tools, each as likely as any other, with a request made from its definition."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    everything = list(tools)
    chosen = rng.sample(everything, min(limit, len(everything)))
    return [_drawn(rng, tools, tool, made_request(rng, compile_tool(tool))) for tool in chosen]


def made_request(rng: random.Random, compiled: CompiledTool) -> str:
    """What somebody might ask of a tool; the words of its name where its definition says nothing."""
    made = RequestMaker(rng).make(compiled, 1)
    return made[0] if made else " ".join(identifier_words(compiled.tool.id.name)) or compiled.tool.id.name


def schema_text(tools: Sequence[Tool]) -> str:
    """Tools in full, one a line, as hosts put them before a model."""
    lines = (
        json.dumps(
            {"name": tool.id.name, "description": tool.description, "parameters": tool.input_schema},
            ensure_ascii=False,
        )
        for tool in tools
    )
    return "".join(f"\nTool: {line}" for line in lines)


def case_of(encoder: PromptEncoder, drawn: Drawn) -> Case:
    """Tokenise all prompts of a request. Raises BenchError where the encoder cuts prompts another way."""
    compiled, request = drawn.compiled, drawn.request
    system, schema, ending = _in_full(encoder, [compiled.tool], request)
    _, concatenated, _ = _in_full(encoder, drawn.beside, request)
    _, signature, _ = _chunks(encoder, segments(compiled, request, ""))
    return Case(str(compiled.id), system, schema, signature, concatenated, ending)


def _drawn(rng: random.Random, tools: ToolCatalog, tool: Tool, request: str) -> Drawn:
    others = [one for one in tools if one.id != tool.id]
    beside = [tool, *rng.sample(others, min(BESIDE, len(others)))]
    rng.shuffle(beside)
    return Drawn(compile_tool(tool), request, tuple(beside))


def _in_full(encoder: PromptEncoder, tools: Sequence[Tool], request: str) -> tuple[Chunk, Chunk, Chunk]:
    text = schema_text(tools)
    return _chunks(
        encoder,
        [
            Segment(SegmentKind.SYSTEM, SYSTEM),
            Segment(SegmentKind.TOOL, text),
            Segment(SegmentKind.REQUEST, request),
        ],
    )


def _chunks(encoder: PromptEncoder, prompt: Sequence[Segment]) -> tuple[Chunk, Chunk, Chunk]:
    chunks = encoder.encode(prompt).chunks
    if len(chunks) != _PARTS:
        raise BenchError(f"a prompt has {len(chunks)} chunks; system, tool and request were expected")
    return chunks[0], chunks[1], chunks[2]
