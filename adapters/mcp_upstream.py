"""Upstream MCP servers: connections that are opened, negotiated and kept until they end.

Implements `Connect` of `adapters.ports`. Knows the life of one connection; not which servers there are, when
to reconnect, or what their tools mean.
"""

import importlib.metadata
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache

import anyio
import structlog
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError

from adapters.careful_dispatcher import CarefulDispatcher
from adapters.envelope import Envelope
from adapters.host_facing import HostFacing
from adapters.http_transport import open_http
from adapters.link_ending import Ending
from adapters.listen_stream import ListenStream
from adapters.live_upstream import Link, McpUpstream
from adapters.negotiation import Agreement, Introduction, NoAgreementError, negotiate
from adapters.ports import (
    Era,
    HostSide,
    HttpSpec,
    JsonObject,
    StdioSpec,
    TransportSpec,
    Upstream,
    UpstreamError,
    UpstreamSpec,
    UpstreamUnavailable,
)
from adapters.progress_relay import ProgressRelay
from adapters.sse_transport import open_sse
from adapters.stdio_transport import open_stdio
from adapters.upstream_failures import leaf, not_negotiated

LIST_PAGE_SECONDS = 30.0
"""Deadline of one page of a listing."""
CLOSE_SECONDS = 5.0
"""For a polite goodbye (HTTP DELETE); the end of a process has its own bounds, kept beyond this."""
CLOSED_BY_US = "closed by the gateway"

log = structlog.get_logger(__name__)


@asynccontextmanager
async def connect(
    spec: UpstreamSpec, host: HostSide, *, page_timeout_seconds: float = LIST_PAGE_SECONDS
) -> AsyncIterator[Upstream]:
    """Open and negotiate a connection, as `adapters.ports.Connect` describes.

    Raises:
        UpstreamUnavailable: not started, not reached, or no common protocol.
    """
    connection = _Connection(spec, host, page_timeout_seconds)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            try:
                yield await connection.opened()
            finally:
                connection.close()
    except BaseExceptionGroup as group:
        # `run` never raises, so what is in the group is the one error of the caller's own block.
        error = group.exceptions[0]
        raise error from error.__cause__


