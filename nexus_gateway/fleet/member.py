"""One configured server as the fleet runs it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from adapters.ports import UpstreamSpec


@dataclass(frozen=True, slots=True)
class Member:
    """One configured server, its deadlines and when it runs.

    Attributes:
        timeout_seconds: for one request.
        tool_timeout_seconds: for a call, by tool; goes before `timeout_seconds`.
        lazy: start it at its first use; its tools come from the last listing that was kept.
        idle_stop_seconds: stop it after this long without a request; None never does.
        poll_seconds: list its tools, resources and prompts this often; None never does.
    """

    spec: UpstreamSpec
    timeout_seconds: float = 60.0
    connect_timeout_seconds: float = 60.0
    tool_timeout_seconds: Mapping[str, float] = field(default_factory=dict)
    lazy: bool = False
    idle_stop_seconds: float | None = None
    poll_seconds: float | None = None

    def call_timeout(self, tool: str) -> float:
        """Seconds a call of `tool` may take."""
        return self.tool_timeout_seconds.get(tool, self.timeout_seconds)
