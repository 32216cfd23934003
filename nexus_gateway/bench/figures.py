"""From samples to figures: percentiles of an arm, and ratios of two arms round by round."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nexus_gateway.bench.measure import Sample


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of `n` values."""

    p10: float
    p50: float
    p90: float
    n: int


def percentile(values: Iterable[float], share: float) -> float:
    """The least value that at least `share` of all are not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> Spread:
    """The percentiles of at least one value."""
    return Spread(percentile(values, 0.1), statistics.median(values), percentile(values, 0.9), len(values))


def latency_ms(samples: Sequence[Sample], share: float) -> float:
    """A percentile of all calls of an arm, in ms."""
    return 1000 * percentile((value for sample in samples for value in sample.seconds), share)


def per_second(samples: Sequence[Sample]) -> float:
    """Calls per second: the median of the rounds."""
    return statistics.median(map(_rate, samples))


def latency_ratio(arm: Sequence[Sample], base: Sequence[Sample]) -> Spread:
    """The median latency of `arm` over that of `base`, one ratio a round; below 1 is faster."""
    return _spread(arm, base, lambda sample: statistics.median(sample.seconds))


def throughput_ratio(arm: Sequence[Sample], base: Sequence[Sample]) -> Spread:
    """Calls per second of `arm` over those of `base`, one ratio a round; above 1 is faster."""
    return _spread(arm, base, _rate)


def _rate(sample: Sample) -> float:
    return len(sample.seconds) / sample.elapsed


def _spread(arm: Sequence[Sample], base: Sequence[Sample], of: Callable[[Sample], float]) -> Spread:
    return spread([of(one) / of(other) for one, other in zip(arm, base, strict=True)])
