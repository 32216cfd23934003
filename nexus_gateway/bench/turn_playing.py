"""One turn as the gateway runs it, up to the upstream call, which is written down and answered here.

The router, the writer, the gates and the confirmation policy are the real ones. Where the turn ends in a question
for a yes, the yes is given: the worst case, in which nobody looks at what is about to run.

Knows no right answer and no file.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio.lowlevel

from adapters.ports import ArgumentEngine, JsonObject, ProgressCallback
from nexus_gateway.access.caller import Caller
from nexus_gateway.routing.router import Router
from nexus_gateway.turn.arguments import ArgumentWriter
from nexus_gateway.turn.bindings import BindingRules, Bindings
from nexus_gateway.turn.confirmation import Approvals
from nexus_gateway.turn.parts import Preparing, Rules, TurnParts, Unprepared
from nexus_gateway.turn.result import TurnResult
from nexus_gateway.turn.service import TurnService
from tool_registry.catalog import ToolCatalog
from tool_registry.index import RoutingIndex
from tool_registry.tool import ToolId

_ANSWER = {"content": [{"type": "text", "text": "done"}]}
_CALLER = Caller()


@dataclass(slots=True)
class RecordingFleet:
    """A fleet that answers every call with the same result, and knows what was called.

    Attributes:
        calls: tools and arguments, in the order of their calls.
    """

    catalog: ToolCatalog
    calls: list[tuple[ToolId, Mapping[str, Any]]] = field(default_factory=list)

    async def first_sync(self) -> Sequence[object]:
        """All tools are known."""
        await anyio.lowlevel.checkpoint()
        return ()

    async def call_tool(
        self,
        server: str,
        tool: str,
        params: Mapping[str, Any],
        *,
        caller: Caller | None = None,  # noqa: ARG002 - of the Protocol
        on_progress: ProgressCallback | None = None,  # noqa: ARG002
    ) -> JsonObject:
        """Write a call down."""
        await anyio.lowlevel.checkpoint()
        self.calls.append((ToolId(server, tool), dict(params["arguments"])))
        return dict(_ANSWER)


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """What became of a request.

    Attributes:
        result: as the host would have got it, before any yes.
        called: tool and arguments of the call that was made; None where there was none.
        confirmed: whether it took a yes.
        milliseconds: from the request to the result.
    """

    result: TurnResult
    called: tuple[ToolId, Mapping[str, Any]] | None
    confirmed: bool
    milliseconds: float

    @property
    def written(self) -> bool:
        """Whether the argument model was asked for anything: what a reading model finds costs it no token."""
        return self.result.tokens.prompt > 0

    @property
    def decoded(self) -> int:
        """Tokens that the argument model had to read or write."""
        tokens = self.result.tokens
        return tokens.prompt - tokens.reused + tokens.sampled + tokens.forced


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to write arguments.

    Attributes:
        engine: the one that the writer uses.
        state: the layer of compiled state that goes with it.
    """

    engine: ArgumentEngine
    writer: ArgumentWriter
    state: Preparing = field(default_factory=Unprepared)


@dataclass(frozen=True, slots=True)
class Player:
    """Plays turns.

    Attributes:
        catalog: every tool, so that a call that waited for its yes finds its own.
        rules: when a call wants a yes.
        deadline_seconds: of one turn.
    """

    router: Router
    catalog: ToolCatalog
    rules: Rules
    deadline_seconds: float

    async def play(self, arm: Arm, index: RoutingIndex, request: str, bound: BindingRules) -> Played:
        """Run one turn among the tools of an index, and give a yes if it asks for one."""
        fleet = RecordingFleet(self.catalog)
        turns = self._service(arm, index, fleet, bound)
        started = time.perf_counter()
        result = await turns.turn(request, _CALLER)
        spent = 1000 * (time.perf_counter() - started)
        confirmed = result.confirm and result.pending is not None
        if confirmed and result.pending is not None:
            await turns.resume(result.pending, {}, _CALLER, confirmed=True)
        return Played(result, fleet.calls[-1] if fleet.calls else None, confirmed, spent)

    def _service(
        self, arm: Arm, index: RoutingIndex, fleet: RecordingFleet, bound: BindingRules
    ) -> TurnService:
        async def at_once(_on_progress: ProgressCallback | None) -> RoutingIndex:
            await anyio.lowlevel.checkpoint()
            return index

        return TurnService(
            TurnParts(
                calls=fleet,
                ready=at_once,
                router=self.router,
                writer=arm.writer,
                approvals=Approvals(None),
                rules=self.rules,
                deadline_seconds=self.deadline_seconds,
                bindings=Bindings(bound),
                state=arm.state,
            )
        )
