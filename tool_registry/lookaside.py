"""The semantic lookaside buffer: INT8 vectors of all tools, scanned whole for each request.

After Nexus (arXiv 2608.20397). Rows belong many-to-one to tools, so a tool may have a vector for its name,
its description and each way people ask for it. Rows lie in blocks of some thousands, which snapshots share:
a changed tool costs its own block. Knows vectors and tool indices; knows no tools, no texts and no embedder.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tool_registry.quantize import numkong, quantise, quantise_query

BLOCK_ROWS = 4096
"""Rows of a full block: 3 MB at 768 dimensions, copied in a millisecond; more blocks cost the scan 1 µs each."""
_LEAST_ROWS = BLOCK_ROWS // 4
_MOST_ROWS = BLOCK_ROWS * 2

_MANY = 4096
"""From so many scores on, what takes more calls and less work for each is faster."""
_GROUP = 64
_SCORE = itemgetter(1)
_NOTHING = np.array(-np.inf, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Rows next to each other.

    Attributes:
        codes: shape (rows, d), read-only; for the next snapshot, and to compare tools.
        packed: the same as the scan reads it: half the time of plain rows; measured with 384 dimensions.
    """

    codes: NDArray[np.int8]
    packed: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.codes.flags.writeable = False
        object.__setattr__(self, "packed", numkong().dots_pack(self.codes, dtype="int8"))


