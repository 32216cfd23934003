"""The pool of sequences over a memory that finds cells as llama.cpp does: order, room, sharing, and what goes first."""

import random

import pytest

from adapters.llama_cpp.cells import Cells
from adapters.llama_cpp.sequences import SCRATCH, Pool
from tool_registry.blocks.kind import REUSE, StateKind

SYSTEM, REQUEST = (1, 2, 3), (90, 91)
TOOLS = [tuple(range(100 * number, 100 * number + 5 + number)) for number in range(1, 7)]


class FakeMemory:
    """Cells as llama.cpp keeps them: a search that starts at a mark, which every removal may lower."""

    def __init__(self, size, *, refuses=False):
        self.cells = [None] * size  # (position, set of sequences)
        self.head, self.refuses, self.written = 0, refuses, 0

    def decode(self, sequence, start, count):
        used = sum(cell is not None for cell in self.cells)
        place = 0 if self.head > used + 2 * count else self.head
        found = []
        for _ in range(len(self.cells)):
            if len(found) == count:
                break
            if place >= len(self.cells):
                place = 0
            if self.cells[place] is None:
                found.append(place)
            place += 1
        assert len(found) == count, "no room in the context"
        for offset, place in enumerate(found):
            self.cells[place] = (start + offset, {sequence})
        self.head = found[-1] + 1

    def remove(self, sequence, start=-1, end=-1):
        freed = [
            place
            for place, position in self._of(sequence, start, end)
            if not self.cells[place][1].remove(sequence) and not self.cells[place][1]
        ]
        for place in freed:
            self.cells[place] = None
        if freed:
            self.head = min(self.head, freed[0])

    def copy(self, source, target, start=-1, end=-1):
        for place, _ in self._of(source, start, end):
            self.cells[place][1].add(target)

    def clear(self):
        self.cells, self.head = [None] * len(self.cells), 0

    def read(self, sequence):
        return memoryview(bytes(position for _, position in self._of(sequence, -1, -1)))

    def write(self, sequence, data, start, end):
        if self.refuses or list(data) != list(range(start, end)):
            return False
        self.written += 1
        self.decode(sequence, start, end - start)
        return True

    def positions(self, sequence):
        return [position for _, position in self._of(sequence, -1, -1)]

    def _of(self, sequence, start, end):
        stop = end if end >= 0 else 1 << 30
        return [
            (place, cell[0])
            for place, cell in enumerate(self.cells)
            if cell is not None and sequence in cell[1] and max(start, 0) <= cell[0] < stop
        ]


class Lab:
    """A pool and its memory, with the decoding that a context does."""

    def __init__(self, size=64, numbers=10, kind=StateKind.DENSE, **options):
        self.memory = FakeMemory(size, **options)
        reuse = REUSE[kind]
        self.pool = Pool(self.memory, numbers, Cells(size, ordered=kind is not StateKind.RECURRENT), reuse)
        self.decoded = 0

    def decode(self, sequence, count, part=None):
        self.pool.reserve(count)
        if sequence.lost:
            return
        self.memory.decode(sequence.id, sequence.end, count)
        self.decoded += count
        if part is None:
            part = sequence.parts[-1] if sequence.parts and sequence.parts[-1].chunk is None else None
        self.pool.extend(sequence, part or self.pool.open_part(sequence), count, 0.0)

    def chunk(self, sequence, chunk):
        self.decode(sequence, len(chunk), self.pool.open_part(sequence))
        self.pool.close_part(sequence, chunk)

    def begin(self, *chunks, budget=4, **options):
        anchored = min(len(chunks), 2)
        return self.pool.begin(chunks, anchored, sum(map(len, chunks)) + budget, **options)

    def complete(self, *chunks, budget=4):
        sequence = self.begin(*chunks, budget=budget)
        reused = sequence.end
        for chunk in chunks[len(sequence.parts) :]:
            self.chunk(sequence, chunk)
        self.decode(sequence, budget)
        self.pool.release(sequence)
        return reused

    def check(self, *sequences):
        for sequence in sequences:
            assert self.memory.positions(sequence.id) == list(range(sequence.end)), (
                "out of order, or with gaps"
            )
        taken = sum(cell is not None for cell in self.memory.cells)
        assert taken == self.pool.cells.used
        assert self.pool.cells.live <= self.pool.cells.used <= self.pool.cells.size


def test_a_prompt_goes_on_from_the_longest_beginning_that_any_sequence_has():
    lab = Lab()
    assert lab.complete(SYSTEM, TOOLS[0]) == 0
    assert lab.complete(SYSTEM, TOOLS[1]) == len(SYSTEM)
    assert lab.complete(SYSTEM, TOOLS[0]) == len(SYSTEM) + len(TOOLS[0])
    assert lab.complete(SYSTEM, TOOLS[1], REQUEST) == len(SYSTEM) + len(TOOLS[1])
    assert lab.complete(SYSTEM, TOOLS[1], REQUEST) == len(SYSTEM) + len(TOOLS[1]) + len(REQUEST)


