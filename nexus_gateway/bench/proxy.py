"""The benchmark of the proxies: which cases there are, and one run through all of them."""

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from adapters.ports import Era
from nexus_gateway.bench.arms import Arm, LiveArm, open_arm, upstream_of
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.measure import Plan, Samples, measure_calls, measure_lists

LISTED_TOOLS = 500


@dataclass(frozen=True, slots=True)
class Footprint:
    """What an arm's process took; see `LiveArm`."""

    arm: str
    first_list_seconds: float
    first_call_seconds: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Case:
    """What was measured with one kind of upstream, in one era: `calls[callers][arm]`."""

    transport: str
    era: Era
    calls: dict[int, Samples]


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that was measured; `lists` by era, over stdio."""

    cases: list[Case]
    lists: dict[Era, Samples]
    footprints: list[Footprint]


class Progress:
    """How far a run is: `advance` is told of the steps done, `say` of what is done now."""

    def __init__(self, say: Callable[[str], None], advance: Callable[[], None]) -> None:
        self.say = say
        self.advance = advance


def steps(arms: int, plan: Plan) -> int:
    """How often a run advances its progress."""
    return plan.rounds * arms * len(plan.eras) * (len(plan.transports) * len(plan.calls) + 1)


async def run(arms: Sequence[Arm], plan: Plan, progress: Progress) -> Run:
    """Measure every case; leaves no process behind.

    Raises:
        BenchError: an arm does not answer, or not with what was asked for.
    """
    try:
        return await _run(arms, plan, progress)
    except BaseExceptionGroup as group:  # of the task groups of the SDK's transports
        if (wanted := group.subgroup(BenchError)) is None:
            raise
        raise _leaf(wanted) from group


def _leaf(error: BaseException) -> BaseException:
    return _leaf(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def _run(arms: Sequence[Arm], plan: Plan, progress: Progress) -> Run:
    cases: list[Case] = []
    lists: dict[Era, Samples] = {}
    footprints: list[Footprint] = []
    for era in plan.eras:
        for transport in plan.transports:
            case = f"{transport} upstream, {era} era"
            progress.say(f"{case}: starting")
            async with _opened(arms, transport, era, tools=1) as live:
                progress.say(case)
                cases.append(Case(transport, era, await measure_calls(live, plan, progress.advance)))
                footprints += [_footprint(arm) for arm in live if arm.process is not None]
        progress.say(f"{LISTED_TOOLS} tools, {era} era: starting")
        async with _opened(arms, "stdio", era, tools=LISTED_TOOLS) as live:
            progress.say(f"listing {LISTED_TOOLS} tools, {era} era")
            lists[era] = await measure_lists(live, plan, progress.advance)
    return Run(cases, lists, footprints)


@asynccontextmanager
async def _opened(
    arms: Sequence[Arm], transport: str, era: Era, *, tools: int
) -> AsyncIterator[list[LiveArm]]:
    """Every arm, started one after the other, each when the last has come to rest."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nexus-bench-")))
        upstream = stack.enter_context(upstream_of(transport, tools, folder))
        yield [await stack.enter_async_context(open_arm(arm, upstream, era, folder)) for arm in arms]


def _footprint(arm: LiveArm) -> Footprint:
    return Footprint(arm.name, arm.first_list_seconds, arm.first_call_seconds, arm.rss_bytes)
