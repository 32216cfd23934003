"""An argument engine in memory, for tests and dry runs: answers from a script and records what it was asked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio.lowlevel

from adapters.ports import Completion, ModelError, ModelUnusable, Segment


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One recorded call of `complete`."""

    segments: tuple[Segment, ...]
    schema: Mapping[str, Any]
    max_tokens: int


class ScriptedEngine:
    """An `ArgumentEngine` that gives the scripted answers in order.

    An answer is the JSON text of a complete value, a whole `Completion`, or an error to raise.
    """

    def __init__(self, answers: Iterable[str | Completion | ModelError]) -> None:
        self._answers = iter(answers)
        self.calls: list[EngineCall] = []

    @property
    def identity(self) -> str:
        """Says that this is no model."""
        return "scripted"

    @property
    def holds_local_state(self) -> bool:
        """False: nothing is kept between calls."""
        return False

    async def complete(
        self, segments: Sequence[Segment], schema: Mapping[str, Any], *, max_tokens: int
    ) -> Completion:
        """Record the call and give the next answer.

        Raises:
            ModelUnusable: the script has ended.
            ModelError: the script says so.
        """
        await anyio.lowlevel.checkpoint()
        self.calls.append(EngineCall(tuple(segments), schema, max_tokens))
        answer = next(self._answers, None)
        if answer is None:
            raise ModelUnusable(f"the script has ended: call {len(self.calls)} has no answer")
        if isinstance(answer, ModelError):
            raise answer
        return answer if isinstance(answer, Completion) else Completion(answer, True, 0, 0, 0, 0)
