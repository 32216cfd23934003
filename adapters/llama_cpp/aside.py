"""How likely texts are: asked on a sequence beside the live one, which stays as it is.

Knows a context and tokens; knows no texts. Not thread-safe, as the context: for the worker that owns it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from adapters.llama_cpp.context import Context


@contextmanager
def aside(context: Context, room: int) -> Iterator["Aside"]:
    """An empty sequence beside the live one, for at most `room` tokens at a time; emptied at the end."""
    context.make_room(room)
    try:
        yield Aside(context)
    finally:
        context.drop_aside(0)


class Aside:
    """Texts that are weighed, not continued: a head that several share, and what follows it each time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._head: tuple[int, ...] = ()

    def log_likelihoods(
        self, head: Sequence[int], body: Sequence[int], target: Sequence[int], between: Callable[[], None]
    ) -> NDArray[np.float32]:
        """The natural logarithm of the probability of each target token, given head, body and the targets before it.

        Args:
            head: decoded once for calls in a row that have the same.
            body: at least one token.
            target: at least one token.
            between: runs before each decode and may raise.

        Returns:
            Shape (target tokens,).
        """
        self._rewind(tuple(head), between)
        tokens = [*body, *target[:-1]]
        found: list[float] = []
        for start in range(0, len(tokens), self._context.batch_size):
            between()
            part = tokens[start : start + self._context.batch_size]
            first = max(start, len(body) - 1)  # the token that the first of this part's targets follows
            outputs = max(0, start + len(part) - first)
            self._context.decode_aside(part, len(head) + start, outputs)
            for place in range(first, start + len(part)):
                found.append(_log_probability(self._context.logits(place - start), target[len(found)]))
        return np.asarray(found, dtype=np.float32)

    def _rewind(self, head: tuple[int, ...], between: Callable[[], None]) -> None:
        """Leave the head alone in the sequence."""
        if head == self._head and self._context.drop_aside(len(head)):
            return
        self._context.drop_aside(0)
        self._head = ()
        for start in range(0, len(head), self._context.batch_size):
            between()
            self._context.decode_aside(head[start : start + self._context.batch_size], start, 0)
        self._head = head


def _log_probability(logits: NDArray[np.float32], token: int) -> float:
    highest = float(logits.max())
    return float(logits[token]) - highest - float(np.log(np.exp(logits - highest).sum()))
