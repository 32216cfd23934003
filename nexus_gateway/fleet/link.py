"""One connection to a server as calls use it: how busy it is, and whose it is."""

import time

import anyio

from adapters.ports import ConnectionKey, HostSide, Upstream
from nexus_gateway.access.host import HostKey
from nexus_gateway.fleet.lease import Lease


class Link:
    """A connection that is opening, open or closed.

    Attributes:
        lease: whose calls it carries; None where it has no back-channel and anybody's calls go at once.
        upstream: what calls go through; None before it is open and from the moment it is to end.
        in_use: requests on it now.
        last_used: when the last request ended, in seconds of `time.monotonic`.
        cause: why it never opened.
    """

    __slots__ = ("_settled", "_stop", "cause", "host_side", "in_use", "key", "last_used", "lease", "upstream")

    def __init__(self, key: ConnectionKey, host_side: HostSide, lease: Lease | None) -> None:
        self.key = key
        self.host_side = host_side
        self.lease = lease
        self.upstream: Upstream | None = None
        self.in_use = 0
        self.last_used = time.monotonic()
        self.cause = ""
        self._settled = anyio.Event()
        self._stop = anyio.Event()

    @property
    def busy(self) -> bool:
        """Whether somebody uses it or waits to."""
        return bool(self.in_use) or (self.lease is not None and self.lease.busy)

    @property
    def idle_seconds(self) -> float:
        """How long nobody has used it; 0 while it is busy."""
        return 0.0 if self.busy else time.monotonic() - self.last_used

    @property
    def closed(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._stop.is_set()

    def serves(self, host: HostKey, capabilities: frozenset[str]) -> bool:
        """Whether a host with these capabilities may use it."""
        if self.key.capabilities != capabilities or self.closed:
            return False
        return self.lease is None or self.lease.serves(host)

    def open(self, upstream: Upstream) -> None:
        """It is negotiated: calls may come, unless it was closed meanwhile."""
        if self.closed:
            return
        self.upstream = upstream
        self.last_used = time.monotonic()
        self._settled.set()

    def close(self, cause: str = "") -> None:
        """It has ended, or is to end now: no call gets it from here on. `cause` is for one that never opened."""
        if not self._settled.is_set():
            self.cause = cause
        self.upstream = None
        self._stop.set()
        if self.lease is not None:
            self.lease.close()
        self._settled.set()

    def begin(self) -> None:
        """A request goes over it."""
        self.in_use += 1

    def end(self) -> None:
        """A request on it has ended."""
        self.in_use -= 1
        self.last_used = time.monotonic()

    async def settled(self) -> None:
        """Wait until it is open or closed."""
        await self._settled.wait()

    async def until_closed(self) -> str:
        """Wait until somebody closes it."""
        await self._stop.wait()
        return "closed by the gateway"
