"""A server behind a streamable HTTP URL, on the SDK's transport.

Knows HTTP: statuses, connection failures, the session header. Nothing of negotiation, tools or eras.
The SDK's transport ends the whole connection when one POST fails and hides statuses; the client here
turns each failure into a JSON-RPC error for the request it belongs to, with a cause for people.
"""

import http
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, ErrorData

from adapters.link_ending import Ending
from adapters.ports import HttpSpec, UpstreamUnavailable

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 3600.0
"""The longest silence within a response; requests have their own, shorter deadlines."""
_FAILURE_KEY: Final = "nexus-gateway/httpFailure"
_LOST_STREAM: Final = "SSE stream "
"""How the SDK begins its messages about a response stream that broke."""
_BODY_HEADERS = frozenset({"content-length", "content-type", "content-encoding", "transfer-encoding"})

_FIXES: Final = {
    401: "set an `Authorization` header under `headers`",
    403: "check the rights of the credential under `headers`",
    404: "check the path of the URL (it often ends in /mcp)",
    405: "check that the URL is a streamable HTTP endpoint (not SSE)",
    429: "wait, or ask for a higher limit",
}


@asynccontextmanager
async def open_http(server: str, spec: HttpSpec, ending: Ending) -> AsyncIterator[JSONRPCDispatcher[Any]]:
    """Prepare a connection; the first request dials. `ending` is set when the session or server is lost.

    Raises:
        UpstreamUnavailable: the URL is not usable.
    """
    shown = _shown(server, spec.url)
    # No cap on connections: each open call and listening stream holds one, and callers are capped above.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
    async with (
        _Client(shown, ending, headers=dict(spec.headers), timeout=timeout, limits=limits) as client,
        streamable_http_client(spec.url, http_client=client, max_sse_event_size=None) as (read, write),
    ):
        yield JSONRPCDispatcher(read, write)


def http_failure(error: ErrorData) -> str | None:
    """The cause, if `error` stands for a failure of HTTP rather than an answer of the server."""
    if isinstance(error.data, dict) and isinstance(cause := error.data.get(_FAILURE_KEY), str):
        return cause
    if error.code == CONNECTION_CLOSED and error.message.startswith(_LOST_STREAM):
        return f"the connection broke during the call ({error.message})"
    return None


def _shown(server: str, url: str) -> str:
    """The URL without what may be secret: credentials, query, fragment."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise UpstreamUnavailable(server, f"{server}: the `url` is not a URL: {error}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise UpstreamUnavailable(
            server, f"{server}: the `url` must begin with http:// or https:// and a host"
        )
    return str(parsed.copy_with(userinfo=b"", query=None, fragment=None))


class _Client(httpx2.AsyncClient):
    """Explains failed POSTs in their answers. A subclass, since a transport would switch off proxies."""

    def __init__(self, shown_url: str, ending: Ending, **options: Any) -> None:
        super().__init__(**options)
        self._shown_url = shown_url
        self._ending = ending

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send; a POST always gets an answer."""
        if request.method != "POST":
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
            if _is_json(response):
                await response.aread()
        except httpx2.RequestError as error:
            return self._unanswered(request, error)
        if MCP_SESSION_ID in request.headers and response.status_code == http.HTTPStatus.NOT_FOUND:
            return await self._session_lost(response)
        if response.is_error and not _is_rpc_error(response):
            return await self._explained(response, self._status_text(response.status_code))
        return response

    def _unanswered(self, request: httpx2.Request, error: httpx2.RequestError) -> httpx2.Response:
        cause = f"{self._shown_url}: {_network_text(error)}"
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
            self._ending.set(cause)
        return _failure(502, httpx2.Headers(), request, cause)

    async def _session_lost(self, response: httpx2.Response) -> httpx2.Response:
        cause = f"{self._shown_url}: the server no longer knows this session (was it restarted?); reconnect"
        self._ending.set(cause)
        return await self._explained(response, cause)

    async def _explained(self, response: httpx2.Response, cause: str) -> httpx2.Response:
        await response.aclose()
        return _failure(response.status_code, response.headers, response.request, cause)

    def _status_text(self, status: int) -> str:
        phrase = http.HTTPStatus(status).phrase if status in set(http.HTTPStatus) else ""
        server_error = httpx2.codes.is_server_error(status)
        otherwise = "see the server's own log" if server_error else "check the URL and `headers`"
        fix = _FIXES.get(status, otherwise)
        return f"{self._shown_url} answered {status} {phrase}".rstrip() + f"; {fix}"


def _failure(status: int, headers: httpx2.Headers, request: httpx2.Request, cause: str) -> httpx2.Response:
    error = {"code": INTERNAL_ERROR, "message": cause, "data": {_FAILURE_KEY: cause}}
    kept = [(name, value) for name, value in headers.items() if name.lower() not in _BODY_HEADERS]
    answer = {"jsonrpc": "2.0", "id": None, "error": error}
    return httpx2.Response(status, headers=kept, json=answer, request=request)


def _is_json(response: httpx2.Response) -> bool:
    kind: str = response.headers.get("content-type", "")
    return kind.lower().startswith("application/json")


def _is_rpc_error(response: httpx2.Response) -> bool:
    if not _is_json(response):
        return False
    try:
        body = json.loads(response.content)
    except ValueError:
        return False
    return isinstance(body, dict) and "jsonrpc" in body and isinstance(body.get("error"), dict)


def _network_text(error: httpx2.RequestError) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, httpx2.ConnectTimeout):
        return f"no connection within {CONNECT_SECONDS:g} s; check host, port and network"
    if "certificate" in text.lower() or "ssl" in text.lower():
        return f"no secure connection ({text}); check the scheme, or install the authority of its certificate"
    if any(sign in text for sign in ("not known", "nodename", "resolution", "getaddrinfo", "No address")):
        return f"the host name can't be resolved ({text}); check the URL and the network"
    if isinstance(error, httpx2.ConnectError):
        return f"no connection ({text}); is the server running, are host and port right?"
    return f"the connection broke ({text})"
