"""The MCP server: the SDK's protocol machinery, both eras, with raw results and capabilities that never vary.

It is there before the application: what needs the application waits for it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp.server import NotificationOptions, Server
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from pydantic import BaseModel, ConfigDict

from adapters.ports import Era, JsonObject
from nexus_gateway import __version__
from nexus_gateway.access.caller import Caller
from nexus_gateway.server import raw_results
from nexus_gateway.server.host_connection import Context, caller_of, era_of, handshaken, link_of
from nexus_gateway.server.hosts import Hosts
from nexus_gateway.server.instructions import merge
from nexus_gateway.server.meta_tools import INSTRUCTIONS, META_TOOLS
from nexus_gateway.server.task_routes import EXTENSION, TASK_METHODS
from nexus_gateway.settings.snapshot import ExposeSettings

if TYPE_CHECKING:
    from nexus_gateway.server.relay import Relay

Call = Callable[[str, JsonObject, Context, Caller], Awaitable[JsonObject]]

_RELAYED: dict[str, tuple[type[BaseModel], BaseModel]] = {
    "resources/list": (types.PaginatedRequestParams, types.ListResourcesResult(resources=[])),
    "resources/templates/list": (
        types.PaginatedRequestParams,
        types.ListResourceTemplatesResult(resource_templates=[]),
    ),
    "resources/read": (types.ReadResourceRequestParams, types.ReadResourceResult(contents=[])),
    "resources/subscribe": (types.SubscribeRequestParams, types.EmptyResult()),
    "resources/unsubscribe": (types.UnsubscribeRequestParams, types.EmptyResult()),
    "prompts/list": (types.PaginatedRequestParams, types.ListPromptsResult(prompts=[])),
    "prompts/get": (types.GetPromptRequestParams, types.GetPromptResult(messages=[])),
    "completion/complete": (
        types.CompleteRequestParams,
        types.CompleteResult(completion=types.Completion(values=[])),
    ),
    "logging/setLevel": (types.SetLevelRequestParams, types.EmptyResult()),
}
"""Relayed requests: what their params are checked against, and the placeholder of their result."""


_LEGACY_TASKS = types.ServerTasksCapability(
    cancel=types.TasksCancelCapability(),
    requests=types.ServerTasksRequestsCapability(
        tools=types.TasksToolsCapability(call=types.TasksCallCapability())
    ),
)
"""The tasks of 2025-11-25; each tool says itself whether it runs as one."""


class _AnyParams(types.RequestParams):
    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True, slots=True)
class Relaying:
    """What the server relays, and the relay, once it is there.

    Attributes:
        relay: waits for the relay.
        loaded: the relay if it is there already.
    """

    relay: Callable[[], Awaitable["Relay"]]
    loaded: Callable[[], "Relay | None"]
    expose: ExposeSettings = field(default_factory=ExposeSettings)
    hosts: Hosts = field(default_factory=Hosts)


class GatewayServer(Server[Any]):
    """The SDK's server; says that every list may change, whoever asks and whenever."""

    def get_capabilities(self, *_args: Any, **options: Any) -> types.ServerCapabilities:
        """Static: they are told before any upstream is known."""
        changing = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        version = options.get("protocol_version")
        told = super().get_capabilities(changing, protocol_version=version)
        if EXTENSION in self.extensions and version not in MODERN_PROTOCOL_VERSIONS:
            told.tasks, told.extensions = _LEGACY_TASKS, None
        return told


