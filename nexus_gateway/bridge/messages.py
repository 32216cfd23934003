"""What a bridge has to know of a JSON-RPC message: its kind, its era, and the few that it makes itself."""

from collections.abc import Mapping
from typing import Any, Final

from mcp_types import PROTOCOL_VERSION_META_KEY

from adapters.ports import JsonObject

LISTEN: Final = "subscriptions/listen"
INITIALIZED: Final = "notifications/initialized"
CANCELLED: Final = "notifications/cancelled"
FAILED: Final = -32000
"""A server's own error: here, that there is no answer."""

_KINDS: Final = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}


def is_request(message: Mapping[str, Any]) -> bool:
    """Whether it wants an answer."""
    return "method" in message and "id" in message


def params_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its params; empty where there are none."""
    params = message.get("params")
    return params if isinstance(params, Mapping) else {}


def modern_version(message: Mapping[str, Any]) -> str | None:
    """The protocol version that a message of 2026-07-28 or later carries; None for an older one."""
    meta = params_of(message).get("_meta")
    version = meta.get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, Mapping) else None
    return version if isinstance(version, str) else None


def answers(message: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Whether it is the answer to a request; an error without an id that comes in its stream is one too."""
    if "method" in message or not ("result" in message or "error" in message):
        return False
    return message.get("id") == request["id"] or message.get("id") is None


def failure(request_id: Any, text: str, code: int = FAILED) -> JsonObject:
    """An error answer."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}


def notification(method: str, params: JsonObject | None = None) -> JsonObject:
    """A message that wants no answer."""
    return {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params})


def changed_lists(capabilities: Any) -> list[JsonObject]:
    """That every list may be another one, for a legacy host, of those that the server may change at all."""
    declared = capabilities if isinstance(capabilities, Mapping) else {}
    return [
        notification(f"notifications/{kind}/list_changed")
        for kind in _KINDS
        if isinstance(declared.get(kind), Mapping) and declared[kind].get("listChanged")
    ]


def missed_notices(acknowledgement: Mapping[str, Any]) -> list[JsonObject]:
    """What may have been missed of a subscription that had to be made again, from its acknowledgement."""
    params = params_of(acknowledgement)
    honoured, meta = params.get("notifications"), params.get("_meta")
    if not isinstance(honoured, Mapping):
        return []
    stamp = {"_meta": dict(meta)} if isinstance(meta, Mapping) else {}
    lists = [
        notification(f"notifications/{kind}/list_changed", dict(stamp))
        for kind, flag in _KINDS.items()
        if honoured.get(flag)
    ]
    watched = honoured.get("resourceSubscriptions")
    updated = [
        notification("notifications/resources/updated", {"uri": uri} | stamp)
        for uri in (watched if isinstance(watched, list) else [])
    ]
    return lists + updated
