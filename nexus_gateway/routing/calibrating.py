"""Fitting a calibration: requests whose tool is known are ranked, and so are they with that tool taken away.

Knows routers and rankings; knows no file, no command and no server.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nexus_gateway.routing.labelled import LabelledRequest
from nexus_gateway.routing.router import Router
from tool_registry.calibration import Calibration, CalibrationIdentity
from tool_registry.evidence import evidence
from tool_registry.index import RoutingIndex
from tool_registry.logistic import Logistic, fit_logistic
from tool_registry.risk_coverage import (
    ABSENT_LIMIT,
    RiskCoverage,
    RiskPoint,
    choose_floor,
    point_at,
    risk_coverage,
)
from tool_registry.routing import Candidate
from tool_registry.tool import ToolId

OFFERED = 5
"""A tool fits where it is among this many first candidates: those that an ambiguous turn offers."""
ABSENT_WEIGHT = 0.25
"""Of a request whose tool was taken away, beside one that has it: one request in five is for something that no
tool does. An assumption; it moves the probabilities that are shown more than the requests that are routed."""
FOLDS = 5
RIDGE = 1.0


@dataclass(frozen=True, slots=True)
class Judged:
    """One ranking: what it shows, whether its first candidate is right, whether one of the first few is."""

    evidence: Mapping[str, float]
    right: bool
    fits: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A request as it was ranked.

    Attributes:
        group: its right tool; rows of a group are never on both sides of a fold.
        absent: its right tools were not visible.
        ranked: before reranking.
        reranked: after; None where there is no reranker.
    """

    group: str
    absent: bool
    ranked: Judged
    reranked: Judged | None = None

    def stages(self) -> list[Judged]:
        """The rankings, in the order in which they may decide."""
        return [self.ranked] if self.reranked is None else [self.ranked, self.reranked]


async def judge(
    router: Router, index: RoutingIndex, labelled: LabelledRequest, *, rerank: bool = False
) -> list[Row]:
    """The row of a request, and the row of it with its tools taken away where other tools are left.

    None for a request that names its tool: no calibration decides about those. Raises ModelError.
    """
    group = min(str(tool) for tool in labelled.tools)
    rows: list[Row] = []
    for absent, right in ((False, labelled.right), (True, frozenset[ToolId]())):
        visible = without(index, labelled) if absent else None
        if absent and (visible is None or not visible.any()):
            continue
        ranked = await router.candidates(index, labelled.request, visible=visible)
        if not ranked or ranked[0].exact:
            continue
        row = Row(group, absent, _judged(ranked, right))
        if rerank:
            again = await router.reranked(index, labelled.request, ranked)
            row = replace(row, reranked=_judged(again, right))
        rows.append(row)
    return rows


def without(index: RoutingIndex, labelled: LabelledRequest) -> NDArray[np.bool_]:
    """The mask, shape (tools,), that hides what is right or nearly right and the right tool's whole server.

    Where no other server is left, that server's other tools stay: the only distractors there are.
    """
    hidden = labelled.right | labelled.near
    servers = {tool.server for tool in labelled.tools}
    others = np.array([compiled.id not in hidden for compiled in index.tools], bool)
    elsewhere = others & np.array([compiled.id.server not in servers for compiled in index.tools], bool)
    return elsewhere if elsewhere.any() else others


