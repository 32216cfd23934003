"""The Protocol of an engine that keeps state on this machine, and the values that cross it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from adapters.ports import Completion, Segment
from tool_registry.blocks.descriptor import RuntimeFacts

Chunk: TypeAlias = tuple[int, ...]
"""Tokens that are decoded as one batch (or as equal batches, where they are more than fit one)."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The beginning of a prompt that depends on the system text and the tool alone.

    Attributes:
        chunks: the system's tokens, then the tool's; decoded one after the other. Either may be missing.
    """

    chunks: tuple[Chunk, ...]

    @property
    def tokens(self) -> int:
        """Length of all of it."""
        return sum(map(len, self.chunks))


@dataclass(frozen=True, slots=True, eq=False)
class StatePayload:
    """The state of an anchor's tokens as the runtime writes it, and what it cost.

    Attributes:
        start: first position in it; what is before it has to be in the sequence already.
        end: the position after its last.
        data: the runtime's own bytes.
        seconds: what decoding these tokens took.
    """

    start: int
    end: int
    data: bytes | memoryview
    seconds: float = 0.0


@runtime_checkable
class StatefulEngine(Protocol):
    """An `ArgumentEngine` whose states can be saved and put back."""

    @property
    def identity(self) -> str:
        """Model content and runtime."""
        ...

    @property
    def holds_local_state(self) -> bool:
        """Always True."""
        ...

    @property
    def facts(self) -> RuntimeFacts:
        """What must agree before a saved state is put back."""
        ...

    @property
    def bytes_per_token(self) -> float:
        """Of a saved state, roughly; 0 where nothing can be kept."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a completion runs or waits: background work stands back."""
        ...

    async def anchor(self, segments: Sequence[Segment]) -> Anchor:
        """The anchor of a prompt, in tokens; segments other than SYSTEM and TOOL don't count. Raises ModelError."""
        ...

    def live_tokens(self, anchor: Anchor) -> int:
        """How many of the anchor's leading tokens a sequence in the context has now. Takes microseconds."""
        ...

    async def save(self, anchor: Anchor) -> StatePayload:
        """Decode an anchor, or find it live, and copy its state out. Gives way to completions. Raises ModelError."""
        ...

    async def complete(
        self,
        segments: Sequence[Segment],
        schema: Mapping[str, Any],
        *,
        max_tokens: int,
        state: StatePayload | None = None,
    ) -> Completion:
        """As `ArgumentEngine.complete`; `state` is put back first where no live sequence has as much of the anchor.

        A state that the runtime refuses is ignored: its tokens are decoded.
        """
        ...
