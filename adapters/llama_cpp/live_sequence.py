"""One sequence of a context: what it has, and who has it. Knows no other sequence and no llama.cpp."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from adapters.llama_cpp.cells import Part
from adapters.state_port import Chunk


@dataclass(slots=True, eq=False)
class LiveSequence:
    """One sequence of the context.

    Attributes:
        id: its number.
        parts: what it has, from position 0 without gaps.
        anchored: how many of these are of system and tool alone.
        in_use: somebody decodes onto it.
        reserved: cells that are kept free for it.
        used_at: when it was last in use, by a clock that counts.
        lost: its cells are gone.
        told: of a copy that is kept to go on from, the chunks it has.
    """

    id: int
    parts: list[Part] = field(default_factory=list)
    anchored: int = 0
    in_use: bool = False
    reserved: int = 0
    used_at: int = 0
    lost: bool = False
    told: tuple[Chunk, ...] | None = None

    @property
    def end(self) -> int:
        """The position after its last."""
        return self.parts[-1].end if self.parts else 0

    def common(self, chunks: Sequence[Chunk]) -> int:
        """How many leading parts are these chunks."""
        shared = 0
        for part, chunk in zip(self.parts, chunks, strict=False):
            if part.chunk != chunk:
                break
            shared += 1
        return shared
