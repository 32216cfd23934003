"""Measures routing as the gateway does it: requests with known tools, each in a registry of a given size.

Knows a router's parts, an index of all tools and requests; knows no file and no screen.

    evaluate    which place the right tool gets, what is routed, and how long a decision takes
    route_unfit how often something is routed for requests that no tool fits
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import anyio.to_thread
import numpy as np

from adapters.ports import Vectors
from nexus_gateway.bench.registry_sampling import Sampler
from nexus_gateway.bench.routing_data import RoutingQuery, UnfitQuery
from nexus_gateway.bench.routing_memory import Memory
from nexus_gateway.routing.parts import RouterParts
from nexus_gateway.routing.router import Router
from nexus_gateway.turn.result import Stages
from tool_registry.index import CompiledTool, RoutingIndex, compile_tool
from tool_registry.routing import Gate, RoutingDecision, RoutingOutcome

FOCUS = 250
"""Tools of the registry in which the gate is judged, or the size nearest to it that is measured."""
DEPTH = 10
"""Candidates looked at for the right tool."""
WARM_UP = 3

Advance = Callable[[str], None]
"""Told what is measured, once for each request."""


def _silent(_what: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Judged:
    """One request's routing.

    Attributes:
        source: of the request.
        place: of the right tool among the first `DEPTH` candidates, from 1; None where it isn't there.
        routed: whether a tool would be called.
        reranked: whether the reranker had its say.
        total_ms: of the whole decision, from text to outcome.
        stages_ms: of these, by stage.
    """

    source: str
    place: int | None
    routed: bool
    reranked: bool
    total_ms: float
    stages_ms: Mapping[str, float]

    @property
    def right(self) -> bool:
        """Whether the first candidate is a right tool."""
        return self.place == 1


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All that was measured.

    Attributes:
        gate: what decided.
        n_tools: tools in all.
        skipped: requests whose right tools are not among them.
        sizes: tools in a registry -> the requests, ascending.
        timed: the size whose times are those of a gateway: the largest.
        focus: the size in which the gate is judged.
        absent: at `focus`, whether a tool was routed although the right ones were taken away; a request for which
            no tool was left is not in it.
    """

    gate: Gate
    n_tools: int
    skipped: int
    sizes: Mapping[int, Sequence[Judged]]
    timed: int
    focus: int
    absent: Sequence[bool]


class Pool:
    """All tools, and indexes of some of them in the order that a gateway's catalogue has."""

    def __init__(self, index: RoutingIndex) -> None:
        self._index = index
        self._places = {str(compiled.id): place for place, compiled in enumerate(index.tools)}
        self.sampler = Sampler.of((str(compiled.id), compiled.id.server) for compiled in index.tools)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        return key in self._places

    async def index(
        self, keys: Iterable[str], added: Sequence[CompiledTool] = (), vectors: Sequence[Vectors] = ()
    ) -> RoutingIndex:
        """An index of these tools alone: BM25 depends on the whole corpus, so a mask would not do.

        Args:
            keys: tools of the pool, in any order.
            added: further tools.
            vectors: of these, each of shape (rows, dimensions).
        """
        places = sorted(self._places[key] for key in keys)
        if len(places) == len(self) and not added:
            return self._index
        tools = [*added, *(self._index.tools[place] for place in places)]
        return await anyio.to_thread.run_sync(self._index.moved, self._index.epoch, tools, vectors)

    def gold(self, query: RoutingQuery) -> str | None:
        """The first right tool that there is."""
        return next((key for key in query.gold if key in self), None)

    def sample(self, query: RoutingQuery, size: int) -> list[str]:
        """The registry in which a request is routed. Raises KeyError where no right tool is there."""
        gold = self.gold(query)
        if gold is None:
            raise KeyError(query.gold)
        return self.sampler.sample(query.id, gold, query.right - {gold}, size)

    def without_gold(self, query: RoutingQuery, keys: Iterable[str]) -> list[str]:
        """Keys less the right tools' servers, their equivalents and what is nearly right."""
        servers = {self.sampler.server_of[key] for key in query.gold if key in self}
        banned = query.right | query.near
        return [key for key in keys if key not in banned and self.sampler.server_of[key] not in servers]


