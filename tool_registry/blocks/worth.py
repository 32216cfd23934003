"""Which states are worth their bytes: seconds gained per byte, and who makes room for whom.

The question is a knapsack; the greedy answer by worth a byte is off by less than one state. Knows no files and no
clock.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

IDLE_HALF_LIFE_DAYS = 14
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that could be kept.

    Attributes:
        name: says which, to whoever asks.
        worth: seconds gained per byte, of `worth`.
    """

    name: str
    size_bytes: int
    worth: float

    @property
    def gain(self) -> float:
        """Seconds gained by keeping it."""
        return self.worth * self.size_bytes


def worth(expected_uses: float, saved_seconds: float, size_bytes: int) -> float:
    """Seconds gained per byte; 0 where nothing is gained.

    `saved_seconds` is G = T_compute - T_cache of one use (NexusKV whitepaper); a gain that is not a number is none.
    """
    gain = expected_uses * saved_seconds
    return max(0.0, gain / max(size_bytes, 1)) if math.isfinite(gain) else 0.0


def faded(worth: float, idle_seconds: float) -> float:
    """What is left of a worth after so long without a use.

    By whole days: states of equal worth must stay equal for as long as a compiler goes through its tools, or each
    would push out the one before.
    """
    days = max(0.0, idle_seconds) // _DAY_SECONDS
    return float(worth * 0.5 ** (days / IDLE_HALF_LIFE_DAYS))


def choose(candidates: Sequence[Candidate], budget_bytes: int) -> list[Candidate]:
    """Those to keep, greedily by worth a byte, best first; of equal ones the first come first."""
    left = budget_bytes
    chosen: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda one: -one.worth):
        if candidate.size_bytes <= left:
            chosen.append(candidate)
            left -= candidate.size_bytes
    return chosen


def make_room(newcomer: Candidate, kept: Sequence[Candidate], budget_bytes: int) -> list[Candidate] | None:
    """What has to go so that a newcomer fits; None where it is not worth that. Of equal ones the last go first.

    Only what is worth less a byte goes, and only if all of it together gains less than the newcomer: a small state
    that is a little better must not push out a large one.
    """
    missing = newcomer.size_bytes + sum(one.size_bytes for one in kept) - budget_bytes
    victims: list[Candidate] = []
    best_first = sorted(kept, key=lambda one: -one.worth)
    for one in reversed(best_first):
        if missing <= 0 or one.worth >= newcomer.worth:
            break
        victims.append(one)
        missing -= one.size_bytes
    if missing > 0:
        return None
    needed: list[Candidate] = []
    for one in reversed(victims):  # a large one may have come last, and made those before it needless
        if missing + one.size_bytes <= 0:
            missing += one.size_bytes
        else:
            needed.append(one)
    return needed[::-1] if sum(one.gain for one in needed) < newcomer.gain or not needed else None