def build_server(
    call: Call, *, on_listed: Callable[[], None] = lambda: None, relaying: Relaying | None = None
) -> Server[Any]:
    """The server for one process.

    Args:
        call: handles `tools/call`: name, arguments, context and caller to a raw result.
        on_listed: told when `tools/list` is asked for; heavy start-up work waits for it.
        relaying: what of the upstreams hosts see; None relays nothing.
    """
    expose = relaying.expose if relaying else ExposeSettings(pass_through=False)

    async def list_tools(ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        on_listed()
        tools: list[Any] = list(META_TOOLS) if expose.meta_tools else []
        if relaying is not None and expose.tools != "none":
            tools += await (await relaying.relay()).tools(caller_of(ctx))
        raw_results.leave({"tools": tools})
        return types.ListToolsResult(tools=[])

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        raw_results.leave(await call(params.name, params.arguments or {}, ctx, caller_of(ctx)))
        return types.CallToolResult(content=[])

    server = GatewayServer(
        "nexus-gateway",
        version=__version__,
        title="Nexus gateway",
        get_tool_input_schema=_schema_lookup(relaying),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    if relaying is not None and expose.pass_through:
        _add_relayed(server, relaying)
    if not _traced():
        server.middleware.clear()  # the SDK's spans, which nobody would see and each call would pay for
    if relaying is not None and expose.tools != "none":
        server.middleware.append(_straight_call(server, relaying))
    server.middleware += [raw_results.answer_raw, _Greeting(expose, relaying)]
    return server


def _straight_call(server: Server[Any], relaying: Relaying) -> ServerMiddleware[Any]:
    """Middleware that relays a well-formed call of an exposed tool without the SDK's typed detour.

    The params' model and the placeholder's checks are the larger part of our own time in a relayed call. What is
    in any way unusual, or comes before the handshake, goes the long way.
    """
    stamp = {SERVER_INFO_META_KEY: server.server_info_stamp}

    async def straight(ctx: Context, call_next: CallNext) -> HandlerResult:
        params, relay = ctx.params, relaying.loaded()
        if ctx.method != "tools/call" or relay is None or not isinstance(params, dict):
            return await call_next(ctx)
        name, arguments = params.get("name"), params.get("arguments", {})
        if not (isinstance(name, str) and isinstance(arguments, dict) and relay.exposes(name)):
            return await call_next(ctx)
        if ctx.request_id is None or not handshaken(ctx):
            return await call_next(ctx)
        if era_of(ctx) is Era.LEGACY:
            return await relay.call(name, arguments, ctx, caller_of(ctx))
        relaying.hosts.meet(ctx)
        raw = await relay.call(name, arguments, ctx, caller_of(ctx))
        return raw_results.enveloped(raw, {"resultType": "complete", "_meta": stamp})

    return straight


def _traced() -> bool:
    """Whether this process has an OpenTelemetry tracer provider."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _schema_lookup(relaying: Relaying | None) -> Callable[[str], Any]:
    """Schemas for the SDK's check of mirrored headers, which would list all tools for each call otherwise."""

    def lookup(name: str) -> Any:
        relay = relaying.loaded() if relaying else None
        return relay.input_schema(name) if relay else None

    return lookup


def _add_relayed(server: Server[Any], relaying: Relaying) -> None:
    async def listen(ctx: Context, params: types.SubscriptionsListenRequestParams) -> HandlerResult:
        return cast("HandlerResult", await (await relaying.relay()).listen(ctx, params))

    for method, (params_type, placeholder) in _RELAYED.items():
        server.add_request_handler(method, params_type, _relayed(relaying, placeholder))
    server.extensions[EXTENSION] = {}
    for method in TASK_METHODS:
        server.add_request_handler(method, _AnyParams, _relayed(relaying, types.EmptyResult()))
    server.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, listen)


def _relayed(relaying: Relaying, placeholder: BaseModel) -> Callable[[Context, Any], Awaitable[BaseModel]]:
    async def handler(ctx: Context, _params: Any) -> BaseModel:
        raw_results.leave(await (await relaying.relay()).answer(ctx, caller_of(ctx)))
        return placeholder

    return handler


class _Greeting:
    """Middleware of the first messages: instructions as they are known, and who is there to be told things."""

    def __init__(self, expose: ExposeSettings, relaying: Relaying | None) -> None:
        self._ours = INSTRUCTIONS if expose.meta_tools else ""
        self._relaying = relaying

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if self._relaying and era_of(ctx) is Era.MODERN:
            self._relaying.hosts.meet(ctx)
        result = await call_next(ctx)
        if ctx.method in ("initialize", "server/discover") and isinstance(result, dict):
            return self._greeted(ctx, result)
        if ctx.method == "notifications/initialized" and era_of(ctx) is Era.LEGACY and self._relaying:
            self._relaying.hosts.join(link_of(ctx))
        return result

    def _greeted(self, ctx: Context, result: dict[str, Any]) -> JsonObject:
        capabilities = (ctx.params or {}).get("capabilities")
        if ctx.method == "initialize" and isinstance(capabilities, dict):
            link_of(ctx).capabilities = capabilities
        relay = self._relaying.loaded() if self._relaying and self._relaying.expose.pass_through else None
        text = merge(self._ours, relay.instructions() if relay else [])
        return {**result, "instructions": text} if text else result
