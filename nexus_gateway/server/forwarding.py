"""One request to one upstream, with the questions that it may lead to, whatever era either side speaks.

| host   | upstream | a question                                                                          |
|--------|----------|-------------------------------------------------------------------------------------|
| legacy | legacy   | asked in mid-call: the fleet puts it to the caller's host                           |
| legacy | modern   | an interim result: the host is asked here, the request retried with its answers     |
| modern | modern   | an interim result: passed on, with the upstream's state sealed into ours            |
| modern | legacy   | asked in mid-call: the call is parked, the host gets an interim result of ours      |
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mcp.shared.exceptions import MCPError
from mcp_types import LOG_LEVEL_META_KEY

from adapters.ports import Era, HostRefused, JsonObject, ProgressCallback
from nexus_gateway.access.caller import Caller
from nexus_gateway.access.host import Host
from nexus_gateway.server.host_connection import Context, can_be_asked, link_of
from nexus_gateway.server.hosts import Hosts
from nexus_gateway.server.parking import Parking, Questions
from nexus_gateway.server.relay_fleet import RelayFleet
from nexus_gateway.server.request_states import RequestState, RequestStates
from nexus_gateway.server.rounds import is_interim, until_complete, with_state


@dataclass(frozen=True, slots=True)
class Hop:
    """One request as the upstream gets it.

    Attributes:
        target: its tool, prompt or URI, in the upstream's own words.
    """

    server: str
    method: str
    target: str
    params: JsonObject


class Forwarder:
    """Sends hops."""

    def __init__(self, fleet: RelayFleet, hosts: Hosts, states: RequestStates, parking: Parking) -> None:
        self._fleet = fleet
        self._hosts = hosts
        self._states = states
        self._parking = parking

    async def forward(self, hop: Hop, ctx: Context, caller: Caller) -> JsonObject:
        """The upstream's raw result, or an interim one. Raises UpstreamError, MCPError."""
        if caller.era is Era.LEGACY:
            return await self._for_legacy_host(hop, ctx, caller)
        return await self._for_modern_host(hop, ctx, caller)

    async def _for_legacy_host(self, hop: Hop, ctx: Context, caller: Caller) -> JsonObject:
        hop = _with_log_level(hop, link_of(ctx).level)

        async def send(params: JsonObject) -> JsonObject:
            return await self._send(replace(hop, params=params), caller, _progress(ctx))

        try:
            return await until_complete(send, hop.params, caller.host)
        except HostRefused as error:
            raise MCPError(error.code, error.message, error.data) from error

    async def _for_modern_host(self, hop: Hop, ctx: Context, caller: Caller) -> JsonObject:
        if caller.host is None:
            return await self._send(hop, caller, _progress(ctx))
        state = None
        token = hop.params.get("requestState")
        if isinstance(token, str):
            state = self._states.open(token, caller, method=hop.method, target=hop.target)
            hop = replace(hop, server=state.server, params=with_state(hop.params, state.upstream))
        parked = state.parked if state else None
        async with self._hosts.request_log(ctx, hop.server, parked or caller.host.key):
            if parked is None:
                result = await self._begin(hop, ctx, caller, caller.host)
            else:
                responses = hop.params.get("inputResponses")
                answers = responses if isinstance(responses, dict) else {}
                result = await self._parking.resume(parked, answers, _progress(ctx))
        return self._sealed(result, hop, caller)

    async def _begin(self, hop: Hop, ctx: Context, caller: Caller, host: Host) -> JsonObject | Questions:
        if not self._may_ask(hop.server, host):
            return await self._send(hop, caller, _progress(ctx))

        async def send(parked: Host, on_progress: ProgressCallback) -> JsonObject:
            wanted = on_progress if _progress(ctx) else None
            return await self._send(hop, replace(caller, host=parked), wanted)

        return await self._parking.begin(host, send, _progress(ctx))

    def _may_ask(self, server: str, host: Host) -> bool:
        """Whether the server may interrupt the call: a modern one can't, and one that isn't known yet might."""
        return can_be_asked(host) and not any(
            one.server == server and one.era is Era.MODERN for one in self._fleet.statuses()
        )

    def _sealed(self, result: JsonObject | Questions, hop: Hop, caller: Caller) -> JsonObject:
        state = RequestState(hop.server, hop.method, hop.target)
        if isinstance(result, Questions):
            sealed = self._states.seal(replace(state, parked=result.parked), caller)
            return {"resultType": "input_required", "inputRequests": result.requests, "requestState": sealed}
        upstream = result.get("requestState")
        if not is_interim(result) or not isinstance(upstream, str):
            return result
        return {**result, "requestState": self._states.seal(replace(state, upstream=upstream), caller)}

    async def _send(self, hop: Hop, caller: Caller, on_progress: ProgressCallback | None) -> JsonObject:
        if hop.method == "tools/call":
            return await self._fleet.call_tool(
                hop.server, hop.target, hop.params, caller=caller, on_progress=on_progress
            )
        return await self._fleet.request(
            hop.server, hop.method, hop.params, caller=caller, on_progress=on_progress
        )


def _with_log_level(hop: Hop, level: str | None) -> Hop:
    """Modern servers want to be told with each request which messages the host wants."""
    if level is None:
        return hop
    given = hop.params.get("_meta")
    meta = {**(given if isinstance(given, dict) else {}), LOG_LEVEL_META_KEY: level}
    return replace(hop, params={**hop.params, "_meta": meta})


def _progress(ctx: Context) -> ProgressCallback | None:
    """Where progress goes; None where the host did not ask for it, so that the upstream isn't either."""
    meta = (ctx.params or {}).get("_meta")
    wanted = isinstance(meta, Mapping) and meta.get("progressToken") is not None
    return ctx.session.report_progress if wanted else None
