"""One completion on a context: its prompt, from state where there is some, and the value after it. In a worker thread."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adapters.llama_cpp.context import Between, Context
from adapters.llama_cpp.live_sequence import LiveSequence
from adapters.llama_cpp.prompt import Prompt
from adapters.llama_cpp.token_mask import TokenMask
from adapters.llama_cpp.writer import Written, write_value
from adapters.state_port import Chunk, StatePayload


@dataclass(slots=True)
class Effort:
    """What was taken from state, and what time went where; as in `Completion`."""

    live_tokens: int = 0
    restored_tokens: int = 0
    restore_seconds: float = 0.0
    prefill_seconds: float = 0.0
    _started: float = field(default_factory=time.perf_counter)

    def first_token(self) -> None:
        """The logits of the first token are there, or none are needed. Later calls count for nothing."""
        if not self.prefill_seconds:
            self.prefill_seconds = time.perf_counter() - self._started - self.restore_seconds


def complete_on(
    context: Context,
    prompt: Prompt,
    mask: TokenMask,
    *,
    eos: frozenset[int],
    budget: int,
    state: StatePayload | None,
    between: Between,
) -> tuple[Effort, Written]:
    """Read a prompt and write a value. The last chunk of the prompt is decoded with the tokens forced after it.

    Raises:
        ModelUnusable: llama.cpp failed.
        SchemaNotCompilable: the mask broke on a limit.
    """
    *before, last = prompt.chunks
    # A state from position 0 can't go behind a live part of itself: it is put into a sequence that has nothing.
    from_start = state is not None and not state.start and context.live_tokens(tuple(before)) < state.end
    with context.leased(
        () if from_start else before,
        between,
        anchored=min(prompt.anchored, len(before)),
        tokens=len(prompt) + budget,
    ) as sequence:
        effort = Effort(live_tokens=sequence.end)
        read_chunks(context, sequence, before, between, state=state, effort=effort)
        pending, outset = list(last), True

        def logits_after(tokens: Sequence[int]) -> NDArray[np.float32]:
            nonlocal outset
            batch = [*pending, *tokens]
            pending.clear()
            logits = context.decode(sequence, batch, between, fresh=outset)
            outset = False
            effort.first_token()
            return logits.reshape(-1)

        written = write_value(mask, eos, logits_after, budget)
        effort.first_token()
    return effort, written


def read_chunks(
    context: Context,
    sequence: LiveSequence,
    chunks: Sequence[Chunk],
    between: Between,
    *,
    state: StatePayload | None = None,
    effort: Effort | None = None,
) -> None:
    """Decode those chunks that a sequence lacks; those that `state` holds are put back instead, if it is accepted."""
    while len(sequence.parts) < len(chunks):
        held = [] if state is None else _held(chunks[len(sequence.parts) :], sequence.end, state)
        if state is not None and held:
            started = time.perf_counter()
            accepted = context.put_back(sequence, held, state.data, state.seconds)
            state = None
            if accepted:
                if effort is not None:
                    effort.restored_tokens = sum(map(len, held))
                    effort.restore_seconds = time.perf_counter() - started
                continue
        context.decode_chunk(sequence, chunks[len(sequence.parts)], between)


def _held(chunks: Sequence[Chunk], start: int, state: StatePayload) -> list[Chunk]:
    """Those of the next chunks that a state is of: it begins here and ends where one of them does."""
    if state.start != start:
        return []
    held: list[Chunk] = []
    for chunk in chunks:
        held.append(chunk)
        start += len(chunk)
        if start == state.end:
            return held
    return []
