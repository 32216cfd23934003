"""Which cells of a context are taken, in which order, and which can be given back. Knows no llama.cpp and no tokens' values.

With flash attention on, a sum over a sequence's cells runs in the order of the cells. So that it does not depend
on neighbours, each sequence's cells have to rise with its positions. llama.cpp searches free cells from a mark
that any removal lowers: a cell freed below others would be filled next, by whoever decodes next, and out of order.
Therefore cells are given back from the top alone; those below it become waste, until all that lives is moved down,
or, where a kind of state can't be moved in parts, until nothing lives.
"""

from dataclasses import dataclass, field

from adapters.state_port import Chunk


@dataclass(slots=True, eq=False)
class Part:
    """A run of positions that was decoded, or put back, as one chunk; several sequences may have it.

    Attributes:
        start: its first position.
        chunk: its tokens, once all of them are there; None for what is no chunk of a prompt.
        path: this chunk and all before it; None where one of them is no chunk.
        count: its cells so far.
        holders: how many sequences have it.
        seconds: what decoding it took.
    """

    start: int
    chunk: Chunk | None = None
    path: tuple[Chunk, ...] | None = None
    count: int = 0
    holders: int = 1
    seconds: float = 0.0

    @property
    def end(self) -> int:
        """The position after its last."""
        return self.start + self.count


@dataclass(slots=True)
class _Span:
    part: Part | None  # None: waste
    count: int


@dataclass(slots=True)
class Cells:
    """Accounts of one context.

    Attributes:
        size: all cells there are.
        ordered: whether cells are given back from the top alone; else at once.
        used: cells up to the highest one in use, waste included.
        live: cells of parts.
    """

    size: int
    ordered: bool = True
    used: int = 0
    live: int = 0
    _spans: list[_Span] = field(default_factory=list)

    def add(self, part: Part, count: int) -> None:
        """A part has taken further cells."""
        part.count += count
        self.used += count
        self.live += count
        if self._spans and self._spans[-1].part is part:
            self._spans[-1].count += count
        else:
            self._spans.append(_Span(part, count))

    def drop(self, *parts: Part, waste: bool = True) -> bool:
        """These parts are gone. Whether their cells are to be freed; if not, they are waste and have to stay taken.

        Without `waste` they are freed wherever they lie, at the cost of the order of what comes next.
        """
        count = sum(part.count for part in parts)
        self.live -= count
        on_top, above = 0, len(self._spans)
        while above and self._spans[above - 1].part in parts:
            above -= 1
            on_top += self._spans[above].count
        if on_top == count or not self.ordered or not waste:
            self._spans = [span for span in self._spans if span.part not in parts]
            self.used -= count
            return True
        for span in self._spans:
            if span.part in parts:
                span.part = None
        return False

    def clear(self) -> None:
        """Nothing is taken any more."""
        self.used = self.live = 0
        self._spans = []

    def top(self) -> Part | None:
        """The part that has the highest cell; None where that is waste, or nothing."""
        return self._spans[-1].part if self._spans else None

    def above_waste(self) -> list[Part]:
        """What has to be moved down to be rid of all waste, by their lowest cells."""
        cut = self._cut()
        return list(dict.fromkeys(span.part for span in self._spans[cut:] if span.part is not None))

    def moved(self, parts: list[Part]) -> None:
        """These parts, all that `above_waste` gives, were moved down in their order."""
        self._spans = [*self._spans[: self._cut()], *(_Span(part, part.count) for part in parts)]
        self.used = self.live

    def _cut(self) -> int:
        """The first span of waste, or of a part that also lies above it."""
        cut = next((place for place, span in enumerate(self._spans) if span.part is None), len(self._spans))
        while True:
            moving = {id(span.part) for span in self._spans[cut:]}
            lowest = next(
                (place for place, span in enumerate(self._spans[:cut]) if id(span.part) in moving), cut
            )
            if lowest == cut:
                return cut
            cut = lowest
