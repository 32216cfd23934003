"""The arm that is measured beside the gateway's own: the tool's whole JSON in the prompt, one object under its mask.

Fixed, so that it can be compared over time: this system text, the model's own chat template, greedy, at most 160
tokens, compact JSON, no further properties, forced tokens decoded in batches.
"""

import json
from collections.abc import Mapping
from typing import Any

from adapters.ports import ArgumentEngine, Completion, SchemaNotCompilable, Segment, SegmentKind
from tool_registry.index import CompiledTool

SYSTEM = (
    "You call tools. Copy values exactly from the request. Only include arguments that the request gives.\n"
    "Tool: "
)
MAX_TOKENS = 160


def naive_segments(compiled: CompiledTool, request: str) -> list[Segment]:
    """The prompt."""
    tool = compiled.tool
    listed = {"name": tool.id.name, "description": tool.description, "parameters": tool.input_schema}
    line = json.dumps(listed, ensure_ascii=False)
    return [Segment(SegmentKind.SYSTEM, SYSTEM + line), Segment(SegmentKind.REQUEST, request)]


async def write_naively(engine: ArgumentEngine, compiled: CompiledTool, request: str) -> Completion:
    """The arguments as the model writes them. Raises ModelError.

    A schema that the mask can't say is tried once more as the plain one.
    """
    prompt = naive_segments(compiled, request)
    try:
        return await engine.complete(prompt, _closed(compiled.tool.input_schema), max_tokens=MAX_TOKENS)
    except SchemaNotCompilable:
        return await engine.complete(prompt, _closed(compiled.schema), max_tokens=MAX_TOKENS)


def _closed(schema: Any) -> dict[str, Any]:
    listed = schema if isinstance(schema, Mapping) else {"type": "object"}
    return {**listed, "additionalProperties": False}
