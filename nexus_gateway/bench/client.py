"""The one client of all arms: the official SDK's transports and session, with raw requests.

A host's client, so that "direct" costs what it costs a host; raw, so that no typed model is paid for in one
arm and not in another. Knows nothing of what it is connected to.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import Implementation

from adapters.envelope import Envelope
from adapters.ports import Era, JsonObject
from nexus_gateway.bench.errors import BenchError

REQUEST_SECONDS = 120.0
"""Deadline of one request; nothing measured comes near it."""

Target: TypeAlias = tuple[str, ...] | str
"""A command line, or the URL of a streamable HTTP endpoint."""

_LOG_SHOWN = 2_000
_INFO = {"name": "nexus-gateway-bench", "version": "1"}


class Client:
    """One negotiated connection."""

    def __init__(self, dispatcher: JSONRPCDispatcher[Any], envelope: Envelope) -> None:
        self._dispatcher = dispatcher
        self._envelope = envelope

    async def request(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        """The raw result. Raises MCPError for an error, TimeoutError after REQUEST_SECONDS."""
        stamped, options = self._envelope.stamp(method, params)
        with anyio.fail_after(REQUEST_SECONDS):
            return await self._dispatcher.send_raw_request(method, stamped, options)

    async def list_tools(self) -> list[JsonObject]:
        """Every tool of every page."""
        tools: list[JsonObject] = []
        params: JsonObject = {}
        while True:
            page = await self.request("tools/list", params)
            tools += page["tools"]
            if not page.get("nextCursor"):
                return tools
            params = {"cursor": page["nextCursor"]}


@asynccontextmanager
async def open_client(name: str, target: Target, era: Era, *, stderr: Path) -> AsyncIterator[Client]:
    """Start or dial `target` and negotiate `era`. A command's stderr goes to the end of a file.

    Raises:
        BenchError: the handshake failed; names the arm `name`. Inside an exception group, as the SDK has it.
    """
    async with AsyncExitStack() as stack:
        if isinstance(target, str):
            streams = await stack.enter_async_context(streamable_http_client(target))
        else:
            log = stack.enter_context(stderr.open("a", encoding="utf-8"))
            command = StdioServerParameters(command=target[0], args=list(target[1:]))
            streams = await stack.enter_async_context(stdio_client(command, errlog=log))
        dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(*streams)
        info = Implementation.model_validate(_INFO)
        session = await stack.enter_async_context(ClientSession(dispatcher=dispatcher, client_info=info))
        try:
            with anyio.fail_after(REQUEST_SECONDS):
                await (session.initialize() if era is Era.LEGACY else session.discover())
        except (MCPError, TimeoutError) as error:
            cause = str(error) or f"no answer within {REQUEST_SECONDS:g} s"
            raise BenchError(f"{name}: not connected: {cause}\n{end_of(stderr)}".rstrip()) from error
        yield Client(dispatcher, Envelope(era, session.protocol_version or "", _INFO, {}))


def end_of(log: Path) -> str:
    """The last words of a process."""
    return log.read_text(encoding="utf-8", errors="replace")[-_LOG_SHOWN:] if log.exists() else ""
