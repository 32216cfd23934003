"""An engine with state in memory, for tests: its answers follow from what it has read, kept states included.

A token is a word; a state is the tokens themselves. The answer is a hash of all tokens in the order read, so that a
wrong state put back gives a wrong answer.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import anyio.lowlevel

from adapters.ports import Completion, Segment, SegmentKind
from adapters.state_port import Anchor, Chunk, StatePayload
from tool_registry.blocks.descriptor import RuntimeFacts
from tool_registry.blocks.kind import REUSE, StateKind

TOKEN_BYTES = 64


class StatefulDouble:
    """A `StatefulEngine`.

    Args:
        kind: what may be done with its state.
        build: of a runtime that only this word tells from others.
        seconds_a_token: what it says that decoding costs; nothing is waited for.
    """

    def __init__(
        self,
        *,
        kind: StateKind = StateKind.DENSE,
        build: str = "double 1",
        backend: str = "cpu",
        seconds_a_token: float = 0.01,
    ) -> None:
        self._facts = RuntimeFacts(
            model="words",
            build=build,
            backend=backend,
            device="none",
            key_type="u32",
            value_type="u32",
            transposed_values=False,
            unified=True,
            rope="",
            window="",
            lora="",
            layers="1",
            kind=kind,
        )
        self.seconds_a_token = seconds_a_token
        self.running = 0
        self.saved: list[Anchor] = []
        self.states: list[StatePayload | None] = []
        """What was given with each completion."""
        self._live: list[tuple[Chunk, ...]] = []

    @property
    def identity(self) -> str:
        """Says that this is no model."""
        return f"words {self._facts.build}"

    @property
    def holds_local_state(self) -> bool:
        """True."""
        return True

    @property
    def facts(self) -> RuntimeFacts:
        """As given."""
        return self._facts

    @property
    def bytes_per_token(self) -> float:
        """Of a state."""
        return TOKEN_BYTES if REUSE[self._facts.kind].boundary else 0.0

    @property
    def busy(self) -> bool:
        """Whether a completion runs, or is said to."""
        return self.running > 0

    @contextmanager
    def being_busy(self) -> Iterator[None]:
        """As if another completion ran in the block."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def forget(self) -> None:
        """Nothing is live any more."""
        self._live.clear()

    async def anchor(self, segments: Sequence[Segment]) -> Anchor:
        """System and tool, a chunk each."""
        await anyio.lowlevel.checkpoint()
        chunks = (_words(segments, SegmentKind.SYSTEM), _words(segments, SegmentKind.TOOL))
        return Anchor(tuple(chunk for chunk in chunks if chunk))

    def live_tokens(self, anchor: Anchor) -> int:
        """Of the longest common beginning, in whole chunks."""
        return max((sum(map(len, _common(live, anchor.chunks))) for live in self._live), default=0)

    async def save(self, anchor: Anchor) -> StatePayload:
        """The words themselves."""
        await anyio.lowlevel.checkpoint()
        live = self.live_tokens(anchor)
        self.saved.append(anchor)
        self._live.append(anchor.chunks)
        shared = REUSE[self._facts.kind].share and len(anchor.chunks) > 1
        start = len(anchor.chunks[0]) if shared else 0
        tokens = [token for chunk in anchor.chunks for token in chunk][start:]
        seconds = self.seconds_a_token * max(anchor.tokens - max(live, start), 0)
        return StatePayload(start, anchor.tokens, b"".join(map(_packed, tokens)), seconds)

    async def complete(
        self,
        segments: Sequence[Segment],
        schema: Mapping[str, Any],
        *,
        max_tokens: int,  # noqa: ARG002 - its answers are short
        state: StatePayload | None = None,
    ) -> Completion:
        """An answer that follows from every token it has read."""
        self.states.append(state)
        anchor = await self.anchor(segments)
        with self.being_busy():
            await anyio.lowlevel.checkpoint()
            live = self.live_tokens(anchor)
            tokens = [token for chunk in anchor.chunks for token in chunk]
            restored = 0
            if state is not None and live < state.end == anchor.tokens and not len(state.data) % TOKEN_BYTES:
                tokens[state.start : state.end] = _unpacked(state.data)
                restored = state.end - max(state.start, live)
            self._live.append(anchor.chunks)
        rest = [*_words(segments, SegmentKind.CONTEXT), *_words(segments, SegmentKind.REQUEST)]
        count = anchor.tokens + len(rest)
        return Completion(
            _answer([*tokens, *rest], schema),
            complete=True,
            prompt_tokens=count,
            reused_tokens=live + restored,
            sampled_tokens=1,
            forced_tokens=0,
            restored_tokens=restored,
            restore_seconds=0.001 if restored else 0.0,
            prefill_seconds=self.seconds_a_token * (count - live - restored),
        )


def _words(segments: Sequence[Segment], kind: SegmentKind) -> Chunk:
    texts = [segment.text for segment in segments if segment.kind is kind]
    return tuple(zlib.crc32(word.encode()) for text in texts for word in text.split())


def _common(one: Sequence[Chunk], other: Sequence[Chunk]) -> Sequence[Chunk]:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return one[:length]


def _packed(token: int) -> bytes:
    return struct.pack("<I", token).ljust(TOKEN_BYTES, b"\0")


def _unpacked(data: bytes | memoryview) -> list[int]:
    return [struct.unpack_from("<I", data, at)[0] for at in range(0, len(data), TOKEN_BYTES)]


def _answer(tokens: Sequence[int], schema: Mapping[str, Any]) -> str:
    read = zlib.crc32(struct.pack(f"<{len(tokens)}I", *tokens))
    options = schema.get("enum")
    return json.dumps(options[read % len(options)] if options else f"{read:08x}")
