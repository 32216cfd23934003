"""How often each tool is used: counts by label that fade with time, in one JSON file that processes share.

A count loses half of itself in a half-life. Where uses come at a steady rate it settles at rate x half-life / ln 2:
it is the number of uses to expect in the next half-life / ln 2 (20 days for 14), if things go on as they did.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from tool_registry.atomic_file import replace_file
from tool_registry.blocks.locking import locked
from tool_registry.blocks.small_files import number, read_object

FILE_NAME = "usage.json"
HALF_LIFE_DAYS = 14.0
PRIOR_USES = 0.1
"""Of a tool that was never used."""
MAX_LABELS = 20_000
"""Kept; the rest are those that count least."""
LEAST_COUNT = 0.01
"""A count below this is forgotten."""

_DAY_SECONDS = 86_400.0

_Faded: TypeAlias = tuple[float, float]
"""A count, and the time for which it holds, in seconds since the epoch."""


class Usage:
    """Counts of uses. `count` and `expected` touch memory alone; `load` and `save` block on the file."""

    def __init__(
        self, path: Path, *, half_life_days: float = HALF_LIFE_DAYS, clock: Callable[[], float] = time.time
    ) -> None:
        """Use `path`, in a directory that need not exist yet; nothing is read before `load`."""
        self._path = path
        self._half_life_seconds = half_life_days * _DAY_SECONDS
        self._clock = clock
        self._kept: dict[str, _Faded] = {}
        self._fresh: Counter[str] = Counter()  # not in the file yet
        self._guard = threading.Lock()

    def count(self, label: str, uses: int = 1) -> None:
        """Note that a tool was used."""
        with self._guard:
            self._fresh[label] += uses

    def expected(self, label: str) -> float:
        """Uses to expect in the next half-life / ln 2, never 0."""
        return PRIOR_USES + self._fresh[label] + self._faded(self._kept.get(label, (0.0, 0.0)), self._clock())

    def load(self) -> None:
        """Take what the file says now; a missing or damaged one says nothing."""
        self._kept = self._read()

    def save(self) -> None:
        """Add what was counted since the last time to the file, and take what others added.

        Raises:
            OSError: it can't be written, or its lock is held for too long; the counts are kept for the next time.
        """
        with locked(self._path.parent):
            now = self._clock()
            with self._guard:
                fresh = Counter(self._fresh)
            counts = {label: self._faded(kept, now) for label, kept in self._read().items()}
            for label, uses in fresh.items():
                counts[label] = counts.get(label, 0.0) + uses
            most = sorted(counts, key=lambda label: -counts[label])[:MAX_LABELS]
            kept = {label: (counts[label], now) for label in most if counts[label] >= LEAST_COUNT}
            self._write(kept)
            with self._guard:
                self._fresh -= fresh
                self._kept = kept

    def _faded(self, kept: _Faded, now: float) -> float:
        uses, at = kept
        return float(uses * 0.5 ** (max(0.0, now - at) / self._half_life_seconds))

    def _read(self) -> dict[str, _Faded]:
        labels = read_object(self._path).get("labels")
        if not isinstance(labels, dict):
            return {}
        return {label: _pair(value) for label, value in labels.items()}

    def _write(self, kept: dict[str, _Faded]) -> None:
        labels = {label: [round(uses, 4), round(at)] for label, (uses, at) in kept.items()}
        replace_file(self._path, json.dumps({"labels": labels}).encode())


def _pair(value: Any) -> _Faded:
    match value:
        case [uses, at]:
            return number(uses), number(at)
    return 0.0, 0.0
