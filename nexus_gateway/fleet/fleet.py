"""All upstreams together: the catalogue of what they list, their status, and calls to them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from adapters.ports import Connect, JsonObject, ProgressCallback, UpstreamSpec, UpstreamUnavailable
from nexus_gateway.fleet.supervisor import RestartPolicy, ServerStatus, Supervisor
from tool_registry.catalog import Listing, ToolCatalog


@dataclass(frozen=True, slots=True)
class Member:
    """One configured server and its deadlines."""

    spec: UpstreamSpec
    timeout_seconds: float = 60.0
    connect_timeout_seconds: float = 60.0
    tool_timeout_seconds: Mapping[str, float] = field(default_factory=dict)

    def call_timeout(self, tool: str) -> float:
        """Seconds a call of `tool` may take."""
        return self.tool_timeout_seconds.get(tool, self.timeout_seconds)


class Fleet:
    """Runs a supervisor for each member; the catalogue is replaced, never changed in place."""

    def __init__(
        self,
        members: Iterable[Member],
        connect: Connect,
        *,
        policy: RestartPolicy | None = None,
        restart_patience_seconds: float = 5.0,
        on_catalog: Callable[[ToolCatalog], None] = lambda _catalog: None,
    ) -> None:
        self._members = {member.spec.server: member for member in members}
        self._catalog = ToolCatalog()
        self._on_catalog = on_catalog
        self._restart_patience = restart_patience_seconds
        self._supervisors = {
            name: Supervisor(
                member.spec,
                connect,
                connect_timeout_seconds=member.connect_timeout_seconds,
                policy=policy or RestartPolicy(),
                on_listing=self._take,
            )
            for name, member in self._members.items()
        }

    @property
    def catalog(self) -> ToolCatalog:
        """The present snapshot."""
        return self._catalog

    def statuses(self) -> list[ServerStatus]:
        """Each server's status, in configured order."""
        return [supervisor.status for supervisor in self._supervisors.values()]

    async def run(self) -> None:
        """Keep every server connected until cancelled; all connect at once."""
        async with anyio.create_task_group() as tasks:
            for supervisor in self._supervisors.values():
                tasks.start_soon(supervisor.run, name=f"upstream {supervisor.spec.server}")

    async def first_sync(self) -> list[ServerStatus]:
        """Wait until each server is ready or has failed once; bounded by the servers' connect deadlines."""
        return [await supervisor.first_verdict() for supervisor in self._supervisors.values()]

    async def call_tool(
        self,
        server: str,
        tool: str,
        params: Mapping[str, Any],
        *,
        on_progress: ProgressCallback | None = None,
    ) -> JsonObject:
        """Send `tools/call` with raw `params` (name, arguments, `_meta`) and return the raw result.

        The deadline, the tool's or else the server's, covers a wait for a server that is still starting; one
        that has failed gets `restart_patience_seconds` to come back. A call that its server dropped is not
        repeated: it may have had its effect.

        Raises:
            UpstreamError: unavailable, timed out or refused.
        """
        member, supervisor = self._members.get(server), self._supervisors.get(server)
        if member is None or supervisor is None:
            raise UpstreamUnavailable(server, f"no server named {server!r} is configured")
        started = anyio.current_time()
        timeout = member.call_timeout(tool)
        failed_before = bool(supervisor.status.cause)
        patience = min(timeout, self._restart_patience) if failed_before else timeout
        upstream = await supervisor.upstream(patience)
        remaining = max(0.001, timeout - (anyio.current_time() - started))
        return await upstream.request(
            "tools/call", params, timeout_seconds=remaining, on_progress=on_progress
        )

    def _take(self, server: str, listing: Listing) -> None:
        following = self._catalog.with_server(server, listing)
        if following is not self._catalog:
            self._catalog = following
            self._on_catalog(following)
