"""Calls of meta-tools, in which an upstream may ask something: those of modern hosts can be parked as a whole."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from mcp.shared.exceptions import MCPError

from adapters.ports import Era, JsonObject, ProgressCallback
from nexus_gateway.access.caller import Caller
from nexus_gateway.access.host import Host
from nexus_gateway.server.host_connection import Context, can_be_asked
from nexus_gateway.server.parking import Parking, Questions
from nexus_gateway.server.request_states import RequestState, RequestStates

MetaCall = Callable[[str, JsonObject, Context, Caller], Awaitable[JsonObject]]
"""Handles a meta-tool: name, arguments, context and caller to a raw result."""

_OURS = ""
"""In place of a server's name: the request went to the gateway itself."""


class MetaCalls:
    """Calls the handlers."""

    def __init__(self, handlers: MetaCall, states: RequestStates, parking: Parking) -> None:
        self._handlers = handlers
        self._states = states
        self._parking = parking

    async def __call__(self, name: str, arguments: JsonObject, ctx: Context, caller: Caller) -> JsonObject:
        """The raw result, or an interim one. Raises MCPError."""
        host = caller.host
        if caller.era is Era.LEGACY or host is None or not can_be_asked(host):
            return await self._handlers(name, arguments, ctx, caller)

        async def send(parked: Host, _on_progress: ProgressCallback) -> JsonObject:
            return await self._handlers(name, arguments, ctx, replace(caller, host=parked))

        state = self._parked(name, ctx, caller)
        if state is None or state.parked is None:
            result = await self._parking.begin(host, send, None)
        else:
            responses = (ctx.params or {}).get("inputResponses")
            answers = responses if isinstance(responses, dict) else {}
            result = await self._parking.resume(state.parked, answers, None)
        if not isinstance(result, Questions):
            return result
        state = RequestState(_OURS, ctx.method, name, parked=result.parked)
        sealed = self._states.seal(state, caller)
        return {"resultType": "input_required", "inputRequests": result.requests, "requestState": sealed}

    def _parked(self, name: str, ctx: Context, caller: Caller) -> RequestState | None:
        """The state of a parked call; None for a new one, and for the handlers' own states."""
        token = (ctx.params or {}).get("requestState")
        if not isinstance(token, str):
            return None
        try:
            return self._states.open(token, caller, method=ctx.method, target=name)
        except MCPError:
            return None  # sealed under another key: the handlers say what is wrong with it, if anything is
