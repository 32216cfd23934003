"""How likely texts are: asked on a sequence of their own, which is gone afterwards.

Knows a context and tokens; knows no texts. For one thread; others may decode on the same context meanwhile.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from adapters.llama_cpp.context import Between, Context
from adapters.llama_cpp.live_sequence import LiveSequence


@contextmanager
def aside(context: Context, room: int, between: Between) -> Iterator["Aside"]:
    """An empty sequence for at most `room` tokens at a time; waits for them. Raises ModelUnusable."""
    with context.leased((), between, tokens=room, keep=False) as sequence:
        yield Aside(context, sequence, between)


class Aside:
    """Texts that are weighed, not continued: a head that several share, and what follows it each time."""

    def __init__(self, context: Context, sequence: LiveSequence, between: Between) -> None:
        self._context = context
        self._sequence = sequence
        self._between = between
        self._head: tuple[int, ...] = ()

    def log_likelihoods(
        self, head: Sequence[int], body: Sequence[int], target: Sequence[int]
    ) -> NDArray[np.float32]:
        """The natural logarithm of the probability of each target token, given head, body and the targets before it.

        Args:
            head: decoded once for calls in a row that have the same.
            body: at least one token.
            target: at least one token.

        Returns:
            Shape (target tokens,).
        """
        self._rewind(tuple(head))
        tokens = [*body, *target[:-1]]
        logits = self._context.decode(self._sequence, tokens, self._between, outputs=len(target), fresh=True)
        found = [_log_probability(row, token) for row, token in zip(logits, target, strict=True)]
        return np.asarray(found, dtype=np.float32)

    def _rewind(self, head: tuple[int, ...]) -> None:
        """Leave the head alone in the sequence."""
        keep = 1 if head else 0
        if head == self._head and self._context.trim(self._sequence, keep):
            return
        self._context.trim(self._sequence, 0)
        self._head = ()
        if head:
            self._context.decode(self._sequence, head, self._between, outputs=0, fresh=True)
        self._head = head


def _log_probability(logits: NDArray[np.float32], token: int) -> float:
    highest = float(logits.max())
    return float(logits[token]) - highest - float(np.log(np.exp(logits - highest).sum()))
