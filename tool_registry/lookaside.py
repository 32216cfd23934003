"""The semantic lookaside buffer: INT8 vectors of all tools in one dense block, scanned whole for each request.

After Nexus (arXiv 2608.20397). Rows belong many-to-one to tools, so a tool may have a vector for its name,
its description and each way people ask for it. Knows vectors and tool indices; knows no tools, no texts and
no embedder.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tool_registry.quantize import quantise


def _numkong() -> ModuleType:
    """The SIMD library, loaded with the first buffer: the server answers its first request without it."""
    import numkong  # noqa: PLC0415 - a native library, kept off the start

    return numkong


@dataclass(frozen=True, slots=True, eq=False)
class LookasideBuffer:
    """An immutable block of INT8 rows. Scans may run in several threads at once.

    Attributes:
        codes: shape (rows, d).
        scales: shape (rows,).
        owner: shape (rows,): the index of the tool each row belongs to, ascending.
        n_tools: tools, those without rows included.
    """

    codes: NDArray[np.int8]
    scales: NDArray[np.float32]
    owner: NDArray[np.int32]
    n_tools: int
    _packed: Any = field(init=False, repr=False)
    _starts: NDArray[np.intp] = field(init=False, repr=False)  # first row of each tool that has rows

    def __post_init__(self) -> None:
        """Lay the codes out for the scan and find where each tool's rows start.

        Raises:
            ValueError: the parts don't fit together.
        """
        rows = len(self.codes)
        if self.scales.shape != (rows,) or self.owner.shape != (rows,):
            raise ValueError(
                f"{rows} codes, {self.scales.shape} scales and {self.owner.shape} owners don't match"
            )
        if rows and (np.diff(self.owner) < 0).any():
            raise ValueError("rows are not in the order of their tools")
        if rows and (self.owner[0] < 0 or self.owner[-1] >= self.n_tools):
            raise ValueError(f"a row belongs to a tool outside 0..{self.n_tools - 1}")
        # Packed rows scan twice as fast as `cdist` over plain ones and give int32; measured with d = 384.
        packed = _numkong().dots_pack(self.codes, dtype="int8") if self.codes.size else None
        object.__setattr__(self, "_packed", packed)
        object.__setattr__(self, "_starts", np.flatnonzero(np.diff(self.owner, prepend=-1)))
        for array in (self.codes, self.scales, self.owner):
            array.flags.writeable = False

    @classmethod
    def build(cls, vectors_per_tool: Sequence[NDArray[np.float32]]) -> "LookasideBuffer":
        """Quantise the vectors of tools.

        Args:
            vectors_per_tool: for each tool, shape (k, d) with the same d throughout; k may be 0.

        Raises:
            ValueError: shapes differ, or a value is NaN or infinite.
        """
        dimensions = {vectors.shape[1:] for vectors in vectors_per_tool}
        if len(dimensions) > 1:
            raise ValueError(
                f"vectors of different embedders can't share a buffer: dimensions {sorted(dimensions)}"
            )
        joined = np.concatenate(vectors_per_tool) if len(vectors_per_tool) else np.zeros((0, 0), np.float32)
        codes, scales = quantise(joined)
        counts = [len(vectors) for vectors in vectors_per_tool]
        owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        return cls(codes, scales, owner, len(counts))

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
        if self._packed is None:
            return np.full(self.n_tools, -np.inf, np.float32)
        scores = self._best_rows(self._row_scores(query))
        if visible is not None:
            scores[~visible] = -np.inf
        return scores

    def top(
        self, query: NDArray[np.float32], k: int, visible: NDArray[np.bool_] | None = None
    ) -> list[tuple[int, float]]:
        """The best `k` visible tools as (index, score), best first; equal ones in the order of their index."""
        scores = self.scan(query, visible)
        seen = np.flatnonzero(scores > -np.inf)
        if 0 < k < len(seen):
            bound = np.partition(scores[seen], -k)[-k]
            seen = seen[scores[seen] >= bound]
        ordered = seen[np.argsort(-scores[seen], kind="stable")][: max(k, 0)]
        return [(int(index), float(scores[index])) for index in ordered]

    def _best_rows(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        if len(self._starts) < len(rows):
            rows = np.maximum.reduceat(rows, self._starts)
        if len(rows) == self.n_tools:
            return rows
        scores = np.full(self.n_tools, -np.inf, np.float32)
        scores[self.owner[self._starts]] = rows
        return scores

    def _row_scores(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        if query.shape != self.codes.shape[1:]:
            raise ValueError(
                f"the query has shape {query.shape}; the buffer's rows have {self.codes.shape[1:]}"
            )
        codes, scales = quantise(query[None])
        dots = np.asarray(_numkong().dots_packed(codes, self._packed))[0]
        scores: NDArray[np.float32] = dots.astype(np.float32) * (self.scales * scales[0])
        return scores
