"""A server behind the older HTTP+SSE transport: one stream of events in, one POST for each message out.

Knows HTTP and events; nothing of negotiation, tools or eras. Own code rather than the SDK's `sse_client`,
which ends an event of over 1 MiB with the whole connection and goes deaf for good when one POST fails.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urljoin

import anyio
import httpx2
import structlog
from anyio.abc import TaskStatus
from mcp.shared._httpx_utils import request_within_origin, sse_within_origin
from mcp.shared.message import SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)

from adapters.careful_dispatcher import CarefulDispatcher
from adapters.http_failures import (
    CONNECT_SECONDS,
    STALE_SESSION,
    failure_error,
    network_text,
    never_connected,
    shown_url,
    status_text,
)
from adapters.link_ending import Ending
from adapters.ports import HttpSpec, UpstreamUnavailable

ENDPOINT_SECONDS = 10.0
"""For the server to say where messages go."""
POST_SECONDS = 30.0
"""For the server to accept one message; its answer comes as an event."""
MAX_POSTS = 64
"""Under way at once; further messages wait."""
_STALE: Final = frozenset({400, 404, 410})

log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_sse(server: str, spec: HttpSpec, ending: Ending) -> AsyncIterator[CarefulDispatcher]:
    """Open the stream of events. `ending` is set when it ends.

    Raises:
        UpstreamUnavailable: the server is not reached, or it is no SSE server.
    """
    shown = shown_url(server, spec.url)
    timeout = httpx2.Timeout(POST_SECONDS, connect=CONNECT_SECONDS, read=None)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    async with (
        httpx2.AsyncClient(headers=dict(spec.headers), timeout=timeout, limits=limits) as client,
        _events(client, server, shown, spec.url) as events,
        anyio.create_task_group() as tasks,
    ):
        link = _Link(client, shown, spec.url, ending)
        try:
            with anyio.fail_after(ENDPOINT_SECONDS):
                await tasks.start(link.read, events)
        except (TimeoutError, _NotSseError) as error:
            tasks.cancel_scope.cancel()
            link.close()
            cause = (
                str(error) or f"no `endpoint` event within {ENDPOINT_SECONDS:g} s; is this an SSE address?"
            )
            raise UpstreamUnavailable(server, f"{server}: {shown}: {cause}") from error
        tasks.start_soon(link.write)
        yield link.dispatcher
        tasks.cancel_scope.cancel()
        link.close()


@asynccontextmanager
async def _events(
    client: httpx2.AsyncClient, server: str, shown: str, url: str
) -> AsyncIterator[httpx2.EventSource]:
    opening = sse_within_origin(client, url, max_event_size=None)
    try:
        events = await opening.__aenter__()
    except httpx2.RequestError as error:
        raise UpstreamUnavailable(server, f"{server}: {shown}: {network_text(error)}") from error
    try:
        if not events.response.is_success:
            cause = status_text(events.response.status_code)
            raise UpstreamUnavailable(server, f"{server}: {shown} {cause}")
        yield events
    finally:
        await opening.__aexit__(None, None, None)


class _NotSseError(Exception):
    """The server does not do what an SSE server does; the message says what."""


class _Link:
    """Reads events and posts messages."""

    def __init__(self, client: httpx2.AsyncClient, shown: str, url: str, ending: Ending) -> None:
        self._client = client
        self._shown = shown
        self._url = httpx2.URL(url)
        self._endpoint = self._url
        self._ending = ending
        self._to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_server, self._from_session = anyio.create_memory_object_stream[SessionMessage](0)
        self._streams = (self._to_session, from_server, to_server, self._from_session)
        self.dispatcher = CarefulDispatcher(from_server, to_server)

    async def read(
        self, events: httpx2.EventSource, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Hand each message to the session; started once the server said where to post."""
        cause, found = "the server closed the stream of events", False
        try:
            async for event in events:
                if event.event == "endpoint" and not found:
                    self._endpoint = self._within_origin(event.data)
                    found = True
                    task_status.started()
                elif event.event == "message" and event.data:
                    await self._deliver(event.data)
        except httpx2.SSEError as error:
            cause = f"not a stream of events: {error}"
        except httpx2.TransportError as error:
            cause = network_text(error)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the session is over
        if not found:
            raise _NotSseError(cause)
        self._ending.set(f"{self._shown}: {cause}")
        self._to_session.close()

    def _within_origin(self, endpoint: str) -> httpx2.URL:
        # Headers may carry a credential: they are for the configured origin alone.
        url = httpx2.URL(urljoin(str(self._url), endpoint))
        if (url.scheme, url.host, url.port) != (self._url.scheme, self._url.host, self._url.port):
            raise _NotSseError("its `endpoint` event leads to another origin; the server is at fault")
        return url

    async def _deliver(self, data: str) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(data, by_name=False)
        except ValueError:
            log.warning("upstream.rubbish_event", url=self._shown, size=len(data))
            return
        await self._to_session.send(SessionMessage(message))

    async def write(self) -> None:
        """Post what the session sends, many at once; the handshake keeps its order."""
        limit = anyio.Semaphore(MAX_POSTS)
        async with anyio.create_task_group() as posts:
            async for item in self._from_session:
                await limit.acquire()
                if _keeps_its_place(item.message):
                    await self._post(item.message, limit)
                else:
                    posts.start_soon(self._post, item.message, limit)

    async def _post(self, message: JSONRPCMessage, limit: anyio.Semaphore) -> None:
        try:
            cause = await self._refused(message.model_dump_json(by_alias=True, exclude_unset=True))
        finally:
            limit.release()
        if cause is None:
            return
        if not isinstance(message, JSONRPCRequest):
            log.warning("upstream.message_refused", url=self._shown, cause=cause)
            return
        answer = JSONRPCError(jsonrpc="2.0", id=message.id, error=failure_error(cause))
        try:
            await self._to_session.send(SessionMessage(answer))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the session is over, which its callers know

    async def _refused(self, body: str) -> str | None:
        """Post; returns why the server did not take it."""
        headers = {"content-type": "application/json"}
        try:
            with anyio.fail_after(POST_SECONDS):
                response = await request_within_origin(
                    self._client, "POST", self._endpoint, content=body.encode(), headers=headers
                )
        except TimeoutError:
            return f"{self._shown}: a message was not accepted within {POST_SECONDS:g} s"
        except httpx2.RequestError as error:
            cause = f"{self._shown}: {network_text(error)}"
            if never_connected(error):
                self._ending.set(cause)
            return cause
        if response.is_success:
            return None
        if response.status_code in _STALE:
            self._ending.set(f"{self._shown}: {STALE_SESSION}")
            return f"{self._shown}: {STALE_SESSION}"
        return f"{self._shown} {status_text(response.status_code)}"

    def close(self) -> None:
        """Free the streams."""
        for stream in self._streams:
            stream.close()


def _keeps_its_place(message: JSONRPCMessage) -> bool:
    return isinstance(message, JSONRPCNotification) and message.method == "notifications/initialized"
