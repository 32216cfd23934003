"""`find_tools` results as raw `CallToolResult` objects: at the asked detail, with the way to the next page."""

from collections.abc import Mapping
from typing import Any

from adapters.ports import JsonObject
from nexus_gateway.server.rendering import compact
from nexus_gateway.turn.finding import FoundPage, FoundTool

DESCRIPTION_CHARACTERS = 200


def render_found(page: FoundPage, detail: str) -> JsonObject:
    """A page at a detail: `names`, `signatures` or `schemas`. Where no tool fits, the nearest are no `tools`."""
    entries = [_entry(found, detail) for found in page.tools]
    structured: JsonObject = {"tools": entries if page.fits else []}
    lines = [_line(entry) for entry in entries]
    if not page.fits:
        message = f"No tool fits: {page.reason}."
        structured |= {"message": message} | ({"nearest": entries} if entries else {})
        lines = [message, *(["Nearest, though probably not what you need:"] if entries else []), *lines]
    elif page.total is not None:
        structured["total"] = page.total
        lines = [f"{page.total} tools in all, by server:", *lines]
    if page.cursor:
        structured["nextCursor"] = page.cursor
        lines.append(f'More: find_tools again with the same query and cursor "{page.cursor}".')
    return {"content": [{"type": "text", "text": "\n".join(lines)}], "structuredContent": structured}


def _entry(found: FoundTool, detail: str) -> JsonObject:
    tool = found.tool
    entry: JsonObject = {"tool": str(tool.id)}
    if found.relevance is not None:
        entry["relevance"] = found.relevance
    if found.also_on:
        entry["also_on"] = [str(other) for other in found.also_on]
    if detail == "names":
        return entry
    entry["description"] = tool.description.strip().split("\n")[0][:DESCRIPTION_CHARACTERS]
    if detail == "signatures":
        entry["signature"] = found.signature
    else:
        entry["inputSchema"] = tool.input_schema
    return entry


def _line(entry: Mapping[str, Any]) -> str:
    relevance = f"{entry['relevance']:.2f} " if "relevance" in entry else ""
    signature = f": {entry['signature']}" if "signature" in entry else ""
    description = f" - {entry['description']}" if entry.get("description") else ""
    also = f" (also on: {', '.join(entry['also_on'])})" if "also_on" in entry else ""
    schema = f"\n  {compact(entry['inputSchema'])}" if "inputSchema" in entry else ""
    return f"{relevance}{entry['tool']}{signature}{description}{also}{schema}"
