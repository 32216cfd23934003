"""The SDK's dispatcher for servers that can't be trusted to answer well.

Knows ids of JSON-RPC requests; nothing of transports, tools or eras. Ids are scattered, so that an answer under a
wrong one (the next, an old one) meets no open call and is dropped, instead of being handed to another caller.
"""

import random
from collections.abc import Mapping
from typing import Any, Final

from mcp.shared.dispatcher import CallOptions
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

SMALLEST_STEP: Final = 16
"""Between two ids of one connection: a server that is off by a few hits none."""
LARGEST_STEP: Final = 1024


class CarefulDispatcher(JSONRPCDispatcher[Any]):
    """Sends under ids that nobody guesses by mistake."""

    _last_id = 0

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        **related: Any,
    ) -> dict[str, Any]:
        """Send a request under a fresh id unless `opts` has one. Raises as `JSONRPCDispatcher` does."""
        options: CallOptions = {"request_id": self._fresh_id(), **(opts or {})}
        return await super().send_raw_request(method, params, options, **related)

    def _fresh_id(self) -> int:
        # Ever larger, so none comes twice; still below 2**31 after four million calls.
        self._last_id += random.randint(SMALLEST_STEP, LARGEST_STEP)  # noqa: S311 - against mistakes, not attacks
        return self._last_id
