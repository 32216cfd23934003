"""The MCP server: the SDK's protocol machinery with raw results.

The SDK's typed results drop unknown fields, so a handler leaves its raw object with a middleware, which
answers with it in place of the placeholder that went through validation.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from adapters.ports import Era, JsonObject
from nexus_gateway import __version__
from nexus_gateway.access.caller import LOCAL_TENANT, Caller, Principal
from nexus_gateway.server.meta_tools import INSTRUCTIONS, META_TOOLS

Context = ServerRequestContext[Any, Any]


@dataclass(slots=True)
class _RawResult:
    value: JsonObject | None = None


_raw_result: ContextVar[_RawResult] = ContextVar("raw_result")


def build_server(
    call: Callable[[str, JsonObject, Context, Caller], Any], *, on_listed: Callable[[], None] = lambda: None
) -> Server[Any]:
    """The server for one process.

    Args:
        call: handles `tools/call`: name, arguments, context and caller to a raw result.
        on_listed: told when `tools/list` is answered; heavy start-up work waits for it.
    """
    tools = [types.Tool.model_validate(definition) for definition in META_TOOLS]

    async def list_tools(
        _ctx: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        on_listed()
        return types.ListToolsResult(tools=tools)

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        _raw_result.get().value = await call(params.name, params.arguments or {}, ctx, caller_of(ctx))
        return types.CallToolResult(content=[])

    server: Server[Any] = Server(
        "nexus-gateway",
        version=__version__,
        title="Nexus gateway",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )

    async def answer_raw(ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        raw = _RawResult()
        token = _raw_result.set(raw)
        try:
            placeholder = await call_next(ctx)
        finally:
            _raw_result.reset(token)
        return placeholder if raw.value is None else _enveloped(raw.value, ctx, server)

    server.middleware.append(answer_raw)
    return server


def _enveloped(raw: JsonObject, ctx: Context, server: Server[Any]) -> JsonObject:
    """What a modern host requires of every result, added where the upstream did not say it."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return raw
    meta = raw.get("_meta")
    stamped = {SERVER_INFO_META_KEY: server.server_info_stamp, **(meta if isinstance(meta, dict) else {})}
    return {"resultType": "complete", **raw, "_meta": stamped}


def caller_of(ctx: Context) -> Caller:
    """Who is calling, from the connection: the one place where a `Caller` is made."""
    capabilities = ctx.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    # An empty elicitation capability means forms; one that names only `url` can't show any.
    forms = elicitation is not None and (elicitation.form is not None or elicitation.url is None)
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return Caller(
        tenant=LOCAL_TENANT,
        principal=Principal("local"),
        era=Era.MODERN if modern else Era.LEGACY,
        can_elicit=forms,
    )