def test_what_is_shared_with_a_prompt_that_runs_takes_no_cells_again():
    lab = Lab()
    first = lab.begin(SYSTEM, TOOLS[0])
    for chunk in (SYSTEM, TOOLS[0]):
        lab.chunk(first, chunk)
    before = lab.pool.cells.live
    second = lab.begin(SYSTEM, TOOLS[0])
    assert second is not first
    assert second.end == first.end
    assert lab.pool.cells.live == before
    lab.decode(first, 3)
    lab.decode(second, 4)
    lab.check(first, second)


def test_live_tokens_are_those_that_the_next_prompt_reuses():
    lab = Lab()
    assert lab.pool.live_tokens((SYSTEM, TOOLS[0])) == 0
    lab.complete(SYSTEM, TOOLS[0])
    assert lab.pool.live_tokens((SYSTEM, TOOLS[0])) == len(SYSTEM) + len(TOOLS[0])
    assert lab.pool.live_tokens((SYSTEM, TOOLS[1])) == len(SYSTEM)
    assert lab.pool.live_tokens((TOOLS[0],)) == 0


def test_ends_of_prompts_go_before_tools_and_the_longest_unused_goes_first():
    lab = Lab(size=40)
    for tool in TOOLS[:3]:  # 6, 7 and 8 tokens
        lab.complete(SYSTEM, tool, REQUEST)
    live = [lab.pool.live_tokens((SYSTEM, tool)) > len(SYSTEM) for tool in TOOLS[:3]]
    assert live == [True, True, True]
    lab.complete(SYSTEM, TOOLS[0])
    lab.complete(SYSTEM, TOOLS[4], budget=7)
    live = [lab.pool.live_tokens((SYSTEM, tool)) > len(SYSTEM) for tool in TOOLS[:3]]
    assert live == [True, False, True]


def test_who_does_not_fit_beside_others_gets_nothing_until_they_are_done():
    lab = Lab(size=32)
    first = lab.begin(SYSTEM, TOOLS[0], budget=10)
    assert lab.begin(TOOLS[5], budget=20) is None
    lab.chunk(first, SYSTEM)
    lab.pool.release(first)
    assert lab.begin(TOOLS[5], budget=20) is not None


def test_a_state_is_put_back_behind_what_is_there_and_refused_ones_change_nothing():
    lab = Lab()
    sequence = lab.begin(SYSTEM, TOOLS[0])
    lab.chunk(sequence, SYSTEM)
    end = sequence.end + len(TOOLS[0])
    assert not lab.pool.put_back(sequence, [TOOLS[0]], bytes(range(end)), 0.0)  # of other positions
    assert sequence.end == len(SYSTEM)
    assert lab.pool.put_back(sequence, [TOOLS[0]], bytes(range(len(SYSTEM), end)), 0.5)
    assert sequence.end == end
    assert lab.memory.positions(SCRATCH) == []
    lab.decode(sequence, 2)
    lab.check(sequence)
    assert list(lab.pool.saved(sequence, 1)) == list(range(len(SYSTEM), sequence.end))


def test_a_sequence_that_can_not_be_cut_goes_on_from_copies_at_its_boundaries():
    for kind in (StateKind.WINDOWED, StateKind.RECURRENT, StateKind.HYBRID):
        lab = Lab(kind=kind)
        assert lab.complete(SYSTEM, TOOLS[0], REQUEST) == 0
        assert lab.pool.live_tokens((SYSTEM, TOOLS[0])) == len(SYSTEM) + len(TOOLS[0])
        assert lab.complete(SYSTEM, TOOLS[0], REQUEST) == len(SYSTEM) + len(TOOLS[0]) + len(REQUEST)
        assert lab.complete(SYSTEM, TOOLS[1]) == len(SYSTEM)
        whole = lab.begin(SYSTEM, TOOLS[2])
        assert not lab.pool.put_back(whole, [TOOLS[2]], bytes(range(3, 11)), 0.0)  # only from position 0


def test_of_an_unsupported_kind_nothing_is_kept():
    lab = Lab(kind=StateKind.UNSUPPORTED)
    lab.complete(SYSTEM, TOOLS[0])
    assert lab.complete(SYSTEM, TOOLS[0]) == 0
    assert lab.pool.cells.live == 0


def test_where_cells_can_not_be_moved_all_is_lost_and_nothing_is_wrong():
    lab = Lab(size=40, refuses=True)
    first = lab.begin(SYSTEM, TOOLS[0], budget=4)
    second = lab.begin(SYSTEM, TOOLS[1], budget=14)
    lab.chunk(first, SYSTEM)
    lab.chunk(second, SYSTEM)
    lab.pool.release(first, keep=False)
    third = lab.begin(TOOLS[2], budget=3)
    lab.decode(third, 9)
    lab.decode(second, 21 - 3)
    assert not second.lost
    lab.pool.release(third, keep=False)
    fourth = lab.begin(TOOLS[3], budget=6)
    lab.decode(fourth, 15)
    assert second.lost
    assert fourth.lost
    for sequence in (second, fourth):
        lab.pool.release(sequence)
    assert lab.complete(SYSTEM, TOOLS[0]) == 0
    assert len(lab.pool._free) + len(lab.pool._sequences) == 8


