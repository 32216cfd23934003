"""`bench scan`: the lookaside scan beside numpy float32 doing the same job, and beside reading the same bytes.

The job: a float32 query comes in, the ten best visible tools and their scores come out; four fifths are visible.
- "gateway": `LookasideBuffer.top`: quantising the query, dot products, scales, mask, top-10.
- "numpy": float32 rows times the query, mask, `argpartition`, sort of the ten: as one writes it in numpy.
- "numpy, our top": the same product with the mask and top-10 that the gateway uses.
- "read: ...": as many INT8 bytes are summed, as 64-bit words by numpy or as bytes by numkong; the faster of the two
  is what the scan is held against, since a scan is sums over all bytes.
- "maximum": their maximum by numpy, the fastest pass over the bytes that was found: a bound no dot product reaches.

All arms take turns within a round, each warmed up in each, and ratios are taken round by round. One thread: BLAS and
OpenMP pools are held to one by threadpoolctl; numpy's own loops, numkong and the gateway use no other.
Knows random unit vectors; a scan's time does not depend on what they mean.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import psutil
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.figures import Spread, percentile
from tool_registry.lookaside import Block, LookasideBuffer, best, hide
from tool_registry.quantize import numkong, quantise

GATEWAY = "gateway"
NUMPY = "numpy"
NUMPY_OUR_TOP = "numpy, our top"
READS = ("read: numpy", "read: numkong")
MAXIMUM = "maximum"
ARMS = (GATEWAY, NUMPY, NUMPY_OUR_TOP, *READS, MAXIMUM)

TOP = 10
VISIBLE_SHARE = 0.8
QUERIES = 16
ROUNDS = 40
SAMPLE_SECONDS = 0.002
LEAST_CALLS = 5
"""An arm is called for about `SAMPLE_SECONDS` in a round, so often at the least, and as often before to warm up:
the other arms have emptied the caches."""

_CHUNK_ROWS = 4096
_SEED = 7

Top = list[tuple[int, float]]
Arm = Callable[[NDArray[np.float32]], object]


@dataclass(frozen=True, slots=True)
class Case:
    """What was measured at one size.

    Attributes:
        seconds: by arm, a call's time in each round.
        read: the faster of the reading arms.
    """

    dimensions: int
    tools: int
    seconds: Mapping[str, Sequence[float]]
    read: str

    def ratio(self, base: str) -> Spread:
        """The gateway's time over that of another arm, one ratio a round."""
        pairs = zip(self.seconds[GATEWAY], self.seconds[base], strict=True)
        ratios = [own / other for own, other in pairs]
        return Spread(
            percentile(ratios, 0.1), statistics.median(ratios), percentile(ratios, 0.9), len(ratios)
        )

    def microseconds(self, arm: str) -> float:
        """An arm's median."""
        return statistics.median(self.seconds[arm]) * 1e6


def measure(
    dimensions: int, tools: int, rounds: int = ROUNDS, advance: Callable[[], None] = lambda: None
) -> Case:
    """Measure one size; `advance` hears of each round.

    Raises:
        BenchError: there is not enough memory, or the arms do not find the same tools.
    """
    _check_memory(dimensions, tools)
    fleet = _Fleet.made(dimensions, tools)
    arms = fleet.arms()
    _check(arms, fleet.queries)
    with threadpool_limits(limits=1):
        calls = {name: _calls(arm, fleet.queries) for name, arm in arms.items()}
        seconds: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(rounds):
            for name, arm in arms.items():
                _time(arm, fleet.queries, calls[name])
                seconds[name].append(_time(arm, fleet.queries, calls[name]))
            advance()
    return Case(dimensions, tools, seconds, min(READS, key=lambda name: statistics.median(seconds[name])))


