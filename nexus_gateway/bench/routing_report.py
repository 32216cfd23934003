"""What `bench routing` says: one JSON object for scripts, and rows for people. Percentages are 0 to 100."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nexus_gateway.bench.figures import percentile
from nexus_gateway.bench.routing import Evaluation, Judged
from nexus_gateway.bench.routing_baselines import Places
from tool_registry.calibration import wilson_low
from tool_registry.routing import Gate

GATEWAY = "gateway"
RECALLS = (1, 5, 10)

SIZE_COLUMNS = (
    "tools",
    "requests",
    "ranked by",
    "R@1",
    "R@5",
    "R@10",
    "routed",
    "of these right",
    "reranked",
)
GATE_COLUMNS = ("requests", "n", "routed", "right", "")
TIME_COLUMNS = ("decisions", "n", "p50 ms", "p90 ms", "p50 in embeddings", "p90 in embeddings")

_NONE = "-"

Row = tuple[str, ...]
Figures = dict[str, Any]


class _Placed(Protocol):
    @property
    def source(self) -> str: ...
    @property
    def place(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured, and under which names it was asked for.

    Attributes:
        sizes: a label such as "250" or "all" -> tools in the registry.
        plain: places by baselines; empty where they were not asked for.
        unfit: other tools beside a request's own -> whether any was routed.
    """

    evaluation: Evaluation
    sizes: Mapping[str, int]
    plain: Places = field(default_factory=dict)
    unfit: Mapping[int, Sequence[bool]] = field(default_factory=dict)

    def as_json(self) -> Figures:
        """The run as one object; a figure without requests is null."""
        judged = self.evaluation.sizes
        document = {
            "tools": self.evaluation.n_tools,
            "skipped": self.evaluation.skipped,
            "sizes": {label: _size(judged[size]) for label, size in self.sizes.items()},
            "by_source": self._by_source(judged),
            "selective": {"size": self.evaluation.focus, **selective(self.evaluation)},
            "absent_gold": {"size": self.evaluation.focus, **_routed(self.evaluation.absent)},
            "rerank_rate": percent(one.reranked for one in judged[self.evaluation.timed]),
            "ms": {"size": self.evaluation.timed, **times(judged[self.evaluation.timed])},
        }
        if self.plain:
            document["baselines"] = {
                way: {
                    "sizes": {label: recalls(by_size.get(size, ())) for label, size in self.sizes.items()},
                    "by_source": self._by_source(by_size),
                }
                for way, by_size in self.plain.items()
            }
        if self.unfit:
            document["irrelevance"] = {f"others_{n}": _routed(routed) for n, routed in self.unfit.items()}
        return document

    def size_rows(self) -> list[Row]:
        """One row for each size and way of ranking."""
        rows: list[Row] = []
        for label, size in self.sizes.items():
            judged = self.evaluation.sizes[size]
            gate = _shown(percent(one.routed for one in judged)), _shown(_precision(judged))
            reranked = _shown(percent(one.reranked for one in judged))
            rows.append((*_ranking(label, size, GATEWAY, judged), *gate, reranked))
            for way, by_size in self.plain.items():
                rows.append((*_ranking("", size, way, by_size.get(size, ())), "", "", ""))
        return rows

    def source_columns(self) -> Row:
        """The header of `source_rows`."""
        return ("source", "n", "ranked by", *(f"{label} tools" for label in self.sizes))

    def source_rows(self) -> list[Row]:
        """One row for each source and way of ranking."""
        ways: dict[str, Mapping[int, Sequence[_Placed]]] = {GATEWAY: self.evaluation.sizes, **self.plain}
        rows: list[Row] = []
        for source in _sources(self.evaluation):
            for way, by_size in ways.items():
                of = [_of(by_size.get(size, ()), source) for size in self.sizes.values()]
                figures = (f"{_shown(recall(one, 1))} / {_shown(recall(one, 5))}" for one in of)
                first = (source, str(len(of[0]))) if way == GATEWAY else ("", "")
                rows.append((*first, way, *figures))
        return rows

    def gate_rows(self) -> list[Row]:
        """What is routed: requests as they are, the same without their tools, and those that no tool fits."""
        focus, figures = self.evaluation.focus, selective(self.evaluation)
        low = _shown(figures["precision_wilson_low"])
        rows: list[Row] = [
            (
                f"among {focus:,} tools",
                str(figures["n"]),
                _shown(figures["coverage"]),
                _shown(figures["precision"]),
                f"at least {low} with 95 % confidence; threshold {figures['threshold']:.3g}",
            )
        ]
        wrong = {f"the right tools taken away, {focus:,} tools": self.evaluation.absent}
        wrong |= {f"no tool fits, {n:,} others beside": routed for n, routed in self.unfit.items()}
        rows += [
            (what, str(len(routed)), _shown(percent(routed)), "", "each one an error")
            for what, routed in wrong.items()
        ]
        return rows

    def time_rows(self) -> list[Row]:
        """Whole decisions, reranked or not."""
        figures = times(self.evaluation.sizes[self.evaluation.timed])
        return [
            (
                what.replace("_", " "),
                str(of["n"]),
                *(_shown(of[name], 2) for name in ("p50", "p90", "p50_embeddings", "p90_embeddings")),
            )
            for what, of in figures.items()
            if isinstance(of, dict)
        ]

    def _by_source(self, by_size: Mapping[int, Sequence[_Placed]]) -> Figures:
        return {
            source: {label: recalls(_of(by_size.get(size, ()), source)) for label, size in self.sizes.items()}
            for source in _sources(self.evaluation)
        }


