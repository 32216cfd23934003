"""The fleet as turns call it: what a modern upstream wants to know is asked of the caller's host in the call."""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.ports import HostRefused, JsonObject, ProgressCallback, UpstreamRefused
from nexus_gateway.access.caller import Caller
from nexus_gateway.server.rounds import until_complete
from nexus_gateway.turn.parts import Calls
from tool_registry.catalog import ToolCatalog


class AskingCalls:
    """`Calls` whose results are never interim."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def catalog(self) -> ToolCatalog:
        """The present snapshot."""
        return self._calls.catalog

    async def first_sync(self) -> Sequence[object]:
        """Wait until each server has listed its tools or has failed once."""
        return await self._calls.first_sync()

    async def call_tool(
        self,
        server: str,
        tool: str,
        params: Mapping[str, Any],
        *,
        caller: Caller | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> JsonObject:
        """Call on behalf of a caller; raises UpstreamError, also with what its host refused."""

        async def send(given: JsonObject) -> JsonObject:
            return await self._calls.call_tool(server, tool, given, caller=caller, on_progress=on_progress)

        try:
            return await until_complete(send, dict(params), caller.host if caller else None)
        except HostRefused as error:
            raise UpstreamRefused(server, error.code, error.message, error.data) from error
