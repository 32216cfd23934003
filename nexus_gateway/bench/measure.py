"""Takes the measurements: every arm in turn within each round, so that noise meets all of them alike."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import anyio

from adapters.ports import Era
from nexus_gateway.bench.arms import LiveArm


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        calls: for a number of concurrent callers, calls of one arm in one round.
        warm_up: calls of each arm before the first round.
        lists: listings of one arm in one round.
        transports: of the upstream.
        eras: spoken by all sides.
    """

    rounds: int = 20
    calls: Mapping[int, int] = field(default_factory=lambda: {1: 20, 8: 96, 64: 192})
    warm_up: int = 100
    lists: int = 2
    transports: Sequence[str] = ("stdio", "http")
    eras: Sequence[Era] = tuple(Era)


QUICK = Plan(rounds=5)


@dataclass(frozen=True, slots=True)
class Sample:
    """What one arm did in one round.

    Attributes:
        seconds: of each call or listing.
        elapsed: seconds for all of them together.
    """

    seconds: tuple[float, ...]
    elapsed: float


Samples = dict[str, list[Sample]]
"""By arm, one sample a round: the nth of two arms were taken next to each other."""


async def measure_calls(
    arms: Sequence[LiveArm], plan: Plan, advance: Callable[[], None]
) -> dict[int, Samples]:
    """Call through every arm; for each number of callers, samples by arm. `advance` hears of each sample."""
    for arm in arms:
        await _call(arm, callers=1, calls=plan.warm_up)
    samples: dict[int, Samples] = {callers: {arm.name: [] for arm in arms} for callers in plan.calls}
    for number in range(plan.rounds):
        for callers, calls in plan.calls.items():
            for arm in _in_turn(arms, number):
                samples[callers][arm.name].append(await _call(arm, callers=callers, calls=calls))
                advance()
    return samples


async def measure_lists(arms: Sequence[LiveArm], plan: Plan, advance: Callable[[], None]) -> Samples:
    """List all tools through every arm. `advance` hears of each sample."""
    samples: Samples = {arm.name: [] for arm in arms}
    for number in range(plan.rounds):
        for arm in _in_turn(arms, number):
            samples[arm.name].append(await _list(arm, plan.lists))
            advance()
    return samples


def _in_turn(arms: Sequence[LiveArm], number: int) -> list[LiveArm]:
    first = number % len(arms)
    return [*arms[first:], *arms[:first]]


async def _call(arm: LiveArm, *, callers: int, calls: int) -> Sample:
    seconds: list[float] = []
    left = iter(range(calls))

    async def caller() -> None:
        for number in left:
            started = time.perf_counter()
            await arm.call(f"{arm.name} {number}")
            seconds.append(time.perf_counter() - started)

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(callers):
            tasks.start_soon(caller)
    return Sample(tuple(seconds), time.perf_counter() - began)


async def _list(arm: LiveArm, lists: int) -> Sample:
    seconds: list[float] = []
    began = time.perf_counter()
    for _ in range(lists):
        started = time.perf_counter()
        await arm.client.list_tools()
        seconds.append(time.perf_counter() - started)
    return Sample(tuple(seconds), time.perf_counter() - began)
