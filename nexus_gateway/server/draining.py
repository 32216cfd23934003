"""The end of an HTTP front: running requests end, new ones are refused, and then it is over.

Knows JSON-RPC as far as to tell a new request from an answer or a notice: what a running call still has to hear (the
answer to its question, its cancellation) passes to the last. Streams that only listen never end by themselves and
hold nothing up.
"""

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

import anyio
import structlog
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nexus_gateway.server.health import Health

RETRY_SECONDS: Final = 2
"""When a refused host may try again; another process has taken over by then, or nobody listens."""
REFUSAL: Final = "the gateway is stopping and takes no new requests; try again in a moment"
_SERVER_ERROR: Final = -32000
_LISTEN: Final = "subscriptions/listen"

log = structlog.get_logger(__name__)


class Draining:
    """Counts what runs, and refuses what is new once `drain` has begun. An ASGI middleware for one path."""

    def __init__(self, path: str, health: Health, *, max_body_bytes: int) -> None:
        self._path = path
        self._health = health
        self._max_body = max_body_bytes
        self._running = 0
        self._changed = anyio.Event()
        self._streams: set[anyio.CancelScope] = set()

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application, counted and guarded."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] != self._path:
                await app(scope, receive, send)
            elif self._health.draining and scope["method"] == "POST":
                await self._late(app, scope, receive, send)
            elif scope["method"] == "GET" or Headers(scope=scope).get("mcp-method") == _LISTEN:
                await self._listening(app, scope, receive, send)
            else:
                await self._counted(app(scope, receive, send))

        return guarded

    async def drain(self, seconds: float) -> None:
        """Refuse new requests, and return when none is running any more, or after `seconds`."""
        self._health.draining = True
        if self._running:
            log.info("http.draining", running=self._running, seconds=seconds)
        with anyio.move_on_after(seconds):
            while self._running:
                self._changed = anyio.Event()
                await self._changed.wait()
        if self._running:
            log.warning("http.cut_off", running=self._running, after_seconds=seconds)
        for stream in self._streams:
            stream.cancel()

    async def _counted(self, request: Awaitable[None]) -> None:
        self._running += 1
        try:
            await request
        finally:
            self._running -= 1
            self._changed.set()

    async def _listening(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """A stream of notices: open until its host closes it or the drain is over."""
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        with anyio.CancelScope() as stream:
            self._streams.add(stream)
            try:
                await app(scope, receive, noted)
            finally:
                self._streams.discard(stream)
        if stream.cancelled_caught and started:
            await send({"type": "http.response.body", "body": b""})
        elif stream.cancelled_caught:
            await _refusal(None)(scope, receive, send)

    async def _late(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive, self._max_body)
        message = _parsed(body)
        if _asks(message):
            request_id = message.get("id") if isinstance(message, dict) else None
            await _refusal(request_id)(scope, receive, send)
        else:
            await app(scope, _again(body, receive), send)


async def _body(receive: Receive, at_most: int) -> bytes:
    """The body, or the beginning of one that is too long, which the application refuses as it always does."""
    parts: list[bytes] = []
    size = 0
    while size <= at_most:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if message["type"] != "http.request" or not message.get("more_body"):
            break
    return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """A `receive` that gives what has been read once more."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def repeated() -> Message:
        return pending.pop() if pending else await receive()

    return repeated


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _asks(message: Any) -> bool:
    """Whether it wants an answer; what is no message at all does too."""
    return not isinstance(message, dict) or ("method" in message) is ("id" in message)


def _refusal(request_id: Any) -> JSONResponse:
    error = {"code": _SERVER_ERROR, "message": REFUSAL}
    return JSONResponse(
        {"jsonrpc": "2.0", "id": request_id if isinstance(request_id, str | int) else None, "error": error},
        HTTPStatus.SERVICE_UNAVAILABLE,
        headers={"retry-after": str(RETRY_SECONDS)},
    )
