"""A llama.cpp context in a benchmark's hands: it says which sequence, which batch and when.

Beside the engine's own context, since what is measured is the batch split and the cells themselves. Knows tokens
and sequences; knows no tools, plans or clocks.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.llama_cpp import library
from adapters.llama_cpp.cache_types import cache_types
from adapters.llama_cpp.model import Model
from adapters.llama_cpp.options import EngineOptions
from adapters.llama_cpp.state_blob import learn_shape, read_state, write_state
from nexus_gateway.bench.errors import BenchError


class Place(IntEnum):
    """The sequences of the context."""

    SYSTEM = 0
    """What all prompts begin with; it stays."""
    WORK = 1
    """The prompt that is measured."""
    SCRATCH = 2
    """A part of a prompt, on its way in or out."""
    NEIGHBOUR = 3
    """Somebody else's tokens, in cells between ours."""
    NEXT_NEIGHBOUR = 4


class Lab:
    """One context; close it before its model. Not thread-safe."""

    def __init__(self, model: Model, options: EngineOptions) -> None:
        """Allocate the cache.

        Raises:
            BenchError: there is no memory for it.
            BlobMalformed: nothing of this kind of model can be kept.
        """
        self._llama = library.llama()
        self._vocabulary = model.vocabulary_size
        self._handle = self._open(model, options)
        self._memory = self._llama.llama_get_memory(self._handle)
        self._most = options.n_batch
        self._batch = self._llama.llama_batch_init(self._most, 0, 1)
        self.size: int = self._llama.llama_n_ctx(self._handle)
        self._shape = learn_shape(self._handle, Place.WORK, model.bos or 0)

    @property
    def handle(self) -> Any:
        """The context itself, for what reads facts from it."""
        return self._handle

    def close(self) -> None:
        """Free the cache."""
        self._llama.llama_batch_free(self._batch)
        self._llama.llama_free(self._handle)

    def decode(self, place: Place, tokens: Sequence[int]) -> None:
        """Decode tokens after what the sequence has, in batches of at most `n_batch`. Raises BenchError."""
        for start in range(0, len(tokens), self._most):
            self._decode(place, tokens[start : start + self._most])

    def logits(self) -> NDArray[np.float32]:
        """The logits after the last token decoded, shape (vocabulary,); waits for the device."""
        found = self._llama.llama_get_logits_ith(self._handle, -1)
        return np.ctypeslib.as_array(found, (self._vocabulary,)).copy()

    def tokens(self, place: Place) -> int:
        """The position after a sequence's last."""
        last: int = self._llama.llama_memory_seq_pos_max(self._memory, place)
        return last + 1

    def share(self, source: Place, target: Place, start: int = 0) -> None:
        """Let `target` have the cells of `source` from position `start` too; no bytes move."""
        self._llama.llama_memory_seq_cp(self._memory, source, target, start, -1)

    def drop(self, *places: Place) -> None:
        """Forget whole sequences."""
        for place in places:
            self._llama.llama_memory_seq_rm(self._memory, place, -1, -1)

    def clear(self) -> None:
        """Forget everything."""
        self._llama.llama_memory_clear(self._memory, True)

    def save(self, place: Place) -> memoryview:
        """A sequence's state in the runtime's own bytes. Raises ModelUnusable."""
        return read_state(self._handle, place)

    def restore(self, place: Place, data: bytes | memoryview) -> None:
        """Put a state back in place of what the sequence has. Raises BenchError."""
        if write_state(self._handle, place, data, self._shape) is None:
            raise BenchError(f"a state of {len(data):,} bytes does not fit this context")

    def _decode(self, place: Place, tokens: Sequence[int]) -> None:
        count, start, batch = len(tokens), self.tokens(place), self._batch
        np.ctypeslib.as_array(batch.token, (count,))[:] = tokens
        np.ctypeslib.as_array(batch.pos, (count,))[:] = np.arange(start, start + count)
        wanted = np.ctypeslib.as_array(batch.logits, (count,))
        wanted[:] = 0
        wanted[-1] = 1
        for position in range(count):
            batch.n_seq_id[position] = 1
            batch.seq_id[position][0] = place
        batch.n_tokens = count
        library.forget_errors()
        status = self._llama.llama_decode(self._handle, batch)
        if status:
            cause = "no room in its context" if status == 1 else library.logged_errors() or f"status {status}"
            raise BenchError(f"llama.cpp could not decode: {cause}")

    def _open(self, model: Model, options: EngineOptions) -> Any:
        llama = self._llama
        parameters = llama.llama_context_default_params()
        parameters.n_ctx = min(options.n_ctx, model.trained_context)
        parameters.n_batch = parameters.n_ubatch = options.n_batch
        parameters.n_seq_max = len(Place)
        parameters.kv_unified = True
        parameters.type_k, parameters.type_v = cache_types(model, options)
        parameters.n_threads = parameters.n_threads_batch = options.worker_threads
        parameters.flash_attn_type = (
            llama.LLAMA_FLASH_ATTN_TYPE_ENABLED
            if options.flash_attention
            else llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        handle = llama.llama_init_from_model(model.handle, parameters)
        if not handle:
            raise BenchError(
                f"{model.path}: no context of {parameters.n_ctx:,} tokens; lower n_ctx in [models]"
            )
        return handle
