"""The host at the other end of a request: who it is, what it can do, and how to ask it something.

The one place that makes a `Caller`. The SDK hands out no raw channel to a host (its typed requests drop unknown
fields), nor the connection of a request: the two private attributes of its session are read here and nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import anyio
from mcp.server import ServerRequestContext
from mcp.server.connection import Connection
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
    REQUEST_TIMEOUT,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from adapters.ports import Era, HostRefused, JsonObject
from nexus_gateway.access.caller import LOCAL_TENANT, Caller, Principal
from nexus_gateway.access.host import Host, HostKey
from nexus_gateway.server.outbox import Outbox

Context = ServerRequestContext[Any, Any]

ANSWER_SECONDS = 300.0
"""How long a host has to answer an upstream's question."""

CAPABILITY_OF: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""The client capability that each question of an upstream needs."""

_OWNED_META = frozenset(
    {PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY, "progressToken"}
)
_STATE_KEY = "nexus-gateway/host"
_keys = count(1)


@dataclass(slots=True, eq=False)
class HostLink:
    """What is kept of one host connection: of a session for a legacy host, of one request for a modern one.

    Attributes:
        level: the least log level it wants; None where it never said.
        watched: resources it subscribed to, with the server of each.
        outbox: notifications on their way to it.
    """

    connection: Connection
    key: HostKey
    capabilities: JsonObject = field(default_factory=dict)
    level: str | None = None
    watched: dict[str, str] = field(default_factory=dict)
    outbox: Outbox = field(default_factory=Outbox)
    closing: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class HostConnection:
    """A `Host`: questions go over the channel of the request that led to them."""

    __slots__ = ("_channel", "_link")

    def __init__(self, link: HostLink, channel: DispatchContext[Any] | None = None) -> None:
        self._link = link
        self._channel = channel

    @property
    def key(self) -> HostKey:
        """Which connection this is."""
        return self._link.key

    @property
    def capabilities(self) -> JsonObject:
        """The raw client capabilities it declared."""
        return self._link.capabilities

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Put a server's own request to it and return its raw result. Raises HostRefused."""
        capability = CAPABILITY_OF.get(method)
        if capability is None or capability not in self.capabilities:
            raise HostRefused(METHOD_NOT_FOUND, f"the host does not offer {method}")
        # A request that was answered meanwhile has no channel any more; the connection still has.
        channel: DispatchContext[Any] | Connection = self._link.connection
        if self._channel is not None and self._channel.can_send_request:
            channel = self._channel
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                return await channel.send_raw_request(method, without_owned_meta(params))
        except TimeoutError as error:
            message = f"the host did not answer {method} within {ANSWER_SECONDS:g} s"
            raise HostRefused(REQUEST_TIMEOUT, message) from error
        except MCPError as error:
            raise HostRefused(error.code, error.message, error.data) from error


def link_of(ctx: Context) -> HostLink:
    """The link of a request's connection, made with its first message."""
    connection = ctx.session._connection  # noqa: SLF001 - see the module's docstring
    link = connection.state.get(_STATE_KEY)
    if not isinstance(link, HostLink):
        link = connection.state[_STATE_KEY] = HostLink(connection, HostKey(f"host-{next(_keys)}"))
    return link


def handshaken(ctx: Context) -> bool:
    """Whether the connection may be used: a legacy one after `initialize`, a modern one at once."""
    accepted: bool = ctx.session._connection.initialize_accepted  # noqa: SLF001 - see the module's docstring
    return accepted


def channel_of(ctx: Context) -> DispatchContext[Any]:
    """The raw channel of one request."""
    return ctx.session._request_outbound  # noqa: SLF001 - see the module's docstring


def caller_of(ctx: Context) -> Caller:
    """Who is calling, from the connection."""
    link = link_of(ctx)
    if not link.capabilities:
        link.capabilities = _raw_capabilities(ctx)
    return Caller(
        tenant=LOCAL_TENANT,
        principal=Principal("local"),
        era=era_of(ctx),
        can_elicit=_shows_forms(link.capabilities),
        host=HostConnection(link, channel_of(ctx)),
    )


def era_of(ctx: Context) -> Era:
    """The protocol era of a request's connection."""
    return Era.MODERN if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else Era.LEGACY


def can_be_asked(host: Host) -> bool:
    """Whether a host offers to answer any question of an upstream."""
    return any(capability in host.capabilities for capability in CAPABILITY_OF.values())


def without_owned_meta(params: Mapping[str, Any]) -> JsonObject:
    """Params for the next hop: the `_meta` keys that belong to one connection are left behind."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping):
        return dict(params)
    kept = {key: value for key, value in meta.items() if key not in _OWNED_META}
    rest = {key: value for key, value in params.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


def _raw_capabilities(ctx: Context) -> JsonObject:
    """As the host wrote them; for a legacy host they were noted at its handshake, or come from the SDK's model."""
    meta = (ctx.params or {}).get("_meta")
    raw = meta.get(CLIENT_CAPABILITIES_META_KEY) if isinstance(meta, Mapping) else None
    if era_of(ctx) is Era.MODERN and isinstance(raw, dict):
        return raw
    typed = ctx.session.client_capabilities
    return typed.model_dump(by_alias=True, mode="json", exclude_none=True) if typed else {}


def _shows_forms(capabilities: Mapping[str, Any]) -> bool:
    """An empty elicitation capability means forms; one that names only `url` can't show any."""
    elicitation = capabilities.get("elicitation")
    if not isinstance(elicitation, Mapping):
        return False
    return elicitation.get("form") is not None or elicitation.get("url") is None
