"""Upstream MCP servers: connections that are opened, negotiated and spoken to with raw JSON objects.

Implements `Connect` and `Upstream` of `adapters.ports` on the SDK's dispatcher. Knows the protocol; not
which servers there are, when to reconnect, or what their tools mean. Results never pass through typed
models, which drop unknown fields: `ClientSession` does the handshake and notifications alone.
"""

import importlib.metadata
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any

import anyio
import structlog
from mcp import ClientSession
from mcp.client.session import IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, Implementation, ToolListChangedNotification
from pydantic import ValidationError
from pydantic_core import to_json

from adapters.envelope import Envelope
from adapters.http_transport import http_failure, open_http
from adapters.link_ending import Ending
from adapters.negotiation import negotiate
from adapters.ports import (
    Era,
    HostSide,
    HttpSpec,
    JsonObject,
    ProgressCallback,
    StdioSpec,
    TransportSpec,
    Upstream,
    UpstreamError,
    UpstreamRefused,
    UpstreamSpec,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from adapters.stdio_transport import open_stdio

LIST_PAGE_SECONDS = 30.0
"""Deadline of one page of `tools/list`."""
MAX_LIST_PAGES = 1_000
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


class McpUpstream:
    """One live connection; see `adapters.ports.Upstream`."""

    def __init__(
        self,
        spec: UpstreamSpec,
        session: ClientSession,
        dispatcher: JSONRPCDispatcher[Any],
        envelope: Envelope,
        ending: Ending,
        *,
        page_timeout_seconds: float,
    ) -> None:
        self._server = spec.server
        self._session = session
        self._dispatcher = dispatcher
        self._envelope = envelope
        self._ending = ending
        self._page_timeout_seconds = page_timeout_seconds

    @property
    def server(self) -> str:
        """The configured name."""
        return self._server

    @property
    def era(self) -> Era:
        """The negotiated era."""
        return self._envelope.era

    @property
    def instructions(self) -> str | None:
        """What the server says about its use."""
        return self._session.instructions

    async def list_tools(self) -> list[Any]:
        """Every entry of every page of `tools/list`, raw; none from a server without tools.

        Raises:
            UpstreamError: any of the three.
        """
        capabilities = self._session.server_capabilities
        if capabilities is None or capabilities.tools is None:
            return []
        entries = await self._every_page()
        self._envelope.learn_tools(self._server, entries)
        return entries

    async def _every_page(self) -> list[Any]:
        entries: list[Any] = []
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(MAX_LIST_PAGES):
            page = await self.request(
                "tools/list", {"cursor": cursor} if cursor else {}, timeout_seconds=self._page_timeout_seconds
            )
            entries += self._entries(page, after=entries)
            following = page.get("nextCursor")
            if not isinstance(following, str) or not following:
                return entries
            if following in seen:
                log.warning("upstream.repeated_cursor", server=self._server, tools=len(entries))
                return entries
            seen.add(following)
            cursor = following
        log.warning("upstream.too_many_pages", server=self._server, pages=MAX_LIST_PAGES, tools=len(entries))
        return entries

    def _entries(self, page: JsonObject, *, after: list[Any]) -> list[Any]:
        entries = page.get("tools")
        if isinstance(entries, list):
            return entries
        if not after:
            raise UpstreamUnavailable(
                self._server,
                f"{self._server}: its answer to tools/list has no list `tools`; the server is at fault",
            )
        log.warning("upstream.bad_page", server=self._server, tools=len(after))
        return []

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout_seconds: float,
        on_progress: ProgressCallback | None = None,
    ) -> JsonObject:
        """Send one request and return its raw result. Cancelling the call cancels it upstream.

        Raises:
            UpstreamRefused: the upstream answered with an error.
            UpstreamTimeout: no answer in `timeout_seconds`.
            UpstreamUnavailable: the connection closed before an answer.
        """
        stamped, options = self._envelope.stamp(method, params)
        self._check_sendable(stamped)
        if on_progress is not None:
            options["on_progress"] = on_progress
        try:
            # Not the dispatcher's own timeout, whose clock starts only when the write has ended:
            # a server that doesn't read its stdin would hold the call for ever.
            with anyio.fail_after(timeout_seconds):
                return await self._dispatcher.send_raw_request(method, stamped, options)
        except TimeoutError as error:
            raise self._timed_out(method, timeout_seconds) from error
        except MCPError as error:
            raise _translated(self._server, error, self._ending) from error

    def _check_sendable(self, params: JsonObject) -> None:
        # A lone surrogate would fail in the transport's writer and take every other call down.
        try:
            to_json(params)
        except (ValueError, RecursionError) as error:
            message = f"the arguments can't be written as JSON: {error}"
            raise UpstreamRefused(self._server, INVALID_PARAMS, message) from error

    def _timed_out(self, method: str, seconds: float) -> UpstreamTimeout:
        message = (
            f"{self._server}: no answer to {method} within {seconds:g} s; "
            "raise `timeout_seconds` of this server or tool if it needs longer"
        )
        return UpstreamTimeout(self._server, message)

    async def wait_closed(self) -> str:
        """Return once the connection has ended, with the cause."""
        return await self._ending.wait()


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
                await self._attempt(self._spec.era)
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
        except UpstreamError as error:
            self._failure = error
        except Exception as error:
            log.warning("upstream.transport_failed", server=self._spec.server, exc_info=True)
            self._failure = UpstreamUnavailable(
                self._spec.server, f"{self._spec.server}: the connection failed: {_leaf(error)}"
            )

    async def _serve(self, era: Era | None) -> None:
        ending, info = self._ending, _client_info()
        async with (
            _open(self._spec.server, self._spec.transport, ending) as dispatcher,
            ClientSession(dispatcher=dispatcher, message_handler=self._hear, client_info=info) as session,
        ):
            try:
                envelope = await self._negotiated(session, era)
                if envelope is None:
                    return
                self._upstream = McpUpstream(
                    self._spec,
                    session,
                    dispatcher,
                    envelope,
                    ending,
                    page_timeout_seconds=self._page_timeout_seconds,
                )
                self._settled.set()
                await ending.wait()
            finally:
                # Before the session wakes its callers, which read the cause.
                ending.set("the connection broke")

    async def _negotiated(self, session: ClientSession, era: Era | None) -> Envelope | None:
        """Negotiate; on failure None, as raising through the session would wrap the error in groups."""
        try:
            settled = await negotiate(session, era)
        except MCPError as error:
            self._failure = _not_negotiated(self._spec.server, error, self._ending)
        except (RuntimeError, ValidationError) as error:
            self._failure = UpstreamUnavailable(
                self._spec.server, f"{self._spec.server}: its handshake is not usable: {error}"
            )
        else:
            info = _client_info().model_dump(by_alias=True, mode="json", exclude_none=True)
            # No capabilities: requests of a server to its client are refused by the session.
            return Envelope(settled, session.protocol_version or "", info, {})
        return None

    async def _hear(self, message: IncomingMessage) -> None:
        # Legacy servers push this. Modern ones want a `subscriptions/listen` stream, not opened yet.
        if isinstance(message, ToolListChangedNotification):
            self._host.heard("notifications/tools/list_changed", {})


