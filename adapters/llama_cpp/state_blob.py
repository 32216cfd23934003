"""llama.cpp's own bytes of one sequence's state: copied out, taken apart, put back.

llama.cpp checks little of what it is given, and some of that by an assertion that ends the process. So a blob
is taken apart and compared with the shape of this very context before llama.cpp sees it. Whose state it is,
and whether its numbers are intact, no shape can say: that is for the descriptor and the checksum around it.

What is parsed, all of it to its last byte: sections of attention (one, or two where some layers see a window)
and of recurrent memory (the last, if any). Blobs of several positions a token, and of
memories with indexers, compressed rows or n-gram histories are refused as malformed.

Layout (llama.cpp's `state_write`; integers little-endian):

    u32 magic | i32 sequence (not used) | sections

    attention  u32 streams | for each: u32 cells, and unless that is 0: cells x (i32 position, u32 1, i32 sequence) | u32 transposed |
               u32 layers | layers x (i32 type, u64 row bytes, cells x row), for K
               then for V, unless the model keeps one latent row only:
               rows of V        layers x (i32 type, u64 row bytes, cells x row)
               V transposed     layers x (i32 type, u32 element bytes, u32 elements, elements x cells)
    recurrent  u32 cells (1) | i32 position, u32 0 | u32 0 | u32 layers of the model |
               (i32 type, u64 row bytes, row) for each layer that has one: convolutions first, then states
"""

import ctypes
import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adapters.llama_cpp import library
from adapters.ports import ModelUnusable

MAGIC = 0xAF143CD8

_MANY = 1024
"""More layers than any model has, more streams than a context may have: damaged bytes must not cost seconds."""

_CELL = np.dtype([("position", "<i4"), ("sequences", "<u4"), ("sequence", "<i4")])
_RECURRENT_CELL = np.dtype([("position", "<i4"), ("sequences", "<u4")])


class BlobMalformed(ValueError):  # noqa: N818 - named for what is wrong, as all errors of the adapters
    """Bytes that are no state of one sequence, or of a layout that is not known here; the message says where."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one layer keeps of a token (of all of them, if it is recurrent).

    Attributes:
        type: number of the ggml type.
        size: bytes.
    """

    type: int
    size: int


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Layers of one cache.

    Attributes:
        streams: 1 where all sequences share their cells, else one for each.
        transposed: values by columns.
        keys: for each layer that has a cache.
        values: the same; empty where the keys' rows are all there is (MLA).
    """

    streams: int
    transposed: bool
    keys: tuple[Row, ...]
    values: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class RecurrentShape:
    """Memory of constant size: the model's number of layers, and the rows of those that are recurrent."""

    layers: int
    rows: tuple[Row, ...]


SectionShape: TypeAlias = AttentionShape | RecurrentShape
Data: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True)
class BlobShape:
    """What a context writes whatever it has read: equal for all states of one model, kind of attention and types."""

    sections: tuple[SectionShape, ...]

    @property
    def bytes_per_token(self) -> int:
        """Of the caches that grow with the text; a window counts as if it never ended."""
        caches = (section for section in self.sections if isinstance(section, AttentionShape))
        return sum(row.size for cache in caches for row in (*cache.keys, *cache.values))


@dataclass(frozen=True, slots=True, eq=False)
class ParsedState:
    """One sequence's state.

    Attributes:
        shape: see there.
        positions: for each section the positions of its cells as they lie there, shape (cells,).
        start: the first position that the state speaks for; 0 if it is recurrent.
        end: the position after its last.
    """

    shape: BlobShape
    positions: tuple[NDArray[np.int32], ...]
    start: int
    end: int

    @property
    def in_order(self) -> bool:
        """Whether cells lie in the order of their positions; sums over them, and so the numbers, depend on it."""
        return all((np.diff(found) > 0).all() for found in self.positions)

    @property
    def tokens(self) -> int:
        """How many positions it speaks for."""
        return self.end - self.start


_LAYOUTS: tuple[tuple[type[SectionShape], ...], ...] = (
    (AttentionShape,),
    (AttentionShape, AttentionShape),
    (RecurrentShape,),
    (AttentionShape, RecurrentShape),
    (AttentionShape, AttentionShape, RecurrentShape),
)


