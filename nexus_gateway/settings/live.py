"""The snapshot in use: asked anew each time, so that a reload counts from the next question on."""

from collections.abc import Mapping

from nexus_gateway.settings.fields import ConfirmPolicy, Scalar
from nexus_gateway.settings.snapshot import Settings
from tool_registry.tool import ToolId


class LiveSettings:
    """Holds the present settings.

    Attributes:
        current: replaced as a whole by a reload.
    """

    def __init__(self, settings: Settings) -> None:
        self.current = settings

    def confirm_policy(self, tool: ToolId) -> ConfirmPolicy:
        """As `Settings.confirm_policy`; that of `[turn]` for a server that a reload has just removed."""
        if tool.server not in self.current.servers:
            return self.current.turn.confirm
        return self.current.confirm_policy(tool)

    def approved_read_only(self, tool: ToolId) -> bool | None:
        """As `Settings.approved_read_only`; nothing is said of a server that a reload has just removed."""
        if tool.server not in self.current.servers:
            return None
        return self.current.approved_read_only(tool)

    def in_use(self, tool: ToolId) -> bool:
        """As `Settings.in_use`; no tool of a server that a reload has just removed is."""
        return tool.server in self.current.servers and self.current.in_use(tool)

    @property
    def remember_answers(self) -> bool:
        """Whether the answer for a missing argument is kept for later calls."""
        return self.current.turn.remember_answers

    def bindings(self, server: str) -> Mapping[str, Scalar]:
        """The configured values of a server's arguments; none for one that a reload has just removed."""
        return self.current.servers[server].bindings if server in self.current.servers else {}
