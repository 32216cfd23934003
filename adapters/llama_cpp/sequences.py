"""The sequences of one context: which of them has which chunks, who uses it, and what goes when room is short.

Knows chunks, sequence numbers and cells; of llama.cpp only that a sequence can be copied, cut, read and written.
Not thread-safe but for `live_tokens`: whoever holds the context's lock owns it.
"""

from collections.abc import Sequence
from itertools import count
from typing import Protocol

from adapters.llama_cpp.cells import Cells, Part
from adapters.llama_cpp.live_sequence import LiveSequence
from adapters.ports import ModelUnusable
from adapters.state_port import Chunk
from tool_registry.blocks.kind import Reuse

WASTE, SCRATCH, FIRST = 0, 1, 2
"""Holds cells that may not be freed yet; on its way in or out; the first of the sequences that are leased."""


class Memory(Protocol):
    """What is done to sequences; positions from `start` to before `end`, all of them where both are -1."""

    def remove(self, sequence: int, start: int = -1, end: int = -1) -> None:
        """Take positions out of a sequence; a cell that no sequence has any more is free."""
        ...

    def copy(self, source: int, target: int, start: int = -1, end: int = -1) -> None:
        """Let `target` have the cells of `source` too; no bytes move."""
        ...

    def clear(self) -> None:
        """Empty all sequences."""
        ...

    def read(self, sequence: int) -> memoryview:
        """A sequence's state. Raises ModelUnusable."""
        ...

    def write(self, sequence: int, data: bytes | memoryview, start: int, end: int) -> bool:
        """Put a state back into an empty sequence; False, and it stays empty, where it can't be used."""
        ...


