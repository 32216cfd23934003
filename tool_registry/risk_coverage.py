"""What a threshold buys: how many requests are routed above it, and how many of those rightly.

Rows are requests. A row may have several stages, as a ranking and then a reranked one: it is decided by the
first stage whose probability reaches the threshold. Knows probabilities and labels; knows no ranking.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

PRECISION_SLACK = 0.05
"""How far below the wanted precision its Wilson lower bound may be: what few rows are held to."""
ABSENT_LIMIT = 0.15
"""Of the requests whose tool is not there, the share that may be routed."""
LOST_LIMIT = 0.02
"""Of the requests that some tool fits, the share that may be told that none does."""

_MOST_THRESHOLDS = 1_000
_EVEN = 0.5
"""A tool that is more likely wrong than right is never called; nothing is abstained from that is more likely to fit."""

Probabilities: TypeAlias = ArrayLike
"""Shape (rows,) or (rows, stages)."""


def wilson_low(right: int, n: int, z: float = 1.96) -> float:
    """Lower end of the score interval of a share (E. B. Wilson 1927); two-sided 95 % with z = 1.96.

    Args:
        right: successes.
        n: trials; 0 gives 0.
        z: quantile of the normal distribution.
    """
    if n <= 0:
        return 0.0
    share, square = right / n, z * z
    centre = share + square / (2 * n)
    reach = z * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    return max(0.0, (centre - reach) / (1 + square / n))


@dataclass(frozen=True, slots=True)
class RiskPoint:
    """One threshold, with shares in [0, 1].

    Attributes:
        threshold: least probability that is routed.
        routed: rows at or above it.
        right: of these, the right ones.
        coverage: share of all rows that are routed.
        absent: share of the rows without their tool that are routed; None where there are no such rows.
    """

    threshold: float
    routed: int
    right: int
    coverage: float
    absent: float | None = None

    @property
    def precision(self) -> float:
        """Share of the routed rows that are right; 1 where none is routed."""
        return self.right / self.routed if self.routed else 1.0

    @property
    def wilson_low(self) -> float:
        """Lower bound of the precision, with 95 % confidence."""
        return wilson_low(self.right, self.routed)

    def meets(self, precision: float, absent_limit: float) -> bool:
        """Whether it is precise enough, is so with some certainty, and leaves requests without a tool alone.

        No threshold below 0.5 does, whatever the average above it.
        """
        return (
            self.routed > 0
            and self.threshold >= _EVEN
            and self.precision >= precision
            and self.wilson_low >= precision - PRECISION_SLACK
            and (self.absent is None or self.absent <= absent_limit)
        )


@dataclass(frozen=True, slots=True)
class RiskCoverage:
    """The curve: points from the highest threshold to the lowest, so that coverage rises."""

    points: tuple[RiskPoint, ...]

    def best(self, precision: float, absent_limit: float = ABSENT_LIMIT) -> RiskPoint | None:
        """The point of the least threshold that meets both; None where no point does."""
        return next((point for point in reversed(self.points) if point.meets(precision, absent_limit)), None)

    def every(self, share: float) -> list[RiskPoint]:
        """Points for people: one for each step of `share` in coverage."""
        chosen: list[RiskPoint] = []
        for point in self.points:
            if not chosen or point.coverage >= chosen[-1].coverage + share or point is self.points[-1]:
                chosen.append(point)
        return chosen


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Probabilities and labels, each of shape (rows, stages)."""

    probabilities: NDArray[np.float64]
    right: NDArray[np.bool_]

    def routed(self, threshold: float) -> tuple[int, int]:
        """How many rows are routed, and how many of them rightly."""
        above = self.probabilities >= threshold
        first = above.argmax(axis=1)[:, None]
        hits = np.take_along_axis(above & self.right, first, axis=1)
        return int(above.any(axis=1).sum()), int(hits.sum())


def risk_coverage(
    probabilities: Probabilities, right: ArrayLike, absent_probabilities: Probabilities = ()
) -> RiskCoverage:
    """The curve over all thresholds that differ (1,000 evenly picked of more).

    Args:
        probabilities: that the first candidate is right, from a fit that has not seen the row.
        right: whether it was; the same shape.
        absent_probabilities: of rows whose right tool was taken away, so that routing any is wrong.

    Raises:
        ValueError: no row, or shapes that differ.
    """
    rows = _Rows(_staged(probabilities), _staged(right).astype(bool))
    if not len(rows.probabilities) or rows.probabilities.shape != rows.right.shape:
        raise ValueError(
            f"probabilities {rows.probabilities.shape} and labels {rows.right.shape} don't match, or are none"
        )
    absent = _staged(absent_probabilities)
    return RiskCoverage(tuple(_point(rows, absent, at) for at in _thresholds(rows.probabilities)))


def point_at(
    threshold: float, probabilities: Probabilities, right: ArrayLike, absent_probabilities: Probabilities = ()
) -> RiskPoint:
    """The point of one threshold; arguments as for `risk_coverage`."""
    rows = _Rows(_staged(probabilities), _staged(right).astype(bool))
    return _point(rows, _staged(absent_probabilities), threshold)


def choose_threshold(
    probabilities: Probabilities,
    right: ArrayLike,
    *,
    precision: float,
    absent_probabilities: Probabilities = (),
    absent_limit: float = ABSENT_LIMIT,
) -> float | None:
    """The least threshold whose routed rows are right often enough; None where there is none.

    The rule: precision at least `precision`, its Wilson lower bound at most 5 points below that (35 rows, all
    right, are the fewest that pass for 0.95), at most `absent_limit` of the absent rows routed, and 0.5 at least. Give
    cross-fitted probabilities: a fit that is judged on its own rows looks better than it is.
    """
    best = risk_coverage(probabilities, right, absent_probabilities).best(precision, absent_limit)
    return None if best is None else best.threshold


def choose_floor(
    probabilities: Sequence[float], fits: Sequence[bool], *, lost_limit: float = LOST_LIMIT
) -> float:
    """The greatest floor under which at most `lost_limit` of the rows that a tool fits fall, at most 0.5.

    Args:
        probabilities: that any tool fits.
        fits: whether one did.
        lost_limit: share of these that may be abstained from.
    """
    fitting = sorted(p for p, fit in zip(probabilities, fits, strict=True) if fit)
    return min(_EVEN, fitting[int(lost_limit * len(fitting))]) if fitting else 0.0


def _staged(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    return array if array.ndim == 2 else array.reshape(-1, 1)  # noqa: PLR2004 - rows and stages


def _thresholds(probabilities: NDArray[np.float64]) -> list[float]:
    """Descending."""
    distinct = np.unique(probabilities[np.isfinite(probabilities)])[::-1]
    if len(distinct) > _MOST_THRESHOLDS:
        distinct = distinct[np.linspace(0, len(distinct) - 1, _MOST_THRESHOLDS).astype(int)]
    return [float(value) for value in distinct]


def _point(rows: _Rows, absent: NDArray[np.float64], threshold: float) -> RiskPoint:
    routed, right = rows.routed(threshold)
    wrongly = float((absent >= threshold).any(axis=1).mean()) if len(absent) else None
    return RiskPoint(threshold, routed, right, routed / len(rows.right), wrongly)
