"""Fits the shipped calibration on the `calib` split, each request among several numbers of tools."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from nexus_gateway.bench.routing import Pool
from nexus_gateway.bench.routing_data import RoutingQuery
from nexus_gateway.routing.calibrating import Fit, Row, fit, judge
from nexus_gateway.routing.labelled import LabelledRequest
from nexus_gateway.routing.parts import RouterParts
from tool_registry.index import RoutingIndex
from tool_registry.tool import ToolId

SIZES = (10, 50, 250, 1_000, 2_684)
PRECISION = 0.96
"""A point above what is promised: other requests than these are less like them."""
ABSENT_LIMIT = 0.1
"""Five points below what is promised, likewise."""

MOST_FLOOR = 0.2
"""From a short list a host can still choose; "no tool" ends the matter."""


async def fit_shipped(
    parts: RouterParts,
    index: RoutingIndex,
    queries: Sequence[RoutingQuery],
    advance: Callable[[], None] = lambda: None,
) -> Fit:
    """Judge every request in a registry of each size, with its tool and without. Raises ModelError."""
    pool, router = Pool(index), parts.router()
    rows: list[Row] = []
    for query in queries:
        if pool.gold(query) is None:
            continue
        for size in SIZES:
            drawn = await pool.index(pool.sample(query, size))
            labelled = LabelledRequest(
                query.text,
                _known(drawn, query.gold),
                _known(drawn, query.equivalents),
                _known(drawn, query.near),
            )
            rows += await judge(router, drawn, labelled, rerank=parts.reranker is not None)
            advance()
    fitted = fit(rows, precision=PRECISION, absent_limit=ABSENT_LIMIT)
    return replace(fitted, floor=min(fitted.floor, MOST_FLOOR))


def _known(index: RoutingIndex, keys: Sequence[str] | frozenset[str]) -> frozenset[ToolId]:
    wanted = set(keys)
    return frozenset(compiled.id for compiled in index.tools if str(compiled.id) in wanted)
