"""What went wrong over HTTP, in words for people, and how it travels inside a JSON-RPC error.

Knows statuses, exceptions and answers of the HTTP client; sends nothing. URLs are shown without what may
be secret.
"""

import http
import json
import re
from typing import Any, Final

import httpx2
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, ErrorData

from adapters.ports import UpstreamUnavailable

CONNECT_SECONDS = 10.0
STALE_SESSION: Final = "the server no longer knows this session (was it restarted?); reconnect"
_FAILURE_KEY: Final = "nexus-gateway/httpFailure"
_LOST_STREAM: Final = "SSE stream "
"""How the SDK begins its messages about a response stream that broke."""
_SERVER_ERROR: Final = -32000
_NO_SESSION: Final = re.compile(r"session|not initialized", re.IGNORECASE)
_FIXES: Final = {
    401: "set an `Authorization` header under `headers`",
    403: "check the rights of the credential under `headers`",
    404: "check the path of the URL (it often ends in /mcp)",
    405: 'check that the URL is a streamable HTTP endpoint (an SSE one needs type "sse")',
    429: "wait, or ask for a higher limit",
}


def failure_error(cause: str) -> ErrorData:
    """A JSON-RPC error that stands for a failure of HTTP."""
    return ErrorData(code=INTERNAL_ERROR, message=cause, data={_FAILURE_KEY: cause})


def http_failure(error: ErrorData) -> str | None:
    """The cause, if `error` stands for a failure of HTTP rather than an answer of the server."""
    if isinstance(error.data, dict) and isinstance(cause := error.data.get(_FAILURE_KEY), str):
        return cause
    if error.code == CONNECTION_CLOSED and error.message.startswith(_LOST_STREAM):
        return f"the connection broke during the call ({error.message})"
    return None


def shown_url(server: str, url: str) -> str:
    """The URL without what may be secret: credentials, query, fragment.

    Raises:
        UpstreamUnavailable: it is not usable.
    """
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise UpstreamUnavailable(server, f"{server}: the `url` is not a URL: {error}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise UpstreamUnavailable(
            server, f"{server}: the `url` must begin with http:// or https:// and a host"
        )
    return str(parsed.copy_with(userinfo=b"", query=None, fragment=None))


def status_text(status: int) -> str:
    """What a failed status means and what to do."""
    phrase = http.HTTPStatus(status).phrase if status in set(http.HTTPStatus) else ""
    server_error = httpx2.codes.is_server_error(status)
    otherwise = "see the server's own log" if server_error else "check the URL and `headers`"
    return f"answered {status} {phrase}".rstrip() + f"; {_FIXES.get(status, otherwise)}"


def network_text(error: httpx2.RequestError) -> str:
    """What a failure without an answer means and what to do."""
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


def never_connected(error: httpx2.RequestError) -> bool:
    """Whether the server can't be reached at all, which ends a connection."""
    return isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError)


def is_json(response: httpx2.Response) -> bool:
    """Whether the body claims to be JSON."""
    kind: str = response.headers.get("content-type", "")
    return kind.lower().startswith("application/json")


def rpc_error(response: httpx2.Response) -> dict[str, Any] | None:
    """The JSON-RPC error in the body of a response that has been read."""
    if not is_json(response):
        return None
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or "jsonrpc" not in body:
        return None
    error = body.get("error")
    return error if isinstance(error, dict) else None


def knows_no_session(response: httpx2.Response) -> bool:
    """Whether the answer to a request with a session id says that there is no such session.

    The protocol has 404 for it. Servers on the npm SDK's examples answer 400 with code -32000 and a sentence.
    """
    if response.status_code == http.HTTPStatus.NOT_FOUND:
        return True
    if response.status_code != http.HTTPStatus.BAD_REQUEST:
        return False
    error = rpc_error(response) or {}
    said_so = _NO_SESSION.search(str(error.get("message"))) is not None
    return error.get("code") == _SERVER_ERROR and said_so