def read_state(context: Any, sequence: int) -> memoryview:
    """Copy a sequence's state out of a context.

    Returns:
        Read-only bytes in llama.cpp's layout, from one allocation.

    Raises:
        ModelUnusable: llama.cpp could not write it.
    """
    llama = library.llama()
    size: int = llama.llama_state_seq_get_size(context, sequence)
    data = np.empty(size, dtype=np.uint8)
    library.forget_errors()
    written = llama.llama_state_seq_get_data(context, _pointer(data), size, sequence)
    if not size or written != size:
        raise ModelUnusable(
            f"the state of a sequence can't be copied: {library.logged_errors() or 'no reason given'}"
        )
    return data.data.toreadonly()


def write_state(
    context: Any, sequence: int, data: Data, expected: BlobShape, *, start: int | None = None
) -> int | None:
    """Replace a sequence by a saved state, which is checked first.

    Args:
        context: the handle.
        sequence: below the context's number of sequences.
        data: need not be writable; nothing of it is kept.
        expected: `learn_shape` of this context.
        start: the first position that it has to have, if that is known.

    Returns:
        How many tokens are back; None where the bytes don't fit this context, and the sequence is as it was, or
        where llama.cpp had no room for them, and the sequence is empty.
    """
    llama = library.llama()
    try:
        parsed = parse_state(data, expected)
    except BlobMalformed:
        return None
    if (start is not None and parsed.start != start) or parsed.end > llama.llama_n_ctx_seq(context):
        return None
    if not 0 <= sequence < llama.llama_n_seq_max(context):  # -1 would replace what all sequences have
        return None
    found = np.frombuffer(data, dtype=np.uint8)
    read = llama.llama_state_seq_set_data(context, _pointer(found), found.size, sequence)
    return parsed.tokens if read == found.size else None


def learn_shape(context: Any, sequence: int, token: int) -> BlobShape:
    """The shape of what a context writes, from the state of one token in a sequence that is empty, before and after.

    Raises:
        ModelUnusable: the token could not be decoded.
        BlobMalformed: a layout that is not known here: nothing of this model can be kept.
    """
    llama = library.llama()
    memory = llama.llama_get_memory(context)
    if not memory:
        raise BlobMalformed("this model keeps no memory of what it has read")
    batch = llama.llama_batch_init(1, 0, 1)
    try:
        batch.n_tokens, batch.token[0], batch.pos[0], batch.logits[0] = 1, token, 0, 0
        batch.n_seq_id[0], batch.seq_id[0][0] = 1, sequence
        if llama.llama_decode(context, batch):
            raise ModelUnusable(
                f"a first token could not be decoded: {library.logged_errors() or 'no reason given'}"
            )
        return parse_state(read_state(context, sequence)).shape
    finally:
        llama.llama_batch_free(batch)
        llama.llama_memory_seq_rm(memory, sequence, -1, -1)


def parse_state(data: Data, expected: BlobShape | None = None) -> ParsedState:
    """Take a blob apart; only what is within it is read.

    Raises:
        BlobMalformed: no state of a known layout, positions that are no run, or another shape than expected.
    """
    if expected is not None:
        parsed = _parse(data, tuple(map(type, expected.sections)), has_values=_has_values(expected))
        if parsed.shape != expected:
            raise BlobMalformed("a state of another shape than this context has")
        return parsed
    problems = []
    for layout in _LAYOUTS:
        for has_values in (True, False):
            try:
                return _parse(data, layout, has_values=has_values)
            except BlobMalformed as problem:
                problems.append(str(problem))
    raise BlobMalformed(f"no layout that is known: {problems[0]}")


def _parse(data: Data, layout: tuple[type[SectionShape], ...], *, has_values: bool) -> ParsedState:
    bytes_left = _Reader(data)
    if bytes_left.number("<I") != MAGIC:
        raise BlobMalformed("it does not begin as a state does")
    bytes_left.number("<i")
    shapes: list[SectionShape] = []
    positions: list[NDArray[np.int32]] = []
    for kind in layout:
        shape, found = (
            _attention(bytes_left, has_values) if kind is AttentionShape else _recurrent(bytes_left)
        )
        shapes.append(shape)
        positions.append(found)
    if bytes_left.left:
        raise BlobMalformed(f"{bytes_left.left:,} bytes after its end")
    start, end = _span(positions, recurrent_only=layout == (RecurrentShape,))
    return ParsedState(BlobShape(tuple(shapes)), tuple(positions), start, end)