def _open(
    server: str, transport: TransportSpec, ending: Ending
) -> AbstractAsyncContextManager[JSONRPCDispatcher[Any]]:
    if isinstance(transport, HttpSpec):
        return open_http(server, transport, ending)
    return open_stdio(server, transport, ending)


def _translated(server: str, error: MCPError, ending: Ending) -> UpstreamError:
    data = error.error
    # A live server may use the code of a closed connection as its own: only an ended one counts.
    if data.code == CONNECTION_CLOSED and ending.cause is not None:
        return UpstreamUnavailable(server, f"{server}: {ending.cause}")
    if cause := http_failure(data):
        return UpstreamUnavailable(server, f"{server}: {cause}")
    return UpstreamRefused(server, data.code, data.message, data.data)


def _not_negotiated(server: str, error: MCPError, ending: Ending) -> UpstreamUnavailable:
    translated = _translated(server, error, ending)
    if isinstance(translated, UpstreamUnavailable):
        return translated
    message = f"{server}: refused the handshake: {error.error.message} (code {error.error.code})"
    return UpstreamUnavailable(server, message)


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@cache
def _client_info() -> Implementation:
    try:
        version = importlib.metadata.version("nexus-gateway")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        version = "0"
    return Implementation(name="nexus-gateway", version=version)
