"""Subscriptions of hosts to resources: per session for legacy hosts, per stream for modern ones."""

from collections.abc import Awaitable, Callable

import anyio
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, SubscriptionsListenRequestParams, SubscriptionsListenResult

from adapters.ports import UpstreamError
from nexus_gateway.access.host import HostKey
from nexus_gateway.server.host_connection import Context, HostLink, link_of
from nexus_gateway.server.hosts import Hosts
from nexus_gateway.server.relay_fleet import RelayFleet

MAX_WATCHED = 1000
"""Resources one host may subscribe to."""
WATCH_SECONDS = 5.0
"""The acknowledgement of a stream waits this long for its upstreams: what is acknowledged should be heard."""


class Subscriptions:
    """Keeps what upstreams are watched for in step with what hosts want."""

    def __init__(self, fleet: RelayFleet, hosts: Hosts) -> None:
        self._fleet = fleet
        self._listen = ListenHandler(hosts.bus)

    async def subscribe(self, ctx: Context, server: str, uri: str) -> None:
        """Until it unsubscribes or disconnects, a legacy host hears of `uri`. Raises UpstreamError, MCPError."""
        link = link_of(ctx)
        if uri in link.watched:
            return
        if len(link.watched) >= MAX_WATCHED:
            raise MCPError(INVALID_PARAMS, f"a host can subscribe to {MAX_WATCHED} resources at most")
        if not link.watched:
            link.connection.exit_stack.push_async_callback(self._forget, link)
        link.watched[uri] = server
        try:
            await self._fleet.watch(server, uri, link.key)
        except UpstreamError:
            link.watched.pop(uri, None)
            raise

    async def unsubscribe(self, ctx: Context, uri: str) -> None:
        """No more of `uri`; nothing where it was not subscribed to. Raises UpstreamError."""
        link = link_of(ctx)
        server = link.watched.pop(uri, None)
        if server is not None:
            await self._fleet.unwatch(server, uri, link.key)

    async def listen(
        self, ctx: Context, params: SubscriptionsListenRequestParams, servers: dict[str, str]
    ) -> SubscriptionsListenResult:
        """Serve one modern stream; `servers` has the server of each resource it wants that somebody has."""
        key = link_of(ctx).key
        try:
            with anyio.move_on_after(WATCH_SECONDS):
                async with anyio.create_task_group() as tasks:
                    for uri, server in servers.items():
                        tasks.start_soon(_attempt, self._fleet.watch, server, uri, key)
            return await self._listen(ctx, params)
        finally:
            await self._drop(servers, key)

    async def _forget(self, link: HostLink) -> None:
        watched = dict(link.watched)
        link.watched.clear()
        await self._drop(watched, link.key)

    async def _drop(self, servers: dict[str, str], key: HostKey) -> None:
        if not servers:
            return
        with anyio.move_on_after(WATCH_SECONDS, shield=True):
            async with anyio.create_task_group() as tasks:
                for uri, server in servers.items():
                    tasks.start_soon(_attempt, self._fleet.unwatch, server, uri, key)


async def _attempt(
    act: Callable[[str, str, HostKey], Awaitable[None]], server: str, uri: str, key: HostKey
) -> None:
    try:
        await act(server, uri, key)
    except UpstreamError:
        return  # its server is gone: there is nothing to hear, and nothing to end
