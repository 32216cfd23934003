"""The prompt of one tool's arguments, as typed segments. What comes before the context depends on the tool alone."""

import json
from typing import Literal, TypeAlias

from adapters.ports import Segment, SegmentKind
from tool_registry.index import CompiledTool

SYSTEM = (
    "You fill in the arguments of one function call as JSON. "
    "Copy values exactly from the user's request. Use only what the request states."
)
ToolText: TypeAlias = Literal["signature", "schema"]
"""What the model reads of a tool. It depends on nothing else: what is kept of earlier turns changes no prompt."""
PURPOSE_CHARACTERS = 200
SCHEMA_CHARACTERS = 16_000
"""Of a tool with a longer schema the model reads the signature: the request has to fit in beside it."""
CONTEXT_CHARACTERS = 2_000
REQUEST_CHARACTERS = 4_000
"""Longer texts are cut for the model; grounding still reads them whole."""


def tool_prompt(compiled: CompiledTool, tool_text: ToolText = "signature") -> list[Segment]:
    """System and tool: all of a prompt that depends on the tool alone."""
    return [
        Segment(SegmentKind.SYSTEM, SYSTEM),
        Segment(SegmentKind.TOOL, f"\nFunction: {_shown(compiled, tool_text)}"),
    ]


def segments(
    compiled: CompiledTool, request: str, context: str, tool_text: ToolText = "signature"
) -> list[Segment]:
    """System, tool, context and request, in the order that lets a tool's prefix be kept."""
    parts = tool_prompt(compiled, tool_text)
    if context:
        parts.append(Segment(SegmentKind.CONTEXT, f"Context: {_cut(context, CONTEXT_CHARACTERS)}\n"))
    parts.append(Segment(SegmentKind.REQUEST, _cut(request, REQUEST_CHARACTERS)))
    return parts


def purpose_of(description: str) -> str:
    """The one line of a description that stands beside the signature."""
    return description.strip().split("\n")[0][:PURPOSE_CHARACTERS]


def _shown(compiled: CompiledTool, tool_text: ToolText) -> str:
    purpose = f"Purpose: {purpose_of(compiled.tool.description)}"
    if tool_text == "schema":
        schema = json.dumps(compiled.tool.input_schema, ensure_ascii=False, separators=(",", ":"))
        if len(schema) <= SCHEMA_CHARACTERS:
            return f"{compiled.id.name}\n{purpose}\nParameters: {schema}"
    return f"{compiled.signature}\n{purpose}"


def _cut(text: str, most: int) -> str:
    """The beginning and the end of a long text: both tend to say what is wanted."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} … {text[-most // 2 :]}"
