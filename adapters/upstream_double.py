"""An in-memory upstream for tests of the layers above: scripted tools, resources and prompts, the real Protocol.

Knows no process, no network and no SDK. Requests are answered by handlers, may be slow, fail, ask the host
back, or end with the connection, just as those of `adapters.mcp_upstream`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import anyio

from adapters.link_ending import Ending
from adapters.ports import (
    AskHost,
    Connect,
    Era,
    HostRefused,
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


async def _refuse(method: str, params: JsonObject) -> JsonObject:  # noqa: ARG001 - the shape of AskHost
    raise HostRefused(_METHOD_NOT_FOUND, "Method not found", method)


@dataclass(frozen=True, slots=True)
class FakeCall:
    """One request as a handler sees it.

    Attributes:
        tool: name of the tool; empty for another method than `tools/call`.
        arguments: those of the tool; empty for another method.
        params: the whole raw params.
        host_capabilities: what came with the request; None where nothing did.
        ask: puts a request of the server to the host at the other end; raises HostRefused.
    """

    tool: str
    arguments: JsonObject
    meta: JsonObject
    on_progress: ProgressCallback | None
    method: str = "tools/call"
    params: JsonObject = field(default_factory=dict)
    host_capabilities: JsonObject | None = None
    ask: AskHost = _refuse


Handler: TypeAlias = Callable[[FakeCall], Awaitable[JsonObject]]
"""Returns a raw result, or raises one of the upstream errors."""


async def echo(call: FakeCall) -> JsonObject:
    """Answer with the tool and its arguments; the handler of tools that have none."""
    return {"content": [{"type": "text", "text": f"{call.tool} {call.arguments}"}]}


class FakeUpstream:
    """A scripted upstream.

    Attributes:
        requests: every request received, as (method, params), in order.
        host_capabilities: what came with each of `requests`.
        tools: entries of `tools/list`; they need not be well-formed. Likewise `resources`, `templates`, `prompts`.
        watched: the resources whose updates somebody wants.
        host: the gateway's side of the connection.
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
        resources: Sequence[Any] = (),
        templates: Sequence[Any] = (),
        prompts: Sequence[Any] = (),
        answers: Mapping[str, Handler] | None = None,
        capabilities: JsonObject | None = None,
    ) -> None:
        """`handlers` by tool, `answers` by method; capabilities follow from the lists where they are None."""
        self._server = server
        self._era = era
        self._instructions = instructions
        self._handlers = dict(handlers or {})
        self._answers = dict(answers or {})
        self._capabilities = capabilities
        self._delay_seconds = delay_seconds
        self._ending = Ending()
        self.host = HostSide()
        self.tools: list[Any] = list(tools)
        self.resources: list[Any] = list(resources)
        self.templates: list[Any] = list(templates)
        self.prompts: list[Any] = list(prompts)
        self.requests: list[tuple[str, JsonObject]] = []
        self.host_capabilities: list[JsonObject | None] = []
        self.watched: set[str] = set()
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
    def capabilities(self) -> JsonObject:
        """The scripted ones, else what its lists imply."""
        if self._capabilities is not None:
            return self._capabilities
        implied: JsonObject = {"tools": {"listChanged": True}}
        if self.resources or self.templates:
            implied["resources"] = {"listChanged": True, "subscribe": True}
        if self.prompts:
            implied["prompts"] = {"listChanged": True}
        return implied

    @property
    def calls(self) -> list[JsonObject]:
        """The params of every `tools/call` received."""
        return [params for method, params in self.requests if method == "tools/call"]

    def change_tools(self, tools: Sequence[Any]) -> None:
        """List other tools from now on, and say so."""
        self.tools = list(tools)
        self.say("notifications/tools/list_changed")

    def say(self, method: str, params: JsonObject | None = None) -> None:
        """Send the host a notification."""
        self.host.heard(method, params or {})

    async def ask_host(self, method: str, params: JsonObject) -> JsonObject:
        """Put a request of the server to the host. Raises HostRefused, also where nobody can be asked."""
        return await (self.host.ask or _refuse)(method, params)

    def attach(self, host: HostSide) -> None:
        """Who is told and asked."""
        self.host = host

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

    async def list_entries(self, method: str, key: str) -> list[Any]:
        """The scripted entries; none without the capability. Raises UpstreamError."""
        if method.partition("/")[0] not in self.capabilities:
            return []
        entries: list[Any] = (await self.request(method, {}, timeout_seconds=60))[key]
        return entries

    async def watch_resource(self, uri: str) -> None:
        """Note it in `watched`. Raises UpstreamError."""
        await self.request("resources/subscribe", {"uri": uri}, timeout_seconds=60)

    async def unwatch_resource(self, uri: str) -> None:
        """Take it from `watched`. Raises UpstreamError."""
        await self.request("resources/unsubscribe", {"uri": uri}, timeout_seconds=60)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout_seconds: float,
        on_progress: ProgressCallback | None = None,
        host_capabilities: JsonObject | None = None,
    ) -> JsonObject:
        """Answer from the script; errors as in `adapters.ports.Upstream`."""
        self.requests.append((method, dict(params)))
        self.host_capabilities.append(host_capabilities)
        call = self._call_of(method, params, on_progress, host_capabilities)
        try:
            with anyio.fail_after(timeout_seconds):
                return await self._unless_closed(self._answer(call))
        except TimeoutError as error:
            message = f"{self._server}: no answer to {method} within {timeout_seconds:g} s"
            raise UpstreamTimeout(self._server, message) from error

    def _call_of(
        self,
        method: str,
        params: Mapping[str, Any],
        on_progress: ProgressCallback | None,
        host_capabilities: JsonObject | None,
    ) -> FakeCall:
        tool, arguments = (
            (params.get("name"), params.get("arguments")) if method == "tools/call" else ("", None)
        )
        meta = params.get("_meta") or {}
        return FakeCall(
            str(tool),
            arguments or {},
            meta,
            on_progress,
            method,
            dict(params),
            host_capabilities,
            self.ask_host,
        )

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

    async def _answer(self, call: FakeCall) -> JsonObject:
        await anyio.sleep(self._delay_seconds)
        if call.method == "tools/call":
            return await self._call(call)
        if call.method == "ping":
            return {}
        if call.method in self._answers:
            return await self._answers[call.method](call)
        scripted = self._lists().get(call.method)
        if scripted is None or call.method.partition("/")[0] not in self.capabilities:
            raise UpstreamRefused(self._server, _METHOD_NOT_FOUND, "Method not found", call.method)
        if call.method == "resources/subscribe":
            self.watched.add(call.params["uri"])
        if call.method == "resources/unsubscribe":
            self.watched.discard(call.params["uri"])
        return scripted

    def _lists(self) -> dict[str, JsonObject]:
        return {
            "tools/list": {"tools": list(self.tools)},
            "resources/list": {"resources": list(self.resources)},
            "resources/templates/list": {"resourceTemplates": list(self.templates)},
            "resources/subscribe": {},
            "resources/unsubscribe": {},
            "prompts/list": {"prompts": list(self.prompts)},
        }

    async def _call(self, call: FakeCall) -> JsonObject:
        listed = [tool["name"] for tool in self.tools if isinstance(tool, Mapping) and "name" in tool]
        if call.tool not in listed:
            raise UpstreamRefused(self._server, _INVALID_PARAMS, f"Unknown tool: {call.tool}")
        return await self._handlers.get(call.tool, echo)(call)


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
