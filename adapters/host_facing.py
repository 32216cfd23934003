"""What a server sends of its own accord: requests for the host, and notifications. All of it raw.

Knows which messages are whose; not who the host is, nor what the messages mean. The SDK's typed callbacks
would drop unknown fields.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import INTERNAL_ERROR, METHOD_NOT_FOUND

from adapters.ports import HostRefused, HostSide, JsonObject

HOST_REQUESTS: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""What a legacy server may ask of a host, and the capability that the host must have declared."""

Hear = Callable[[JsonObject], None]

log = structlog.get_logger(__name__)


class HostFacing:
    """The receiving half of one connection.

    Attributes:
        pushes: whether the server may send requests, as legacy ones may.
        special: what hears the notifications that are not about the connection as a whole, by method.
    """

    def __init__(self, server: str, host: HostSide) -> None:
        self._server = server
        self._host = host
        self.pushes = True
        self.special: dict[str, Hear] = {}

    async def answer(
        self, _context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
    ) -> JsonObject:
        """Answer one request of the server. Raises MCPError, which is the answer then."""
        if method == "ping":
            return {}
        capability = HOST_REQUESTS.get(method)
        if not self.pushes or capability is None:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
        # A server that asks for what was not declared is at fault; its question reaches no host.
        if self._host.ask is None or capability not in self._host.capabilities:
            raise MCPError(METHOD_NOT_FOUND, f"The client did not declare {capability}", method)
        try:
            return await self._host.ask(method, dict(params or {}))
        except HostRefused as refusal:
            raise MCPError(refusal.code, refusal.message, refusal.data) from refusal
        except Exception as error:
            log.warning("upstream.question_failed", server=self._server, method=method, exc_info=True)
            raise MCPError(INTERNAL_ERROR, f"The gateway could not ask the host: {error}") from error

    def hear(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Take one notification, in the order received and without blocking. Nothing is left for others."""
        given = dict(params or {})
        if special := self.special.get(method):
            special(given)
        else:
            self._host.heard(method, _without_subscription(given))
        return True

    async def ignore(
        self, _context: DispatchContext[Any], _method: str, _params: Mapping[str, Any] | None
    ) -> None:
        """For the dispatcher, which wants a second hearer."""


def _without_subscription(params: JsonObject) -> JsonObject:
    """The params without the id of our own `subscriptions/listen`, which means nothing beyond this hop."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or SUBSCRIPTION_ID_META_KEY not in meta:
        return params
    kept = {key: value for key, value in meta.items() if key != SUBSCRIPTION_ID_META_KEY}
    rest = {key: value for key, value in params.items() if key != "_meta"}
    return rest | ({"_meta": kept} if kept else {})