class _Connection:
    """Owns one connection in a task of its own, so that its failure never cancels the caller's block."""

    def __init__(self, spec: UpstreamSpec, host: HostSide, page_timeout_seconds: float) -> None:
        self._spec = spec
        self._host = host
        self._page_timeout_seconds = page_timeout_seconds
        # Shielded: a cancelled caller still closes in order, within the bounds that `close` sets.
        self._scope = anyio.CancelScope(shield=True)
        self._settled = anyio.Event()
        self._ending = Ending()
        self._upstream: McpUpstream | None = None
        self._failure: UpstreamError | None = None

    async def opened(self) -> Upstream:
        """Wait for the negotiated upstream."""
        await self._settled.wait()
        if self._upstream is None:
            raise self._failure or UpstreamUnavailable(
                self._spec.server, f"{self._spec.server}: not connected"
            )
        return self._upstream

    def close(self) -> None:
        """End the connection; `run` returns soon after."""
        self._ending.set(CLOSED_BY_US)
        if self._upstream is None:
            self._scope.cancel()
        else:
            self._scope.deadline = anyio.current_time() + CLOSE_SECONDS

    async def run(self) -> None:
        """Open, negotiate, serve until the end, clean up. Raises nothing."""
        with self._scope:
            try:
                await self._attempt(self._spec.era or _era_of(self._spec.transport))
                if self._probe_killed_it():
                    # Some legacy servers exit when their first message is not `initialize`.
                    self._ending = Ending()
                    await self._attempt(Era.LEGACY)
            finally:
                self._settled.set()

    def _probe_killed_it(self) -> bool:
        negotiating = self._spec.era is None and isinstance(self._spec.transport, StdioSpec)
        return negotiating and self._upstream is None and self._ending.cause not in {None, CLOSED_BY_US}

    async def _attempt(self, era: Era | None) -> None:
        try:
            await self._serve(era)
        except Exception as error:
            cause = leaf(error)
            if isinstance(cause, UpstreamError):
                self._failure = cause
                return
            # Whoever ends a connection says why; what then breaks in its transport is no news.
            if self._ending.cause in {None, CLOSED_BY_US}:
                log.warning("upstream.transport_failed", server=self._spec.server, exc_info=True)
            else:
                log.debug("upstream.transport_failed", server=self._spec.server, exc_info=True)
            self._failure = UpstreamUnavailable(
                self._spec.server, f"{self._spec.server}: the connection failed: {cause}"
            )

    async def _serve(self, era: Era | None) -> None:
        server, ending = self._spec.server, self._ending
        async with (
            _open(server, self._spec.transport, ending) as dispatcher,
            anyio.create_task_group() as tasks,
        ):
            try:
                facing, progress = HostFacing(server, self._host), ProgressRelay(tasks)
                facing.special["notifications/progress"] = progress.hear
                facing.special["notifications/cancelled"] = _ignore
                await tasks.start(dispatcher.run, facing.answer, facing.ignore, facing.hear)
                agreement = await self._negotiated(dispatcher, era)
                if agreement is None:
                    return
                self._upstream = self._built(dispatcher, agreement, facing, progress, tasks)
                self._settled.set()
                await ending.wait()
            finally:
                # Before the dispatcher wakes its callers, which read the cause.
                ending.set("the connection broke")
                tasks.cancel_scope.cancel()

    async def _negotiated(self, dispatcher: CarefulDispatcher, era: Era | None) -> Agreement | None:
        """Negotiate; on failure None, as raising through task groups would wrap the error."""
        try:
            return await negotiate(dispatcher, era, Introduction(_client_info(), self._host.capabilities))
        except MCPError as error:
            self._failure = not_negotiated(self._spec.server, error, self._ending)
        except NoAgreementError as error:
            self._failure = UpstreamUnavailable(
                self._spec.server, f"{self._spec.server}: its handshake is not usable: {error}"
            )
        return None

    def _built(
        self,
        dispatcher: CarefulDispatcher,
        agreement: Agreement,
        facing: HostFacing,
        progress: ProgressRelay,
        tasks: TaskGroup,
    ) -> McpUpstream:
        server = self._spec.server
        envelope = Envelope(agreement.era, agreement.version, _client_info(), self._host.capabilities)
        listening = None
        if agreement.era is Era.MODERN:
            facing.pushes = False
            listening = ListenStream(server, dispatcher, envelope, agreement.capabilities, self._host.heard)
            facing.special["notifications/subscriptions/acknowledged"] = listening.acknowledged
            facing.special["notifications/cancelled"] = listening.cancelled
            tasks.start_soon(listening.run)
        return McpUpstream(
            Link(
                server,
                dispatcher,
                agreement,
                envelope,
                self._ending,
                progress,
                listening,
                self._page_timeout_seconds,
            )
        )


def _era_of(transport: TransportSpec) -> Era | None:
    # The older HTTP transport went before the modern era came.
    return Era.LEGACY if isinstance(transport, HttpSpec) and transport.sse else None


def _ignore(_params: JsonObject) -> None:
    return  # the dispatcher has applied it


def _open(
    server: str, transport: TransportSpec, ending: Ending
) -> AbstractAsyncContextManager[CarefulDispatcher]:
    if isinstance(transport, StdioSpec):
        return open_stdio(server, transport, ending)
    return open_sse(server, transport, ending) if transport.sse else open_http(server, transport, ending)


@cache
def _client_info() -> JsonObject:
    try:
        version = importlib.metadata.version("nexus-gateway")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        version = "0"
    return {"name": "nexus-gateway", "version": version}
