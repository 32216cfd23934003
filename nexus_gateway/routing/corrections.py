"""Watches turns and the calls after them: a host that calls another tool itself says which one was right.

After a turn that offered tools or found none, the next call that works is the host's choice; after one that took a
tool, a call of another corrects it. Each turn gives one label at the most. Knows outcomes of turns and ids of tools.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.to_thread
import structlog

from adapters.ports import Era
from nexus_gateway.access.caller import Caller
from nexus_gateway.routing.feedback import FeedbackStore, Label, LabelKind
from nexus_gateway.turn.result import Outcome, TurnResult
from tool_registry.tool import ToolId

log = structlog.get_logger(__name__)

WINDOW_SECONDS = 120.0
"""How long after a turn a call is about it."""
MOST_WATCHED = 1_000
"""Hosts whose last turn is remembered."""
MOST_WAITING = 1_000
"""Labels that wait to be written; further ones are dropped, so that a slow disk never costs an answer."""
WRITE_SECONDS = 2.0
"""For one write, which a cancellation does not interrupt."""

_OPEN = frozenset({Outcome.AMBIGUOUS, Outcome.NO_TOOL})
_PROPOSING = frozenset({Outcome.PROPOSED, Outcome.NEEDS_INPUT})
_ROUTED = frozenset({Outcome.CALLED, *_PROPOSING})


@dataclass(frozen=True, slots=True)
class _Turn:
    request: str = field(repr=False)
    outcome: Outcome
    offered: tuple[ToolId, ...]
    ended: float

    def kind(self, tool: ToolId) -> LabelKind | None:
        """What a call of `tool` says of the turn."""
        if self.outcome in _OPEN:
            return LabelKind.CHOSEN
        if tool != self.offered[0]:
            return LabelKind.CORRECTED
        return LabelKind.CONFIRMED if self.outcome in _PROPOSING else None


class Corrections:
    """Turns that wait for what their hosts do next; writes a label where that says something."""

    def __init__(self, store: FeedbackStore) -> None:
        self._store = store
        self._turns: OrderedDict[tuple[str, ...], _Turn] = OrderedDict()
        self._waiting: deque[Callable[[], None]] = deque()
        self._news = anyio.Event()  # replaced once what it announced is written

    def turned(self, request: str, result: TurnResult, caller: Caller) -> None:
        """A turn has ended."""
        who = _who(caller)
        self._turns.pop(who, None)
        offered = tuple(candidate.tool_id for candidate in result.candidates)
        if result.outcome in _ROUTED and result.tool_id is not None:
            offered = (result.tool_id, *(tool for tool in offered if tool != result.tool_id))
            self._write(self._store.count_routed)
        elif result.outcome not in _OPEN or result.decision is None:
            return  # an upstream or a model failed, or there was no request
        self._turns[who] = _Turn(request, result.outcome, offered, anyio.current_time())
        if len(self._turns) > MOST_WATCHED:
            self._turns.popitem(last=False)

    def called(self, tool: ToolId, caller: Caller) -> None:
        """A host has called a tool by its name, and it answered without an error."""
        turn = self._turns.pop(_who(caller), None)
        if turn is None or anyio.current_time() - turn.ended > WINDOW_SECONDS:
            return
        kind = turn.kind(tool)
        if kind is not None:
            self._write(partial(self._store.append, Label(turn.request, tool, kind, turn.offered)))

    async def run(self) -> None:
        """Write labels until cancelled; then what is still to be written, while the disk is quick."""
        try:
            while True:
                await self._write_all()
                self._news = anyio.Event()
                await self._news.wait()
        finally:
            with anyio.move_on_after(WRITE_SECONDS, shield=True):
                await self._write_all()

    def _write(self, write: Callable[[], None]) -> None:
        if len(self._waiting) >= MOST_WAITING:
            log.warning("feedback.dropped", path=str(self._store.path), cause="the disk is too slow")
            return
        self._waiting.append(write)
        self._news.set()

    async def _write_all(self) -> None:
        while self._waiting:
            try:
                with anyio.move_on_after(WRITE_SECONDS, shield=True):
                    await anyio.to_thread.run_sync(self._waiting.popleft(), abandon_on_cancel=True)
            except OSError as error:
                log.warning("feedback.unwritable", path=str(self._store.path), cause=str(error))


def _who(caller: Caller) -> tuple[str, ...]:
    """One host: its connection, or its principal where each request has a connection of its own."""
    connection = caller.host.key if caller.host is not None and caller.era is Era.LEGACY else ""
    return str(caller.tenant), str(caller.principal), str(caller.era), connection
