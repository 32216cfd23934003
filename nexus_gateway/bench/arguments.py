"""Measures the writing of arguments: requests whose tool and arguments are known, by the gateway and naively.

Both arms write each request in turn, with one engine. What depends on the tool alone is in the engine's cache
before either is timed, as for tools that are compiled: tokens and times are those of the request.

Knows a writer, an engine and requests; knows no file and no screen.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.ports import ArgumentEngine, ModelError, Segment, SegmentKind
from nexus_gateway.bench.arguments_cutting import Cut, cut
from nexus_gateway.bench.arguments_data import ArgumentQuery
from nexus_gateway.bench.arguments_grounding import Grounds
from nexus_gateway.bench.arguments_naive import naive_segments, write_naively
from nexus_gateway.turn.arguments import ArgumentWriter, Draft
from nexus_gateway.turn.prompt import segments
from nexus_gateway.turn.result import TokenCount
from nexus_gateway.turn.validation import problems
from tool_registry.index import CompiledTool, compile_tool

SURE = 0.5
"""Least confidence that runs unasked, where no calibration says another."""

_STATIC = (SegmentKind.SYSTEM, SegmentKind.TOOL)

Advance = Callable[[], None]
"""Told after each request."""


def _silent() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Answer:
    """What one arm wrote for one request.

    Attributes:
        arguments: None where no JSON object came out.
        valid: whether they fit the listed schema; of ours, but for required ones that are asked for.
        exact: whether they are right.
        specified: arguments that the request specifies.
        right: how many of these are right.
        values: texts and numbers in the arguments.
        invented: those without a ground, as `name=value`.
        tokens: of the argument model; a reading model's are not counted.
        milliseconds: of writing.
        failure: why there is nothing, where the model failed.
    """

    arguments: Mapping[str, Any] | None
    valid: bool
    exact: bool
    specified: int
    right: int
    values: int
    invented: tuple[str, ...]
    tokens: TokenCount
    milliseconds: float
    failure: str = ""

    @property
    def decoded(self) -> int:
        """Tokens that the model had to read or write for this request; with no cache, for the tool too."""
        return self.tokens.prompt - self.tokens.reused + self.tokens.sampled + self.tokens.forced


@dataclass(frozen=True, slots=True)
class Sureness:
    """Whether a draft would run unasked.

    Attributes:
        confidence: 0 to 1; None where it would not run at any: something is missing or invalid.
        target: least confidence that runs.
    """

    confidence: float | None
    target: float = SURE

    @property
    def runs(self) -> bool:
        """Whether the tool would be called."""
        return self.reaches(self.target)

    def reaches(self, threshold: float) -> bool:
        """Whether the tool would be called, were this the target."""
        return self.confidence is not None and self.confidence >= threshold


@dataclass(frozen=True, slots=True)
class Judged:
    """One request.

    Attributes:
        missing: what ours asks for.
        sure: of ours.
        naive: None where it was not asked.
        cut: what was taken out; None where nothing was.
        detected: whether it was asked for then.
    """

    query: ArgumentQuery
    ours: Answer
    missing: tuple[str, ...]
    sure: Sureness
    naive: Answer | None = None
    cut: Cut | None = None
    detected: bool = False

    @property
    def falsely_missing(self) -> bool:
        """Whether something is asked for that is known."""
        return any(name in self.query.gold.stated for name in self.missing)


@dataclass(frozen=True, slots=True)
class Arms:
    """What is measured.

    Attributes:
        engine: the one that the writer uses.
        naive: whether to measure the naive arm too.
        cut: whether to write again without a required value.
        seed: of the cuts.
    """

    engine: ArgumentEngine
    writer: ArgumentWriter
    naive: bool = True
    cut: bool = True
    seed: int = 0


async def measure(arms: Arms, queries: Sequence[ArgumentQuery], advance: Advance = _silent) -> list[Judged]:
    """Write the arguments of every request. A model that fails for one is a failure of that one."""
    judged = []
    for query in queries:
        judged.append(await _judge(arms, query))
        advance()
    return judged


def sureness(draft: Draft, compiled: CompiledTool) -> Sureness:
    """How sure a draft is, and from where on the turn would call with it a tool that only reads.

    A writer that gives no probability is sure where nothing was picked among several.
    """
    target = SURE if draft.confidence is None else draft.target
    if draft.missing or problems(draft.arguments, compiled.tool.input_schema):
        return Sureness(None, target)
    if draft.confidence is not None:
        return Sureness(draft.confidence, target)
    return Sureness(0.0 if any(ground.chosen for ground in draft.grounds.values()) else 1.0, target)


async def _judge(arms: Arms, query: ArgumentQuery) -> Judged:
    compiled = compile_tool(query.tool)
    await _warm(arms.engine, segments(compiled, query.text, ""))
    draft, ours = await _ours(arms, query, compiled)
    wanted = cut(query, compiled.schema, arms.seed) if arms.cut else None
    missing = tuple(argument.name for argument in draft.missing)
    detected = wanted is not None and await _asks(arms, query, compiled, wanted)
    naive = await _naively(arms, query, compiled) if arms.naive else None
    sure = Sureness(None) if ours.failure else sureness(draft, compiled)
    return Judged(query, ours, missing, sure, naive, wanted, detected)


async def _ours(arms: Arms, query: ArgumentQuery, compiled: CompiledTool) -> tuple[Draft, Answer]:
    started = time.perf_counter()
    try:
        draft, failure = await arms.writer.write(compiled, query.text, bindings=query.bindings), ""
    except ModelError as error:
        draft, failure = Draft(), str(error)
    spent = 1000 * (time.perf_counter() - started)
    written = None if failure else draft.arguments
    asked = [argument.name for argument in draft.missing]
    return draft, _answer(query, compiled, written, draft.tokens, spent, asked=asked, failure=failure)


async def _asks(arms: Arms, query: ArgumentQuery, compiled: CompiledTool, wanted: Cut) -> bool:
    try:
        draft = await arms.writer.write(compiled, wanted.request, bindings=query.bindings)
    except ModelError:
        return False
    return any(argument.name == wanted.name for argument in draft.missing)


async def _naively(arms: Arms, query: ArgumentQuery, compiled: CompiledTool) -> Answer:
    await _warm(arms.engine, naive_segments(compiled, query.text))
    started = time.perf_counter()
    try:
        completion = await write_naively(arms.engine, compiled, query.text)
    except ModelError as error:
        return _answer(query, compiled, None, TokenCount(), 0.0, failure=str(error))
    spent = 1000 * (time.perf_counter() - started)
    tokens = TokenCount(
        completion.prompt_tokens,
        completion.reused_tokens,
        completion.sampled_tokens,
        completion.forced_tokens,
    )
    written = json.loads(completion.text) if completion.complete else None
    return _answer(query, compiled, written, tokens, spent)


async def _warm(engine: ArgumentEngine, prompt: Sequence[Segment]) -> None:
    """Bring what comes before the request into the engine's cache, where it keeps one."""
    if not engine.holds_local_state:
        return
    static = [segment for segment in prompt if segment.kind in _STATIC]
    try:
        await engine.complete([*static, Segment(SegmentKind.REQUEST, "-")], {"const": 0}, max_tokens=1)
    except ModelError:
        return  # what is measured will say so


