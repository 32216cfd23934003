"""The meta-tools at work: check the call, run the turn, ask what it needs, render what it gives."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from adapters.ports import Era, JsonObject, ModelError
from nexus_gateway.access.caller import Caller
from nexus_gateway.routing.corrections import Corrections
from nexus_gateway.server import asking, rendering
from nexus_gateway.server.found_rendering import render_found
from nexus_gateway.server.meta_tools import META_TOOLS
from nexus_gateway.server.questions import question
from nexus_gateway.telemetry.turn_line import log_turn
from nexus_gateway.turn.confirmation import PendingTokens, TokenError
from nexus_gateway.turn.cursors import CursorError
from nexus_gateway.turn.parts import Calls, TurnOptions
from nexus_gateway.turn.result import Outcome, PendingCall, TurnResult
from nexus_gateway.turn.service import TurnService
from nexus_gateway.turn.validation import problems

log = structlog.get_logger(__name__)

Context = ServerRequestContext[Any, Any]

_OWNED_META = frozenset(
    {PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY, "progressToken"}
)
"""`_meta` keys that belong to one connection; never forwarded across it."""

MAX_QUESTIONS = 5
"""Questions in one turn before it ends in the result instead."""

_SCHEMAS = {definition["name"]: definition["inputSchema"] for definition in META_TOOLS}


@dataclass(frozen=True, slots=True)
class HandlerParts:
    """What the handlers work with.

    Attributes:
        fit: an upstream's own result as it may be sent to the caller's host.
        corrections: told of turns and calls; None where nothing is to be learnt from them.
    """

    turns: TurnService
    calls: Calls
    tokens: PendingTokens
    explain: bool
    answer_timeout_seconds: float
    fit: Callable[[JsonObject, Caller], JsonObject] = lambda result, _caller: result
    corrections: Corrections | None = None


class Handlers:
    """One method a meta-tool; each returns a raw result object."""

    def __init__(self, parts: HandlerParts) -> None:
        self._parts = parts
        self._by_name: Mapping[str, Callable[[JsonObject, Context, Caller], Awaitable[JsonObject]]] = {
            "nexus_turn": self._nexus_turn,
            "nexus_read": self._nexus_read,
            "find_tools": self._find_tools,
            "describe_tool": self._describe_tool,
            "call_tool": self._call_tool,
        }

    async def __call__(self, name: str, arguments: JsonObject, ctx: Context, caller: Caller) -> JsonObject:
        """Handle `tools/call` of a meta-tool. Raises MCPError for an upstream's own JSON-RPC error."""
        handler = self._by_name.get(name)
        if handler is None:
            return rendering.error(
                f"No tool {name[:200]!r}. This gateway has {', '.join(self._by_name)}; upstream tools go through call_tool."
            )
        if wrong := problems(arguments, _SCHEMAS[name]):
            return rendering.invalid(name, wrong)
        try:
            return await handler(arguments, ctx, caller)
        except MCPError:
            raise
        except Exception:  # one failing call must not look like a dead gateway
            log.exception("handler.failed", tool=name)
            return rendering.error(f"{name} failed inside the gateway; its log on stderr has the cause.")

    async def _nexus_turn(self, arguments: JsonObject, ctx: Context, caller: Caller) -> JsonObject:
        return await self._turn(arguments, ctx, caller, read_only=False)

    async def _nexus_read(self, arguments: JsonObject, ctx: Context, caller: Caller) -> JsonObject:
        return await self._turn(arguments, ctx, caller, read_only=True)

    async def _turn(
        self, arguments: JsonObject, ctx: Context, caller: Caller, *, read_only: bool
    ) -> JsonObject:
        options = TurnOptions(
            dry_run=bool(arguments.get("dry_run")),
            read_only=read_only,
            meta=_forwarded(ctx),
            on_progress=ctx.session.report_progress,
        )

        async def begin() -> TurnResult:
            return await self._parts.turns.turn(
                arguments["request"], caller, context=arguments.get("context", ""), options=options
            )

        result = await self._with_answers(begin, ctx, caller, options)
        if isinstance(result, dict):
            return result
        log_turn(result, caller, request=arguments["request"])
        if self._parts.corrections is not None:
            self._parts.corrections.turned(arguments["request"], result, caller)
        return rendering.render(result, explain=self._parts.explain, token=self._token(result, caller))

    async def _call_tool(self, arguments: JsonObject, ctx: Context, caller: Caller) -> JsonObject:
        options = TurnOptions(meta=_forwarded(ctx), on_progress=ctx.session.report_progress)
        try:
            confirmed = self._redeem(arguments.get("confirm"), caller)
        except TokenError as error:
            return rendering.error(f"call_tool: {error}.")

        async def begin() -> TurnResult:
            return await self._parts.turns.call(
                arguments["tool"],
                arguments.get("arguments", {}),
                caller,
                options=options,
                confirmed=confirmed,
            )

        result = await self._with_answers(begin, ctx, caller, options)
        if isinstance(result, dict):
            return result
        log_turn(result, caller)
        if self._parts.corrections is not None and result.tool_id is not None and _answered(result):
            self._parts.corrections.called(result.tool_id, caller)
        if result.refused is not None:
            raise MCPError(code=result.refused.code, message=result.refused.message, data=result.refused.data)
        if result.raw is not None:
            return result.raw  # an exact call is relayed without a word of ours
        return rendering.render(result, explain=False, token=self._token(result, caller))

    async def _find_tools(self, arguments: JsonObject, _ctx: Context, caller: Caller) -> JsonObject:
        try:
            page = await self._parts.turns.find(
                arguments["query"], caller, limit=arguments.get("limit"), cursor=arguments.get("cursor")
            )
        except ModelError as error:
            return rendering.error(str(error))
        except CursorError as error:
            return rendering.error(f"find_tools: {error}.")
        return render_found(page, arguments.get("detail", "signatures"))

    async def _describe_tool(self, arguments: JsonObject, _ctx: Context, caller: Caller) -> JsonObject:
        found = await self._parts.turns.named(arguments["tool"], caller)
        if isinstance(found, str):
            return rendering.error(found)
        return rendering.render_description(found, self._parts.calls.catalog)

    async def _with_answers(
        self, begin: Callable[[], Awaitable[TurnResult]], ctx: Context, caller: Caller, options: TurnOptions
    ) -> TurnResult | JsonObject:
        """Run a turn, asking its user as often as it needs; an interim result where the host has to retry."""
        state = (ctx.params or {}).get("requestState")
        if isinstance(state, str):
            try:
                pending = self._parts.tokens.redeem(state, caller)
            except TokenError as error:
                return rendering.error(str(error))
            result = await self._answered(pending, asking.answer_from(ctx.params or {}), caller, options)
        else:
            result = await begin()
        for _ in range(MAX_QUESTIONS):
            if result.outcome is not Outcome.NEEDS_INPUT or result.pending is None:
                break
            form = question(result)
            if form is None:
                break
            if caller.era is Era.MODERN and caller.can_elicit:
                return asking.input_required(form, self._parts.tokens.seal(result.pending, caller))
            answer = await asking.elicit(
                ctx, caller, form, timeout_seconds=self._parts.answer_timeout_seconds
            )
            if answer is None:
                break
            result = await self._answered(result.pending, answer, caller, options)
        return result if result.raw is None else replace(result, raw=self._parts.fit(result.raw, caller))

    async def _answered(
        self, pending: PendingCall, answer: asking.Answer, caller: Caller, options: TurnOptions
    ) -> TurnResult:
        refused = not answer.accepted or (not pending.missing and not answer.confirmed)
        if refused:
            message = f"The user did not agree: {pending.tool_id} was not called."
            return TurnResult(
                Outcome.NEEDS_INPUT, message, tool_id=pending.tool_id, arguments=pending.arguments
            )
        values = {} if not pending.missing else answer.values
        return await self._parts.turns.resume(
            pending, values, caller, confirmed=not pending.missing, options=options
        )

    def _token(self, result: TurnResult, caller: Caller) -> str | None:
        return self._parts.tokens.seal(result.pending, caller) if result.confirm and result.pending else None

    def _redeem(self, token: str | None, caller: Caller) -> PendingCall | None:
        return None if token is None else self._parts.tokens.redeem(token, caller)


def _answered(result: TurnResult) -> bool:
    return result.outcome is Outcome.CALLED and not result.is_error


def _forwarded(ctx: Context) -> JsonObject:
    meta = (ctx.params or {}).get("_meta")
    return (
        {key: value for key, value in meta.items() if key not in _OWNED_META}
        if isinstance(meta, Mapping)
        else {}
    )
