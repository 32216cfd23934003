"""What reads a request for its arguments: the Protocol, its questions and its answers. Errors are those of `ports`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ReadingQuestion:
    """What is looked for in a request: one argument, and the values it may take besides the request's own words."""

    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadingAnswer:
    """A part of the request, in characters, or of an option where `option` has its place."""

    start: int
    end: int
    probability: float
    option: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What a request says to one question.

    Attributes:
        nothing: probability that it says nothing.
        answers: the likeliest, best first; with `nothing` and those not listed they sum to 1.
        items: if the answer is a list: its items, in reading order, each with its own probability.
    """

    nothing: float
    answers: tuple[ReadingAnswer, ...]
    items: tuple[ReadingAnswer, ...] = ()


class ArgumentReader(Protocol):
    """Finds where a request states arguments; makes nothing up."""

    @property
    def identity(self) -> str:
        """Model content: what a calibration was made for."""
        ...

    async def read(self, request: str, questions: Sequence[ReadingQuestion]) -> Sequence[Reading]:
        """What the request says to each question, in their order. Raises ModelError."""
        ...
