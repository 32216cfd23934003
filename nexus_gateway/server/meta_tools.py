"""The meta-tools' definitions: few, stable, in a fixed order, whatever is connected.

None that relays an upstream's result declares an output schema: a client that sees one rejects results
without structured content.
"""

from typing import Any

_TOOL_REFERENCE = {
    "type": "string",
    "description": "The tool as find_tools names it: server/name, or the bare name where only one server has it.",
}
_CONTEXT = {
    "type": "string",
    "description": "What the request leaves out: ids, paths or names from the conversation, as plain text.",
}
_REQUEST = {"type": "string", "description": "One task in plain words, with every value it needs."}

META_TOOLS: tuple[dict[str, Any], ...] = (
    {
        "name": "nexus_turn",
        "title": "Do one task",
        "description": (
            "Do one task with the connected servers: finds the right tool, fills in its arguments, calls it and "
            "returns its result. If it can't decide, it says which tools or values it needs; then use call_tool."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "request": _REQUEST,
                "context": _CONTEXT,
                "dry_run": {
                    "type": "boolean",
                    "description": "Show the tool and its arguments without calling it.",
                    "default": False,
                },
            },
            "required": ["request"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
    },
    {
        "name": "nexus_read",
        "title": "Look something up",
        "description": "Like nexus_turn, with tools that only read. Safe to allow always.",
        "inputSchema": {
            "type": "object",
            "properties": {"request": _REQUEST, "context": _CONTEXT},
            "required": ["request"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": True},
    },
    {
        "name": "find_tools",
        "title": "Find tools",
        "description": (
            "The best tools for a need, among all connected servers, with how relevant each is (0 to 1). Says so if "
            "none fits."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "What the tool should do. Empty lists every tool, by server.",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 50,
                    "description": "Tools a page: 5 of a search and 50 of a list, if not given.",
                },
                "detail": {
                    "type": "string",
                    "enum": ["names", "signatures", "schemas"],
                    "default": "signatures",
                    "description": "How much of each tool to return.",
                },
                "cursor": {
                    "type": "string",
                    "description": "For the next page: the nextCursor of the last one, with the same query.",
                },
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": "describe_tool",
        "title": "Describe a tool",
        "description": "One tool's full definition: schema, annotations, server.",
        "inputSchema": {
            "type": "object",
            "properties": {"tool": _TOOL_REFERENCE},
            "required": ["tool"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": "call_tool",
        "title": "Call a tool",
        "description": "Call one tool with exact arguments; they are checked against its schema first.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "tool": _TOOL_REFERENCE,
                "arguments": {"type": "object", "description": "The tool's arguments.", "default": {}},
                "confirm": {
                    "type": "string",
                    "description": "The confirmation that an earlier result asked for, after the user said yes.",
                },
            },
            "required": ["tool"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
    },
)

INSTRUCTIONS = (
    "Nexus gateway stands in front of many tool servers. Hand nexus_turn one task in plain words (nexus_read if it "
    "only looks something up) and it calls the right tool. find_tools, describe_tool and call_tool are for choosing "
    "and calling a tool yourself."
)
