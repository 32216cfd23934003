"""The texts that values may come from, and which of their parts are taken already."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from nexus_gateway.turn.result import Ground, GroundKind
from nexus_gateway.turn.spans import Span, SpanKind, given_name, said_text, typed_spans, word_runs
from tool_registry.text import split_words


@dataclass(frozen=True, slots=True)
class Option:
    """A possible value of an argument and its ground; `span` is what it would take from the request."""

    value: object
    ground: Ground
    span: Span | None = None

    def chosen(self) -> "Option":
        """This option, marked as one of several."""
        return replace(self, ground=replace(self.ground, chosen=True))


@dataclass(eq=False)
class Source:
    """One text. A span that an argument has taken is not offered to the next one."""

    text: str
    kind: GroundKind
    known: Collection[str]
    """The tool's own words: what says nothing new."""
    _taken: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.typed = typed_spans(self.text)
        self.words = frozenset(split_words(self.text))

    def of_kinds(self, kinds: Collection[SpanKind]) -> list[Option]:
        """Free spans of these kinds."""
        return self._options(span for span in self.typed if span.kind in kinds)

    def said(self) -> list[Option]:
        """The text after "saying" and the like, unless part of it is taken."""
        return self._options(filter(None, [said_text(self.text)]))

    def named(self) -> list[Option]:
        """The text after "called" and the like, unless part of it is taken."""
        return self._options(filter(None, [given_name(self.text)]))

    def runs(self, *, joined: bool = True) -> list[Option]:
        """Free runs of words that say something new, outside typed spans of other arguments."""
        closed = [span for span in self.typed if span.kind not in _PART_OF_PROSE]
        runs = word_runs(self.text, self.known, joined=joined)
        return self._options(run for run in runs if not any(_overlap(run, span) for span in closed))

    def take(self, span: Span | None) -> None:
        """Mark a span as used."""
        if span is not None:
            self._taken.append(span)

    def _options(self, spans: Iterable[Span]) -> list[Option]:
        free = [span for span in spans if not any(_overlap(span, taken) for taken in self._taken)]
        unique = {span.text: span for span in reversed(free)}
        return [Option(text, Ground(self.kind, text), span) for text, span in reversed(unique.items())]


_PART_OF_PROSE = {SpanKind.IDENTIFIER, SpanKind.NUMBER}
"""Typed spans that a run of words may hold ("python 3 tutorials")."""


def _overlap(a: Span, b: Span) -> bool:
    return a.start < b.end and b.start < a.end
