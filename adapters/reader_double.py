"""An argument reader in memory, for tests and dry runs: says what its script says and records what it was asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio.lowlevel

from adapters.ports import ModelError
from adapters.reading_port import Reading, ReadingAnswer, ReadingQuestion

SURE = 0.95
"""Probability of a scripted answer, and of nothing where there is none."""

Said = str | tuple[str, ...] | Reading
"""Text that stands in the request, or an option; the items of a list; or a whole reading."""


@dataclass(frozen=True, slots=True)
class ReaderCall:
    """One recorded call of `read`."""

    request: str
    questions: tuple[ReadingQuestion, ...]


class ScriptedReader:
    """An `ArgumentReader` that finds what it is told to, where the request has it.

    Attributes:
        said: by the words of an argument's name ("target path"), in lower case; nothing is said of others.
        error: raised instead of any answer.
    """

    def __init__(
        self,
        said: Mapping[str, Said] | None = None,
        *,
        identity: str = "scripted reader",
        error: ModelError | None = None,
    ) -> None:
        self.said = dict(said or {})
        self.error = error
        self.calls: list[ReaderCall] = []
        self._identity = identity

    @property
    def identity(self) -> str:
        """As the constructor was told."""
        return self._identity

    async def read(self, request: str, questions: Sequence[ReadingQuestion]) -> Sequence[Reading]:
        """Record the call and answer each question. Raises ModelError: the script says so."""
        await anyio.lowlevel.checkpoint()
        self.calls.append(ReaderCall(request, tuple(questions)))
        if self.error is not None:
            raise self.error
        return [self.answer(request, question) for question in questions]

    def answer(self, request: str, question: ReadingQuestion) -> Reading:
        """What the script says to one question."""
        said = self.said.get(question.text.partition(":")[0])
        return said if isinstance(said, Reading) else found(request, said, question.options)


def found(
    text: str, said: str | tuple[str, ...] | None, options: Sequence[str] = (), probability: float = SURE
) -> Reading:
    """The reading in which a part of a text, or an option, is the answer; "nothing" where it is neither.

    Args:
        text: the request.
        said: the answer; a tuple gives the items of a list, the first of them as the answer too.
        options: of the question.
        probability: of the answer; the rest goes to "nothing".
    """
    parts = said if isinstance(said, tuple) else (said,) if said else ()
    answers = [_answer(text, part, options, probability) for part in parts]
    present = tuple(answer for answer in answers if answer is not None)
    if not present:
        return Reading(SURE, ())
    return Reading(1 - probability, present[:1], present if isinstance(said, tuple) else ())


def _answer(text: str, part: str, options: Sequence[str], probability: float) -> ReadingAnswer | None:
    if part in options:
        return ReadingAnswer(0, len(part), probability, options.index(part))
    start = text.find(part)
    return None if start < 0 else ReadingAnswer(start, start + len(part), probability)
