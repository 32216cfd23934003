"""A context's memory, sequence by sequence, by llama.cpp's own calls. Knows no chunks and no accounts."""

from typing import Any

from adapters.llama_cpp import library
from adapters.llama_cpp.state_blob import (
    BlobMalformed,
    BlobShape,
    learn_shape,
    parse_state,
    read_state,
    write_state,
)


class SequenceMemory:
    """The `Memory` of a context. Not thread-safe."""

    def __init__(self, handle: Any, scratch: int, token: int) -> None:
        """Learn the shape of a state from one token in the sequence `scratch`, which is empty before and after.

        Raises:
            ModelUnusable: the token could not be decoded.
        """
        self._llama = library.llama()
        self._handle = handle
        self._memory = self._llama.llama_get_memory(handle)
        self.shape = self._learn(scratch, token)

    def remove(self, sequence: int, start: int = -1, end: int = -1) -> None:
        """Take positions out of a sequence."""
        self._llama.llama_memory_seq_rm(self._memory, sequence, start, end)

    def copy(self, source: int, target: int, start: int = -1, end: int = -1) -> None:
        """Let `target` have the cells of `source` too."""
        self._llama.llama_memory_seq_cp(self._memory, source, target, start, end)

    def clear(self) -> None:
        """Empty all sequences; bytes stay, and are not read again."""
        self._llama.llama_memory_clear(self._memory, False)

    def read(self, sequence: int) -> memoryview:
        """A sequence's state. Raises ModelUnusable."""
        return read_state(self._handle, sequence)

    def write(self, sequence: int, data: bytes | memoryview, start: int, end: int) -> bool:
        """Put a state of these positions, with its cells in their order, into an empty sequence."""
        if self.shape is None or not self._fits(data, self.shape, end):
            return False
        if write_state(self._handle, sequence, data, self.shape, start=start) is not None:
            return True
        self.remove(sequence)
        return False

    @staticmethod
    def _fits(data: bytes | memoryview, shape: BlobShape, end: int) -> bool:
        try:
            parsed = parse_state(data, shape)
        except BlobMalformed:
            return False
        return parsed.end == end and parsed.in_order

    def _learn(self, scratch: int, token: int) -> BlobShape | None:
        try:
            return learn_shape(self._handle, scratch, token)
        except BlobMalformed:
            return None
        finally:
            if self._memory:
                self.clear()
