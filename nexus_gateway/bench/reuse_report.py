"""The figures of `bench reuse`: hit rates, mean times, and how well the planner predicts what a block gains."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nexus_gateway.bench.reuse import ToolCost
from nexus_gateway.bench.reuse_replay import Replayed

COLUMNS = ("budget", "MB", "policy", "hits", "mean time to first argument, ms", "over LRU")
FIGURE_COLUMNS = ("figure", "value")


@dataclass(frozen=True, slots=True)
class Executed:
    """One turn that was really run: seconds to the first argument token."""

    replayed: float
    measured: float


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """A run, as tables and as one object.

    Attributes:
        costs: at least one.
        left_out: tools whose prompt exceeds the context.
        turns: how many were replayed.
        budgets: by percent of all blocks' bytes, what became of the turns under each policy.
        predicted: the gain of each cost, before it was seen, in seconds.
        executed: a sample of our turns that was really run, if any.
    """

    costs: Sequence[ToolCost]
    left_out: int
    turns: int
    budgets: Mapping[int, Mapping[str, Replayed]]
    predicted: Sequence[float]
    executed: Sequence[Executed] = ()

    @property
    def all_bytes(self) -> int:
        """Of every block's file."""
        return sum(cost.file_bytes for cost in self.costs)

    def as_json(self) -> dict[str, Any]:
        """The last line of stdout: `hit` 0 to 1, times in ms."""
        return {
            "n": self.turns,
            "tools": len(self.costs),
            "left_out": self.left_out,
            "all_bytes": self.all_bytes,
            "budgets": {
                str(percent): {name: _json(one) for name, one in by_policy.items()}
                for percent, by_policy in self.budgets.items()
            },
            "gain": self._gain(),
            "costs_ms": {
                name: round(1000 * statistics.mean(getattr(cost, name) for cost in self.costs), 3)
                for name in ("prefill", "reading", "placing", "request")
            },
            "times": "replayed from measured costs",
            "executed": self._executed(),
        }

    def rows(self) -> list[tuple[str, ...]]:
        """A row a budget and policy, for `COLUMNS`."""
        return [
            (
                f"{percent} %",
                f"{self.all_bytes * percent / 100 / 1e6:,.0f}",
                name,
                f"{one.hit:.1%}",
                f"{1000 * one.mean_seconds:,.1f}",
                f"{one.mean_seconds / by_policy['lru'].mean_seconds:.3f}",
            )
            for percent, by_policy in self.budgets.items()
            for name, one in by_policy.items()
        ]

    def figure_rows(self) -> list[tuple[str, str]]:
        """The rest, for `FIGURE_COLUMNS`."""
        document = self.as_json()
        gain, costs = document["gain"], document["costs_ms"]
        rows = [
            (
                "tools measured, and left out since they exceed the context",
                f"{len(self.costs)}, {self.left_out}",
            ),
            ("mean of decoding a tool in full", f"{costs['prefill']:,.1f} ms"),
            ("mean of reading and checking its block", f"{costs['reading']:,.1f} ms"),
            ("mean of putting it back", f"{costs['placing']:,.1f} ms"),
            ("mean of decoding a request", f"{costs['request']:,.1f} ms"),
            ("predicted against measured gain, rank correlation", _or_none(gain["spearman"], ".3f")),
            ("predicted against measured gain, median error", _or_none(gain["median_error"], ".1%")),
        ]
        if document["executed"] is not None:
            found = document["executed"]
            rows.append(
                (
                    f"replay against {found['n']} turns really run, median error",
                    f"{found['median_error']:.1%}",
                )
            )
        return rows

    def _gain(self) -> dict[str, float | None]:
        measured = [cost.gain for cost in self.costs]
        errors = [
            abs(said - found) / abs(found)
            for said, found in zip(self.predicted, measured, strict=True)
            if found
        ]
        rank = spearman(self.predicted, measured)
        return {
            "spearman": None if rank is None else round(rank, 4),
            "median_error": round(statistics.median(errors), 4) if errors else None,
        }

    def _executed(self) -> dict[str, float] | None:
        if not self.executed:
            return None
        errors = [abs(one.replayed - one.measured) / one.measured for one in self.executed]
        return {
            "n": len(self.executed),
            "median_error": round(statistics.median(errors), 4),
            "mean_ms": round(1000 * statistics.mean(one.measured for one in self.executed), 3),
            "replayed_mean_ms": round(1000 * statistics.mean(one.replayed for one in self.executed), 3),
        }


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Rank correlation, equal values sharing their mean rank; None where one side says nothing."""
    first, second = _ranks(one), _ranks(other)
    if len(first) < 2 or not first.std() or not second.std():  # noqa: PLR2004 - a correlation needs two
        return None
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    _, places, counts = np.unique(
        np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True
    )
    last = np.cumsum(counts)
    mean_rank: NDArray[np.float64] = (last - counts + last - 1) / 2
    return mean_rank[places]


def _json(one: Replayed) -> dict[str, float]:
    return {"hit": round(one.hit, 4), "mean_ms": round(1000 * one.mean_seconds, 3)}


def _or_none(value: float | None, form: str) -> str:
    return "none" if value is None else format(value, form)
