"""What the user configured about tools: confirmation and read-only approval, by tool, server and default."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nexus_gateway.turn.confirmation import ConfirmPolicy
from tool_registry.tool import Tool, ToolId


@dataclass(frozen=True, slots=True)
class ToolRules:
    """The narrowest rule counts: tool, then server, then the default."""

    default: ConfirmPolicy = ConfirmPolicy.AUTO
    by_server: Mapping[str, ConfirmPolicy] = field(default_factory=dict)
    by_tool: Mapping[ToolId, ConfirmPolicy] = field(default_factory=dict)
    read_only: frozenset[ToolId] = frozenset()
    """Tools that the user approved as read-only."""

    def confirm(self, tool_id: ToolId) -> ConfirmPolicy:
        """The confirmation policy of a tool."""
        return self.by_tool.get(tool_id, self.by_server.get(tool_id.server, self.default))

    def reads_only(self, tool: Tool) -> bool:
        """Whether `nexus_read` may call a tool: annotated read-only, or approved as such."""
        return tool.id in self.read_only or tool.annotations.read_only is True
