"""One streamable HTTP endpoint, message by message: raw JSON-RPC objects out, and in.

Knows statuses, event streams and the session header, and which failures mean that a message was not taken and may
be sent again. Keeps no session and tries nothing twice: that is its user's business.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import anyio
import httpx2

from adapters.http_failures import (
    CONNECT_SECONDS,
    STALE_SESSION,
    is_json,
    knows_no_session,
    network_text,
    never_connected,
    rpc_error,
    shown_url,
    status_text,
)
from adapters.loopback import is_loopback
from adapters.ports import JsonObject

SESSION_HEADER: Final = "mcp-session-id"
SILENCE_SECONDS: Final = 3600.0
"""The longest silence within a response; hosts have shorter deadlines of their own."""
MAX_MESSAGE_BYTES: Final = 64 * 2**20
"""Of one message that comes in."""
MAX_ERROR_BYTES: Final = 2**20
"""Of the body of a failed response; more of it is not read, nor what takes longer than `ERROR_SECONDS`."""
ERROR_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 3.0
"""How long an unused connection is kept: less than servers do (uvicorn 5 s), else a request meets a closed one."""
_ACCEPT: Final = {"accept": "application/json, text/event-stream"}
_SSE: Final = "text/event-stream"
_LATER: Final = frozenset({HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})
"""A stream of notices may be had later: the last one's end was not noticed, or too many were asked for."""
_RIGHTS: Final = "give the gateway's bearer token with --token-file, --token-keyring or --token-env"


class EndpointError(Exception):
    """A message has no answer; the message says why."""


class NotTakenError(EndpointError):
    """It did not arrive, or the endpoint takes no new requests: it may be sent again."""


class SessionLostError(NotTakenError):
    """The endpoint does not know the session, and did nothing with the message."""


class BrokenOffError(EndpointError):
    """The connection broke after the message was sent; it may have been carried out."""


