"""An in-memory upstream for tests of the layers above: scripted tools, the real Protocol and errors.

Knows no process, no network and no SDK. Calls are answered by handlers, may be slow, fail, or end with
the connection, just as those of `adapters.mcp_upstream`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import anyio

from adapters.link_ending import Ending
from adapters.ports import (
    Connect,
    Era,
    HostSide,
    JsonObject,
    ProgressCallback,
    Upstream,
    UpstreamRefused,
    UpstreamSpec,
    UpstreamTimeout,
    UpstreamUnavailable,
)

_METHOD_NOT_FOUND: Final = -32601
_INVALID_PARAMS: Final = -32602


@dataclass(frozen=True, slots=True)
class FakeCall:
    """One `tools/call` as a handler sees it."""

    tool: str
    arguments: JsonObject
    meta: JsonObject
    on_progress: ProgressCallback | None


Handler: TypeAlias = Callable[[FakeCall], Awaitable[JsonObject]]
"""Returns a raw result, or raises one of the upstream errors."""


async def echo(call: FakeCall) -> JsonObject:
    """Answer with the tool and its arguments; the handler of tools that have none."""
    return {"content": [{"type": "text", "text": f"{call.tool} {call.arguments}"}]}


class FakeUpstream:
    """A scripted upstream.

    Attributes:
        requests: every request received, as (method, params), in order.
        tools: entries of `tools/list`; they need not be well-formed.
        cancelled: how many calls were abandoned by their caller or deadline.
    """

    def __init__(
        self,
        server: str,
        tools: Sequence[Any] = (),
        handlers: Mapping[str, Handler] | None = None,
        *,
        era: Era = Era.LEGACY,
        instructions: str | None = None,
        delay_seconds: float = 0.0,
    ) -> None:
        self._server = server
        self._era = era
        self._instructions = instructions
        self._handlers = dict(handlers or {})
        self._delay_seconds = delay_seconds
        self._ending = Ending()
        self._host = HostSide()
        self.tools: list[Any] = list(tools)
        self.requests: list[tuple[str, JsonObject]] = []
        self.cancelled = 0

    @property
    def server(self) -> str:
        """The configured name."""
        return self._server

    @property
    def era(self) -> Era:
        """The era it claims."""
        return self._era

    @property
    def instructions(self) -> str | None:
        """What it says about its use."""
        return self._instructions

    @property
    def calls(self) -> list[JsonObject]:
        """The params of every `tools/call` received."""
        return [params for method, params in self.requests if method == "tools/call"]

    def change_tools(self, tools: Sequence[Any]) -> None:
        """List other tools from now on, and say so."""
        self.tools = list(tools)
        self._host.heard("notifications/tools/list_changed", {})

    def attach(self, host: HostSide) -> None:
        """Whom `change_tools` tells."""
        self._host = host

    def close(self, cause: str) -> None:
        """End the connection: running and later calls are unavailable."""
        self._ending.set(cause)

    async def wait_closed(self) -> str:
        """Return the cause once closed."""
        return await self._ending.wait()

    async def list_tools(self) -> list[Any]:
        """The scripted entries. Raises UpstreamUnavailable once closed."""
        listed = await self.request("tools/list", {}, timeout_seconds=60)
        tools: list[Any] = listed["tools"]
        return tools

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout_seconds: float,
        on_progress: ProgressCallback | None = None,
    ) -> JsonObject:
        """Answer from the script; errors as in `adapters.ports.Upstream`."""
        self.requests.append((method, dict(params)))
        try:
            with anyio.fail_after(timeout_seconds):
                return await self._unless_closed(self._answer(method, params, on_progress))
        except TimeoutError as error:
            message = f"{self._server}: no answer to {method} within {timeout_seconds:g} s"
            raise UpstreamTimeout(self._server, message) from error

    async def _unless_closed(self, answer: Awaitable[JsonObject]) -> JsonObject:
        """Race the answer against the end of the connection."""
        outcome: list[JsonObject | Exception] = []

        async def work() -> None:
            try:
                outcome.append(await answer)
            except anyio.get_cancelled_exc_class():
                self.cancelled += 1
                raise
            except Exception as error:  # noqa: BLE001 - handed to the caller below, outside the task group
                outcome.append(error)
            race.cancel_scope.cancel()

        async with anyio.create_task_group() as race:
            race.start_soon(work)
            cause = await self._ending.wait()
            race.cancel_scope.cancel()
        if not outcome:
            raise UpstreamUnavailable(self._server, f"{self._server}: {cause}")
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        return outcome[0]

    async def _answer(
        self, method: str, params: Mapping[str, Any], on_progress: ProgressCallback | None
    ) -> JsonObject:
        await anyio.sleep(self._delay_seconds)
        if method == "tools/list":
            return {"tools": list(self.tools)}
        if method == "ping":
            return {}
        if method == "tools/call":
            return await self._call(params, on_progress)
        raise UpstreamRefused(self._server, _METHOD_NOT_FOUND, "Method not found", method)

    async def _call(self, params: Mapping[str, Any], on_progress: ProgressCallback | None) -> JsonObject:
        name = params.get("name")
        listed = [tool["name"] for tool in self.tools if isinstance(tool, Mapping) and "name" in tool]
        if not isinstance(name, str) or name not in listed:
            raise UpstreamRefused(self._server, _INVALID_PARAMS, f"Unknown tool: {name}")
        call = FakeCall(name, params.get("arguments") or {}, params.get("_meta") or {}, on_progress)
        return await self._handlers.get(name, echo)(call)


FakeServer: TypeAlias = Callable[[], FakeUpstream]
"""Starts a server: each connection gets a new upstream. May raise UpstreamUnavailable."""


def fake_connect(servers: Mapping[str, FakeServer]) -> Connect:
    """A `Connect` onto in-memory servers by configured name; leaving a connection closes its upstream."""

    @asynccontextmanager
    async def connect(spec: UpstreamSpec, host: HostSide) -> AsyncIterator[Upstream]:
        if spec.server not in servers:
            raise UpstreamUnavailable(spec.server, f"{spec.server}: the command was not found")
        await anyio.lowlevel.checkpoint()
        upstream = servers[spec.server]()
        upstream.attach(host)
        try:
            yield upstream
        finally:
            upstream.close("closed by the gateway")

    return connect
