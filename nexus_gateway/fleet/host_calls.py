"""Requests during which a legacy server may ask a host something.

Each goes over a connection that told the server what this host can be asked, while the host has it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio

from adapters.ports import (
    HostRefused,
    JsonObject,
    ProgressCallback,
    Upstream,
    UpstreamRefused,
    UpstreamTimeout,
)
from nexus_gateway.access.host import Host, HostKey
from nexus_gateway.fleet.further import FurtherConnections
from nexus_gateway.fleet.link import Link

_UNBOUNDED_SECONDS: Final = 86_400.0
"""For the connection's own deadline: the one that counts stops while a question is out."""


class HostCalls:
    """Sends the requests of hosts that one server may ask."""

    def __init__(
        self, server: str, base: Callable[[float], Awaitable[Link]], further: FurtherConnections
    ) -> None:
        """`base` gives the server's base connection, waiting for so many seconds. It raises UpstreamUnavailable."""
        self._server = server
        self._base = base
        self._further = further

    async def request(
        self,
        host: Host | None,
        capabilities: frozenset[str],
        method: str,
        params: Mapping[str, Any],
        *,
        timeout_seconds: float,
        on_progress: ProgressCallback | None,
    ) -> JsonObject:
        """Send one request. The time that the host's user takes to answer questions does not count.

        Raises:
            UpstreamError: as `Upstream.request`; a timeout also where other hosts had the connection all along.
        """
        admitted = False
        with anyio.CancelScope(deadline=anyio.current_time() + timeout_seconds) as scope:
            link, upstream = await self._admitted(host or _NOBODY, capabilities, scope, timeout_seconds)
            admitted, given_up = True, True
            link.begin()
            try:
                result = await upstream.request(
                    method,
                    params,
                    timeout_seconds=timeout_seconds + _UNBOUNDED_SECONDS,
                    on_progress=on_progress,
                )
            except UpstreamRefused:
                given_up = False
                raise
            else:
                given_up = False
                return result
            finally:
                link.end()
                if link.lease is not None:
                    link.lease.leave(scope, given_up=given_up)
                self._further.moved()
        raise self._timed_out(method, timeout_seconds, admitted=admitted)

    async def _admitted(
        self, host: Host, capabilities: frozenset[str], scope: anyio.CancelScope, timeout_seconds: float
    ) -> tuple[Link, Upstream]:
        """A connection that this host may use until it leaves the lease."""
        while True:
            link = await self._base(timeout_seconds)
            if not link.serves(host.key, capabilities):
                link = await self._further.link(host, capabilities)
            if link.lease is not None and not await link.lease.enter(host, scope):
                continue
            if link.upstream is not None:
                return link, link.upstream
            if link.lease is not None:
                link.lease.leave(scope, given_up=False)

    def _timed_out(self, method: str, seconds: float, *, admitted: bool) -> UpstreamTimeout:
        what = (
            f"no answer to {method}"
            if admitted
            else f"{method} did not get its turn among other hosts' calls"
        )
        message = (
            f"{self._server}: {what} within {seconds:g} s; raise `timeout_seconds` of this server or tool"
        )
        return UpstreamTimeout(self._server, f"{message} if it needs longer")


class _Nobody:
    """Stands for callers without a host: nothing can be asked of them."""

    key: HostKey = HostKey("")
    capabilities: JsonObject = {}  # noqa: RUF012 - never changed

    async def ask(self, method: str, params: JsonObject) -> JsonObject:  # noqa: ARG002
        raise HostRefused(-32601, f"{method}: there is no host to ask")


_NOBODY: Final[Host] = _Nobody()
