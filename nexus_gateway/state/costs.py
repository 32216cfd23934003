"""What reading a prompt and putting state back cost on this machine, as measured; first guesses until then.

Kept for one engine and written beside its blocks, so that a fresh start knows. Knows no engine, tier or turn.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nexus_gateway.files import write_atomically
from tool_registry.blocks.small_files import number, read_object

FILE_NAME = "costs.json"
_VERSION = 1
_FORGETTING = 0.2
"""Weight of a new measurement once there are a few."""
_MOST_TIMES_EXPECTED = 10.0
"""A stall says nothing of the next time: a measurement counts for at most this many times the prediction."""
_DOUBT = 0.05
"""Share of a cost that is forgotten each time it keeps a block from being used: nothing else measures it again."""
_MIB = float(1 << 20)

GUESSED_PREFILL_SECONDS = 0.004
"""A token of a small model on two cores."""
GUESSED_RESTORE = (0.001, 0.0005)
"""Seconds, and seconds a MiB, of putting a state back into a context."""
GUESSED_READS: Mapping[str, tuple[float, float]] = {"disk": (0.002, 0.002), "remote": (0.05, 0.02)}
"""The same of reading and checking a block, by tier."""
_GUESSED_READ = (0.02, 0.01)
_MOST_BUCKETS = 24


@dataclass(slots=True)
class LinearCost:
    """Seconds for a size: a fixed part and a part a MiB, fitted step by step (normalised least mean squares)."""

    fixed: float
    per_mib: float
    measured: int = 0

    def seconds(self, size_bytes: int) -> float:
        """The prediction."""
        return self.fixed + self.per_mib * size_bytes / _MIB

    def learn(self, size_bytes: int, seconds: float) -> None:
        """Move towards a measurement, by how much each part has to do with it; never below zero."""
        expected, mib = self.seconds(size_bytes), size_bytes / _MIB
        if self.measured:
            seconds = min(seconds, _MOST_TIMES_EXPECTED * expected)
        self.measured += 1
        step = max(_FORGETTING, 1 / self.measured) * (seconds - expected) / (1 + mib * mib)
        self.fixed = max(self.fixed + step, 0.0)
        self.per_mib = max(self.per_mib + step * mib, 0.0)

    def doubt(self) -> None:
        """Believe it a little less."""
        self.fixed *= 1 - _DOUBT
        self.per_mib *= 1 - _DOUBT


@dataclass(slots=True)
class Prefill:
    """Seconds a token of prefill, by length: bucket b holds lengths from 2**(b-1) to 2**b - 1."""

    rates: dict[int, float] = field(default_factory=dict)
    measured: dict[int, int] = field(default_factory=dict)

    def seconds(self, tokens: int) -> float:
        """The prediction: of the bucket, or of the nearest one that was measured."""
        if tokens <= 0:
            return 0.0
        rates, bucket = self.rates, tokens.bit_length()
        rate = rates.get(bucket)
        if rate is None:
            nearest = min(rates, key=lambda other: abs(other - bucket), default=None)
            rate = GUESSED_PREFILL_SECONDS if nearest is None else rates[nearest]
        return rate * tokens

    def learn(self, tokens: int, seconds: float) -> None:
        """Take a measurement in."""
        if tokens <= 0 or seconds <= 0:
            return
        bucket = tokens.bit_length()
        count = self.measured.get(bucket, 0) + 1
        rate = seconds / tokens
        before = self.rates.get(bucket, rate)
        rate = min(rate, _MOST_TIMES_EXPECTED * before)
        self.rates[bucket] = before + max(_FORGETTING, 1 / count) * (rate - before)
        self.measured[bucket] = count


class Costs:
    """All costs of one engine. Not thread-safe: the event loop owns it."""

    def __init__(self) -> None:
        self.prefill = Prefill()
        self.restore = LinearCost(*GUESSED_RESTORE)
        self.reads: dict[str, LinearCost] = {}

    def read(self, tier: str) -> LinearCost:
        """Of reading a block from a tier; memory costs nothing and has none."""
        cost = self.reads.get(tier)
        if cost is None:
            cost = self.reads[tier] = LinearCost(*GUESSED_READS.get(tier, _GUESSED_READ))
        return cost

    def doubt(self, tier: str) -> None:
        """A block of this tier was not used for what it would cost, which may have been a stall once."""
        self.restore.doubt()
        if tier in self.reads:
            self.reads[tier].doubt()

    def to_json(self) -> dict[str, Any]:
        """As written beside the blocks."""
        return {
            "prefill": {str(b): [self.prefill.rates[b], n] for b, n in self.prefill.measured.items()},
            "restore": _linear_json(self.restore),
            "reads": {tier: _linear_json(cost) for tier, cost in self.reads.items() if cost.measured},
        }

    @classmethod
    def from_json(cls, kept: Any) -> "Costs":
        """What was written; whatever of it makes no sense is guessed again."""
        costs = cls()
        if not isinstance(kept, dict):
            return costs
        for bucket, pair in _members(kept.get("prefill")):
            rate, count = _pair(pair)
            if bucket.isdigit() and 0 < int(bucket) <= _MOST_BUCKETS and rate > 0 and count >= 1:
                costs.prefill.rates[int(bucket)] = rate
                costs.prefill.measured[int(bucket)] = int(count)
        costs.restore = _linear(kept.get("restore")) or costs.restore
        for tier, written in _members(kept.get("reads")):
            if cost := _linear(written):
                costs.reads[tier] = cost
        return costs


def load(path: Path, engine: str) -> Costs:
    """The costs of an engine; guesses where the file is missing or damaged. Blocks."""
    return Costs.from_json(_read(path).get(engine))


def save(path: Path, engine: str, costs: Mapping[str, Any]) -> None:
    """Write what `to_json` said of an engine, leaving others' as they are. Blocks; raises OSError."""
    kept = {name: written for name, written in _read(path).items() if name != "version"}
    write_atomically(path, json.dumps({"version": _VERSION, **kept, engine: costs}))


def _read(path: Path) -> dict[str, Any]:
    kept = read_object(path)
    return kept if kept.get("version") == _VERSION else {}


def _linear_json(cost: LinearCost) -> list[float]:
    return [cost.fixed, cost.per_mib, cost.measured]


def _linear(written: Any) -> LinearCost | None:
    if not (isinstance(written, list) and len(written) == 3 and all(map(_sensible, written))):  # noqa: PLR2004
        return None
    return LinearCost(float(written[0]), float(written[1]), int(written[2]))


def _pair(written: Any) -> tuple[float, float]:
    if isinstance(written, list) and len(written) == 2 and all(map(_sensible, written)):  # noqa: PLR2004
        return float(written[0]), float(written[1])
    return 0.0, 0.0


def _sensible(written: Any) -> bool:
    return written == 0 or number(written) > 0


def _members(written: Any) -> list[tuple[str, Any]]:
    return list(written.items()) if isinstance(written, dict) else []
