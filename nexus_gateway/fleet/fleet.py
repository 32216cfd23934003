"""All upstreams together: the catalogue of what they list, their status, and requests to them."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from adapters.ports import Connect, JsonObject, ProgressCallback, UpstreamUnavailable
from nexus_gateway.access.caller import Caller
from nexus_gateway.access.host import HostKey
from nexus_gateway.fleet.back_channel import of_caller
from nexus_gateway.fleet.changes import Change, ChangeCallback, Changes
from nexus_gateway.fleet.kept import KeptListings
from nexus_gateway.fleet.listings import Entry, ListKind
from nexus_gateway.fleet.managed import ManagedServer, ServerParts
from nexus_gateway.fleet.member import Member
from nexus_gateway.fleet.policy import RestartPolicy
from nexus_gateway.fleet.status import ServerStatus
from tool_registry.catalog import Listing, ToolCatalog

Review = Callable[[str, Listing], Listing]
"""Looks at a server's listing before it is used; what it sets aside is not in the catalogue."""


def _as_listed(_server: str, listing: Listing) -> Listing:
    return listing


class Fleet:
    """Runs every member; the catalogue is replaced, never changed in place."""

    def __init__(
        self,
        members: Iterable[Member],
        connect: Connect,
        *,
        policy: RestartPolicy | None = None,
        restart_patience_seconds: float = 5.0,
        on_catalog: Callable[[ToolCatalog], None] = lambda _catalog: None,
        review: Review = _as_listed,
        listings_folder: Path | None = None,
    ) -> None:
        """`listings_folder` keeps the listings of lazy servers; without one each starts once to be listed."""
        self._catalog = ToolCatalog()
        self._on_catalog = on_catalog
        self._review = review
        self._changes = Changes()
        self._parts = ServerParts(
            connect=connect,
            policy=policy or RestartPolicy(),
            restart_patience_seconds=restart_patience_seconds,
            on_listing=self.take,
            on_change=self._changes.tell,
            kept=KeptListings(listings_folder) if listings_folder else None,
        )
        self._servers = {member.spec.server: ManagedServer(member, self._parts) for member in members}
        self._first: Caller | None = None
        self._tasks: TaskGroup | None = None
        self._applying = anyio.Lock()

    @property
    def catalog(self) -> ToolCatalog:
        """The present snapshot."""
        return self._catalog

    def statuses(self) -> list[ServerStatus]:
        """Each server's status, in configured order."""
        return [server.status for server in self._servers.values()]

    def instructions(self) -> list[tuple[str, str]]:
        """What servers say about their use, in configured order."""
        return [(s.server, s.instructions) for s in self.statuses() if s.instructions]

    def on_change(self, callback: ChangeCallback) -> None:
        """Have `callback` told of every change; it may not block."""
        self._changes.add(callback)

    async def run(self) -> None:
        """Keep every server connected until cancelled; all connect at once."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                for server in self._servers.values():
                    tasks.start_soon(server.run, name=f"upstream {server.name}")
                await anyio.sleep_forever()
            finally:
                self._tasks = None

    async def first_sync(self) -> list[ServerStatus]:
        """Wait until each server is ready, is known without being started, or has failed once.

        Bounded by the servers' connect deadlines.
        """
        return [await server.first_verdict() for server in list(self._servers.values())]

    def meet(self, caller: Caller) -> None:
        """Tell of a host. The first that servers may ask something has the base connections declare what.

        Cheap, and may be told again. A base connection to a legacy server that is up already is made anew, as
        what a server lists may depend on it; one that calls are running on, when it ends.
        """
        if self._first is None and of_caller(caller)[1]:
            self._first = caller
            for server in self._servers.values():
                server.meet(caller)

    async def forget(self, host: HostKey) -> None:
        """A host is gone: end its watches and the connections that only it could use. Raises nothing."""
        first = self._first.host if self._first else None
        if first is not None and first.key == host:
            self._first = None
            for server in self._servers.values():
                server.meet(None)
        for server in list(self._servers.values()):
            await server.forget(host)

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
        """Send a request with raw `params` and return the raw result.

        The deadline, the server's unless given, covers a wait for a server that is still starting, and for other
        hosts' calls where the server may ask the caller's host; one that has failed gets
        `restart_patience_seconds` to come back. The time the host's user takes to answer does not count. A
        request that its server dropped is not repeated: it may have had its effect.

        `caller` is whoever asks; None is the gateway itself, for requests in which a server asks nothing.

        Raises:
            UpstreamError: unavailable, timed out or refused.
        """
        managed = self._managed(server)
        timeout = managed.member.timeout_seconds if timeout_seconds is None else timeout_seconds
        return await managed.request(method, params, caller, timeout, on_progress)

    async def call_tool(
        self,
        server: str,
        tool: str,
        params: Mapping[str, Any],
        *,
        caller: Caller | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> JsonObject:
        """Send `tools/call` with raw `params` (name, arguments, `_meta`) and return the raw result.

        The deadline is the tool's, or else the server's; otherwise as `request`. Raises UpstreamError.
        """
        managed = self._managed(server)
        timeout = managed.member.call_timeout(tool)
        return await managed.request("tools/call", params, caller, timeout, on_progress)

    async def entries(self, kind: ListKind) -> list[Entry]:
        """Every server's entries, servers in configured order; those that are down are left out."""
        found: dict[str, list[JsonObject]] = {}

        async def ask(server: ManagedServer) -> None:
            found[server.name] = await server.entries(kind)

        servers = list(self._servers.values())
        async with anyio.create_task_group() as tasks:
            for server in servers:
                tasks.start_soon(ask, server)
        return [Entry(server.name, raw) for server in servers for raw in found[server.name]]

    async def watch(self, server: str, uri: str, host_key: HostKey) -> None:
        """Have `on_change` told of updates of a resource while any host watches it. Raises UpstreamError."""
        await self._managed(server).watch(uri, host_key)

    async def unwatch(self, server: str, uri: str, host_key: HostKey) -> None:
        """End a host's watch. Raises UpstreamError; the watch has ended all the same."""
        await self._managed(server).unwatch(uri, host_key)

    async def apply(self, members: Iterable[Member]) -> None:
        """Go over to other members: only servers that are new, gone or reached in another way are touched."""
        async with self._applying:
            before, wanted = self._servers, {member.spec.server: member for member in members}
            same = {
                name
                for name, member in wanted.items()
                if name in before and before[name].member.spec == member.spec
            }
            self._servers = {
                name: before[name] if name in same else self._successor(member, before.get(name))
                for name, member in wanted.items()
            }
            for name in same:
                before[name].reconfigure(wanted[name])
            async with anyio.create_task_group() as stopping:
                for name in before.keys() - same:
                    stopping.start_soon(before[name].stop)
            for name in before.keys() - wanted.keys():
                self._drop(name)
            self._start(self._servers[name] for name in wanted if name not in same)

    def take(self, server: str, listing: Listing) -> None:
        """Put a server's listing into the catalogue, as far as the review lets it through."""
        if server not in self._servers:
            return  # it was removed meanwhile
        self._replace(server, self._catalog.with_server(server, self._review(server, listing)))

    def _managed(self, server: str) -> ManagedServer:
        managed = self._servers.get(server)
        if managed is None:
            raise UpstreamUnavailable(server, f"no server named {server!r} is configured")
        return managed

    def _successor(self, member: Member, before: ManagedServer | None) -> ManagedServer:
        watches = before.watches if before else None
        return ManagedServer(member, self._parts, first=self._first, watches=watches)

    def _start(self, servers: Iterable[ManagedServer]) -> None:
        for server in servers:
            if self._tasks is not None:
                self._tasks.start_soon(server.run, name=f"upstream {server.name}")

    def _drop(self, server: str) -> None:
        self._replace(server, self._catalog.without_server(server))
        self._changes.tell(Change("resources", server, {}))
        self._changes.tell(Change("prompts", server, {}))

    def _replace(self, server: str, following: ToolCatalog) -> None:
        if following is not self._catalog:
            self._catalog = following
            self._on_catalog(following)
            self._changes.tell(Change("tools", server, {}))
