"""Measures whole turns: requests whose tool and arguments are known, each in a registry of a given size.

Each request is played by the gateway with compiled state and without, in an order that the seed draws, and, for
some requests, by the model with every schema in its prompt. Knows a player, engines and requests; knows no file and
no screen.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import anyio.to_thread

from adapters.ports import ArgumentEngine
from nexus_gateway.bench.routing import Pool
from nexus_gateway.bench.turn_concatenated import MAX_TOKENS, Chosen, choose, prompt
from nexus_gateway.bench.turn_data import TurnQuery
from nexus_gateway.bench.turn_host import HostTokens
from nexus_gateway.bench.turn_playing import Arm, Played, Player
from nexus_gateway.turn.result import Outcome
from tool_registry.index import RoutingIndex
from tool_registry.tool import Tool

Advance = Callable[[str], None]
"""Told what is measured, once for each request and size."""


def _silent(_what: str) -> None:
    pass


class Verdict(StrEnum):
    """How a turn ended."""

    EXACT = "exact"
    """The right tool was called with exactly right arguments."""
    WRONG_TOOL = "wrong_tool"
    """Another tool was called."""
    WRONG_ARGUMENTS = "wrong_arguments"
    """The right tool was called, with other arguments."""
    PROPOSED = "proposed"
    ASKED = "asked"
    """For arguments that the request does not state."""
    AMBIGUOUS = "ambiguous"
    NO_TOOL = "no_tool"
    FAILED = "failed"


_UNCALLED = {
    Outcome.PROPOSED: Verdict.PROPOSED,
    Outcome.NEEDS_INPUT: Verdict.ASKED,
    Outcome.AMBIGUOUS: Verdict.AMBIGUOUS,
    Outcome.NO_TOOL: Verdict.NO_TOOL,
}


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One arm's turn, judged.

    Attributes:
        right_draft: whether tool and drafted arguments are exactly right, called or not.
    """

    played: Played
    verdict: Verdict
    right_draft: bool

    def differs(self, other: "Turn") -> bool:
        """Whether outcome, tool or arguments are another turn's."""
        return _answer(self.played) != _answer(other.played)


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """One request in one registry.

    Attributes:
        host_tokens: of all the registry's definitions.
        ours: the turn, with compiled state where it is measured.
        stateless: the same without; None where state is not measured.
        concatenated: what the model made of all schemas; None where it was not asked, or they don't fit.
        chosen: how the concatenated arm ended; None where it was not asked.
        fits: whether the schemas fit the model's context; None where the arm was not asked.
    """

    host_tokens: int
    ours: Turn
    stateless: Turn | None = None
    concatenated: Chosen | None = None
    chosen: Verdict | None = None
    fits: bool | None = None


@dataclass(frozen=True, slots=True)
class Concatenated:
    """The arm with every schema in the prompt.

    Attributes:
        engine: one that keeps no state for later turns.
        context: tokens that fit it.
        limit: requests of each size that it is asked.
        count: tokens of a text.
    """

    engine: ArgumentEngine
    context: int
    limit: int
    count: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Arms:
    """What is measured.

    Attributes:
        plain: the gateway without compiled state.
        state: the gateway with it.
        host: counts what the host carries.
        seed: of the order in which arms take turns.
    """

    player: Player
    plain: Arm
    host: HostTokens
    state: Arm | None = None
    concatenated: Concatenated | None = None
    seed: int = 0


async def measure(
    arms: Arms,
    pool: Pool,
    queries: Sequence[TurnQuery],
    sizes: Iterable[int],
    advance: Advance = _silent,
) -> dict[int, list[Judged]]:
    """Play every request in a registry of each size.

    Args:
        arms: what is measured.
        pool: all tools.
        queries: requests, each with a right tool in `pool`.
        sizes: tools in a registry.
        advance: told of progress.

    Raises:
        ModelError: a model failed outside of a turn.
    """
    judged: dict[int, list[Judged]] = {}
    for size in sizes:
        draw, judged[size] = random.Random(f"{arms.seed}:{size}"), []  # noqa: S311 - no secret
        for place, query in enumerate(queries):
            index = await pool.index(pool.sample(query.routing, size))
            ours, stateless = await _both(arms, index, query, plain_first=draw.random() < 0.5)  # noqa: PLR2004
            tools = [compiled.tool for compiled in index.tools]
            carried = await anyio.to_thread.run_sync(arms.host.of_tools, tools)
            one = Judged(carried, ours, stateless)
            if arms.concatenated is not None and place < arms.concatenated.limit:
                one = await _with_concatenated(arms.concatenated, one, index, query)
            judged[size].append(one)
            advance(f"{size:,} tools")
    return judged


async def _both(
    arms: Arms, index: RoutingIndex, query: TurnQuery, *, plain_first: bool
) -> tuple[Turn, Turn | None]:
    """The turn that counts, and the one without state beside it."""
    if arms.state is None:
        return await _turn(arms, arms.plain, index, query), None
    if plain_first:
        plain = await _turn(arms, arms.plain, index, query)
        return await _turn(arms, arms.state, index, query), plain
    state = await _turn(arms, arms.state, index, query)
    return state, await _turn(arms, arms.plain, index, query)


async def _turn(arms: Arms, arm: Arm, index: RoutingIndex, query: TurnQuery) -> Turn:
    played = await arms.player.play(arm, index, query.text, query)
    result = played.result
    tool = None if result.tool_id is None else index.get(result.tool_id)
    right_tool = tool is not None and str(tool.id) in query.routing.right
    right = right_tool and tool is not None and query.gold.accepts(result.arguments, tool.schema)
    if played.called is not None:
        return Turn(played, _called(right_tool=right_tool, right=right), right)
    return Turn(played, _UNCALLED.get(result.outcome, Verdict.FAILED), right and not result.missing)


def _called(*, right_tool: bool, right: bool) -> Verdict:
    if right:
        return Verdict.EXACT
    return Verdict.WRONG_ARGUMENTS if right_tool else Verdict.WRONG_TOOL


def _answer(played: Played) -> tuple[Any, ...]:
    result = played.result
    return (result.outcome, result.confirm, result.tool_id, dict(result.arguments), played.called)


async def _with_concatenated(arm: Concatenated, one: Judged, index: RoutingIndex, query: TurnQuery) -> Judged:
    tools = [compiled.tool for compiled in index.tools]
    if not await anyio.to_thread.run_sync(_fits, arm, tools, query.text):
        return Judged(one.host_tokens, one.ours, one.stateless, fits=False)
    chosen = await choose(arm.engine, tools, query.text)
    verdict = _judged_choice(chosen, index, query)
    return Judged(one.host_tokens, one.ours, one.stateless, chosen, verdict, fits=True)


def _fits(arm: Concatenated, tools: Sequence[Tool], request: str) -> bool:
    tokens = sum(arm.count(segment.text) for segment in prompt(tools, request))
    return tokens + MAX_TOKENS <= arm.context


def _judged_choice(chosen: Chosen, index: RoutingIndex, query: TurnQuery) -> Verdict:
    """Whatever was written whole would be called."""
    if chosen.arguments is None:
        return Verdict.FAILED
    schemas: Mapping[str, Any] = {str(compiled.id): compiled.schema for compiled in index.tools}
    right_tool = chosen.tool in query.routing.right
    right = right_tool and query.gold.accepts(chosen.arguments, schemas[chosen.tool])
    return _called(right_tool=right_tool, right=right)
