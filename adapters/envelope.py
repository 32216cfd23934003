"""What a connection adds to each request it sends: the `_meta` envelope and the HTTP headers of its era.

Knows names of keys and headers (taken from the SDK); sends nothing. The SDK's own stamp is private and
tied to its typed requests, hence this one for raw requests.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from adapters.ports import Era, JsonObject

CONNECTION_OWNED_META: Final = frozenset(
    {PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY, "progressToken"}
)
"""`_meta` keys that belong to one connection and never cross to the next.

A foreign progress token could equal the id of another request here and misroute its progress.
"""

_NAMES: Final = {
    **NAME_BEARING_METHODS,
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}
"""Which param a method's `Mcp-Name` header repeats; the SDK does not know the tasks extension."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Envelope:
    """The stamp of one negotiated connection.

    Attributes:
        version: the negotiated protocol revision.
        client_info: who the gateway says it is; modern requests carry it.
        capabilities: what the gateway declares to this upstream; modern requests carry it, or else those of the
            host that asks.
    """

    era: Era
    version: str
    client_info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    _argument_headers: dict[str, dict[tuple[str, ...], str]] = field(default_factory=dict)

    def learn_tools(self, server: str, definitions: Iterable[object]) -> None:
        """Note which arguments the listed tools mirror into headers (`x-mcp-header`, 2026-07-28)."""
        if self.era is Era.MODERN:
            listed = (entry for entry in definitions if isinstance(entry, Mapping))
            self._argument_headers = dict(_argument_headers(server, listed))

    def stamp(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        host_capabilities: Mapping[str, Any] | None = None,
        progress_token: str | None = None,
    ) -> tuple[JsonObject, CallOptions]:
        """The params and options to send: the caller's `_meta` is kept, connection-owned keys are ours."""
        given = params.get("_meta")
        meta = (
            {k: v for k, v in given.items() if k not in CONNECTION_OWNED_META}
            if isinstance(given, Mapping)
            else {}
        )
        stamped = {key: value for key, value in params.items() if key != "_meta"}
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version}
        if self.era is Era.MODERN:
            meta |= self._meta(host_capabilities)
            headers |= self._modern_headers(method, stamped)
        if progress_token is not None:
            meta["progressToken"] = progress_token
        if meta:
            stamped["_meta"] = meta
        return stamped, {"headers": headers}

    def _meta(self, host_capabilities: Mapping[str, Any] | None) -> JsonObject:
        return {
            PROTOCOL_VERSION_META_KEY: self.version,
            CLIENT_INFO_META_KEY: self.client_info,
            CLIENT_CAPABILITIES_META_KEY: self.capabilities
            if host_capabilities is None
            else host_capabilities,
        }

    def _modern_headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        headers = {MCP_METHOD_HEADER: method}
        name = params.get(_NAMES.get(method, ""))
        if not isinstance(name, str):
            return headers
        headers[MCP_NAME_HEADER] = encode_header_value(name)
        arguments = params.get("arguments")
        if method == "tools/call" and isinstance(arguments, Mapping):
            headers |= mcp_param_headers(self._argument_headers.get(name, {}), arguments)
        return headers


def _argument_headers(
    server: str, definitions: Iterable[Mapping[str, Any]]
) -> Iterable[tuple[str, dict[tuple[str, ...], str]]]:
    for definition in definitions:
        name, schema = definition.get("name"), definition.get("inputSchema")
        if not isinstance(name, str):
            continue
        if reason := find_invalid_x_mcp_header(schema):
            log.warning("upstream.invalid_header_annotation", server=server, tool=name, reason=reason)
        elif headers := x_mcp_header_map(schema):
            yield name, headers
