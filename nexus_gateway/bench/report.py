"""What a run says: one JSON object for scripts, and rows for people."""

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nexus_gateway.bench.arms import DIRECT, FASTMCP, GATEWAY
from nexus_gateway.bench.figures import Spread, latency_ms, latency_ratio, per_second, throughput_ratio
from nexus_gateway.bench.measure import Samples
from nexus_gateway.bench.proxy import Case, Footprint, Run

_PREFIXES = {GATEWAY: "", FASTMCP: "fastmcp_"}
"""How the keys of a proxy's ratios begin."""
_DIGITS = 3

COLUMNS = (
    "upstream",
    "era",
    "callers",
    "arm",
    "p50 ms",
    "p99 ms",
    "calls/s",
    "p50 / direct",
    "calls/s / direct",
)
LIST_COLUMNS = ("era", "arm", "p50 ms", "p99 ms", "p50 / direct")
FOOTPRINT_COLUMNS = ("arm", "first list s", "first call s", "memory MB")

Row = tuple[str, ...]


def as_json(run: Run, *, fastmcp_version: str | None) -> dict[str, Any]:
    """The run as one object; ratios are medians over the rounds, with their 10th and 90th percentile."""
    document: dict[str, Any] = {}
    for case in run.cases:
        document.setdefault(case.transport, {})[str(case.era)] = _case(case)
    document["list500"] = {str(era): _listing(samples) for era, samples in run.lists.items()}
    for name, prefix in _PREFIXES.items():
        ratios = [
            latency_ratio(samples[name], samples[DIRECT]) for samples in run.lists.values() if name in samples
        ]
        if ratios:
            document[f"{prefix}list500_ratio"] = round(max(ratio.p50 for ratio in ratios), _DIGITS)
    document["footprint"] = _footprints(run.footprints)
    versions = {"gateway": importlib.metadata.version("nexus-gateway"), "fastmcp": fastmcp_version}
    document["versions"] = {
        **versions,
        "mcp": importlib.metadata.version("mcp"),
        "python": platform.python_version(),
    }
    return {**document, "cpus": os.cpu_count()}


def call_rows(run: Run) -> list[Row]:
    """One row for each case, number of callers and arm."""
    return [
        (
            case.transport,
            str(case.era),
            str(callers),
            name,
            *_absolute(samples, name),
            *_relative(samples, name),
        )
        for case in run.cases
        for callers, samples in case.calls.items()
        for name in samples
    ]


def list_rows(run: Run) -> list[Row]:
    """One row for each era and arm."""
    return [
        (str(era), name, *_absolute(samples, name)[:2], *_relative(samples, name)[:1])
        for era, samples in run.lists.items()
        for name in samples
    ]


def footprint_rows(run: Run) -> list[Row]:
    """One row an arm."""
    return [
        (name, f"{of['first_list_seconds']:.2f}", f"{of['first_call_seconds']:.2f}", f"{of['rss_mb']:.0f}")
        for name, of in _footprints(run.footprints).items()
    ]


def _absolute(samples: Samples, name: str) -> Row:
    own = samples[name]
    return f"{latency_ms(own, 0.5):.2f}", f"{latency_ms(own, 0.99):.2f}", f"{per_second(own):.0f}"


def _relative(samples: Samples, name: str) -> Row:
    if name == DIRECT:
        return "", ""
    base = samples[DIRECT]
    return _shown(latency_ratio(samples[name], base)), _shown(throughput_ratio(samples[name], base))


def _shown(spread: Spread) -> str:
    return f"{spread.p50:.2f} ({spread.p10:.2f} to {spread.p90:.2f})"


def _case(case: Case) -> dict[str, Any]:
    one = case.calls[min(case.calls)]
    figures: dict[str, Any] = {"n": len(one[DIRECT])}
    for name, prefix in _PREFIXES.items():
        if name not in one:
            continue
        figures |= _keys(f"{prefix}hop_ratio", latency_ratio(one[name], one[DIRECT]))
        for callers, samples in case.calls.items():
            ratio = throughput_ratio(samples[name], samples[DIRECT])
            figures[f"{prefix}throughput_ratio_{callers}"] = round(ratio.p50, _DIGITS)
            figures |= _keys(f"{prefix}throughput_ratio_{callers}", ratio, only=("p10", "p90"))
    figures["arms"] = {
        name: {str(callers): _arm(samples, name) for callers, samples in case.calls.items()} for name in one
    }
    return figures


def _listing(samples: Samples) -> dict[str, Any]:
    figures: dict[str, Any] = {"n": len(samples[DIRECT])}
    for name, prefix in _PREFIXES.items():
        if name in samples:
            figures |= _keys(f"{prefix}ratio", latency_ratio(samples[name], samples[DIRECT]))
    figures["arms"] = {name: _arm(samples, name) for name in samples}
    return figures


def _keys(name: str, spread: Spread, *, only: Sequence[str] = ("p10", "p50", "p90")) -> dict[str, float]:
    return {f"{name}_{share}": round(getattr(spread, share), _DIGITS) for share in only}


def _arm(samples: Samples, name: str) -> dict[str, float]:
    own = samples[name]
    return {
        "p50_ms": round(latency_ms(own, 0.5), _DIGITS),
        "p99_ms": round(latency_ms(own, 0.99), _DIGITS),
        "calls_per_second": round(per_second(own), 1),
    }


def _footprints(footprints: Iterable[Footprint]) -> Mapping[str, dict[str, float]]:
    by_arm: dict[str, list[Footprint]] = {}
    for footprint in footprints:
        by_arm.setdefault(footprint.arm, []).append(footprint)
    return {
        name: {
            "first_list_seconds": round(statistics.median(one.first_list_seconds for one in taken), _DIGITS),
            "first_call_seconds": round(statistics.median(one.first_call_seconds for one in taken), _DIGITS),
            "rss_mb": round(max(one.rss_bytes for one in taken) / 2**20, 1),
        }
        for name, taken in by_arm.items()
    }
