"""Raw results through the SDK's typed server.

A handler leaves its raw object here and returns a placeholder, which goes through the SDK's checks; a middleware
then answers with the raw object. Of the placeholder only the envelope is kept that a modern host requires of every
result (`resultType`, `ttlMs`, `cacheScope`, the server's stamp), where the raw object does not have it itself.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mcp.server.context import CallNext, HandlerResult

from adapters.ports import JsonObject
from nexus_gateway.server.host_connection import Context

_ENVELOPE = ("resultType", "ttlMs", "cacheScope")


@dataclass(slots=True)
class _Left:
    value: JsonObject | None = None


_left: ContextVar[_Left] = ContextVar("raw_result")


def leave(raw: JsonObject) -> None:
    """Answer the running request with `raw`."""
    _left.get().value = raw


async def answer_raw(ctx: Context, call_next: CallNext) -> HandlerResult:
    """The middleware: the raw object a handler left, or whatever else came of the request."""
    left = _Left()
    token = _left.set(left)
    try:
        placeholder = await call_next(ctx)
    finally:
        _left.reset(token)
    if left.value is None or not isinstance(placeholder, dict):
        return placeholder
    return enveloped(left.value, placeholder)


def enveloped(raw: JsonObject, placeholder: dict[str, Any]) -> JsonObject:
    """The raw object with what its placeholder has of the envelope."""
    if "resultType" not in placeholder:  # a legacy host
        return raw
    complete = raw.get("resultType", "complete") == "complete"
    # An interim result says nothing about caching.
    envelope = {key: placeholder[key] for key in _ENVELOPE if complete and key in placeholder}
    stamp, meta = placeholder.get("_meta") or {}, raw.get("_meta")
    return {**envelope, **raw, "_meta": {**stamp, **(meta if isinstance(meta, dict) else {})}}
