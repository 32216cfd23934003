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
from adapters.ports import JsonObject

SESSION_HEADER: Final = "mcp-session-id"
SILENCE_SECONDS: Final = 3600.0
"""The longest silence within a response; hosts have shorter deadlines of their own."""
_ACCEPT: Final = {"accept": "application/json, text/event-stream"}
_SSE: Final = "text/event-stream"
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
        """Each message in the answer. Raises BrokenOffError."""
        try:
            if is_json(self.response):
                await self.response.aread()
                if isinstance(message := _object(self.response.text), dict):
                    yield message
            elif self.response.headers.get("content-type", "").lower().startswith(_SSE):
                async for event in httpx2.EventSource(self.response, max_event_size=None):
                    if event.event == "message" and isinstance(message := _object(event.data), dict):
                        yield message
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
            RefusedError: a status that is neither, without a JSON-RPC error in its body.
        """
        body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
        typed = {**_ACCEPT, "content-type": "application/json", **headers}
        request = self._client.build_request("POST", self._url, content=body, headers=typed)
        async with self._sent(request) as reply:
            yield reply

    @asynccontextmanager
    async def listen(self, headers: Mapping[str, str]) -> AsyncIterator[Reply]:
        """Open the stream of what the server says by itself (2025-11-25 and before). Raises as `post`."""
        request = self._client.build_request("GET", self._url, headers={"accept": _SSE, **headers})
        async with self._sent(request) as reply:
            yield reply

    async def end_session(self, headers: Mapping[str, str]) -> None:
        """Say that the session is over; whether that arrives is of no importance."""
        try:
            await self._client.delete(self._url, headers=dict(headers))
        except httpx2.RequestError:
            return

    @asynccontextmanager
    async def _sent(self, request: httpx2.Request) -> AsyncIterator[Reply]:
        try:
            response = await self._client.send(request, stream=True)
        except httpx2.RequestError as error:
            cause = f"{self.shown}: {network_text(error)}"
            raise (NotTakenError(cause) if never_connected(error) else BrokenOffError(cause)) from error
        try:
            await self._check(response)
            yield Reply(response, self.shown, response.headers.get(SESSION_HEADER))
        finally:
            await response.aclose()

    async def _check(self, response: httpx2.Response) -> None:
        if response.is_success:
            return
        try:
            await response.aread()
        except httpx2.RequestError as error:
            raise BrokenOffError(f"{self.shown}: {network_text(error)}") from error
        if SESSION_HEADER in response.request.headers and knows_no_session(response):
            raise SessionLostError(f"{self.shown}: {STALE_SESSION}")
        error_object = rpc_error(response)
        if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE and "retry-after" in response.headers:
            said = (error_object or {}).get("message", "it takes no requests now")
            raise NotTakenError(f"{self.shown}: {said}")
        if error_object is None:
            raise RefusedError(f"{self.shown} {_refusal_text(response)}", response.status_code)


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
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
    async with httpx2.AsyncClient(headers=dict(headers), timeout=timeout, limits=limits) as client:
        yield RawEndpoint(client, url, shown)


def _object(text: str) -> object:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def _refusal_text(response: httpx2.Response) -> str:
    if response.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return f"answered {response.status_code} {response.reason_phrase}; {_RIGHTS}"
    if response.has_redirect_location:
        return f"answered {response.status_code}, a redirect; give the URL that it leads to"
    return status_text(response.status_code)
