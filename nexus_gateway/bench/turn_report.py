"""What `bench turn` says: one JSON object for scripts, and rows for people. Percentages are 0 to 100."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nexus_gateway.bench.figures import percentile
from nexus_gateway.bench.turn import Judged, Turn, Verdict

Row = tuple[str, ...]
Figures = dict[str, Any]

COLUMNS = (
    "tools",
    "n",
    "by",
    "exact",
    "wrong tool",
    "wrong arguments",
    "proposed",
    "of these right",
    "asked",
    "ambiguous",
    "no tool",
    "failed",
)
COST_COLUMNS = (
    "tools",
    "host: all schemas",
    "host: meta-tools",
    "model asked, %",
    "its tokens then, mean",
    "without state",
    "ms",
    "ms if asked",
    "without state / with, if asked",
    "answers that differ",
)
_GATEWAY = "gateway"
_CONCATENATED = "all schemas"
_NONE = "-"
_CALLED = (Verdict.EXACT, Verdict.WRONG_TOOL, Verdict.WRONG_ARGUMENTS)


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured.

    Attributes:
        sizes: tools in a registry -> the requests.
        meta_tools: tokens of the meta-tools' definitions.
        seed: of the run.
    """

    sizes: Mapping[int, Sequence[Judged]]
    meta_tools: int
    seed: int = 0

    def as_json(self) -> Figures:
        """The run as one object; a figure without requests is null."""
        return {
            "seed": self.seed,
            "meta_tools_tokens": self.meta_tools,
            "sizes": {str(size): self._of(judged) for size, judged in self.sizes.items()},
        }

    def rows(self) -> list[Row]:
        """How turns ended, of both arms."""
        rows = []
        for size, judged in self.sizes.items():
            rows.append(_row(size, _GATEWAY, outcomes([one.ours for one in judged])))
            naive = concatenated(judged)
            if naive is not None:
                rows.append(_row(size, _CONCATENATED, naive))
        return rows

    def cost_rows(self) -> list[Row]:
        """Medians of tokens and times."""
        return [_cost_row(size, self.meta_tools, self._of(judged)) for size, judged in self.sizes.items()]

    def notes(self) -> list[str]:
        """What the tables leave out."""
        every = [one for judged in self.sizes.values() for one in judged]
        yes = sum(one.ours.played.confirmed for one in every)
        notes = [f"{yes} of {len(every)} turns asked for a yes before the call; every one was given."]
        kept_out = sum(one.fits is False for one in every)
        if kept_out:
            notes.append(f"{kept_out} prompts with all schemas did not fit the model's context.")
        return notes

    def _of(self, judged: Sequence[Judged]) -> Figures:
        carried = [one.host_tokens for one in judged]
        return {
            **outcomes([one.ours for one in judged]),
            "host_tokens_p50": _median(carried),
            "host_over_meta_tools": spread(tokens / self.meta_tools for tokens in carried),
            "written": percent(one.ours.played.written for one in judged),
            "decoded_tokens": _tokens([one.ours for one in judged]),
            "ms": _times([one.ours for one in judged]),
            "state": state(judged),
            "concatenated": concatenated(judged),
        }


def outcomes(turns: Sequence[Turn]) -> Figures:
    """Shares of verdicts; `proposed_right`: of all turns, proposals of the right tool and arguments.

    `confirmed`: turns that wanted a yes; every one was given.
    """
    return {
        **_verdicts([turn.verdict for turn in turns]),
        "proposed_right": percent(turn.right_draft and turn.verdict is Verdict.PROPOSED for turn in turns),
        "confirmed": percent(turn.played.confirmed for turn in turns),
    }


def state(judged: Sequence[Judged]) -> Figures | None:
    """The turns without compiled state beside those with it; None where it was not measured.

    `ms_ratio` is time without over time with, turn by turn; `ms_ratio_written` the same of the turns in which the
    argument model was asked at all.
    """
    pairs = [(one.stateless, one.ours) for one in judged if one.stateless is not None]
    if not pairs:
        return None
    ratios = [plain.played.milliseconds / ours.played.milliseconds for plain, ours in pairs]
    written = [ratio for ratio, (plain, _) in zip(ratios, pairs, strict=True) if plain.played.written]
    return {
        "differing": sum(plain.differs(ours) for plain, ours in pairs),
        "decoded_tokens": _tokens([plain for plain, _ in pairs]),
        "ms": _times([plain for plain, _ in pairs]),
        "ms_ratio": spread(ratios),
        "ms_ratio_written": spread(written),
    }