def _judged(candidates: Sequence[Candidate], right: frozenset[ToolId]) -> Judged:
    return Judged(
        evidence(candidates),
        candidates[0].tool_id in right,
        any(candidate.tool_id in right for candidate in candidates[:OFFERED]),
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """What was fitted, and how good it is on rows that each fit had not seen.

    Attributes:
        chosen: the point of the least threshold that meets the wanted precision; None where none does.
        requests: rows with their tool.
        absent: rows without.
        tools: right tools among them.
    """

    right: Logistic
    right_reranked: Logistic | None
    fits: Logistic
    floor: float
    curve: RiskCoverage
    chosen: RiskPoint | None
    requests: int
    absent: int
    tools: int

    def calibration(self, made_for: CalibrationIdentity, figures: Mapping[str, Any]) -> Calibration:
        """As a calibration. Raises ValueError where no threshold was found."""
        if self.chosen is None:
            raise ValueError("no threshold meets the wanted precision")
        return Calibration(
            self.right,
            self.right_reranked,
            self.fits,
            self.chosen.threshold,
            self.floor,
            made_for,
            {**figures, **self.figures()},
        )

    def figures(self) -> dict[str, Any]:
        """For people and scripts; shares in percent."""
        found: dict[str, Any] = {"requests": self.requests, "absent": self.absent, "tools": self.tools}
        return found if self.chosen is None else found | point_figures(self.chosen)


def point_figures(point: RiskPoint) -> dict[str, Any]:
    """A point in percent, its threshold as it is."""
    return {
        "threshold": round(point.threshold, 4),
        "routed": point.routed,
        "coverage": _percent(point.coverage),
        "precision": _percent(point.precision),
        "precision_wilson_low": _percent(point.wilson_low),
        "absent_routed": None if point.absent is None else _percent(point.absent),
    }


def fit(
    rows: Sequence[Row],
    *,
    precision: float,
    absent_limit: float = ABSENT_LIMIT,
    least_threshold: float = 0.0,
) -> Fit:
    """Fit probabilities, and choose threshold and floor on cross-fitted ones: no fit is judged on its own rows.

    Args:
        rows: of requests for at least two tools.
        precision: wanted share of right routes, in (0, 1).
        absent_limit: most of the absent rows that may be routed.
        least_threshold: the chosen threshold is never below it.

    Raises:
        ValueError: no row with its tool, or all of one tool.
    """
    present = np.array([not row.absent for row in rows], bool)
    if len({row.group for row in rows if not row.absent}) < 2:  # noqa: PLR2004 - a fold, and the rest
        raise ValueError("requests for at least two tools are needed to fit a calibration")
    right, fitting = _cross_fitted(rows)
    labels = [[judged.right for judged in row.stages()] for row in rows]
    floor = choose_floor(fitting[present].tolist(), [row.ranked.fits for row in rows if not row.absent])
    right[fitting < floor] = -np.inf  # abstained from, whatever the first candidate
    judged = (right[present], np.array(labels)[present], right[~present])
    curve = risk_coverage(*judged)
    chosen = curve.best(precision, absent_limit)
    if chosen is not None and chosen.threshold < least_threshold:
        at_least = point_at(least_threshold, *judged)
        chosen = at_least if at_least.routed else None
    models = _train(rows)
    return Fit(
        *(models.right, models.right_reranked, models.fits, floor, curve, chosen),
        requests=int(present.sum()),
        absent=int((~present).sum()),
        tools=len({row.group for row in rows}),
    )


@dataclass(frozen=True, slots=True)
class _Models:
    right: Logistic
    right_reranked: Logistic | None
    fits: Logistic

    def stages(self, row: Row) -> list[float]:
        found = [self.right.probability(row.ranked.evidence)]
        if row.reranked is not None and self.right_reranked is not None:
            found.append(self.right_reranked.probability(row.reranked.evidence))
        return found


def _train(rows: Sequence[Row]) -> _Models:
    ranked = [(row, row.ranked) for row in rows]
    reranked = [(row, row.reranked) for row in rows if row.reranked is not None]
    plain = _names(judged for _, judged in ranked)
    return _Models(
        right=_logistic(ranked, [judged.right for _, judged in ranked], plain),
        right_reranked=_logistic(
            reranked, [judged.right for _, judged in reranked], _names(judged for _, judged in reranked)
        )
        if reranked
        else None,
        # Whether any tool fits is asked of either ranking, by what both have.
        fits=_logistic(ranked + reranked, [judged.fits for _, judged in ranked + reranked], plain),
    )


def _logistic(judged: Sequence[tuple[Row, Judged]], labels: Sequence[bool], names: Sequence[str]) -> Logistic:
    return fit_logistic(
        [one.evidence for _, one in judged],
        labels,
        names=names,
        ridge=RIDGE,
        sample_weights=[ABSENT_WEIGHT if row.absent else 1.0 for row, _ in judged],
    )


def _names(judged: Iterable[Judged]) -> list[str]:
    return sorted({name for one in judged for name in one.evidence})


def _cross_fitted(rows: Sequence[Row]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """P(right), shape (rows, stages), and P(fits), shape (rows,), each from a fit without the row's fold."""
    fold = _folds(rows)
    right = np.zeros((len(rows), len(rows[0].stages())))
    fitting = np.zeros(len(rows))
    for number in sorted({*fold}):
        models = _train([row for row, place in zip(rows, fold, strict=True) if place != number])
        for at, (row, place) in enumerate(zip(rows, fold, strict=True)):
            if place == number:
                right[at] = models.stages(row)
                fitting[at] = models.fits.probability(row.ranked.evidence)
    return right, fitting


def _folds(rows: Sequence[Row]) -> list[int]:
    """Each row's fold: whole groups, the largest first, into the fold that has the fewest rows."""
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row.group] = sizes.get(row.group, 0) + 1
    filled = [0] * min(FOLDS, len(sizes))
    of_group: dict[str, int] = {}
    for group in sorted(sizes, key=lambda name: (-sizes[name], name)):
        of_group[group] = filled.index(min(filled))
        filled[of_group[group]] += sizes[group]
    return [of_group[row.group] for row in rows]


def _percent(share: float) -> float:
    return round(100 * share, 1)