def _attention(data: "_Reader", has_values: bool) -> tuple[AttentionShape, NDArray[np.int32]]:
    """One cache, of whose streams a sequence has cells in one alone."""
    streams, found = data.few("streams"), None
    for _ in range(streams):
        if not (count := data.number("<I")):
            continue
        if found is not None:
            raise BlobMalformed("cells in two streams")
        found = _stream(data, streams, count, has_values)
    if found is None:
        raise BlobMalformed("no cells")
    return found


def _stream(
    data: "_Reader", streams: int, count: int, has_values: bool
) -> tuple[AttentionShape, NDArray[np.int32]]:
    cells = data.cells(_CELL, count)
    if (cells["sequences"] != 1).any():
        raise BlobMalformed("cells that are not of one sequence")
    transposed, layers = data.number("<I"), data.few("layers")
    if transposed not in {0, 1}:
        raise BlobMalformed(f"{transposed:,} where it says whether values are transposed")
    keys = tuple(data.row(count) for _ in range(layers))
    read_value = data.columns if transposed else data.row
    values = tuple(read_value(count) for _ in range(layers if has_values else 0))
    return AttentionShape(streams, bool(transposed), keys, values), cells["position"]


def _recurrent(data: "_Reader") -> tuple[RecurrentShape, NDArray[np.int32]]:
    if (count := data.number("<I")) != 1:
        raise BlobMalformed(f"{count:,} recurrent cells instead of one")
    cells = data.cells(_RECURRENT_CELL, count)
    if cells["sequences"].any() or data.number("<I"):
        raise BlobMalformed("a recurrent cell that names sequences, or is transposed")
    rows: list[Row] = []
    layers = data.few("layers")
    while data.left and len(rows) < 2 * layers:
        rows.append(data.row(1))  # of no bytes, where a layer keeps its convolution alone
    return RecurrentShape(layers, tuple(rows)), cells["position"]


def _span(positions: list[NDArray[np.int32]], *, recurrent_only: bool) -> tuple[int, int]:
    """First position and the one after the last, the same in all sections; a later section may begin later."""
    runs = [_run(found) for found in positions]
    (start, end), *others = runs
    if any(first < start or last != end for first, last in others):
        raise BlobMalformed("sections that end at different positions")
    return (0 if recurrent_only else start), end


def _run(positions: NDArray[np.int32]) -> tuple[int, int]:
    """Cells may lie in any order, but leave no position out and have none twice."""
    if not positions.size or positions.min() < 0:
        raise BlobMalformed("no cells, or negative positions")
    start, end = int(positions.min()), int(positions.max()) + 1
    if end - start != positions.size or np.unique(positions).size != positions.size:
        raise BlobMalformed("positions with gaps, or twice the same")
    return start, end


def _has_values(shape: BlobShape) -> bool:
    return any(isinstance(section, AttentionShape) and section.values for section in shape.sections)


def _pointer(data: NDArray[np.uint8]) -> Any:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


class _Reader:
    """Reads on from the start of bytes, never behind their end."""

    def __init__(self, data: Data) -> None:
        self._data = memoryview(data).cast("B")
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def number(self, form: str) -> int:
        at = self._skip(struct.calcsize(form))
        (found,) = struct.unpack_from(form, self._data, at)
        return int(found)

    def few(self, what: str) -> int:
        if (found := self.number("<I")) > _MANY:
            raise BlobMalformed(f"{found:,} {what}")
        return found

    def cells(self, form: "np.dtype[np.void]", count: int) -> NDArray[np.void]:
        at = self._skip(count * form.itemsize)
        return np.frombuffer(self._data, dtype=form, count=count, offset=at)

    def row(self, cells: int) -> Row:
        return self._layer(Row(self.number("<i"), self.number("<Q")), cells)

    def columns(self, cells: int) -> Row:
        return self._layer(Row(self.number("<i"), self.number("<I") * self.number("<I")), cells)

    def _layer(self, row: Row, cells: int) -> Row:
        self._skip(row.size * cells)
        return row

    def _skip(self, size: int) -> int:
        """Pass over bytes that are there; where they begin."""
        at = self._at
        if size > self.left:
            raise BlobMalformed(f"{self.left:,} bytes left where {size:,} are due")
        self._at += size
        return at
