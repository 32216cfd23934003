"""The prompt of one tool's arguments, as typed segments. What comes before the context depends on the tool alone."""

from adapters.ports import Segment, SegmentKind
from tool_registry.index import CompiledTool

SYSTEM = (
    "You fill in the arguments of one function call as JSON. "
    "Copy values exactly from the user's request. Use only what the request states."
)
PURPOSE_CHARACTERS = 200
CONTEXT_CHARACTERS = 2_000
REQUEST_CHARACTERS = 4_000
"""Longer texts are cut for the model; grounding still reads them whole."""


def segments(compiled: CompiledTool, request: str, context: str) -> list[Segment]:
    """System, tool, context and request, in the order that lets a tool's prefix be kept."""
    purpose = purpose_of(compiled.tool.description)
    parts = [
        Segment(SegmentKind.SYSTEM, SYSTEM),
        Segment(SegmentKind.TOOL, f"\nFunction: {compiled.signature}\nPurpose: {purpose}"),
    ]
    if context:
        parts.append(Segment(SegmentKind.CONTEXT, f"Context: {_cut(context, CONTEXT_CHARACTERS)}\n"))
    parts.append(Segment(SegmentKind.REQUEST, _cut(request, REQUEST_CHARACTERS)))
    return parts


def purpose_of(description: str) -> str:
    """The one line of a description that stands beside the signature."""
    return description.strip().split("\n")[0][:PURPOSE_CHARACTERS]


def _cut(text: str, most: int) -> str:
    """The beginning and the end of a long text: both tend to say what is wanted."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} … {text[-most // 2 :]}"