def concatenated(judged: Sequence[Judged]) -> Figures | None:
    """The arm with every schema in the prompt; shares are of all its requests, those that don't fit included."""
    asked = [one for one in judged if one.fits is not None]
    if not asked:
        return None
    written = [one.concatenated for one in asked if one.concatenated is not None]
    verdicts = [one.chosen for one in asked if one.chosen is not None]
    return {
        **_verdicts(verdicts, len(asked)),
        "does_not_fit": percent(one.fits is False for one in asked),
        "decoded_tokens": {"p50": _median([one.decoded for one in written])},
        "ms": {"p50": _rounded(_median([one.milliseconds for one in written]))},
        "ms_over_ours": spread(
            one.concatenated.milliseconds / one.ours.played.milliseconds
            for one in asked
            if one.concatenated is not None and not one.concatenated.failure
        ),
    }


def spread(values: Iterable[float]) -> Figures:
    """Percentiles and the number of values."""
    known = list(values)
    shares = (("p10", 0.1), ("p50", 0.5), ("p90", 0.9))
    return {
        **{name: round(percentile(known, share), 3) if known else None for name, share in shares},
        "n": len(known),
    }


def percent(flags: Iterable[bool], of: int | None = None) -> float | None:
    """Share of the true ones, 0 to 100; None of nothing."""
    counted = list(flags)
    whole = len(counted) if of is None else of
    return round(100 * sum(counted) / whole, 2) if whole else None


def _verdicts(verdicts: Sequence[Verdict], of: int | None = None) -> Figures:
    shares = {verdict.value: percent((one is verdict for one in verdicts), of) for verdict in Verdict}
    return {
        "n": len(verdicts) if of is None else of,
        **shares,
        "executed": percent((one in _CALLED for one in verdicts), of),
    }


def _tokens(turns: Sequence[Turn]) -> Figures:
    """Tokens that the argument model decodes in a turn; `written`: of the turns in which it was asked at all."""
    decoded = [turn.played.decoded for turn in turns]
    written = [turn.played.decoded for turn in turns if turn.played.written]
    return {
        "p50": _median(decoded),
        "mean": _mean(decoded),
        "p50_written": _median(written),
        "mean_written": _mean(written),
    }


def _times(turns: Sequence[Turn]) -> Figures:
    written = [turn.played.milliseconds for turn in turns if turn.played.written]
    return {
        "p50": _rounded(_median([turn.played.milliseconds for turn in turns])),
        "p50_written": _rounded(_median(written)),
    }


def _mean(values: Sequence[float]) -> float | None:
    return _rounded(statistics.fmean(values)) if values else None


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _row(size: int, by: str, figures: Figures) -> Row:
    keys = ("exact", "wrong_tool", "wrong_arguments", "proposed", "proposed_right")
    rest = ("asked", "ambiguous", "no_tool", "failed")
    return (f"{size:,}", str(figures["n"]), by, *(_shown(figures.get(key)) for key in (*keys, *rest)))


def _cost_row(size: int, meta_tools: int, figures: Figures) -> Row:
    beside = figures["state"]

    def of_state(value: Callable[[Figures], object]) -> str:
        return _NONE if beside is None else _shown(value(beside))

    return (
        f"{size:,}",
        _shown(figures["host_tokens_p50"], 0),
        str(meta_tools),
        _shown(figures["written"]),
        _shown(figures["decoded_tokens"]["mean_written"]),
        of_state(lambda state: state["decoded_tokens"]["mean_written"]),
        _shown(figures["ms"]["p50"]),
        _shown(figures["ms"]["p50_written"]),
        of_state(lambda state: state["ms_ratio_written"]["p50"]),
        _NONE if beside is None else str(beside["differing"]),
    )


def _shown(value: object, digits: int = 1) -> str:
    return f"{value:,.{digits}f}" if isinstance(value, int | float) else _NONE
