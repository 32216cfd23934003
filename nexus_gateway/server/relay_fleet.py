"""The fleet as the relay needs it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from adapters.ports import JsonObject, ProgressCallback
from nexus_gateway.access.caller import Caller
from nexus_gateway.access.host import HostKey
from nexus_gateway.fleet.changes import Change
from nexus_gateway.fleet.listings import Entry, ListKind
from nexus_gateway.fleet.status import ServerStatus
from tool_registry.catalog import ToolCatalog


class RelayFleet(Protocol):
    """What is asked of the upstreams on behalf of hosts; all objects raw."""

    @property
    def catalog(self) -> ToolCatalog:
        """The present tools."""
        ...

    def statuses(self) -> Sequence[ServerStatus]:
        """Each server's status, in configured order."""
        ...

    async def first_sync(self) -> Sequence[ServerStatus]:
        """Wait until each server is ready or has failed once."""
        ...

    async def request(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any],
        *,
        caller: Caller | None,
        timeout_seconds: float | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> JsonObject:
        """One request. Questions that the server asks meanwhile go to the caller's host. Raises UpstreamError."""
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
        """`tools/call`, with the deadline of the tool. Raises UpstreamError."""
        ...

    async def entries(self, kind: ListKind) -> Sequence[Entry]:
        """What the servers that are up list, in configured order."""
        ...

    def instructions(self) -> Sequence[tuple[str, str]]:
        """Each server that is known to say something about its use, and what."""
        ...

    async def watch(self, server: str, uri: str, host_key: HostKey) -> None:
        """Hear of a resource's updates from now on. Raises UpstreamError."""
        ...

    async def unwatch(self, server: str, uri: str, host_key: HostKey) -> None:
        """Hear no more of it. Raises UpstreamError."""
        ...

    def on_change(self, callback: Callable[[Change], None]) -> None:
        """Call back, without blocking, for each change and log message."""
        ...