async def evaluate(
    parts: RouterParts,
    index: RoutingIndex,
    queries: Sequence[RoutingQuery],
    sizes: Iterable[int | None] = (250,),
    advance: Advance = _silent,
) -> Evaluation:
    """Route every request in a registry of each size.

    Args:
        parts: models and gate.
        index: all tools.
        queries: requests; those without a right tool in `index` are skipped and counted.
        sizes: tools in a registry; None, or a number above that of all tools, is all of them.
        advance: told of progress.

    Raises:
        ModelError: the embedder failed.
        BenchError: the reranker failed.
    """
    pool, memory = Pool(index), Memory(parts)
    router = memory.parts.router()
    known = [query for query in queries if pool.gold(query) is not None]
    measured = actual_sizes(sizes, len(pool))
    timed, focus = measured[-1], nearest(measured, FOCUS)
    judged: dict[int, list[Judged]] = {}
    with memory.computing(anew=True):
        for query in known[:WARM_UP]:
            await router.route(index, query.text, limit=DEPTH)
        judged[timed] = await _at(router, pool, known, timed, advance)
    with memory.computing(anew=False):
        for size in measured[:-1]:
            judged[size] = await _at(router, pool, known, size, advance)
        absent = await _absent(router, pool, known, focus, advance)
    in_order = {size: judged[size] for size in measured}
    return Evaluation(parts.gate, len(pool), len(queries) - len(known), in_order, timed, focus, absent)


def actual_sizes(sizes: Iterable[int | None], n_tools: int) -> list[int]:
    """Ascending and each once; as many as there are tools at most."""
    return sorted({n_tools if size is None else min(size, n_tools) for size in sizes})


def nearest(sizes: Sequence[int], wanted: int) -> int:
    """The one nearest to a size; the smaller of two."""
    return min(sizes, key=lambda size: (abs(size - wanted), size))


async def route_unfit(
    parts: RouterParts,
    index: RoutingIndex,
    queries: Sequence[UnfitQuery],
    others: Iterable[int] = (0, FOCUS),
    advance: Advance = _silent,
) -> dict[int, list[bool]]:
    """Whether a tool was routed for requests that no tool fits.

    Args:
        parts: models and gate.
        index: all tools; for each number of `others` so many are sampled and join the request's own candidates.
        queries: the requests with their candidates.
        others: numbers of other tools.
        advance: told of progress.

    Raises:
        ModelError: the embedder failed.
        BenchError: the reranker failed.
    """
    pool, parts = Pool(index), Memory(parts).parts
    router = parts.router()
    routed: dict[int, list[bool]] = {}
    for number in others:
        routed[number] = []
        for query in queries:
            own = [compile_tool(tool) for tool in query.tools]
            rows = await parts.embedder.embed_tools([compiled.text for compiled in own])
            beside = pool.sampler.others(query.id, number)
            drawn = await pool.index(beside, own, [row[np.newaxis, :] for row in rows])
            decision = await router.route(drawn, query.text)
            routed[number].append(decision.outcome is RoutingOutcome.ROUTED)
            advance(f"no tool fits, {number:,} others")
    return routed


async def _at(
    router: Router, pool: Pool, queries: Sequence[RoutingQuery], size: int, advance: Advance
) -> list[Judged]:
    judged = []
    for query in queries:
        index = await pool.index(pool.sample(query, size))
        judged.append(await _judge(router, index, query))
        advance(f"{size:,} tools")
    return judged


async def _judge(router: Router, index: RoutingIndex, query: RoutingQuery) -> Judged:
    stages = Stages()
    started = time.perf_counter()
    decision = await router.route(index, query.text, limit=DEPTH, measure=stages.measure)
    total_ms = (time.perf_counter() - started) * 1000
    return Judged(
        source=query.source,
        place=_place(decision, query),
        routed=decision.outcome is RoutingOutcome.ROUTED,
        reranked=any(candidate.reranked is not None for candidate in decision.candidates),
        total_ms=total_ms,
        stages_ms=stages.milliseconds,
    )


def _place(decision: RoutingDecision, query: RoutingQuery) -> int | None:
    right = query.right
    keys = [str(candidate.tool_id) for candidate in decision.candidates[:DEPTH]]
    return next((place for place, key in enumerate(keys, start=1) if key in right), None)


async def _absent(
    router: Router, pool: Pool, queries: Sequence[RoutingQuery], size: int, advance: Advance
) -> list[bool]:
    routed = []
    for query in queries:
        left = pool.without_gold(query, pool.sample(query, size))
        if left:
            decision = await router.route(await pool.index(left), query.text)
            routed.append(decision.outcome is RoutingOutcome.ROUTED)
        advance(f"{size:,} tools, the right ones absent")
    return routed
