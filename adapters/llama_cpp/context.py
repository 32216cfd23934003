"""A llama.cpp context that several threads decode on, one batch at a time. Knows tokens, not texts or masks.

Each prompt has a sequence of its own (sequences.py). A lock, given in the order it was asked for, is held for one
batch, or for one change of the memory; batches of different prompts are never mixed, so that none of them sees
the others. A chunk is reused whole or not at all: re-decoding a part of it would change the shape of its batch,
and with it the numbers (see prompt.py).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adapters.llama_cpp import library
from adapters.llama_cpp.cache_types import cache_types
from adapters.llama_cpp.cells import Cells
from adapters.llama_cpp.kinds import state_kind
from adapters.llama_cpp.live_sequence import LiveSequence
from adapters.llama_cpp.memory import SequenceMemory
from adapters.llama_cpp.metadata import whole_number
from adapters.llama_cpp.model import Model
from adapters.llama_cpp.options import EngineOptions
from adapters.llama_cpp.sequences import FIRST, SCRATCH, Pool
from adapters.llama_cpp.ticket_lock import TicketLock
from adapters.ports import ModelUnusable
from adapters.state_port import Chunk
from tool_registry.blocks.kind import REUSE, Reuse, StateKind

Between: TypeAlias = Callable[[], None]
"""Runs before each batch and while waiting, without the lock; may raise to give up."""

_GLANCE_SECONDS = 0.05
"""How often whoever waits for room asks whether it is still wanted; room itself is told of at once."""

_BESIDE = 2
"""Sequences for questions aside and for saving, beside those of completions."""


class Context:
    """One context of a model. Thread-safe but for `close`."""

    def __init__(self, model: Model, options: EngineOptions) -> None:
        """Allocate the cache.

        Raises:
            ModelUnusable: not enough memory, or a setting that the model can't run with.
        """
        self._llama = library.llama()
        self._model = model
        self._kind = state_kind(model)
        self._sequences = self._number(options)
        self.limit = min(options.n_ctx, model.trained_context)
        self.handle = self._open(options)
        self.batch_size = options.n_batch
        self._batch = self._make_batch()
        memory = SequenceMemory(self.handle, SCRATCH, model.bos or 0)
        self.shape = memory.shape
        self.reuse = REUSE[self._kind] if memory.shape is not None else Reuse()
        ordered = self._kind is not StateKind.RECURRENT  # which has one cell, and sums over no others
        cells = Cells(self._llama.llama_n_ctx(self.handle), ordered=ordered)
        self._pool = Pool(memory, self._sequences, cells, self.reuse)
        self._lock = TicketLock()
        self._queue: deque[object] = deque()
        self._room = threading.Condition()
        self._released = 0

    def close(self) -> None:
        """Free the cache."""
        self._llama.llama_batch_free(self._batch)
        self._llama.llama_free(self.handle)

    def live_tokens(self, chunks: tuple[Chunk, ...]) -> int:
        """How many leading tokens of these chunks can be gone on from. No lock."""
        return self._pool.live_tokens(chunks)

    @contextmanager
    def leased(
        self,
        chunks: Sequence[Chunk],
        between: Between,
        *,
        anchored: int = 0,
        tokens: int,
        keep: bool = True,
        take: bool = True,
    ) -> Iterator[LiveSequence]:
        """A sequence that begins with as many of the chunks as are live, and room for `tokens` in all.

        Waits in line while others have the room. `keep`: what it has afterwards stays live, until room is short.

        Raises:
            ModelUnusable: more tokens than the context has.
        """
        sequence = self._lease(chunks, between, anchored, tokens, take=take)
        clean = False
        try:
            yield sequence
            clean = True
        except ModelUnusable:
            raise
        except BaseException:
            clean = True  # given up between batches: what was decoded is whole
            raise
        finally:
            with self._lock:
                self._pool.release(sequence, keep=keep and clean)
            self._tell_released()

    def decode_chunk(self, sequence: LiveSequence, chunk: Chunk, between: Between) -> None:
        """Decode a chunk that others may share. Raises ModelUnusable."""
        self.decode(sequence, chunk, between, outputs=0, fresh=True)
        with self._lock:
            if not sequence.lost:
                self._pool.close_part(sequence, chunk)

    def decode(
        self,
        sequence: LiveSequence,
        tokens: Sequence[int],
        between: Between,
        *,
        outputs: int = 1,
        fresh: bool = False,
    ) -> NDArray[np.float32]:
        """Decode tokens after what a sequence has.

        Args:
            sequence: leased, with that many cells left.
            tokens: any number of them.
            between: see there.
            outputs: after how many of the last tokens logits are wanted.
            fresh: whether these tokens can be cut off by themselves.

        Returns:
            Logits, shape (outputs, vocabulary).

        Raises:
            ModelUnusable: llama.cpp could not; the sequence is of no use any more, others are as they were.
        """
        found = np.empty((outputs, self._model.vocabulary_size), dtype=np.float32)
        for start in range(0, len(tokens), self.batch_size):
            between()
            batch = tokens[start : start + self.batch_size]
            first = max(start, len(tokens) - outputs)
            with self._lock:
                self._decode_batch(sequence, batch, start + len(batch) - first, fresh=fresh and not start)
                for place in range(first, start + len(batch)):
                    found[place - len(tokens) + outputs] = self._logits(place - start)
        return found

    def put_back(
        self, sequence: LiveSequence, chunks: Sequence[Chunk], data: bytes | memoryview, seconds: float
    ) -> bool:
        """Chunks from a saved state, behind what a sequence has; False, and nothing changed, where it is refused."""
        with self._lock:
            return not sequence.lost and self._pool.put_back(sequence, chunks, data, seconds)

    def saved(self, sequence: LiveSequence, first: int) -> tuple[memoryview, float]:
        """The state of a sequence from its part number `first` on, and what decoding that took. Raises ModelUnusable."""
        with self._lock:
            self._check(sequence)
            return self._pool.saved(sequence, first), sum(part.seconds for part in sequence.parts[first:])

    def trim(self, sequence: LiveSequence, keep: int) -> bool:
        """Drop all but the first `keep` parts; all of them, and False, where a model can't drop a part."""
        with self._lock:
            return self._pool.trim(sequence, keep)

    def _lease(
        self, chunks: Sequence[Chunk], between: Between, anchored: int, tokens: int, *, take: bool
    ) -> LiveSequence:
        turn = object()
        self._queue.append(turn)
        try:
            while True:
                between()
                with self._lock:
                    before = self._released
                    if self._queue[0] is turn:
                        sequence = self._pool.begin(chunks, anchored, tokens, take=take)
                        if sequence is not None:
                            return sequence
                        if not self._pool.in_use:
                            raise ModelUnusable(self._too_long(tokens))
                self._wait_for_release(before)
        finally:
            self._queue.remove(turn)
            self._tell_released()

    def _wait_for_release(self, before: int) -> None:
        with self._room:
            self._room.wait_for(lambda: self._released != before, _GLANCE_SECONDS)

    def _tell_released(self) -> None:
        with self._room:
            self._released += 1
            self._room.notify_all()

    def _too_long(self, tokens: int) -> str:
        return (
            f"{self._model.path.name}: {tokens:,} tokens don't fit its context of {self._pool.cells.size:,}; "
            "shorten the request or its context, or raise n_ctx"
        )

    def _check(self, sequence: LiveSequence) -> None:
        if sequence.lost:
            raise ModelUnusable(f"{self._model.path.name}: the context was cleared meanwhile; try again")

    def _decode_batch(
        self, sequence: LiveSequence, tokens: Sequence[int], outputs: int, *, fresh: bool
    ) -> None:
        """Decode at most a batch; logits are kept after its last `outputs` tokens. The lock is held."""
        count, batch, started = len(tokens), self._batch, time.perf_counter()
        self._pool.reserve(count)
        self._check(sequence)
        start = sequence.end
        np.ctypeslib.as_array(batch.token, (count,))[:] = tokens
        np.ctypeslib.as_array(batch.pos, (count,))[:] = np.arange(start, start + count)
        wanted = np.ctypeslib.as_array(batch.logits, (count,))
        wanted[:] = 0
        wanted[count - max(outputs, 0) :] = 1
        for position in range(count):
            batch.seq_id[position][0] = sequence.id
        batch.n_tokens = count
        library.forget_errors()
        status = self._llama.llama_decode(self.handle, batch)
        if status:
            raise ModelUnusable(self._decode_failure(status))
        open_part = sequence.parts and sequence.parts[-1].chunk is None and not fresh
        part = sequence.parts[-1] if open_part else self._pool.open_part(sequence)
        self._pool.extend(sequence, part, count, time.perf_counter() - started)

    def _logits(self, position: int) -> NDArray[np.float32]:
        """Those after one token of the last batch; llama.cpp's memory, so the lock is held."""
        found = self._llama.llama_get_logits_ith(self.handle, position)
        return np.ctypeslib.as_array(found, (self._model.vocabulary_size,))

    def _decode_failure(self, status: int) -> str:
        cause = "no room in its context" if status == 1 else library.logged_errors() or f"status {status}"
        return f"{self._model.path.name}: llama.cpp could not decode ({cause}); this prompt was dropped"

    def _number(self, options: EngineOptions) -> int:
        """How many sequences: each of a recurrent model takes its memory whether it is used or not."""
        least = FIRST + options.concurrency + _BESIDE
        constant = self._kind in {StateKind.RECURRENT, StateKind.HYBRID}
        return least + options.concurrency if constant else max(options.sequences, least)

    def _size(self, resident: int) -> int:
        """Cells; of a model that rotates positions otherwise in a context longer than its first training's, no more than that."""
        short = whole_number(self._model, "rope.scaling.original_context_length") or 0
        return min(self.limit + resident, short) if self.limit <= short else self.limit + resident

    def _open(self, options: EngineOptions) -> Any:
        llama = self._llama
        parameters = llama.llama_context_default_params()
        parameters.n_ctx = self._size(options.resident_tokens)
        # llama.cpp ends the process where a batch could not have a token of each sequence.
        parameters.n_batch = parameters.n_ubatch = max(options.n_batch, self._sequences)
        parameters.n_seq_max = self._sequences
        parameters.kv_unified = True
        parameters.type_k, parameters.type_v = cache_types(self._model, options)
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
        batch = self._llama.llama_batch_init(self.batch_size, 0, 1)
        for position in range(self.batch_size):
            batch.n_seq_id[position] = 1
        return batch
