"""Writes one value token by token, and ends within the budget whatever the model wants.

The invariant: once a way out that fits the rest of the budget is known, no step is kept that loses it. So
that the mask isn't walked at every step, the way out is looked for only when the budget runs low; a step that
lost it before is then taken back, together with all since. Knows the mask and a source of logits, no llama.cpp.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from adapters.llama_cpp.token_mask import TokenMask

LogitsAfter: TypeAlias = Callable[[Sequence[int]], NDArray[np.float32]]
"""Given the tokens written since the last call, the logits of what follows, shape (vocabulary,)."""

_LOW_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Written:
    """A value, or as much of one as fitted the budget.

    Attributes:
        complete: whether the mask accepts `text` as a whole value.
    """

    text: str
    complete: bool
    sampled_tokens: int
    forced_tokens: int


@dataclass(slots=True)
class _Draft:
    """The steps taken so far; each is the tokens it appended and whether the model chose."""

    mask: TokenMask
    budget: int
    steps: list[tuple[int, bool]] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.budget - sum(count for count, _ in self.steps)

    def take(self, tokens: Sequence[int], *, chosen: bool) -> bool:
        """Append tokens if they fit and are allowed."""
        if len(tokens) > self.left or not self.mask.consume(tokens):
            return False
        self.steps.append((len(tokens), chosen))
        return True

    def can_close(self) -> bool:
        return self.mask.closing(self.left) is not None

    def close(self) -> bool:
        """Go back to the last step from where a way out fits, and take it."""
        while (tokens := self.mask.closing(self.left)) is None:
            if not self.steps:
                return False
            count, _ = self.steps.pop()
            self.mask.undo(count)
        return self.take(tokens, chosen=False)

    def written(self, *, complete: bool) -> Written:
        sampled = sum(count for count, chosen in self.steps if chosen)
        text = self.mask.text.decode("utf-8", "ignore")
        return Written(text, complete, sampled, sum(count for count, _ in self.steps) - sampled)


def write_value(mask: TokenMask, eos: frozenset[int], logits_after: LogitsAfter, budget: int) -> Written:
    """Complete the mask's value in at most `budget` tokens, greedily.

    Where not even the shortest way out fits, the model writes on its own until the budget ends; what it wrote
    is then returned as incomplete, unless it ended the value itself.

    Raises:
        SchemaNotCompilable: the mask broke on a limit.
    """
    draft = _Draft(mask, budget)
    safe = draft.can_close()
    fresh: list[int] = []
    while not mask.finished and draft.left > 0:
        tokens = mask.forced()
        chosen = not tokens
        if chosen:
            tokens, fresh = [mask.best(logits_after(fresh))], []
            if tokens[0] in eos:
                break
        if not draft.take(tokens, chosen=chosen):
            break
        fresh += tokens
        if draft.left <= _LOW_TOKENS or not safe:
            fits = draft.can_close()
            if safe and not fits:
                break
            safe = fits
    return draft.written(complete=mask.finished or (safe and draft.close()))