@dataclass(frozen=True, slots=True, eq=False)
class _Fleet:
    """Vectors of so many tools as each arm wants them.

    Attributes:
        rows: shape (tools, dimensions).
        codes: shape (tools * dimensions,): what the reading arms read; not what the gateway scans, but as many.
        visible: shape (tools,).
        queries: shape (QUERIES, dimensions).
    """

    rows: NDArray[np.float32]
    codes: NDArray[np.int8]
    buffer: LookasideBuffer
    visible: NDArray[np.bool_]
    queries: NDArray[np.float32]

    @classmethod
    def made(cls, dimensions: int, tools: int) -> "_Fleet":
        """Made in parts: a quarter of a million rows of float32 are there once."""
        rng = np.random.default_rng(_SEED)
        rows = np.empty((tools, dimensions), np.float32)
        flat, scales = np.empty((tools, dimensions), np.int8), np.empty(tools, np.float32)
        for start in range(0, tools, _CHUNK_ROWS):
            part = slice(start, start + _CHUNK_ROWS)
            rows[part] = _unit(rng, len(rows[part]), dimensions)
            flat[part], scales[part] = quantise(rows[part])
        blocks = tuple(Block(flat[at : at + _CHUNK_ROWS].copy()) for at in range(0, tools, _CHUNK_ROWS))
        buffer = LookasideBuffer(blocks, scales, np.arange(tools, dtype=np.int32), tools)
        return cls(
            rows, flat.ravel(), buffer, rng.random(tools) < VISIBLE_SHARE, _unit(rng, QUERIES, dimensions)
        )

    def arms(self) -> dict[str, Arm]:
        """What is measured, by name."""
        words = self.codes.view(np.uint64) if self.codes.size % 8 == 0 else self.codes
        native = numkong()
        return {
            GATEWAY: lambda query: self.buffer.top(query, TOP, self.visible),
            NUMPY: lambda query: _numpy(self.rows, query, self.visible),
            NUMPY_OUR_TOP: lambda query: _numpy_our_top(self.rows, query, self.visible),
            READS[0]: lambda _query: words.sum(),
            READS[1]: lambda _query: native.sum(self.codes),
            MAXIMUM: lambda _query: self.codes.max(),
        }


def _unit(rng: np.random.Generator, rows: int, dimensions: int) -> NDArray[np.float32]:
    vectors = rng.standard_normal((rows, dimensions), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def _numpy(rows: NDArray[np.float32], query: NDArray[np.float32], visible: NDArray[np.bool_]) -> Top:
    scores = rows @ query
    scores[~visible] = -np.inf
    found = np.argpartition(scores, -TOP)[-TOP:] if len(scores) > TOP else np.arange(len(scores))
    found = found[np.argsort(-scores[found])]
    return list(zip(found.tolist(), scores[found].tolist(), strict=True))


def _numpy_our_top(rows: NDArray[np.float32], query: NDArray[np.float32], visible: NDArray[np.bool_]) -> Top:
    scores = rows @ query
    hide(scores, visible)
    return best(scores, TOP)


def _check(arms: Mapping[str, Arm], queries: NDArray[np.float32]) -> None:
    """The arms do the same job: their best scores agree within what INT8 loses."""
    for query in queries:
        found = [arms[name](query) for name in (GATEWAY, NUMPY, NUMPY_OUR_TOP)]
        tops = [[score for _, score in top if score > -np.inf] for top in found]  # type: ignore[attr-defined]
        if any(len(top) != len(tops[0]) or not np.allclose(top, tops[0], atol=0.02) for top in tops):
            raise BenchError(f"the arms do not find the same: {tops}")


def _check_memory(dimensions: int, tools: int) -> None:
    needed = tools * dimensions * 7  # float32 rows, INT8 codes twice, packed codes
    available = psutil.virtual_memory().available
    if needed > available:
        raise BenchError(
            f"{tools:,} tools of {dimensions} dimensions need {needed / 1e9:.1f} GB for all arms; "
            f"{available / 1e9:.1f} GB are free: choose smaller --sizes"
        )


def _calls(arm: Arm, queries: NDArray[np.float32]) -> int:
    return max(LEAST_CALLS, int(SAMPLE_SECONDS / _time(arm, queries, LEAST_CALLS)))


def _time(arm: Arm, queries: NDArray[np.float32], calls: int) -> float:
    """Seconds of a call: the median, which a call that was interrupted does not move."""
    seconds = []
    for query, _ in zip(cycle(queries), range(calls), strict=False):
        started = time.perf_counter()
        arm(query)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
