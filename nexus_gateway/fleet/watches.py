"""Which hosts want to hear of which resources of one server; the server is asked once, whoever many they are."""

from collections.abc import Awaitable, Callable

import anyio
import structlog

from adapters.ports import Upstream, UpstreamError, UpstreamRefused
from nexus_gateway.access.host import HostKey

log = structlog.get_logger(__name__)

MOST = 1_000
"""Resources of one server that are watched at a time."""
RESTORE_SECONDS = 10.0
"""For asking a server that came back for all of them again."""
_INVALID_REQUEST = -32600


class Watches:
    """Reference counts of one server's watched resources."""

    def __init__(self) -> None:
        self._hosts: dict[str, set[HostKey]] = {}
        self._lock = anyio.Lock()  # what is counted and what the server was asked for change together

    def __bool__(self) -> bool:
        return bool(self._hosts)

    async def add(self, uri: str, host: HostKey, connected: Callable[[], Awaitable[Upstream]]) -> None:
        """Count a host in. Raises UpstreamError, and then it is not counted."""
        upstream = await connected()  # before the lock, which a server that starts takes for `restore`
        async with self._lock:
            hosts = self._hosts.get(uri)
            if hosts is None:
                if len(self._hosts) >= MOST:
                    message = f"no more than {MOST} resources of a server can be watched"
                    raise UpstreamRefused(upstream.server, _INVALID_REQUEST, message)
                await upstream.watch_resource(uri)
                hosts = self._hosts[uri] = set()
            hosts.add(host)

    async def remove(self, uri: str, host: HostKey, upstream: Upstream | None) -> None:
        """Count a host out; the last one ends the watch. Raises UpstreamError; it is counted out all the same."""
        async with self._lock:
            hosts = self._hosts.get(uri)
            if hosts is None:
                return
            hosts.discard(host)
            if not hosts:
                del self._hosts[uri]
                if upstream is not None:
                    await upstream.unwatch_resource(uri)

    def of(self, host: HostKey) -> list[str]:
        """What a host watches."""
        return [uri for uri, hosts in self._hosts.items() if host in hosts]

    async def restore(self, upstream: Upstream) -> None:
        """Ask a server that came back for everything again."""
        async with self._lock:
            with anyio.move_on_after(RESTORE_SECONDS):
                for uri in self._hosts:
                    try:
                        await upstream.watch_resource(uri)
                    except UpstreamError as error:
                        log.warning("resource.not_watched", server=upstream.server, cause=str(error))
