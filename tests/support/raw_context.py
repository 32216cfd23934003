"""A llama.cpp context by its C functions alone: sequences, states and logits, with nothing of ours in between."""

from contextlib import contextmanager

import numpy as np

from adapters.llama_cpp import library
from adapters.llama_cpp.cache_types import cache_types
from adapters.llama_cpp.model import load_model
from adapters.llama_cpp.options import EngineOptions
from adapters.llama_cpp.state_blob import learn_shape, read_state, write_state

BATCH = 64


class RawContext:
    """A context whose calls are llama.cpp's, with positions counted by whoever calls."""

    def __init__(
        self, model, *, flash=True, n_ctx=256, sequences=6, threads=1, window_full=True, unified=True
    ):
        self.llama, self.model = library.llama(), model
        options = self.llama.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = n_ctx, BATCH, BATCH
        options.n_seq_max, options.kv_unified, options.swa_full = sequences, unified, window_full
        options.n_threads = options.n_threads_batch = threads
        options.flash_attn_type = int(flash)
        options.type_k, options.type_v = cache_types(model, EngineOptions(flash_attention=flash))
        self.handle = self.llama.llama_init_from_model(model.handle, options)
        assert self.handle, library.logged_errors()
        self.size = n_ctx
        self.memory = self.llama.llama_get_memory(self.handle)
        self._batch = self.llama.llama_batch_init(BATCH, 0, 1)

    def close(self):
        self.llama.llama_batch_free(self._batch)
        self.llama.llama_free(self.handle)

    def decode(self, sequence, tokens, start):
        """The logits after each token, shape (tokens, vocabulary)."""
        self._decode(sequence, tokens, start, wanted=1)
        shape = (len(tokens), self.model.vocabulary_size)
        return np.ctypeslib.as_array(self.llama.llama_get_logits(self.handle), shape).copy()

    def read_chunks(self, sequence, *chunks):
        """Decode chunks one after the other from position 0; where they end."""
        end = 0
        for chunk in chunks:
            self._decode(sequence, chunk, end, wanted=0)
            end += len(chunk)
        return end

    def _decode(self, sequence, tokens, start, wanted):
        batch = self._batch
        batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place], batch.pos[place], batch.logits[place] = token, start + place, wanted
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, sequence
        assert self.llama.llama_decode(self.handle, batch) == 0, library.logged_errors()

    def clear(self):
        self.llama.llama_memory_clear(self.memory, True)

    def copy(self, source, target, start=-1, end=-1):
        self.llama.llama_memory_seq_cp(self.memory, source, target, start, end)

    def drop(self, sequence, start=-1, end=-1):
        return self.llama.llama_memory_seq_rm(self.memory, sequence, start, end)

    def move(self, sequence, by):
        self.llama.llama_memory_seq_add(self.memory, sequence, 0, -1, by)

    @property
    def can_shift(self):
        return self.llama.llama_memory_can_shift(self.memory)

    def first(self, sequence):
        return self.llama.llama_memory_seq_pos_min(self.memory, sequence)

    def end(self, sequence):
        return self.llama.llama_memory_seq_pos_max(self.memory, sequence) + 1

    def shape(self):
        return learn_shape(self.handle, 0, 5)

    def read(self, sequence):
        return bytes(read_state(self.handle, sequence))

    def write(self, sequence, data, expected, **more):
        return write_state(self.handle, sequence, data, expected, **more)


@contextmanager
def raw_model(path):
    model = load_model(path, n_gpu_layers=0, on_progress=lambda _share: True)
    try:
        yield model
    finally:
        model.close()


@contextmanager
def raw_context(model, **options):
    context = RawContext(model, **options)
    try:
        yield context
    finally:
        context.close()