class RefusedError(EndpointError):
    """The endpoint won't have it, now or later."""

    def __init__(self, cause: str, status: int) -> None:
        super().__init__(cause)
        self.status = status


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one POST or GET.

    Attributes:
        session_id: the session that the answer began, if it did.
    """

    response: httpx2.Response
    shown: str
    session_id: str | None

    async def messages(self) -> AsyncGenerator[JsonObject, None]:
        """Each message in the answer.

        Raises:
            BrokenOffError: the connection broke, or a message has more than `MAX_MESSAGE_BYTES`.
            RefusedError: what came is neither a message nor a stream of them.
        """
        kind = self.response.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            if is_json(self.response):
                body = await _read(self.response, MAX_MESSAGE_BYTES)
                if body is None:
                    raise BrokenOffError(f"{self.shown}: its answer has more than {MAX_MESSAGE_BYTES} bytes")
                if isinstance(message := _object(body), dict):
                    yield message
            elif kind == _SSE:
                async for event in httpx2.EventSource(self.response, max_event_size=MAX_MESSAGE_BYTES):
                    if event.event == "message" and isinstance(message := _object(event.data), dict):
                        yield message
            elif kind and self.response.status_code != HTTPStatus.ACCEPTED:
                raise RefusedError(
                    f"{self.shown} answered with {kind[:80]}, which no MCP server does; is the URL right?",
                    self.response.status_code,
                )
        except httpx2.RequestError as error:
            raise BrokenOffError(f"{self.shown}: {network_text(error)}") from error


class RawEndpoint:
    """Sends messages to one URL.

    Attributes:
        shown: the URL without what may be secret.
    """

    def __init__(self, client: httpx2.AsyncClient, url: str, shown: str) -> None:
        self._client = client
        self._url = url
        self.shown = shown

    @asynccontextmanager
    async def post(self, message: JsonObject, headers: Mapping[str, str]) -> AsyncIterator[Reply]:
        """Send a message.

        Raises:
            NotTakenError: also SessionLostError.
            BrokenOffError: it was sent, and no answer began.
            RefusedError: a status that is neither, without a JSON-RPC error in its body; or it can't be sent.
        """
        typed = {**_ACCEPT, "content-type": "application/json", **headers}
        request = self._request("POST", typed, encoded(message))
        async with self._sent(request, errors_answer=True) as reply:
            yield reply

    @asynccontextmanager
    async def listen(self, headers: Mapping[str, str]) -> AsyncIterator[Reply]:
        """Open the stream of what the server says by itself (2025-11-25 and before).

        Raises:
            NotTakenError: it may be had later; also SessionLostError.
            BrokenOffError: the connection broke.
            RefusedError: there is no such stream.
        """
        request = self._request("GET", {"accept": _SSE, **headers})
        try:
            async with self._sent(request, errors_answer=False) as reply:
                yield reply
        except RefusedError as error:
            if error.status in _LATER or httpx2.codes.is_server_error(error.status):
                raise NotTakenError(str(error)) from error
            raise

    async def end_session(self, headers: Mapping[str, str]) -> None:
        """Say that the session is over; whether that arrives is of no importance."""
        try:
            async with self._sent(self._request("DELETE", headers), errors_answer=True):
                return
        except EndpointError:
            return

    def _request(self, method: str, headers: Mapping[str, str], body: bytes | None = None) -> httpx2.Request:
        try:
            return self._client.build_request(method, self._url, content=body, headers=dict(headers))
        except ValueError as error:  # a session or a version that no header can have
            raise RefusedError(f"{self.shown}: a header can't be sent ({error})", status=0) from error

    @asynccontextmanager
    async def _sent(self, request: httpx2.Request, *, errors_answer: bool) -> AsyncIterator[Reply]:
        """Send a request. With `errors_answer` a JSON-RPC error in a failed response is an answer."""
        try:
            response = await self._client.send(request, stream=True)
        except httpx2.RequestError as error:
            cause = f"{self.shown}: {network_text(error)}"
            raise (NotTakenError(cause) if never_connected(error) else BrokenOffError(cause)) from error
        try:
            answer = await self._checked(response, errors_answer=errors_answer)
            yield Reply(answer, self.shown, response.headers.get(SESSION_HEADER))
        finally:
            await response.aclose()

    async def _checked(self, response: httpx2.Response, *, errors_answer: bool) -> httpx2.Response:
        if response.is_success:
            return response
        try:
            failed = await _whole(response)
        except httpx2.RequestError as error:
            raise BrokenOffError(f"{self.shown}: {network_text(error)}") from error
        if SESSION_HEADER in response.request.headers and knows_no_session(failed):
            raise SessionLostError(f"{self.shown}: {STALE_SESSION}")
        error_object = rpc_error(failed)
        if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE and "retry-after" in response.headers:
            said = (error_object or {}).get("message", "it takes no requests now")
            raise NotTakenError(f"{self.shown}: {said}")
        if error_object is None or not errors_answer:
            raise RefusedError(f"{self.shown} {_refusal_text(response)}", response.status_code)
        return failed


def encoded(message: JsonObject) -> bytes:
    """A message as it is sent, without a line break. Raises RefusedError for one that is nested too deeply."""
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    except (
        UnicodeEncodeError
    ):  # half of a surrogate pair, as of a text that was cut in the middle of an emoji
        return json.dumps(message, separators=(",", ":")).encode()
    except RecursionError as error:  # reading allows a little more than writing
        raise RefusedError("the message is nested too deeply", status=0) from error


@asynccontextmanager
async def open_endpoint(url: str, headers: Mapping[str, str]) -> AsyncIterator[RawEndpoint]:
    """Prepare an endpoint; nothing is dialled yet.

    Args:
        url: of the endpoint itself, `/mcp` included.
        headers: of every request; a credential belongs here.

    Raises:
        UpstreamUnavailable: the URL is not usable.
    """
    shown = shown_url("connect", url)
    # No cap on connections: each open request holds one, and its user caps those.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=IDLE_SECONDS)
    timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
    # A proxy of the environment can't reach this machine's loopback, and the credential is none of its business.
    through_proxy = not is_loopback(httpx2.URL(url).host)
    async with httpx2.AsyncClient(
        headers=dict(headers), timeout=timeout, limits=limits, trust_env=through_proxy
    ) as client:
        yield RawEndpoint(client, url, shown)


async def _read(response: httpx2.Response, at_most: int) -> bytes | None:
    """The body; None of one that is longer."""
    parts, size = [], 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > at_most:
            return None
        parts.append(part)
    return b"".join(parts)


async def _whole(failed: httpx2.Response) -> httpx2.Response:
    """A failed response with its body, which is empty if it is too long or does not end."""
    body = None
    with anyio.move_on_after(ERROR_SECONDS):
        body = await _read(failed, MAX_ERROR_BYTES)
    kind = {"content-type": failed.headers.get("content-type", "")}
    return httpx2.Response(failed.status_code, headers=kind, content=body or b"")


def _object(written: str | bytes) -> object:
    try:
        return json.loads(written) if written else None
    except (ValueError, RecursionError):
        return None


def _refusal_text(response: httpx2.Response) -> str:
    if response.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return f"answered {response.status_code} {response.reason_phrase}; {_RIGHTS}"
    if response.has_redirect_location:
        return f"answered {response.status_code}, a redirect; give the URL that it leads to"
    return status_text(response.status_code)