def test_a_state_is_not_put_behind_what_was_lost_while_room_was_made_for_it():
    lab = Lab()
    sequence = lab.begin(SYSTEM, TOOLS[0])
    lab.chunk(sequence, SYSTEM)
    lab.pool.reserve = lambda _tokens: lab.pool.lose_all()
    end = len(SYSTEM) + len(TOOLS[0])
    assert not lab.pool.put_back(sequence, [TOOLS[0]], bytes(range(len(SYSTEM), end)), 0.5)
    lab.pool.release(sequence)
    assert lab.pool._live == {}
    assert lab.pool.cells.used == 0


@pytest.mark.parametrize("kind", [StateKind.WINDOWED, StateKind.HYBRID])
def test_what_can_not_be_moved_keeps_its_order_when_a_neighbour_below_it_goes(kind):
    lab = Lab(kind=kind)
    below, sequence = lab.begin(TOOLS[5], budget=1), lab.begin(SYSTEM, TOOLS[0])
    lab.chunk(below, TOOLS[5])
    lab.chunk(sequence, SYSTEM)
    lab.pool.release(below)
    while lab.pool._evict():
        pass
    lab.chunk(sequence, TOOLS[0])
    lab.check(sequence)
    lab.pool.release(sequence)
    assert lab.complete(SYSTEM, TOOLS[0]) == len(SYSTEM) + len(TOOLS[0])


@pytest.mark.parametrize("kind", [StateKind.WINDOWED, StateKind.HYBRID])
def test_room_that_waste_took_comes_back_once_nobody_runs(kind):
    lab = Lab(size=60, numbers=8, kind=kind)
    for tool in [*TOOLS, *TOOLS]:
        lab.complete(SYSTEM, tool, REQUEST)
    running = lab.begin(SYSTEM, TOOLS[0], budget=30)
    assert lab.begin(TOOLS[5], budget=30) is None
    lab.pool.release(running)
    assert lab.begin(TOOLS[5], budget=30) is not None


class Crowd:
    """Prompts that come, go on and go in any order."""

    def __init__(self, seed, kind):
        self.rng, self.lab, self.running = random.Random(seed), Lab(size=90, kind=kind), {}

    def step(self):
        if self.rng.random() < 0.35 and len(self.running) < 5:
            self.come()
        elif self.running:
            self.go_on(self.rng.choice(list(self.running)))

    def come(self):
        chunks = [SYSTEM, self.rng.choice(TOOLS), *[REQUEST] * self.rng.randint(0, 1)]
        sequence = self.lab.begin(*chunks, budget=self.rng.randint(1, 9), take=self.rng.random() < 0.8)
        if sequence is None:
            assert self.running, "nobody runs and there is no room"
        else:
            self.running[sequence] = chunks[len(sequence.parts) :]

    def go_on(self, sequence):
        action, todo = self.rng.random(), self.running[sequence]
        if action < 0.7 and todo:
            self.read(sequence, todo.pop(0))
        elif action < 0.7 and sequence.reserved:
            self.lab.decode(sequence, 1)
        elif action < 0.75 and sequence.parts and self.lab.pool._reuse.trim:
            self.lab.pool.trim(sequence, 1)
            self.running[sequence] = []
        elif action > 0.75:
            del self.running[sequence]
            self.lab.pool.release(sequence, keep=self.rng.random() < 0.7)

    def read(self, sequence, chunk):
        if self.lab.pool._reuse.share and self.rng.random() < 0.3:
            data = bytes(range(sequence.end, sequence.end + len(chunk)))
            assert self.lab.pool.put_back(sequence, [chunk], data, 0.0)
        else:
            self.lab.chunk(sequence, chunk)


@pytest.mark.parametrize("kind", [StateKind.DENSE, StateKind.WINDOWED, StateKind.HYBRID])
@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_in_whatever_order_cells_stay_in_order_and_room_suffices(kind, seed):
    crowd = Crowd(seed, kind)
    lab, moved = crowd.lab, 0
    for _ in range(400):
        crowd.step()
        lab.check(*lab.pool._sequences)
        assert not any(sequence.lost for sequence in crowd.running)
    moved = lab.memory.written
    for sequence in crowd.running:
        lab.pool.release(sequence, keep=False)
    while lab.pool._evict():
        pass
    assert lab.pool.cells.live == 0
    assert lab.pool._live == {}
    assert sorted(lab.pool._free) == sorted(lab.pool._numbers)
    assert moved or kind is not StateKind.DENSE
