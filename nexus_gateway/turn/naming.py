"""Finding the tool that a reference names exactly."""

import difflib

from tool_registry.catalog import ToolCatalog
from tool_registry.tool import Tool


def resolve(catalog: ToolCatalog, reference: str) -> Tool | str:
    """The tool that `reference` names, or what to say where there is none or more than one."""
    exact = [tool for tool in catalog if str(tool.id) == reference]
    named = exact or [tool for tool in catalog if tool.id.name == reference]
    if len(named) == 1:
        return named[0]
    if named:
        return f"Several servers have a tool {reference!r}: {', '.join(str(tool.id) for tool in named[:10])}. Name one."
    close = difflib.get_close_matches(reference, [str(tool.id) for tool in catalog], n=3, cutoff=0.4)
    hint = f" Close: {', '.join(close)}." if close else " find_tools lists what there is."
    return f"No tool is named {reference[:200]!r}.{hint}"