@dataclass(frozen=True, slots=True, eq=False)
class LookasideBuffer:
    """An immutable snapshot of INT8 rows. Scans may run in several threads at once.

    Attributes:
        blocks: the rows' codes, in order.
        scales: shape (rows,).
        owner: shape (rows,): the index of the tool each row belongs to, ascending.
        n_tools: tools, those without rows included.
    """

    blocks: tuple[Block, ...] = ()
    scales: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    owner: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    n_tools: int = 0
    _starts: NDArray[np.intp] = field(init=False, repr=False)  # first row of each tool that has rows
    _one_each: bool = field(init=False, repr=False)  # row i is tool i

    def __post_init__(self) -> None:
        """Find where each tool's rows start.

        Raises:
            ValueError: the parts don't fit together.
        """
        rows = sum(len(block.codes) for block in self.blocks)
        if self.scales.shape != (rows,) or self.owner.shape != (rows,):
            raise ValueError(
                f"{rows} codes, {self.scales.shape} scales and {self.owner.shape} owners don't match"
            )
        steps = np.diff(self.owner, prepend=-1)
        if rows and (steps[1:] < 0).any():
            raise ValueError("rows are not in the order of their tools")
        if rows and (self.owner[0] < 0 or self.owner[-1] >= self.n_tools):
            raise ValueError(f"a row belongs to a tool outside 0..{self.n_tools - 1}")
        starts = np.flatnonzero(steps)
        object.__setattr__(self, "_starts", starts)
        object.__setattr__(self, "_one_each", len(starts) == rows == self.n_tools)
        for array in (self.scales, self.owner):
            array.flags.writeable = False

    @classmethod
    def build(cls, vectors_per_tool: Sequence[NDArray[np.float32]]) -> "LookasideBuffer":
        """Quantise the vectors of tools.

        Args:
            vectors_per_tool: for each tool, shape (k, d) with the same d throughout; k may be 0.

        Raises:
            ValueError: shapes differ, or a value is NaN or infinite.
        """
        return cls().edited(np.full(len(vectors_per_tool), -1), vectors_per_tool)

    @property
    def dimensions(self) -> int | None:
        """Of the rows; None where there is none."""
        return self.blocks[0].codes.shape[1] if self.blocks else None

    @property
    def memory_bytes(self) -> int:
        """Of codes, packed codes, scales and owners."""
        blocks = sum(block.codes.nbytes + block.packed.nbytes for block in self.blocks)
        return int(blocks + self.scales.nbytes + self.owner.nbytes + self._starts.nbytes)

    def edited(self, source: NDArray[np.intp], added: Sequence[NDArray[np.float32]]) -> "LookasideBuffer":
        """The next snapshot: some tools kept, the others gone, new ones in between. This one stays as it is.

        Args:
            source: shape (tools of the next,): where each was in this one, ascending; -1 for the next of `added`.
            added: the new tools' vectors, as in `build`.

        Raises:
            ValueError: the kept tools are in another order, shapes differ, or a value is NaN or infinite.
        """
        kept = source >= 0
        if (np.diff(source[kept]) <= 0).any():
            raise ValueError("the kept tools are not in the order they were in")
        codes, scales = quantise(_joined(added, self.dimensions))
        rows = _Rows.of(self, source, [len(vectors) for vectors in added])
        merged = np.empty(len(rows.origin), np.float32)
        merged[rows.kept], merged[~rows.kept] = self.scales[rows.origin[rows.kept]], scales
        parts = [part for part in _parts(self.blocks, rows, codes) if len(part)]
        return LookasideBuffer(tuple(_blocks(parts, self.blocks)), merged, rows.owner, len(source))

    def vectors(self, tool: int) -> NDArray[np.float32]:
        """A tool's rows as they are scored, shape (k, d): within half a scale of what the embedder gave."""
        first, end = np.searchsorted(self.owner, [tool, tool + 1]).tolist()
        found: list[NDArray[np.float32]] = []
        start = 0
        for block in self.blocks:
            part = slice(max(first, start) - start, max(end - start, 0))
            found.append(block.codes[part].astype(np.float32))
            start += len(block.codes)
        joined = np.concatenate(found) if found else np.zeros((0, 0), np.float32)
        return joined * self.scales[first:end, None]

    def scan(
        self, query: NDArray[np.float32], visible: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float32]:
        """Score all tools: the best of a tool's rows by int_dot * row scale * query scale.

        Args:
            query: shape (d,).
            visible: shape (n_tools,), or None where all are; a tool that is not has the score -inf, as has
                one without rows.

        Returns:
            Shape (n_tools,).

        Raises:
            ValueError: a shape is wrong, or the query has a value that is NaN or infinite.
        """
        if visible is not None and visible.shape != (self.n_tools,):
            raise ValueError(f"the mask has shape {visible.shape}; the buffer has {self.n_tools} tools")
        if not self.blocks:
            return np.full(self.n_tools, -np.inf, np.float32)
        scores = self._row_scores(query)
        if not self._one_each:
            scores = self._best_rows(scores)
        if visible is not None:
            hide(scores, visible)
        return scores

    def top(
        self, query: NDArray[np.float32], k: int, visible: NDArray[np.bool_] | None = None
    ) -> list[tuple[int, float]]:
        """The best `k` visible tools as (index, score), best first; equal ones in the order of their index."""
        return best(self.scan(query, visible), k)

    def _best_rows(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        scores = np.full(self.n_tools, -np.inf, np.float32)
        scores[self.owner[self._starts]] = np.maximum.reduceat(rows, self._starts)
        return scores

    def _row_scores(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        if query.shape != self.blocks[0].codes.shape[1:]:
            raise ValueError(
                f"the query has shape {query.shape}; the buffer's rows have ({self.dimensions},)"
            )
        codes, scale = quantise_query(query)
        dots = numkong().dots_packed
        if len(self.blocks) == 1:
            scores = np.frombuffer(dots(codes, self.blocks[0].packed), np.int32).astype(np.float32)
        else:
            parts = [np.frombuffer(dots(codes, block.packed), np.int32) for block in self.blocks]
            scores = np.concatenate(parts).astype(np.float32)
        scores *= self.scales
        scores *= np.array(scale, np.float32)  # a Python float takes numpy twice as long
        return scores


def hide(scores: NDArray[np.float32], visible: NDArray[np.bool_]) -> None:
    """Set the scores of what is not visible to -inf, in place."""
    if len(scores) < _MANY:
        scores[~visible] = -np.inf
        return
    # Without branches: where they can't be foretold they cost 3 times as much at 25,000, 8 at 250,000.
    limits = visible.astype(np.float32)
    limits -= 0.5
    limits *= np.inf
    np.minimum(scores, limits, out=scores)


def best(scores: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
    """The `k` largest scores above -inf as (index, score), best first; equal ones in the order of their index."""
    if k <= 0:
        return []
    bound = _bound(scores, k) if k < len(scores) else _NOTHING
    found = (scores >= bound if bound > _NOTHING else scores > bound).nonzero()[0]
    pairs = list(zip(found.tolist(), scores[found].tolist(), strict=True))
    pairs.sort(key=_SCORE, reverse=True)
    return pairs[:k]


def _bound(scores: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Shape (): at most the k-th largest score, and close to it: at least `k` groups have a maximum as large."""
    groups = len(scores) // _GROUP
    if len(scores) < _MANY or k > groups:
        ordered = scores.copy()
    else:
        ordered = scores[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
    ordered.partition(-k)
    bound: NDArray[np.float32] = ordered[-k, ...]
    return bound


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Where each row of the next snapshot comes from.

    Attributes:
        kept: whether it is a row of this snapshot.
        origin: its number among this snapshot's rows, or among the added ones.
        owner: its tool in the next snapshot.
    """

    kept: NDArray[np.bool_]
    origin: NDArray[np.intp]
    owner: NDArray[np.int32]

    @classmethod
    def of(cls, buffer: LookasideBuffer, source: NDArray[np.intp], added: Sequence[int]) -> "_Rows":
        """Spread tools over their rows; `added` has the number of rows of each new tool."""
        edges = np.searchsorted(buffer.owner, np.arange(buffer.n_tools + 1))
        kept = source >= 0
        first, counts = np.empty(len(source), np.intp), np.empty(len(source), np.intp)
        first[kept], counts[kept] = edges[source[kept]], np.diff(edges)[source[kept]]
        counts[~kept] = added
        first[~kept] = np.cumsum([0, *added])[:-1]
        owner = np.repeat(np.arange(len(source), dtype=np.int32), counts)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        return cls(np.repeat(kept, counts), np.repeat(first, counts) + within, owner)


def _parts(blocks: tuple[Block, ...], rows: _Rows, added: NDArray[np.int8]) -> Iterator[NDArray[np.int8]]:
    """The next snapshot's codes by the block they come from: its very array where nothing changed in it."""
    if not blocks:
        yield added
        return
    starts = np.cumsum([0, *(len(block.codes) for block in blocks)])
    # A new row joins the block of the row before it.
    before = np.maximum.accumulate(np.where(rows.kept, rows.origin, 0))
    edges = np.searchsorted(before, starts).tolist()
    for block, start, low, high in zip(blocks, starts.tolist(), edges, edges[1:], strict=False):
        kept, origin = rows.kept[low:high], rows.origin[low:high]
        if len(kept) == len(block.codes) and kept.all():
            yield block.codes
            continue
        codes = np.empty((high - low, added.shape[1]), np.int8)
        codes[kept], codes[~kept] = block.codes[origin[kept] - start], added[origin[~kept]]
        yield codes


def _blocks(parts: list[NDArray[np.int8]], known: tuple[Block, ...]) -> Iterator[Block]:
    """Blocks of a sensible size; those whose codes are as they were stay as they are."""
    packed = {id(block.codes): block for block in known}
    while parts:
        codes = parts.pop(0)
        if len(codes) < _LEAST_ROWS and parts:
            parts[0] = np.concatenate([codes, parts[0]])
        elif len(codes) > _MOST_ROWS:
            parts[:0] = [codes[at : at + BLOCK_ROWS].copy() for at in range(0, len(codes), BLOCK_ROWS)]
        else:
            yield packed.get(id(codes)) or Block(codes)


def _joined(vectors: Sequence[NDArray[np.float32]], dimensions: int | None) -> NDArray[np.float32]:
    known = {vectors_of_one.shape[1:] for vectors_of_one in vectors}
    if dimensions is not None:
        known.add((dimensions,))
    if len(known) > 1:
        raise ValueError(f"vectors of different embedders can't share a buffer: dimensions {sorted(known)}")
    return np.concatenate(vectors) if vectors else np.zeros((0, dimensions or 0), np.float32)