def _answer(
    query: ArgumentQuery,
    compiled: CompiledTool,
    written: Any,
    tokens: TokenCount,
    milliseconds: float,
    *,
    asked: Sequence[str] = (),
    failure: str = "",
) -> Answer:
    arguments = written if isinstance(written, dict) else None
    given, gold, schema = arguments or {}, query.gold, compiled.schema
    stated = gold.stated
    known = [*gold.values(), *query.bindings.values()]
    invented, values = Grounds(query.text, schema, known).without_ground(given)
    return Answer(
        arguments=arguments,
        valid=arguments is not None and not problems(given, _less_required(compiled, asked)),
        exact=arguments is not None and gold.accepts(given, schema),
        specified=len(stated),
        right=sum(name in given and gold.accepts_one(name, given[name], schema) for name in stated),
        values=values,
        invented=tuple(invented),
        tokens=tokens,
        milliseconds=milliseconds,
        failure=failure,
    )


def _less_required(compiled: CompiledTool, asked: Sequence[str]) -> Any:
    """The listed schema, without the duty to give what is asked for."""
    listed = compiled.tool.input_schema
    if not asked or not isinstance(listed, Mapping) or not isinstance(listed.get("required"), list):
        return listed
    return {**listed, "required": [name for name in listed["required"] if name not in asked]}