class Pool:
    """The sequences that prompts are decoded on, and what is left on them."""

    def __init__(self, memory: Memory, numbers: int, cells: Cells, reuse: Reuse) -> None:
        """`numbers`: how many sequences the context has."""
        self._memory = memory
        self.cells = cells
        self._reuse = reuse
        self._numbers = range(numbers - 1, FIRST - 1, -1)
        self._free = list(self._numbers)
        # Where nothing can be moved down, waste stays under the numbers that had it until nobody has anything.
        self._piles_up = cells.ordered and not reuse.trim
        self._buried: list[int] = []
        self._sequences: list[LiveSequence] = []
        self._clock = count(1)
        self._live: dict[tuple[Chunk, ...], int] = {}

    def live_tokens(self, chunks: tuple[Chunk, ...]) -> int:
        """How many leading tokens some sequence has. Safe in any thread: single look-ups in a dict."""
        for end in range(len(chunks), 0, -1):
            if chunks[:end] in self._live:
                return sum(map(len, chunks[:end]))
        return 0

    @property
    def in_use(self) -> int:
        """How many sequences are leased."""
        return sum(sequence.in_use for sequence in self._sequences)

    def begin(
        self, chunks: Sequence[Chunk], anchored: int, tokens: int, *, take: bool = True
    ) -> LiveSequence | None:
        """Lease a sequence that has as many of the leading chunks as any.

        Args:
            chunks: those that may be shared.
            anchored: how many of these are of system and tool alone.
            tokens: of the prompt and its answer, at most; cells for those not shared are reserved.
            take: whether an idle sequence may be cut behind what is shared and used itself.

        Returns:
            None where there is no room as long as others run.
        """
        sequence = self._begin(chunks, anchored, tokens, take=take)
        if sequence is None and self._piles_up and not self.in_use:
            while self._evict():  # nothing lives then, and all cells are free
                pass
            sequence = self._begin(chunks, anchored, tokens, take=take)
        return sequence

    def _begin(
        self, chunks: Sequence[Chunk], anchored: int, tokens: int, *, take: bool
    ) -> LiveSequence | None:
        source, shared = self._match(chunks)
        sequence = self._lease(source, shared, take=take)
        if sequence is None:
            return None
        sequence.in_use, sequence.anchored = True, anchored
        if self.in_use == 1:
            self._settle()
        needed = tokens - sequence.end
        if not self._make_room(needed):
            self.release(sequence, keep=source is sequence)
            return None
        sequence.reserved = needed
        return sequence

    def release(self, sequence: LiveSequence, *, keep: bool = True) -> None:
        """Give a sequence back; what it has stays for others where that can be, and is gone otherwise."""
        sequence.in_use, sequence.reserved, sequence.used_at = False, 0, next(self._clock)
        sequence.parts = [part for part in sequence.parts if part.count]
        if not keep or not self._reuse.share or not sequence.parts or sequence.lost:
            self._drop(sequence)

    def open_part(self, sequence: LiveSequence) -> Part:
        """Begin a part behind the last."""
        part = Part(sequence.end)
        sequence.parts.append(part)
        return part

    def reserve(self, tokens: int) -> None:
        """See that the next tokens of a sequence that reserved them find cells in order; where that fails, all are lost."""
        if self.cells.used + tokens > self.cells.size:
            while self.cells.live > self.cells.size * 3 // 4 and self._evict():
                pass  # or it would be full again at once
            self._pack()

    def extend(self, sequence: LiveSequence, part: Part, tokens: int, seconds: float) -> None:
        """The sequence's last part has further tokens."""
        self.cells.add(part, tokens)
        part.seconds += seconds
        sequence.reserved = max(sequence.reserved - tokens, 0)

    def close_part(self, sequence: LiveSequence, chunk: Chunk) -> None:
        """The sequence's last part is a whole chunk; others may share it, or from here on a copy of the sequence."""
        path = self._name_part(sequence, chunk)
        if self._reuse.share:
            self._tell(path, 1)
        elif self._reuse.boundary:
            self._checkpoint(sequence)

    def put_back(
        self, sequence: LiveSequence, chunks: Sequence[Chunk], data: bytes | memoryview, seconds: float
    ) -> bool:
        """Chunks from a saved state, behind what the sequence has; False, and nothing changed, where it is refused."""
        tokens = sum(map(len, chunks))
        start, end = sequence.end, sequence.end + tokens
        if not self._reuse.boundary or (start and not self._reuse.share):
            return False
        self.reserve(tokens)
        if sequence.lost:
            return False
        target = SCRATCH if self._reuse.share else sequence.id
        if not self._memory.write(target, data, start, end):
            return False
        if target == SCRATCH:
            self._memory.copy(SCRATCH, sequence.id, start, end)
            self._memory.remove(SCRATCH)
        for chunk in chunks:
            self.extend(sequence, self.open_part(sequence), len(chunk), seconds * len(chunk) / tokens)
            if self._reuse.share or chunk is chunks[-1]:
                self.close_part(sequence, chunk)
            else:  # a state that can't be shared in parts is valid at its end alone
                self._name_part(sequence, chunk)
        return True

    def saved(self, sequence: LiveSequence, first: int) -> memoryview:
        """The state of a sequence from its part number `first` on. Raises ModelUnusable."""
        if not first:
            return self._memory.read(sequence.id)
        self._memory.copy(sequence.id, SCRATCH, sequence.parts[first].start, sequence.end)
        try:
            return self._memory.read(SCRATCH)
        finally:
            self._memory.remove(SCRATCH)

    def trim(self, sequence: LiveSequence, keep: int) -> bool:
        """Drop all but the first `keep` parts; all of them, and False, where a model can't drop a part."""
        whole = self._reuse.trim or not keep or len(sequence.parts) <= keep
        before = sequence.end
        if self._reuse.trim:
            while len(sequence.parts) > keep:
                self._drop_part(sequence, sequence.parts.pop())
        elif len(sequence.parts) > keep:
            self._empty(sequence, waste=False)  # it goes on under its number
        if sequence.in_use:
            sequence.reserved += before - sequence.end
        return whole

    def lose_all(self) -> None:
        """Everything is gone; those in use will find out."""
        for sequence in self._sequences:
            sequence.lost, sequence.parts = True, []
        self._live = {}
        self.cells.clear()
        self._memory.clear()
        self._sequences = [sequence for sequence in self._sequences if sequence.in_use]
        self._buried = []
        taken = {sequence.id for sequence in self._sequences}
        self._free = [number for number in self._numbers if number not in taken]

    @staticmethod
    def _name_part(sequence: LiveSequence, chunk: Chunk) -> tuple[Chunk, ...] | None:
        part = sequence.parts[-1]
        before = sequence.parts[-2].path if len(sequence.parts) > 1 else ()
        part.chunk, part.path = chunk, None if before is None else (*before, chunk)
        return part.path

    def _match(self, chunks: Sequence[Chunk]) -> tuple[LiveSequence | None, int]:
        """Who has the most leading chunks, and how many; where equal, one that can be taken, then the latest."""
        best, found, shared = (0, False, 0), None, 0
        for sequence in self._sequences:
            common = sequence.common(chunks)
            whole = common == len(sequence.parts) and not sequence.in_use
            if not common or not (self._reuse.share or (self._reuse.boundary and whole)):
                continue
            tokens = sequence.parts[common - 1].end
            rank = (tokens, self._takeable(sequence, common), sequence.used_at)
            if rank > best:
                best, found, shared = rank, sequence, common
        return found, shared

    def _takeable(self, sequence: LiveSequence, shared: int) -> bool:
        """Whether nothing but the end of an old prompt would be cut off."""
        return (
            self._reuse.trim and not sequence.in_use and shared >= min(sequence.anchored, len(sequence.parts))
        )

    def _lease(self, source: LiveSequence | None, shared: int, *, take: bool) -> LiveSequence | None:
        if source is not None and take and self._takeable(source, shared):
            self.trim(source, shared)
            return source
        held = source is not None and source.in_use
        if source is not None:
            source.in_use = True  # not to be evicted for the number it is copied to
        number = self._number()
        if source is not None:
            source.in_use = held
        return None if number is None else self._copied(number, source, shared)

    def _number(self) -> int | None:
        while not self._free:
            if not self._evict():
                return None
        return self._free.pop()

    def _copied(self, number: int, source: LiveSequence | None, shared: int) -> LiveSequence:
        sequence = LiveSequence(number)
        self._sequences.append(sequence)
        if source is None:
            return sequence
        sequence.parts = source.parts[:shared]
        for part in sequence.parts:
            part.holders += 1
        if self._reuse.share:
            self._memory.copy(source.id, number, 0, sequence.end)
        else:
            self._memory.copy(source.id, number)
        source.used_at = next(self._clock)
        return sequence

    def _checkpoint(self, sequence: LiveSequence) -> None:
        """Keep a copy that is never decoded onto: the sequence itself can't be cut back to here."""
        path = sequence.parts[-1].path
        if path is None or path in self._live or (self._piles_up and not self._free):
            return
        number = self._number()
        if number is not None:
            kept = self._copied(number, sequence, len(sequence.parts))
            kept.anchored, kept.used_at, kept.told = sequence.anchored, next(self._clock), path
            self._tell(path, 1)

    def _settle(self) -> None:
        """Cut off ends of old prompts that lie on top, while nobody runs: their cells are free at once, not waste."""
        while self._reuse.trim and (part := self.cells.top()) is not None:
            holder = next(
                (one for one in self._sequences if one.parts and one.parts[-1] is part and not one.in_use),
                None,
            )
            if holder is None or part.holders > 1 or len(holder.parts) <= holder.anchored:
                return
            self.trim(holder, holder.anchored)
            if not holder.parts:
                self._drop(holder)

    def _make_room(self, needed: int) -> bool:
        promised = sum(sequence.reserved for sequence in self._sequences)
        if self._piles_up:
            return self.cells.used + promised + needed <= self.cells.size
        while self.cells.live + promised + needed > self.cells.size:
            if not self._evict():
                return False
        return True

    def _evict(self) -> bool:
        """Let the least recently used go, ends of prompts before what only depends on a tool; False where none is idle."""
        idle = sorted((one for one in self._sequences if not one.in_use), key=lambda one: one.used_at)
        if not idle:
            return False
        worn = next((one for one in idle if len(one.parts) > one.anchored), idle[0])
        if self._reuse.trim and len(worn.parts) > worn.anchored:
            self.trim(worn, worn.anchored)
            if all(part.holders > 1 for part in worn.parts):  # others have it as well
                self._drop(worn)
        else:
            self._drop(worn)
        return True

    def _drop(self, sequence: LiveSequence) -> None:
        freed = sequence.lost or self._empty(sequence)
        self._sequences.remove(sequence)
        (self._free if freed else self._buried).append(sequence.id)
        self._clear_if_nothing_lives()

    def _empty(self, sequence: LiveSequence, *, waste: bool = True) -> bool:
        """Let go of all parts; False where the number has to keep cells as waste."""
        if self._reuse.share:
            while sequence.parts:
                self._drop_part(sequence, sequence.parts.pop())
            return True
        self._tell(sequence.told, -1)
        for part in sequence.parts:
            part.holders -= 1
        gone = [part for part in sequence.parts if not part.holders]
        sequence.parts = []
        freed = self.cells.drop(*gone, waste=waste)
        if freed:
            self._memory.remove(sequence.id)
        return freed

    def _drop_part(self, sequence: LiveSequence, part: Part) -> None:
        part.holders -= 1
        if not part.holders:
            if part.chunk is not None:
                self._tell(part.path, -1)
            if not self.cells.drop(part):
                self._memory.copy(sequence.id, WASTE, part.start, part.end)
        if part.count:
            self._memory.remove(sequence.id, part.start, part.end)
        self._clear_if_nothing_lives()

    def _clear_if_nothing_lives(self) -> None:
        if not self.cells.live and self.cells.used:
            self._memory.clear()
            self.cells.clear()
            self._free += self._buried
            self._buried = []

    def _pack(self) -> None:
        """Move all parts above waste into the lowest cells, one after the other, each in order.

        A part comes after those it follows, and takes the lowest free cells: order is kept.
        """
        self._memory.remove(WASTE)
        parts = self.cells.above_waste()
        if all(self._moved(part) for part in parts):
            self.cells.moved(parts)
        else:
            self.lose_all()

    def _moved(self, part: Part) -> bool:
        holders = [sequence.id for sequence in self._sequences if part in sequence.parts]
        self._memory.copy(holders[0], SCRATCH, part.start, part.end)
        try:
            data = self._memory.read(SCRATCH)
        except (ModelUnusable, MemoryError):
            return False
        for number in (SCRATCH, *holders):
            self._memory.remove(number, part.start, part.end)
        if not self._memory.write(SCRATCH, data, part.start, part.end):
            return False
        for number in holders:
            self._memory.copy(SCRATCH, number, part.start, part.end)
        self._memory.remove(SCRATCH)
        return True

    def _tell(self, path: tuple[Chunk, ...] | None, change: int) -> None:
        if path is None:
            return
        found = self._live.get(path, 0) + change
        if found > 0:
            self._live[path] = found
        else:
            self._live.pop(path, None)
