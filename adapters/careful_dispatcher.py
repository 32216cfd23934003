"""The SDK's dispatcher for servers that can't be trusted to answer well.

Knows ids and numbers of JSON-RPC messages; nothing of transports, tools or eras. Two things differ: request ids
are scattered, so that an answer under a wrong id (the next one, an old one) meets no open call, and a message
that the SDK can't digest costs that message, not the connection.
"""

import random
from collections.abc import Mapping
from typing import Any, Final

import structlog
from mcp.shared.dispatcher import CallOptions
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

SMALLEST_STEP: Final = 16
"""Between two ids of one connection: a server that is off by a few hits none."""
LARGEST_STEP: Final = 1024

log = structlog.get_logger(__name__)


class CarefulDispatcher(JSONRPCDispatcher[Any]):
    """Drops what answers no open call, and survives what it can't read."""

    _last_id = 0

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        **related: Any,
    ) -> dict[str, Any]:
        """Send a request under a fresh id, as `JSONRPCDispatcher` does."""
        options: CallOptions = {"request_id": self._fresh_id(), **(opts or {})}
        return await super().send_raw_request(method, params, options, **related)

    def _fresh_id(self) -> int:
        # Ever larger, so none comes twice; still below 2**31 after four million calls.
        self._last_id += random.randint(SMALLEST_STEP, LARGEST_STEP)  # noqa: S311 - against mistakes, not attacks
        return self._last_id

    def _dispatch_notification(self, *received: Any) -> None:
        # Progress beyond a double (`1e400` written out) would otherwise end the read loop.
        try:
            super()._dispatch_notification(*received)
        except OverflowError:
            log.warning("upstream.unreadable_notification", fix="the server sent a number beyond a double")
