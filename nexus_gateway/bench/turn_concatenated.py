"""The arm that is measured beside the gateway: every schema in the local model's prompt.

The model picks the tool by name and writes its arguments in one JSON object under a mask: `{"name": one of all,
"arguments": any object}`, greedy, at most 256 tokens. Fixed, so that it can be compared over time.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.ports import ArgumentEngine, ModelError, Segment, SegmentKind
from tool_registry.tool import Tool

SYSTEM = (
    "You call tools. Choose the one tool that fits the request. Copy values exactly from the request. Only include "
    "arguments that the request gives.\nTools:\n"
)
MAX_TOKENS = 256


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """What the model wrote.

    Attributes:
        tool: the key it chose; empty where it closed no object.
        arguments: those it wrote.
        decoded: tokens it had to read or write.
        milliseconds: of all of it.
        failure: why there is nothing, where the model failed.
    """

    tool: str = ""
    arguments: Mapping[str, Any] | None = None
    decoded: int = 0
    milliseconds: float = 0.0
    failure: str = ""


def prompt(tools: Sequence[Tool], request: str) -> list[Segment]:
    """Every tool as a line of JSON, then the request."""
    lines = [
        json.dumps(
            {"name": str(tool.id), "description": tool.description, "parameters": tool.input_schema},
            ensure_ascii=False,
        )
        for tool in tools
    ]
    return [
        Segment(SegmentKind.SYSTEM, SYSTEM + "\n".join(lines)),
        Segment(SegmentKind.REQUEST, request),
    ]


def schema(tools: Sequence[Tool]) -> dict[str, Any]:
    """Of the whole answer."""
    return {
        "type": "object",
        "properties": {
            "name": {"enum": [str(tool.id) for tool in tools]},
            "arguments": {"type": "object"},
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


async def choose(engine: ArgumentEngine, tools: Sequence[Tool], request: str) -> Chosen:
    """Let the model choose and write."""
    started = time.perf_counter()
    try:
        completion = await engine.complete(prompt(tools, request), schema(tools), max_tokens=MAX_TOKENS)
    except ModelError as error:
        return Chosen(failure=str(error))
    spent = 1000 * (time.perf_counter() - started)
    decoded = (
        completion.prompt_tokens
        - completion.reused_tokens
        + completion.sampled_tokens
        + completion.forced_tokens
    )
    if not completion.complete:
        return Chosen(decoded=decoded, milliseconds=spent)
    answer = json.loads(completion.text)
    return Chosen(answer["name"], answer["arguments"], decoded, spent)
