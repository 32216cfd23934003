"""The connections of one legacy server besides its base: one more for each set of back-channel capabilities.

Opened when a host with such capabilities calls, stopped when idle. None of them is restarted: the next call opens
a new one.
"""

import math
from collections.abc import Awaitable, Callable

import anyio
import structlog
from anyio.abc import TaskGroup

from adapters.ports import Connect, ConnectionKey, Upstream, UpstreamError, UpstreamUnavailable
from nexus_gateway.access.host import Host, HostKey
from nexus_gateway.fleet.link import Link
from nexus_gateway.fleet.member import Member
from nexus_gateway.fleet.racing import first_of
from nexus_gateway.fleet.status import describe

log = structlog.get_logger(__name__)

MOST = 8
"""Further connections of one server; the least recently used idle one makes room for another."""
IDLE_STOP_SECONDS = 300.0
"""For servers without `idle_stop_seconds`."""


class FurtherConnections:
    """Opens, shares and stops the further connections of one server."""

    def __init__(
        self,
        member: Callable[[], Member],
        connect: Connect,
        make: Callable[[ConnectionKey, Host], Link],
        greet: Callable[[Upstream], Awaitable[None]],
        *,
        most: int = MOST,
    ) -> None:
        """What a connection needs from outside.

        Args:
            member: the server as it is configured now.
            connect: opens a connection.
            make: a link, its lease and its host side, for a host that is the first to need it.
            greet: tells a new connection what the others were told; raises nothing.
            most: connections at a time.
        """
        self._member = member
        self._connect = connect
        self._make = make
        self._greet = greet
        self._most = most
        self._links: list[Link] = []
        self._tasks: TaskGroup | None = None
        self._moved = anyio.Event()  # replaced whenever a place may have become free

    async def run(self) -> None:
        """Keep the connections until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                await anyio.sleep_forever()
            finally:
                self._tasks = None

    def __len__(self) -> int:
        return len(self._links)

    def upstreams(self) -> list[Upstream]:
        """Those that are open."""
        return [link.upstream for link in self._links if link.upstream is not None]

    async def link(self, host: Host, capabilities: frozenset[str]) -> Link:
        """An open connection for this host, opened if need be. The caller bounds the wait.

        Raises:
            UpstreamUnavailable: it could not be opened.
        """
        while True:
            link = self._present(host.key, capabilities) or self._new(host, capabilities)
            if link is None:
                await self._moved.wait()
                continue
            await link.settled()
            if link.upstream is not None:
                return link
            if link.cause:
                raise UpstreamUnavailable(self._server, link.cause)

    def moved(self) -> None:
        """A call has ended: somebody may wait for an idle connection to make room."""
        self._moved.set()
        self._moved = anyio.Event()

    def forget(self, host: HostKey) -> None:
        """Stop the connections that are this host's alone."""
        for link in self._links:
            if link.lease is not None and link.lease.owner == host:
                link.close()

    @property
    def _server(self) -> str:
        return self._member().spec.server

    def _present(self, host: HostKey, capabilities: frozenset[str]) -> Link | None:
        serving = [link for link in self._links if link.serves(host, capabilities)]
        own = (link for link in serving if link.lease is not None and link.lease.owner == host)
        return next(own, serving[0] if serving else None)

    def _new(self, host: Host, capabilities: frozenset[str]) -> Link | None:
        """A link whose connection is being opened; None where there is no room yet."""
        if self._tasks is None:
            raise UpstreamUnavailable(self._server, f"server {self._server!r} is being stopped")
        if len(self._links) >= self._most:
            self._make_room()
            return None
        link = self._make(ConnectionKey(self._server, capabilities=capabilities), host)
        self._links.append(link)
        self._tasks.start_soon(self._keep, link, name=f"upstream {self._server} for a host")
        return link

    def _make_room(self) -> None:
        if any(link.closed for link in self._links):
            return  # there will be some
        idle = [link for link in self._links if link.upstream is not None and not link.busy]
        if idle:
            max(idle, key=lambda link: link.idle_seconds).close()

    async def _keep(self, link: Link) -> None:
        cause = "closed by the gateway"
        try:
            cause = await self._live(link)
            log.info("upstream.further_closed", server=self._server, cause=cause)
        finally:
            link.close(cause)
            self._links.remove(link)
            self.moved()

    async def _live(self, link: Link) -> str:
        """One connection from beginning to end; returns why it ended."""
        member = self._member()
        seconds = member.connect_timeout_seconds
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as connecting:
            try:
                async with self._connect(member.spec, link.host_side) as upstream:
                    await self._greet(upstream)
                    connecting.deadline = math.inf
                    link.open(upstream)
                    log.info("upstream.further_opened", server=self._server, open=len(self._links))
                    return await self._until_ended(link, upstream)
            except UpstreamError as error:
                return str(error)
            except Exception as error:
                log.debug("upstream.failed", server=self._server, exc_info=True)
                return describe(error)
        return f"server {self._server!r} did not answer within {seconds:g} s (connect_timeout_seconds)"

    async def _until_ended(self, link: Link, upstream: Upstream) -> str:
        # Each closes the link at once: a call that comes before the connection is left must not get it.
        async def until_died() -> str:
            cause = await upstream.wait_closed()
            link.close()
            return cause

        async def until_idle() -> str:
            while True:
                left = (self._member().idle_stop_seconds or IDLE_STOP_SECONDS) - link.idle_seconds
                if left <= 0:
                    link.close()
                    return "idle"
                await anyio.sleep(left)

        return await first_of(until_died, link.until_closed, until_idle)
