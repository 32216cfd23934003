"""The figures of `bench ttfa`: ratios request by request, fidelity, and what a block costs. Knows what was measured."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from nexus_gateway.bench.figures import Spread, spread
from nexus_gateway.bench.ttfa import Agreement, Run, Timed
from nexus_gateway.bench.ttfa_arms import Arm

COLUMNS = (
    "arm",
    "tool tokens decoded",
    "first argument, ms",
    "10th",
    "90th",
    "over restore",
    "10th",
    "90th",
)
FIGURE_COLUMNS = ("figure", "value")

_SAID = {
    Arm.FULL: "full schema",
    Arm.SIGNATURE: "signature",
    Arm.RESTORE: "block from memory",
    Arm.DISK: "block from disk",
    Arm.LIMIT: "the request alone",
    Arm.CONCAT: "10 full schemas",
}
_TOKENS = {Arm.FULL: "schema", Arm.SIGNATURE: "signature", Arm.CONCAT: "concat10"}
_RATIOS = {
    "full_over_restore": (Arm.FULL, Arm.RESTORE),
    "signature_over_restore": (Arm.SIGNATURE, Arm.RESTORE),
    "concat10_over_restore": (Arm.CONCAT, Arm.RESTORE),
    "restore_over_limit": (Arm.RESTORE, Arm.LIMIT),
    "full_over_disk": (Arm.FULL, Arm.DISK),
    "disk_over_limit": (Arm.DISK, Arm.LIMIT),
}


class Report:
    """A run, as tables and as one object. At least one request was measured."""

    def __init__(self, run: Run, *, flash_attention: bool, decision_us: dict[str, float] | None) -> None:
        self._run = run
        self._timed = run.timed
        self._flash_attention = flash_attention
        self._decision_us = decision_us

    def as_json(self) -> dict[str, Any]:
        """The last line of stdout: times in ms, divergence in nats, bytes a token of a block's payload."""
        agreements = [one for timed in self._timed for one in (*timed.alone, *timed.crowded)]
        return {
            "n": len(self._timed),
            "ratio": {name: _rounded(self._ratio(*arms), 3) for name, arms in _RATIOS.items()},
            "restore_ms": _rounded(self._restoring(Arm.RESTORE), 3),
            "disk_ms": _rounded(self._restoring(Arm.DISK), 3),
            "first_argument_ms": {arm.value: _rounded(self._milliseconds(arm), 2) for arm in Arm},
            "kl_max": max(one.kl for one in agreements),
            "top1": _share(agreements),
            "kl": {
                "alone": self._fidelity(lambda one: one.alone),
                "crowded": self._fidelity(lambda one: one.crowded),
            },
            "flash_attention": self._flash_attention,
            "bytes_per_token": round(self._bytes_per_token()),
            "tokens": {name: round(self._tokens(name), 1) for name in self._timed[0].tokens},
            "left_out": self._run.left_out,
            "concat10_overflows": self._run.overflows,
            "decision_us": self._decision_us,
        }

    def rows(self) -> list[tuple[str, ...]]:
        """A row an arm, for `COLUMNS`."""
        return [self._row(arm) for arm in Arm if self._milliseconds(arm) is not None]

    def figure_rows(self) -> list[tuple[str, str]]:
        """What is no time, for `FIGURE_COLUMNS`."""
        document = self.as_json()
        rows = [
            ("flash attention", "on" if self._flash_attention else "off"),
            ("KL of a restore, alone in the cache", _said(document["kl"]["alone"])),
            ("KL of a restore, among neighbours at odd offsets", _said(document["kl"]["crowded"])),
            ("state put back from memory, median", f"{document['restore_ms']['p50']:.2f} ms"),
            ("read, checked and put back from disk, median", f"{document['disk_ms']['p50']:.2f} ms"),
            ("bytes a token of a block", f"{document['bytes_per_token']:,}"),
            ("requests left out: the full schema exceeds the context", str(self._run.left_out)),
            ("requests at which 10 schemas exceed the context", str(self._run.overflows)),
        ]
        if self._decision_us is not None:
            rows.append(("a planner's decision, median", f"{self._decision_us['p50']:.1f} µs"))
        return rows

    def _row(self, arm: Arm) -> tuple[str, ...]:
        times, ratio = self._milliseconds(arm), self._ratio(arm, Arm.RESTORE)
        name = _TOKENS.get(arm)
        shown = [f"{self._tokens(name):,.0f}" if name else "0"]
        shown += [f"{value:,.0f}" for value in (times.p50, times.p10, times.p90)] if times else []
        shown += [f"{value:.2f}" for value in (ratio.p50, ratio.p10, ratio.p90)] if ratio else []
        return (_SAID[arm], *shown)

    def _ratio(self, arm: Arm, base: Arm) -> Spread | None:
        """The time of `arm` over that of `base`, one ratio a request; None where an arm never ran."""
        return _spread(
            [one.seconds[arm] / one.seconds[base] for one in self._timed if {arm, base} <= one.seconds.keys()]
        )

    def _milliseconds(self, arm: Arm) -> Spread | None:
        return _spread([1000 * one.seconds[arm] for one in self._timed if arm in one.seconds])

    def _restoring(self, arm: Arm) -> Spread | None:
        return _spread([1000 * one.restoring[arm] for one in self._timed])

    def _fidelity(self, of: Callable[[Timed], Sequence[Agreement]]) -> dict[str, float]:
        found = [one for timed in self._timed for one in of(timed)]
        return {"max": max(one.kl for one in found), "top1": _share(found)}

    def _tokens(self, name: str) -> float:
        return statistics.median(one.tokens[name] for one in self._timed)

    def _bytes_per_token(self) -> float:
        return statistics.median(one.block_bytes / one.tokens["block"] for one in self._timed)


def _spread(values: Sequence[float]) -> Spread | None:
    return spread(values) if values else None


def _rounded(found: Spread | None, digits: int) -> dict[str, float] | None:
    return None if found is None else {name: round(value, digits) for name, value in asdict(found).items()}


def _share(agreements: Sequence[Agreement]) -> float:
    return sum(one.top1 for one in agreements) / len(agreements)


def _said(fidelity: dict[str, float]) -> str:
    return f"at most {fidelity['max']:.2g} nats; the same first token in {fidelity['top1']:.1%}"
