"""What a turn is made of, and how a request is to be treated; the Protocols that it needs of others."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from adapters.ports import JsonObject, ProgressCallback
from nexus_gateway.access.caller import Caller, Tenant
from nexus_gateway.routing.router import Router
from nexus_gateway.turn.arguments import ArgumentWriter
from nexus_gateway.turn.bindings import Bindings
from nexus_gateway.turn.confirmation import Approvals, ConfirmPolicy
from tool_registry.catalog import ToolCatalog
from tool_registry.index import CompiledTool, RoutingIndex
from tool_registry.tool import Tool, ToolId


class Calls(Protocol):
    """The fleet, as far as a turn needs it."""

    @property
    def catalog(self) -> ToolCatalog:
        """The present snapshot."""
        ...

    async def first_sync(self) -> Sequence[object]:
        """Wait until each server has listed its tools or has failed once."""
        ...

    async def call_tool(
        self,
        server: str,
        tool: str,
        params: Mapping[str, Any],
        *,
        caller: Caller | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> JsonObject:
        """Call on behalf of a caller, whose host the upstream may ask; raises UpstreamError."""
        ...


class Rules(Protocol):
    """What the user configured about tools; `Settings` is one."""

    def confirm_policy(self, tool: ToolId) -> ConfirmPolicy:
        """When to ask before a call."""
        ...

    def approved_read_only(self, tool: ToolId) -> bool | None:
        """What the user says about a tool being read-only; None where nothing is said."""
        ...


def reads_only(rules: Rules, tool: Tool) -> bool:
    """Whether `nexus_read` may call a tool: the user's word counts, then the annotation."""
    approved = rules.approved_read_only(tool.id)
    return tool.annotations.read_only is True if approved is None else approved


class Preparing(Protocol):
    """The layer of compiled state, as far as a turn needs it; nothing of it waits or raises."""

    def foresee(self, tools: Sequence[CompiledTool], tenant: Tenant) -> Any:
        """Tools that the request may need, the likeliest first; what comes of it is for `decided`."""
        ...

    def decided(self, foreseen: Any, chosen: CompiledTool | None) -> None:
        """The tool that it does need, or none."""
        ...

    def used(self, tool: ToolId) -> None:
        """A tool's arguments were written, or it was called exactly."""
        ...


class Unprepared:
    """No layer of compiled state."""

    def foresee(self, tools: Sequence[CompiledTool], tenant: Tenant) -> None:
        """See `Preparing`."""

    def decided(self, foreseen: Any, chosen: CompiledTool | None) -> None:
        """See `Preparing`."""

    def used(self, tool: ToolId) -> None:
        """See `Preparing`."""


Ready = Callable[[ProgressCallback | None], Awaitable[RoutingIndex]]
"""Wait until servers have been heard and tools compiled; reports progress. Raises ModelError."""


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """How one request is to be treated.

    Attributes:
        dry_run: stop before the call.
        assume_yes: the user's yes was given beforehand.
        read_only: tools that may change something are out of reach.
        meta: the host's `_meta` for the upstream, connection-owned keys removed.
    """

    dry_run: bool = False
    assume_yes: bool = False
    read_only: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict)
    on_progress: ProgressCallback | None = None


@dataclass(frozen=True, slots=True)
class TurnParts:
    """What a turn is made of."""

    calls: Calls
    ready: Ready
    router: Router
    writer: ArgumentWriter
    approvals: Approvals
    rules: Rules
    deadline_seconds: float
    bindings: Bindings = field(default_factory=Bindings)
    state: Preparing = field(default_factory=Unprepared)
