"""The turn: route, write, check, confirm, call. Each way in ends in a `TurnResult`; nothing is half done.

Knows the index, the writer and the fleet by what they do; the host's protocol is the server's business.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
import anyio.to_thread

from adapters.ports import ModelError, UpstreamError, UpstreamRefused
from nexus_gateway.access.caller import Caller
from nexus_gateway.routing.masks import Masks
from nexus_gateway.state.purpose import asked_for
from nexus_gateway.turn.arguments import Draft
from nexus_gateway.turn.bindings import UNFIT
from nexus_gateway.turn.confirmation import needs_confirmation
from nexus_gateway.turn.finding import Finder, FoundPage
from nexus_gateway.turn.naming import named, unresolved
from nexus_gateway.turn.parts import TurnOptions, TurnParts, reads_only
from nexus_gateway.turn.result import (
    Ground,
    GroundKind,
    MissingArgument,
    Outcome,
    PendingCall,
    Stages,
    TurnResult,
)
from nexus_gateway.turn.validation import problems
from tool_registry.index import CompiledTool, RoutingIndex, compile_tool
from tool_registry.routing import Candidate, RoutingDecision, RoutingOutcome
from tool_registry.schema import properties
from tool_registry.tool import Tool

FORESEEN = 3
"""Tools of a ranking that are made ready while the request is still being routed."""
HEARING_PATIENCE_SECONDS = 15.0
"""How long a name that no tool has yet waits for servers that are still starting."""


@dataclass(frozen=True, slots=True)
class _Asked:
    request: str
    context: str
    caller: Caller
    options: TurnOptions
    stages: Stages


class TurnService:
    """Runs turns; holds no state of its own between them but what it can compute again."""

    def __init__(self, parts: TurnParts) -> None:
        self._parts = parts
        self._masks = Masks()
        self._finder = Finder(parts, self._masks)

    async def turn(
        self, request: str, caller: Caller, *, context: str = "", options: TurnOptions | None = None
    ) -> TurnResult:
        """One request in natural language."""
        stages, options = Stages(), options or TurnOptions()
        if not request.strip():
            return TurnResult(Outcome.NO_TOOL, "The request is empty: say in a sentence what should be done.")

        async def run() -> TurnResult:
            with stages.measure("wait"):
                index = await self._parts.ready(options.on_progress)
            asked = _Asked(request, context, caller, options, stages)
            return await self._act(index, await self._routed(index, asked), asked)

        return await self._finish(run, caller, stages, options)

    async def call(
        self,
        reference: str,
        arguments: Mapping[str, Any],
        caller: Caller,
        *,
        options: TurnOptions | None = None,
        confirmed: PendingCall | None = None,
    ) -> TurnResult:
        """An exact call: `server/name`, or a name that only one server has."""
        stages, options = Stages(), options or TurnOptions()
        found = await self.named(reference, caller)
        if isinstance(found, str):
            return TurnResult(Outcome.FAILED, found)
        if wrong := problems(arguments, found.input_schema):
            return TurnResult(
                Outcome.FAILED,
                f"The arguments do not fit {found.id}: {'; '.join(wrong[:5])}. describe_tool shows its schema.",
                tool_id=found.id,
                arguments=arguments,
            )
        if confirmed is not None:
            if confirmed.content_hash != found.content_hash and confirmed.tool_id == found.id:
                return TurnResult(
                    Outcome.FAILED, f"The tool {found.id} has changed since the question; ask again."
                )
            asked_for = PendingCall(found.id, found.content_hash, dict(arguments))
            if replace(confirmed, arguments=dict(confirmed.arguments), grounds={}) != asked_for:
                return TurnResult(
                    Outcome.FAILED, "The confirmation was given for another tool or other arguments."
                )
            options = replace(options, assume_yes=True)

        async def run() -> TurnResult:
            self._parts.state.used(found.id)
            result = TurnResult(Outcome.CALLED, "", tool_id=found.id, arguments=arguments, stages=stages)
            return await self._cleared(found, result, caller, options)

        return await self._finish(run, caller, stages, options)

    async def resume(
        self,
        pending: PendingCall,
        answers: Mapping[str, Any],
        caller: Caller,
        *,
        confirmed: bool,
        options: TurnOptions | None = None,
    ) -> TurnResult:
        """Go on with a pending call: `answers` fill what was missing, `confirmed` is the user's yes."""
        stages, options = Stages(), options or TurnOptions()
        tool = self._parts.calls.catalog.tools.get(pending.tool_id)
        if tool is None or tool.content_hash != pending.content_hash or not caller.sees(tool.id):
            return TurnResult(
                Outcome.FAILED, f"The tool {pending.tool_id} has changed since the question; ask again."
            )
        if options.read_only and not reads_only(self._parts.rules, tool):
            return TurnResult(Outcome.NO_TOOL, f"{tool.id} may change something; nexus_turn can call it.")
        given = {name: answers[name] for name in pending.missing if name in answers}
        arguments = {**pending.arguments, **given}
        draft = Draft(arguments, {**pending.grounds, **dict.fromkeys(given, Ground(GroundKind.ANSWER))})
        compiled = compile_tool(tool)
        draft.missing = [
            MissingArgument(name, properties(compiled.schema).get(name, {}))
            for name in pending.missing
            if name not in arguments
        ]
        base = TurnResult(Outcome.CALLED, "", stages=stages)

        async def run() -> TurnResult:
            return await self._check(compiled, draft, base, caller, replace(options, assume_yes=confirmed))

        result = await self._finish(run, caller, stages, options)
        return await self._remembering(result, compiled, caller)

    async def _remembering(self, result: TurnResult, compiled: CompiledTool, caller: Caller) -> TurnResult:
        """Keep what a user answered, once the tool has taken it without an error."""
        answers = {
            name: result.arguments[name]
            for name, ground in result.grounds.items()
            if ground.kind is GroundKind.ANSWER and name in result.arguments
        }
        if result.outcome is not Outcome.CALLED or result.is_error or not answers:
            return result
        bindings = self._parts.bindings
        names = await anyio.to_thread.run_sync(bindings.remember, compiled, answers, caller.tenant)
        return replace(result, remembered=names)

    async def named(self, reference: str, caller: Caller) -> Tool | str:
        """The tool that `reference` names, or what to say; waits for servers that are still starting."""
        calls = self._parts.calls
        found = named(calls.catalog, reference, caller.sees)
        # A bare name may turn out to be ambiguous once every server has listed its tools.
        if len(found) != 1 or str(found[0].id) != reference:
            with anyio.move_on_after(HEARING_PATIENCE_SECONDS):
                await calls.first_sync()
            found = named(calls.catalog, reference, caller.sees)
        if len(found) == 1:
            return found[0]
        return await anyio.to_thread.run_sync(unresolved, calls.catalog, reference, caller.sees)

    async def find(
        self, query: str, caller: Caller, *, limit: int | None = None, cursor: str | None = None
    ) -> FoundPage:
        """A page of the best tools for a need; see `Finder.find`. Raises ModelError and CursorError."""
        return await self._finder.find(query, caller, limit=limit, cursor=cursor)

    async def _finish(
        self, run: Callable[[], Awaitable[TurnResult]], caller: Caller, stages: Stages, options: TurnOptions
    ) -> TurnResult:
        """Bring a turn to its end: up to the call within the turn's deadline, the call within its server's."""
        with stages.measure("total"):
            result = await self._guarded(run, stages)
            return await self._call(result, caller, options) if result.outcome is Outcome.CALLED else result

    async def _guarded(self, run: Callable[[], Awaitable[TurnResult]], stages: Stages) -> TurnResult:
        with anyio.move_on_after(self._parts.deadline_seconds):
            try:
                return await run()
            except ModelError as error:
                return TurnResult(Outcome.FAILED, str(error), stages=stages)
        limit = f"{self._parts.deadline_seconds:g} s"
        return TurnResult(
            Outcome.FAILED,
            f"The turn took longer than {limit} (turn.deadline_seconds) and was stopped.",
            stages=stages,
        )

    async def _routed(self, index: RoutingIndex, asked: "_Asked") -> RoutingDecision:
        """The decision, with what the best few tools need made ready while it is being made."""
        state, foreseen, chosen = self._parts.state, None, None

        def ranked(candidates: Sequence[Candidate]) -> None:
            nonlocal foreseen
            tools = [index.tools[index.position[candidate.tool_id]] for candidate in candidates[:FORESEEN]]
            foreseen = state.foresee(tools, asked.caller.tenant)

        try:
            decision = await self._parts.router.route(
                index,
                asked.request,
                visible=self._masks.mask(index, asked.caller),
                measure=asked.stages.measure,
                on_ranked=ranked,
            )
            if decision.outcome is RoutingOutcome.ROUTED:
                chosen = index.tools[index.position[decision.candidates[0].tool_id]]
            return decision
        finally:
            state.decided(foreseen, chosen)

    async def _act(self, index: RoutingIndex, decision: RoutingDecision, asked: "_Asked") -> TurnResult:
        if asked.options.read_only:
            decision = self._readable(index, decision)
        signatures = {
            c.tool_id: index.tools[index.position[c.tool_id]].signature for c in decision.candidates
        }
        base = TurnResult(Outcome.CALLED, "", decision=decision, signatures=signatures, stages=asked.stages)
        if decision.outcome is RoutingOutcome.ABSTAINED:
            return replace(base, outcome=Outcome.NO_TOOL, message=f"No tool was called: {decision.reason}.")
        if decision.outcome is RoutingOutcome.AMBIGUOUS:
            offer = "Several tools could do this; call the right one with call_tool."
            return replace(base, outcome=Outcome.AMBIGUOUS, message=offer)
        compiled = index.tools[index.position[decision.candidates[0].tool_id]]
        with asked.stages.measure("write"):
            draft = await self.draft(compiled, asked.request, asked.caller, asked.context)
        return await self._check(compiled, draft, base, asked.caller, asked.options)

    async def draft(self, compiled: CompiledTool, request: str, caller: Caller, context: str = "") -> Draft:
        """The arguments of one tool as a turn writes them, the caller's bindings among them. Raises ModelError."""
        bound = await anyio.to_thread.run_sync(self._parts.bindings.of_call, compiled, caller.tenant)
        self._parts.state.used(compiled.id)
        with asked_for(caller.tenant, str(compiled.id)):
            draft = await self._parts.writer.write(compiled, request, context, bound.values)
        draft.missing = [
            replace(missing, reason=UNFIT) if missing.name in bound.unfit else missing
            for missing in draft.missing
        ]
        return draft

    def _readable(self, index: RoutingIndex, decision: RoutingDecision) -> RoutingDecision:
        """The decision as `nexus_read` may act on it.

        Routing sees all tools: a request to delete something must not end at the nearest tool that only reads.
        """
        allowed = tuple(
            candidate
            for candidate in decision.candidates
            if reads_only(self._parts.rules, index.tools[index.position[candidate.tool_id]].tool)
        )
        if decision.outcome is RoutingOutcome.ABSTAINED or (allowed and allowed[0] == decision.candidates[0]):
            return replace(decision, candidates=allowed)
        best = decision.candidates[0].tool_id
        return RoutingDecision(
            RoutingOutcome.ABSTAINED,
            allowed,
            decision.margin,
            f"{best} may change something; nexus_turn can call it",
        )

    async def _check(
        self, compiled: CompiledTool, draft: Draft, base: TurnResult, caller: Caller, options: TurnOptions
    ) -> TurnResult:
        result = replace(
            base,
            tool_id=compiled.id,
            signature=compiled.signature,
            arguments=draft.arguments,
            grounds=draft.grounds,
            missing=tuple(draft.missing),
            tokens=draft.tokens,
            state=draft.state,
        )
        if draft.missing:
            return _asking(result, compiled.tool)
        if wrong := problems(draft.arguments, compiled.tool.input_schema):
            message = f"{compiled.id} fits, its arguments are not certain: {'; '.join(wrong[:3])}."
            return replace(result, outcome=Outcome.PROPOSED, message=message)
        if unsure := self._unsure(compiled.tool, draft, options):
            message = f"{compiled.id} fits, its arguments are not certain: {unsure} could be something else."
            return replace(result, outcome=Outcome.PROPOSED, message=message)
        if options.dry_run:
            return replace(
                result, outcome=Outcome.PROPOSED, message=f"Dry run: {compiled.id} was not called."
            )
        return await self._cleared(compiled.tool, result, caller, options)

    def _unsure(self, tool: Tool, draft: Draft, options: TurnOptions) -> str:
        """Arguments that were picked among several; only a tool that reads, or a yes given beforehand, runs on them."""
        if options.assume_yes or options.dry_run:
            return ""
        if draft.unsure:
            return ", ".join(draft.grounds) or "what is left out"
        if reads_only(self._parts.rules, tool):
            return ""
        return ", ".join(name for name, ground in draft.grounds.items() if ground.chosen)

    async def _cleared(
        self, tool: Tool, result: TurnResult, caller: Caller, options: TurnOptions
    ) -> TurnResult:
        """The result as it goes on: to the call, or to a question for its user."""
        cleared = replace(result, outcome=Outcome.CALLED, tool_id=tool.id, message=f"Called {tool.id}.")
        policy = self._parts.rules.confirm_policy(tool.id)
        if policy == "auto" and self._parts.rules.approved_read_only(tool.id):
            return cleared
        approved = (caller.tenant, tool) in self._parts.approvals
        if needs_confirmation(tool, policy, approved_before=approved):
            if not options.assume_yes:
                return _confirming(result, tool)
            if tool.annotations.destructive is None and not approved:
                await anyio.to_thread.run_sync(self._parts.approvals.add, caller.tenant, tool)
        return cleared

    async def _call(self, result: TurnResult, caller: Caller, options: TurnOptions) -> TurnResult:
        if result.tool_id is None:
            raise ValueError("a cleared turn names its tool")
        server, name = result.tool_id.server, result.tool_id.name
        params: dict[str, Any] = {"name": name, "arguments": dict(result.arguments)}
        if options.meta:
            params["_meta"] = dict(options.meta)
        try:
            with result.stages.measure("call"):
                raw = await self._parts.calls.call_tool(
                    server, name, params, caller=caller, on_progress=options.on_progress
                )
        except UpstreamRefused as error:
            message = f"{result.tool_id} refused the call: {error.message}"
            return replace(result, outcome=Outcome.FAILED, message=message, refused=error)
        except UpstreamError as error:
            return replace(result, outcome=Outcome.FAILED, message=str(error))
        return replace(result, raw=raw)


def _asking(result: TurnResult, tool: Tool) -> TurnResult:
    names = ", ".join(missing.name for missing in result.missing)
    pending = PendingCall(
        tool.id,
        tool.content_hash,
        result.arguments,
        tuple(missing.name for missing in result.missing),
        result.grounds,
    )
    message = f"{tool.id} needs {names}, which the request does not state."
    return replace(result, outcome=Outcome.NEEDS_INPUT, message=message, pending=pending)


def _confirming(result: TurnResult, tool: Tool) -> TurnResult:
    pending = PendingCall(tool.id, tool.content_hash, result.arguments, grounds=result.grounds)
    why = (
        "can destroy or overwrite"
        if tool.annotations.destructive
        else "does not say whether it changes anything"
    )
    message = f"{tool.id} {why}: it runs only after a yes."
    return replace(result, outcome=Outcome.NEEDS_INPUT, message=message, pending=pending, confirm=True)
