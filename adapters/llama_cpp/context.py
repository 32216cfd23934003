"""A llama.cpp context: its cache, and the decode loop over it. Knows tokens, not texts, masks or threads.

The cache keeps the chunks of the last prompt. The next prompt reuses the leading chunks that are equal, but
never its last one, whose logits are wanted. A chunk is reused whole or not at all: re-decoding a part of it
would change the shape of its batch, and with it the numbers (see prompt.py).

Questions aside (aside.py) run on a sequence of their own and leave what is kept as it is.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.llama_cpp import library
from adapters.llama_cpp.model import Model
from adapters.llama_cpp.options import EngineOptions
from adapters.llama_cpp.prompt import Chunk
from adapters.ports import ModelUnusable

SEQUENCES = 4
"""Sequence ids of a context: the engine lives on the first, questions aside use the second, others are to come."""

_LIVE, _ASIDE = 0, 1


class Context:
    """One context of a model. Not thread-safe: one worker owns it."""

    def __init__(self, model: Model, options: EngineOptions) -> None:
        """Allocate the cache.

        Raises:
            ModelUnusable: not enough memory, or a setting that the model can't run with.
        """
        self._llama = library.llama()
        self._model = model
        self._handle = self._open(options)
        self._memory = self._llama.llama_get_memory(self._handle)
        self.size: int = self._llama.llama_n_ctx(self._handle)
        self._batch_size = options.n_batch
        self._batch = self._make_batch()
        self._cached: list[Chunk] = []
        self._end = 0

    def close(self) -> None:
        """Free the cache."""
        self._llama.llama_batch_free(self._batch)
        self._llama.llama_free(self._handle)

    def clear(self) -> None:
        """Forget everything."""
        self._llama.llama_memory_clear(self._memory, True)
        self._cached, self._end = [], 0

    def prefill(self, chunks: Sequence[Chunk], between: Callable[[], None]) -> int:
        """Decode all chunks but the last, reusing what is there. `between` runs before each batch and may raise.

        Returns:
            How many tokens were reused.
        """
        reused = self._rewind(chunks)
        for chunk in chunks[len(self._cached) : -1]:
            self._decode(chunk, between)
            self._cached.append(chunk)
        return reused

    def decode(self, tokens: Sequence[int], between: Callable[[], None]) -> NDArray[np.float32]:
        """Decode tokens after what is there.

        Returns:
            The logits after the last token, shape (vocabulary,). The memory is llama.cpp's: read it before the
            next decode.
        """
        self._decode(tokens, between)
        return self.logits(-1)

    def make_room(self, tokens: int) -> None:
        """Let what is kept of the last prompt go where this many further tokens don't fit beside it."""
        if self._end + tokens > self.size:
            self.clear()

    def decode_aside(self, tokens: Sequence[int], start: int, outputs: int) -> None:
        """Decode at most a batch of the sequence aside, from position `start`; logits are kept after the last `outputs`."""
        self._decode_batch(tokens, sequence=_ASIDE, start=start, outputs=outputs)

    def drop_aside(self, start: int) -> bool:
        """Drop what the sequence aside has from position `start`; False where a model can't drop a part."""
        dropped: bool = self._llama.llama_memory_seq_rm(self._memory, _ASIDE, start or -1, -1)
        return dropped

    def logits(self, position: int) -> NDArray[np.float32]:
        """The logits after one token of the last batch that asked for them, shape (vocabulary,); as in `decode`."""
        found = self._llama.llama_get_logits_ith(self._handle, position)
        return np.ctypeslib.as_array(found, (self._model.vocabulary_size,))

    @property
    def batch_size(self) -> int:
        """Most tokens of a batch."""
        return self._batch_size

    def _rewind(self, chunks: Sequence[Chunk]) -> int:
        """Drop all behind the chunks shared with the last prompt."""
        shared = 0
        while shared < min(len(self._cached), len(chunks) - 1) and self._cached[shared] == chunks[shared]:
            shared += 1
        end = sum(map(len, chunks[:shared]))
        if not shared or not self._llama.llama_memory_seq_rm(self._memory, _LIVE, end, -1):
            self.clear()  # recurrent models can't drop a tail
            return 0
        self._cached, self._end = list(chunks[:shared]), end
        return end

    def _decode(self, tokens: Sequence[int], between: Callable[[], None]) -> None:
        for start in range(0, len(tokens), self._batch_size):
            between()
            part = tokens[start : start + self._batch_size]
            self._decode_batch(part, sequence=_LIVE, start=self._end, outputs=1)
            self._end += len(part)

    def _decode_batch(self, tokens: Sequence[int], *, sequence: int, start: int, outputs: int) -> None:
        """Decode at most a batch; logits are kept after its last `outputs` tokens."""
        count, batch = len(tokens), self._batch
        np.ctypeslib.as_array(batch.token, (count,))[:] = tokens
        np.ctypeslib.as_array(batch.pos, (count,))[:] = np.arange(start, start + count)
        wanted = np.ctypeslib.as_array(batch.logits, (count,))
        wanted[:] = 0
        wanted[count - outputs :] = 1
        for position in range(count):
            batch.seq_id[position][0] = sequence
        batch.n_tokens = count
        library.forget_errors()
        status = self._llama.llama_decode(self._handle, batch)
        if status:
            self.clear()
            raise ModelUnusable(self._decode_failure(status))

    def _decode_failure(self, status: int) -> str:
        cause = "no room in its context" if status == 1 else library.logged_errors() or f"status {status}"
        return f"{self._model.path.name}: llama.cpp could not decode ({cause}); the context was cleared"

    def _open(self, options: EngineOptions) -> Any:
        llama = self._llama
        parameters = llama.llama_context_default_params()
        parameters.n_ctx = min(options.n_ctx, self._model.trained_context)
        parameters.n_batch = parameters.n_ubatch = options.n_batch
        parameters.n_seq_max = SEQUENCES
        parameters.kv_unified = True
        parameters.n_threads = parameters.n_threads_batch = options.worker_threads
        parameters.flash_attn_type = (
            llama.LLAMA_FLASH_ATTN_TYPE_ENABLED
            if options.flash_attention
            else llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        library.forget_errors()
        handle = llama.llama_init_from_model(self._model.handle, parameters)
        if not handle:
            raise ModelUnusable(
                f"{self._model.path}: no context of {parameters.n_ctx:,} tokens "
                f"({library.logged_errors() or 'out of memory?'}); lower n_ctx or set flash_attention to false"
            )
        return handle

    def _make_batch(self) -> Any:
        batch = self._llama.llama_batch_init(self._batch_size, 0, 1)
        for position in range(self._batch_size):
            batch.n_seq_id[position] = 1
            batch.seq_id[position][0] = _LIVE
        return batch
