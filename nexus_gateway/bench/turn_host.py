"""What a host carries: the tokens of a `tools/list` result with every tool in it, and of the five meta-tools'.

Knows a counter of tokens; knows no model.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nexus_gateway.server.meta_tools import META_TOOLS
from tool_registry.tool import ContentHash, Tool


class HostTokens:
    """Counts entries of `tools/list` as compact JSON, less `_meta`, which no host shows its model.

    Each entry is counted alone and once: what tokens at the seams would save is not taken off. Blocks.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self.count = count
        self._known: dict[ContentHash, int] = {}

    def of_tools(self, tools: Iterable[Tool]) -> int:
        """Tokens of a listing of these tools."""
        return sum(map(self._of_tool, tools))

    def of_meta_tools(self) -> int:
        """Tokens of what the gateway lists instead."""
        return sum(map(self._of, META_TOOLS))

    def _of_tool(self, tool: Tool) -> int:
        if tool.content_hash not in self._known:
            self._known[tool.content_hash] = self._of(tool.definition)
        return self._known[tool.content_hash]

    def _of(self, definition: Mapping[str, Any]) -> int:
        shown = {name: part for name, part in definition.items() if name != "_meta"}
        return self.count(json.dumps(shown, ensure_ascii=False, separators=(",", ":")) + ",")
