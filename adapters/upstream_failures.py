"""Errors of the SDK and of HTTP as the errors of `adapters.ports`, in words for people.

Knows codes and texts; holds no connection.
"""

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED

from adapters.http_failures import http_failure
from adapters.link_ending import Ending
from adapters.ports import UpstreamError, UpstreamRefused, UpstreamTimeout, UpstreamUnavailable


def translated(server: str, error: MCPError, ending: Ending) -> UpstreamError:
    """What a failed request means: an answer of the server, or the end of its connection."""
    data = error.error
    # A live server may use the code of a closed connection as its own: only an ended one counts.
    if data.code == CONNECTION_CLOSED and ending.cause is not None:
        return UpstreamUnavailable(server, f"{server}: {ending.cause}")
    if cause := http_failure(data):
        return UpstreamUnavailable(server, f"{server}: {cause}")
    return UpstreamRefused(server, data.code, data.message, data.data)


def not_negotiated(server: str, error: MCPError, ending: Ending) -> UpstreamUnavailable:
    """What a failed handshake means."""
    found = translated(server, error, ending)
    if isinstance(found, UpstreamUnavailable):
        return found
    message = f"{server}: refused the handshake: {error.error.message} (code {error.error.code})"
    return UpstreamUnavailable(server, message)


def timed_out(server: str, method: str, seconds: float) -> UpstreamTimeout:
    """No answer in time."""
    message = (
        f"{server}: no answer to {method} within {seconds:g} s; "
        "raise `timeout_seconds` of this server or tool if it needs longer"
    )
    return UpstreamTimeout(server, message)


def leaf(error: BaseException) -> BaseException:
    """The first exception that is no group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
