"""A server behind a streamable HTTP URL, on the SDK's transport.

Knows HTTP: statuses, connection failures, the session header. Nothing of negotiation, tools or eras.
The SDK's transport ends the whole connection when one POST fails, hides statuses, and sends nothing more
while a notification waits for its answer; the client here turns each failure into a JSON-RPC error for the
request it belongs to, with a cause for people, and sends what needs no place in the order beside the rest.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx2
import structlog
from anyio.abc import TaskGroup
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp_types import JSONRPCRequest

from adapters.careful_dispatcher import CarefulDispatcher
from adapters.http_failures import (
    CONNECT_SECONDS,
    STALE_SESSION,
    failure_error,
    is_json,
    knows_no_session,
    network_text,
    never_connected,
    rpc_error,
    shown_url,
    status_text,
)
from adapters.http_posts import POSTED, Post, PostBody, PostWriter
from adapters.link_ending import Ending
from adapters.ports import HttpSpec

SILENCE_SECONDS = 3600.0
"""The longest silence within a response; requests have their own, shorter deadlines."""
ASIDE_SECONDS = 10.0
"""For a server to accept a notification or an answer."""
MAX_ASIDE = 256
"""Under way at once; further ones hold up what follows them."""
LAST_POSTS_SECONDS = 1.0
"""For notifications that are under way when the connection is closed."""
_BODY_HEADERS: Final = frozenset({"content-length", "content-type", "content-encoding", "transfer-encoding"})

log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_http(server: str, spec: HttpSpec, ending: Ending) -> AsyncIterator[CarefulDispatcher]:
    """Prepare a connection; the first request dials. `ending` is set when the session or server is lost.

    Raises:
        UpstreamUnavailable: the URL is not usable.
    """
    shown = shown_url(server, spec.url)
    # No cap on connections: each open call and listening stream holds one, and callers are capped above.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
    async with (
        _Client(shown, ending, headers=dict(spec.headers), timeout=timeout, limits=limits) as client,
        _bounded_tasks() as tasks,
    ):
        client.tasks = tasks
        async with streamable_http_client(spec.url, http_client=client, max_sse_event_size=None) as streams:
            read, write = streams
            yield CarefulDispatcher(read, PostWriter(write))


@asynccontextmanager
async def _bounded_tasks() -> AsyncIterator[TaskGroup]:
    async with anyio.create_task_group() as tasks:
        yield tasks
        tasks.cancel_scope.deadline = anyio.current_time() + LAST_POSTS_SECONDS


class _Client(httpx2.AsyncClient):
    """Explains failed POSTs in their answers. A subclass, since a transport would switch off proxies."""

    tasks: TaskGroup

    def __init__(self, shown_url: str, ending: Ending, **options: Any) -> None:
        super().__init__(**options)
        self._shown_url = shown_url
        self._ending = ending
        self._aside = 0

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send; a POST always gets an answer."""
        post = POSTED.get()
        if post is None or request.method not in {"GET", "POST"}:
            return await super().send(request, **options)
        if request.method == "GET":
            return await self._listen(request, post, options)
        if post.keeps_its_place:
            return await self._post(request, post, options)
        self._aside += 1
        if self._aside > MAX_ASIDE:
            await self._post_aside(request)
        else:
            self.tasks.start_soon(self._post_aside, request)
        return httpx2.Response(202, request=request)

    async def _listen(self, request: httpx2.Request, post: Post, options: dict[str, Any]) -> httpx2.Response:
        """Open a stream of notices, or take up the broken stream of one request again."""
        try:
            with post.step() as step:
                response = await super().send(request, **options)
        except httpx2.RequestError as error:
            self._note_unreachable(error)
            raise
        if step.cancelled_caught:
            return _failure(410, httpx2.Headers(), request, "given up by the gateway")
        await self._note_lost_session(request, response)
        of_one_request = isinstance(post.message, JSONRPCRequest)
        _wrap_body(response, post, quiet=not of_one_request)
        return response

    async def _post(self, request: httpx2.Request, post: Post, options: dict[str, Any]) -> httpx2.Response:
        with post.step() as step:
            response = await self._answer(request, options)
        if step.cancelled_caught:
            return _failure(408, httpx2.Headers(), request, "given up by the gateway")
        _wrap_body(response, post, quiet=False)
        return response

    async def _answer(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
            if is_json(response):
                await response.aread()
        except httpx2.RequestError as error:
            self._note_unreachable(error)
            cause = f"{self._shown_url}: {network_text(error)}"
            return _failure(502, httpx2.Headers(), request, cause)
        if await self._note_lost_session(request, response):
            return await self._explained(response, f"{self._shown_url}: {STALE_SESSION}")
        if response.is_error and rpc_error(response) is None:
            return await self._explained(response, f"{self._shown_url} {status_text(response.status_code)}")
        return response

    async def _post_aside(self, request: httpx2.Request) -> None:
        try:
            with anyio.move_on_after(ASIDE_SECONDS):
                response = await self._answer(request, {})
                if response.is_error:
                    log.warning("upstream.message_refused", url=self._shown_url, status=response.status_code)
        finally:
            self._aside -= 1

    def _note_unreachable(self, error: httpx2.RequestError) -> None:
        if never_connected(error):
            self._ending.set(f"{self._shown_url}: {network_text(error)}")

    async def _note_lost_session(self, request: httpx2.Request, response: httpx2.Response) -> bool:
        if MCP_SESSION_ID not in request.headers or not response.is_error:
            return False
        if is_json(response):
            await response.aread()
        lost = knows_no_session(response)
        if lost:
            self._ending.set(f"{self._shown_url}: {STALE_SESSION}")
        return lost

    async def _explained(self, response: httpx2.Response, cause: str) -> httpx2.Response:
        await response.aclose()
        return _failure(response.status_code, response.headers, response.request, cause)


def _wrap_body(response: httpx2.Response, post: Post, *, quiet: bool) -> None:
    if not response.is_closed and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = PostBody(response.stream, post, quiet=quiet)


def _failure(status: int, headers: httpx2.Headers, request: httpx2.Request, cause: str) -> httpx2.Response:
    error = failure_error(cause).model_dump(mode="json")
    kept = [(name, value) for name, value in headers.items() if name.lower() not in _BODY_HEADERS]
    answer = {"jsonrpc": "2.0", "id": None, "error": error}
    return httpx2.Response(status, headers=kept, json=answer, request=request)