def percent(flags: Iterable[bool]) -> float | None:
    """Share of the true ones, 0 to 100; None of nothing."""
    counted = list(flags)
    return round(100 * sum(counted) / len(counted), 2) if counted else None


def recall(placed: Sequence[_Placed], k: int) -> float | None:
    """Share of the requests whose right tool is among the first `k`."""
    return percent(one.place is not None and one.place <= k for one in placed)


def recalls(placed: Sequence[_Placed]) -> Figures:
    """Requests, R@1, R@5 and R@10."""
    return {"n": len(placed), **{f"r{k}": recall(placed, k) for k in RECALLS}}


def selective(evaluation: Evaluation) -> Figures:
    """How much is routed at the focus, and how much of that is right.

    `precision_wilson_low` is the lower end of the score interval, two-sided 95 % (`wilson_low`).
    """
    judged = evaluation.sizes[evaluation.focus]
    routed = [one.right for one in judged if one.routed]
    return {
        "n": len(judged),
        "threshold": threshold(evaluation.gate),
        "precision": percent(routed),
        "precision_wilson_low": round(100 * wilson_low(sum(routed), len(routed)), 2) if routed else None,
        "coverage": percent(one.routed for one in judged),
    }


def threshold(gate: Gate) -> float:
    """What a ranking must reach to be routed: a probability from 0 to 1, or the margin where none is calibrated."""
    return gate.margin if gate.calibration is None else gate.calibration.threshold


def times(judged: Sequence[Judged]) -> Figures:
    """Milliseconds: medians of the stages, percentiles of whole decisions, and these in query embeddings.

    One query embedding is the median of the same run's "embed" stage.
    """
    embed = _stage(judged, "embed")
    groups = {
        "all": judged,
        "not_reranked": [one for one in judged if not one.reranked],
        "reranked": [one for one in judged if one.reranked],
    }
    figures = {name: _decisions([one.total_ms for one in group], embed) for name, group in groups.items()}
    whole = figures.pop("all")
    return {
        "embed": embed,
        "scan": _stage(judged, "scan"),
        "rerank": _stage(judged, "rerank"),
        "total_p50": whole["p50"],
        "total_p90": whole["p90"],
        **figures,
    }


def _stage(judged: Sequence[Judged], stage: str) -> float | None:
    spent = [one.stages_ms[stage] for one in judged if stage in one.stages_ms]
    return round(percentile(spent, 0.5), 3) if spent else None


def _decisions(spent: Sequence[float], embed: float | None) -> Figures:
    figures: Figures = {"n": len(spent)}
    for name, share in (("p50", 0.5), ("p90", 0.9)):
        value = percentile(spent, share) if spent else None
        figures[name] = None if value is None else round(value, 3)
        figures[f"{name}_embeddings"] = None if value is None or not embed else round(value / embed, 3)
    return figures


def _size(judged: Sequence[Judged]) -> Figures:
    return {
        **recalls(judged),
        "routed": percent(one.routed for one in judged),
        "precision": _precision(judged),
        "reranked": percent(one.reranked for one in judged),
    }


def _precision(judged: Sequence[Judged]) -> float | None:
    return percent(one.right for one in judged if one.routed)


def _routed(flags: Sequence[bool]) -> Figures:
    return {"n": len(flags), "wrongly_routed": percent(flags)}


def _ranking(label: str, size: int, way: str, placed: Sequence[_Placed]) -> Row:
    named = f"{label} ({size:,})" if label and label != str(size) else label
    return (named, str(len(placed)), way, *(_shown(recall(placed, k)) for k in RECALLS))


def _of(placed: Sequence[_Placed], source: str) -> list[_Placed]:
    return [one for one in placed if one.source == source]


def _sources(evaluation: Evaluation) -> list[str]:
    return sorted({one.source for one in evaluation.sizes[evaluation.timed]})


def _shown(value: float | None, digits: int = 1) -> str:
    return _NONE if value is None else f"{value:.{digits}f}"
