"""What hosts get of the upstreams themselves: tools under safe names, resources, prompts, completion, logging.

Written against `RelayFleet`. Results pass verbatim; what is ours is names, routes, and which host hears what.
Knows no transport and no connection.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import structlog
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

from adapters.ports import Era, JsonObject, UpstreamError, UpstreamRefused
from nexus_gateway.access.caller import Caller
from nexus_gateway.fleet.changes import Change
from nexus_gateway.fleet.listings import Entry, ListKind
from nexus_gateway.fleet.status import ServerState
from nexus_gateway.server import rendering
from nexus_gateway.server.exposed import ExposedPrompts, ExposedTools
from nexus_gateway.server.forwarding import Forwarder, Hop
from nexus_gateway.server.host_connection import Context, link_of, without_owned_meta
from nexus_gateway.server.hosts import Hosts
from nexus_gateway.server.large_results import LargeResults
from nexus_gateway.server.meta_calls import MetaCall, MetaCalls
from nexus_gateway.server.meta_tools import META_TOOLS
from nexus_gateway.server.parking import Parking
from nexus_gateway.server.relay_fleet import RelayFleet
from nexus_gateway.server.request_states import RequestStates
from nexus_gateway.server.resource_routes import ResourceRoutes, unique
from nexus_gateway.server.subscriptions import Subscriptions
from nexus_gateway.server.task_routes import TASK_METHODS, TaskRoutes, check_request
from nexus_gateway.settings.snapshot import ExposeSettings
from tool_registry.tool import ToolId

log = structlog.get_logger(__name__)

LEVEL_SECONDS = 5.0
"""For telling every server the log level; one that is slower hears it late."""
_RESOURCE_NOT_FOUND = -32002
_NOT_MINE = frozenset({_RESOURCE_NOT_FOUND, INVALID_PARAMS, METHOD_NOT_FOUND})
"""What a server says of a URI that it does not know: the next one may."""


@dataclass(frozen=True, slots=True)
class RelayParts:
    """What the relay works with.

    Attributes:
        meta_call: handles the meta-tools.
        on_called: told of an exposed tool that a caller called, and that answered without an error.
        patience_seconds: how long a first listing waits for servers that have neither answered nor failed.
    """

    fleet: RelayFleet
    meta_call: MetaCall
    expose: ExposeSettings
    hosts: Hosts
    states: RequestStates
    large_results: LargeResults
    patience_seconds: float = 15.0
    on_called: Callable[[ToolId, Caller], None] = lambda _tool, _caller: None


class Relay:
    """Answers hosts' requests from the upstreams."""

    def __init__(self, parts: RelayParts) -> None:
        self._parts = parts
        self._fleet, self._expose = parts.fleet, parts.expose
        self._meta_names = [tool["name"] for tool in META_TOOLS] if parts.expose.meta_tools else []
        self._tools = ExposedTools(parts.expose, reserved=self._meta_names)
        self._prompts = ExposedPrompts(parts.expose)
        self._routes, self._tasks = ResourceRoutes(), TaskRoutes()
        self._parking = Parking()
        self._meta_calls = MetaCalls(parts.meta_call, parts.states, self._parking)
        self._forwarder = Forwarder(parts.fleet, parts.hosts, parts.states, self._parking)
        self._subscriptions = Subscriptions(parts.fleet, parts.hosts)
        self._heard = False
        self._answers: Mapping[str, Callable[[Context, Caller], Awaitable[JsonObject]]] = {
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "logging/setLevel": self._set_level,
            **dict.fromkeys(TASK_METHODS, self._task),
        }
        parts.fleet.on_change(self._tell_hosts)

    async def run(self) -> None:
        """Own what outlives a request, until cancelled."""
        await self._parking.run()

    def instructions(self) -> Sequence[tuple[str, str]]:
        """Each server known so far that says something about its use."""
        return self._fleet.instructions()

    def exposes(self, name: str) -> bool:
        """Whether `name` is an exposed tool that is known by now."""
        return name not in self._meta_names and self._tools.resolve(self._fleet.catalog, name) is not None

    def input_schema(self, exposed: str) -> Mapping[str, Any] | None:
        """The schema of an exposed tool."""
        found = self._tools.resolve(self._fleet.catalog, exposed)
        tool = self._fleet.catalog.tools.get(ToolId(*found)) if found else None
        schema = tool.input_schema if tool else None
        return schema if isinstance(schema, Mapping) else None

    async def tools(self, caller: Caller) -> list[JsonObject]:
        """The raw definitions of the exposed tools that a caller sees."""
        await self._first_verdicts()
        return self._tools.listed(self._fleet.catalog, caller)

    async def call(self, name: str, arguments: JsonObject, ctx: Context, caller: Caller) -> JsonObject:
        """Handle `tools/call`. Raises MCPError for an upstream's own JSON-RPC error."""
        if name in self._meta_names:
            return await self._meta_calls(name, arguments, ctx, caller)
        return self._parts.large_results.fit(await self._call_exposed(name, ctx, caller), caller)

    async def answer(self, ctx: Context, caller: Caller) -> JsonObject:
        """Handle any other relayed request. Raises MCPError."""
        try:
            return await self._answers[ctx.method](ctx, caller)
        except UpstreamError as error:
            raise _as_mcp_error(error) from error

    async def listen(self, ctx: Context, params: Any) -> Any:
        """Serve `subscriptions/listen`."""
        servers: dict[str, str] = {}
        wanted = params.notifications.resource_subscriptions or []
        if wanted:
            resources, templates = await self._resources(), await self._templates()
            for uri in wanted:
                if owners := self._route(uri, resources, templates):
                    servers[uri] = owners[0]
        return await self._subscriptions.listen(ctx, params, servers)

    # --- tools

    async def _call_exposed(self, name: str, ctx: Context, caller: Caller) -> JsonObject:
        found = self._tools.resolve(self._fleet.catalog, name)
        if found is None:  # a host may remember the name from before our start
            if self._expose.tools != "none":
                await self._first_verdicts()
            found = self._tools.resolve(self._fleet.catalog, name)
        if found is None or not caller.sees(ToolId(*found)):
            return self._unknown(name)
        server, tool = found
        hop = Hop(server, "tools/call", tool, {**without_owned_meta(ctx.params or {}), "name": tool})
        try:
            raw = await self._forwarder.forward(hop, ctx, caller)
        except UpstreamRefused as error:
            raise _as_mcp_error(error) from error
        except UpstreamError as error:
            return rendering.error(str(error))  # a model reads this; a protocol error it may not see
        self._routes.learn(server, raw)
        self._tasks.learn(server, raw)
        if not raw.get("isError"):
            self._parts.on_called(ToolId(server, tool), caller)
        return raw

    def _unknown(self, name: str) -> JsonObject:
        if not self._meta_names:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {name[:200]}")
        known = ", ".join(self._meta_names)
        return rendering.error(
            f"No tool {name[:200]!r}. This gateway has {known}; upstream tools go through call_tool."
        )

    # --- resources

    async def _list_resources(self, ctx: Context, _caller: Caller) -> JsonObject:
        _check_cursor(ctx)
        return {"resources": unique(await self._resources(), "uri")}

    async def _list_templates(self, ctx: Context, _caller: Caller) -> JsonObject:
        _check_cursor(ctx)
        return {"resourceTemplates": unique(await self._templates(), "uriTemplate")}

    async def _read_resource(self, ctx: Context, caller: Caller) -> JsonObject:
        params = without_owned_meta(ctx.params or {})
        uri = params["uri"]
        kept = self._parts.large_results.read(uri, caller)
        if kept is not None:
            return kept
        servers = await self._servers_of(uri, caller)
        for place, server in enumerate(servers, start=1):
            try:
                return await self._forwarder.forward(Hop(server, ctx.method, uri, params), ctx, caller)
            except UpstreamRefused as error:
                if error.code not in _NOT_MINE or place == len(servers):
                    raise
        raise RuntimeError("a URI without servers is refused before")

    async def _subscribe(self, ctx: Context, caller: Caller) -> JsonObject:
        uri = (ctx.params or {})["uri"]
        servers = await self._servers_of(uri, caller)
        await self._subscriptions.subscribe(ctx, servers[0], uri)
        return {}

    async def _unsubscribe(self, ctx: Context, _caller: Caller) -> JsonObject:
        await self._subscriptions.unsubscribe(ctx, (ctx.params or {})["uri"])
        return {}

    async def _servers_of(self, uri: str, caller: Caller) -> list[str]:
        """Whom to ask for a URI, at least one. Raises MCPError."""
        servers = self._route(uri, await self._resources(), await self._templates())
        if not servers:
            code = _RESOURCE_NOT_FOUND if caller.era is Era.LEGACY else INVALID_PARAMS
            raise MCPError(code, f"Resource not found: no connected server lists {uri[:500]}", {"uri": uri})
        return servers

    def _route(self, uri: str, resources: Sequence[Entry], templates: Sequence[Entry]) -> list[str]:
        return self._routes.servers(uri, resources, templates, self._fleet.catalog)

    async def _resources(self) -> Sequence[Entry]:
        return await self._entries(ListKind.RESOURCES)

    async def _templates(self) -> Sequence[Entry]:
        return await self._entries(ListKind.TEMPLATES)

    # --- prompts and completion

    async def _list_prompts(self, ctx: Context, _caller: Caller) -> JsonObject:
        _check_cursor(ctx)
        return {"prompts": self._prompts.listed(await self._entries(ListKind.PROMPTS))}

    async def _get_prompt(self, ctx: Context, caller: Caller) -> JsonObject:
        params = without_owned_meta(ctx.params or {})
        server, name = await self._prompt(params["name"])
        return await self._forwarder.forward(
            Hop(server, ctx.method, name, {**params, "name": name}), ctx, caller
        )

    async def _prompt(self, exposed: str) -> tuple[str, str]:
        found = self._prompts.resolve(await self._entries(ListKind.PROMPTS), exposed)
        if found is None:
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {exposed[:200]}")
        return found

    async def _complete(self, ctx: Context, caller: Caller) -> JsonObject:
        params = without_owned_meta(ctx.params or {})
        ref = params["ref"]
        if ref.get("type") == "ref/prompt":
            server, target = await self._prompt(ref["name"])
            params["ref"] = {**ref, "name": target}
        else:
            target = ref["uri"]
            listed = self._routes.of_template(target, await self._templates())
            server = listed or (await self._servers_of(target, caller))[0]
        return await self._forwarder.forward(Hop(server, ctx.method, target, params), ctx, caller)

    # --- logging and tasks

    async def _set_level(self, ctx: Context, caller: Caller) -> JsonObject:
        """The host's own filter; servers are told the least level that anybody wants."""
        link_of(ctx).level = (ctx.params or {})["level"]
        params = {"level": self._parts.hosts.least_level() or link_of(ctx).level}

        async def tell(server: str) -> None:
            try:
                await self._fleet.request(
                    server, "logging/setLevel", params, caller=caller, timeout_seconds=LEVEL_SECONDS
                )
            except UpstreamError as error:  # many don't log; that is no failure of the host's request
                log.debug("relay.level_refused", server=server, cause=str(error))

        async with anyio.create_task_group() as tasks:
            for one in self._fleet.statuses():
                if one.state is ServerState.READY and one.era is Era.LEGACY:
                    tasks.start_soon(tell, one.server)
        return {}

    async def _task(self, ctx: Context, caller: Caller) -> JsonObject:
        check_request(ctx, caller)
        params = without_owned_meta(ctx.params or {})
        task_id = params.get("taskId")
        server = self._tasks.server(task_id)
        if server is None:
            raise MCPError(INVALID_PARAMS, f"Unknown task: {str(task_id)[:200]}")
        return await self._forwarder.forward(Hop(server, ctx.method, str(task_id), params), ctx, caller)

    # --- the fleet

    async def _entries(self, kind: ListKind) -> Sequence[Entry]:
        await self._first_verdicts()
        return await self._fleet.entries(kind)

    async def _first_verdicts(self) -> None:
        """Once: what a host lists first should be all there is, unless a server takes too long."""
        if not self._heard:
            with anyio.move_on_after(self._parts.patience_seconds):
                await self._fleet.first_sync()
            self._heard = True

    def _tell_hosts(self, change: Change) -> None:
        hosts = self._parts.hosts
        if change.kind == "tools":
            if self._expose.tools != "none":
                hosts.list_changed("tools")
        elif self._expose.pass_through:
            tell: Mapping[str, Callable[[], None]] = {
                "resources": partial(hosts.list_changed, "resources"),
                "prompts": partial(hosts.list_changed, "prompts"),
                "resource": partial(hosts.resource_updated, change.server, change.params),
                "log": partial(hosts.log, change.server, change.params, change.host),
            }
            tell[change.kind]()


def _check_cursor(ctx: Context) -> None:
    """Lists are whole: we give out no cursor, so none can be ours."""
    if (ctx.params or {}).get("cursor") is not None:
        raise MCPError(INVALID_PARAMS, "Unknown cursor: lists of this gateway have one page")


def _as_mcp_error(error: UpstreamError) -> MCPError:
    if isinstance(error, UpstreamRefused):
        return MCPError(error.code, error.message, error.data)
    return MCPError(INTERNAL_ERROR, str(error))
