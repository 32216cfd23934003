"""What `bench arguments` says: one JSON object for scripts, and rows for people. Percentages are 0 to 100."""

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nexus_gateway.bench.arguments import Answer, Judged
from tool_registry.risk_coverage import wilson_low

Row = tuple[str, ...]
Figures = dict[str, Any]

COLUMNS = ("", "n", "exact", "naive", "valid", "naive", "specified", "runs", "of these right")
FIGURE_COLUMNS = ("of our drafts", "")
_COLUMN_KEYS = ("exact", "naive_exact", "valid", "naive_valid", "specified_args")
MAX_POINTS = 20
_ALL = "all"


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured.

    Attributes:
        resident: whether what depends on the tool alone was in the engine's cache before either arm.
    """

    judged: Sequence[Judged]
    resident: bool = True

    def as_json(self) -> Figures:
        """The run as one object; a figure without requests is null."""
        ours = [one.ours for one in self.judged]
        pairs = [(one.ours, one.naive) for one in self.judged if one.naive is not None]
        cuts = [one.detected for one in self.judged if one.cut is not None]
        written = sum(each.tokens.sampled + each.tokens.forced for each in ours)
        return {
            **self._of(self.judged),
            "invented": invented(ours),
            "naive_invented": invented([naive for _, naive in pairs]),
            "missing_detected": percent(cuts),
            "cut": len(cuts),
            "false_missing": percent(one.falsely_missing for one in self.judged),
            "selective": selective(self.judged),
            "curve": curve(self.judged),
            "prefix": "resident" if self.resident else "decoded",
            "decoded_tokens_ratio_p50": _ratio(pairs, lambda one: one.decoded),
            "time_ratio_p50": _ratio(pairs, lambda one: one.milliseconds),
            "forced_token_share": _share(sum(each.tokens.forced for each in ours), written),
            "failed": sum(bool(one.failure) for one in ours),
            "by_server": self._by(lambda one: one.query.server),
            "by_category": self._by(lambda one: one.query.category),
        }

    def rows(self) -> list[Row]:
        """All requests, then each category and server where there are several."""
        groups: dict[str, list[Judged]] = {_ALL: list(self.judged)}
        for name_of in (lambda one: one.query.category, lambda one: one.query.server):
            named = _groups(self.judged, name_of)
            groups |= named if len(named) > 1 else {}
        return [_row(name, self._of(group), selective(group)) for name, group in groups.items()]

    def figure_rows(self) -> list[Row]:
        """What there is besides, in words."""
        figures = self.as_json()
        sure = figures["selective"]
        return [
            ("values without a ground, %", _shown(figures["invented"])),
            ("  the naive arm's", _shown(figures["naive_invented"])),
            (f"a value cut out is asked for, % (n={figures['cut']})", _shown(figures["missing_detected"])),
            ("something known is asked for, % of requests", _shown(figures["false_missing"])),
            (f"runs unasked at confidence {sure['threshold']:.2g}, %", _shown(sure["coverage"])),
            ("  of these exactly right, %", _shown(sure["precision"])),
            ("  at least, with 95 % confidence", _shown(sure["precision_wilson_low"])),
            ("tokens for a request, ours / naive, median", _shown(figures["decoded_tokens_ratio_p50"], 2)),
            ("time for a request, ours / naive, median", _shown(figures["time_ratio_p50"], 2)),
            ("written tokens that were forced, %", _shown(figures["forced_token_share"])),
            ("requests for which the model failed", str(figures["failed"])),
        ]

    def failures(self, most: int) -> list[str]:
        """Requests whose arguments are wrong, with what is right and what was written."""
        return [_told(one) for one in self.judged if not one.ours.exact][:most]

    def _of(self, judged: Sequence[Judged]) -> Figures:
        naive = [one.naive for one in judged if one.naive is not None]
        return {
            "n": len(judged),
            "exact": percent(one.ours.exact for one in judged),
            "naive_exact": percent(one.exact for one in naive),
            "valid": percent(one.ours.valid for one in judged),
            "naive_valid": percent(one.valid for one in naive),
            "specified_args": specified([one.ours for one in judged]),
        }

    def _by(self, name_of: Callable[[Judged], str]) -> dict[str, Figures]:
        return {
            name: {
                **self._of(group),
                "invented": invented([one.ours for one in group]),
                "false_missing": percent(one.falsely_missing for one in group),
                "selective": selective(group),
            }
            for name, group in _groups(self.judged, name_of).items()
        }


def percent(flags: Iterable[bool]) -> float | None:
    """Share of the true ones, 0 to 100; None of nothing."""
    counted = list(flags)
    return _share(sum(counted), len(counted))


def specified(answers: Sequence[Answer]) -> float | None:
    """Of the arguments that requests specify, those that are right."""
    return _share(sum(one.right for one in answers), sum(one.specified for one in answers))


def invented(answers: Sequence[Answer]) -> float | None:
    """Of the values written, those without a ground."""
    return _share(sum(len(one.invented) for one in answers), sum(one.values for one in answers))


def selective(judged: Sequence[Judged], threshold: float | None = None) -> Figures:
    """What would run unasked, and how much of it is exactly right; at the writer's own target unless another is given.

    `precision_wilson_low` is the lower end of the score interval, two-sided 95 % (`wilson_low`).
    """
    at = max((one.sure.target for one in judged), default=None) if threshold is None else threshold
    ran = [
        one.ours.exact
        for one in judged
        if (one.sure.runs if threshold is None else one.sure.reaches(threshold))
    ]
    return {
        "threshold": at,
        "precision": percent(ran),
        "precision_wilson_low": round(100 * wilson_low(sum(ran), len(ran)), 2) if ran else None,
        "coverage": _share(len(ran), len(judged)),
    }


def curve(judged: Sequence[Judged]) -> list[Figures]:
    """`selective` at the thresholds where it changes, ascending; at most `MAX_POINTS`, evenly drawn."""
    levels = sorted({one.sure.confidence for one in judged if one.sure.confidence is not None})
    if len(levels) > MAX_POINTS:
        last = len(levels) - 1
        levels = [levels[round(place * last / (MAX_POINTS - 1))] for place in range(MAX_POINTS)]
    return [selective(judged, level) for level in levels]


def _groups(judged: Sequence[Judged], name_of: Callable[[Judged], str]) -> dict[str, list[Judged]]:
    names = sorted({name_of(one) for one in judged})
    return {name: [one for one in judged if name_of(one) == name] for name in names}


def _share(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 2) if whole else None


def _ratio(pairs: Sequence[tuple[Answer, Answer]], of: Callable[[Answer], float]) -> float | None:
    """The median over the requests of ours by the naive arm's, where neither failed."""
    ratios = [of(ours) / of(naive) for ours, naive in pairs if of(naive) > 0 and not ours.failure]
    return round(statistics.median(ratios), 3) if ratios else None


def _row(name: str, figures: Figures, sure: Figures) -> Row:
    return (
        name,
        str(figures["n"]),
        *(_shown(figures[key]) for key in _COLUMN_KEYS),
        _shown(sure["coverage"]),
        _shown(sure["precision"]),
    )


def _told(one: Judged) -> str:
    lines = [
        f"{one.query.id} ({one.query.category}) {one.query.tool.id}",
        f"  request  {one.query.text}",
        f"  right    {_json(dict(one.query.gold.stated))}",
        f"  ours     {one.ours.failure or _json(one.ours.arguments)}",
    ]
    if one.missing:
        lines.append(f"  asks for {', '.join(one.missing)}")
    if one.ours.invented:
        lines.append(f"  no ground {'; '.join(one.ours.invented)}")
    return "\n".join(lines)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shown(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
