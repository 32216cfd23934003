"""Which part of a text goes to which argument, where several claim the same: the likeliest assignment of all.

A beam search over the arguments. What one takes of the text no other takes, but for prose that has others within it; the
order of the arguments counts where the reading model is undecided. Knows probabilities and places; knows no model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nexus_gateway.turn.reading import Stated
from tool_registry.question import Leaf, main_type
from tool_registry.text import split_words

BEAM = 24
NEEDED_SILENCE = 0.1
"""Weight of "nothing" for a required argument: people who ask for a call mostly state what it needs."""
OPTIONAL_SILENCE = 0.7
"""The same for an optional one."""
DISORDER = 0.5
"""Cost, in nats, of two like arguments that stand in the text in the other order than in the schema."""
_LEAST = 1e-6
_PROSE = frozenset(
    [
        "body",
        "content",
        "contents",
        "description",
        "message",
        "prompt",
        "query",
        "question",
        "summary",
        "text",
    ]
)
"""Words in the names of arguments that may hold others: a query has its place in it."""


@dataclass(frozen=True, slots=True)
class LeafOptions:
    """One argument and the values it may have.

    Attributes:
        nothing: probability that the text does not state it.
        values: likeliest first.
    """

    leaf: Leaf
    nothing: float
    values: Sequence[Stated]

    @property
    def may_share(self) -> bool:
        """Whether its value may have others within it."""
        return bool(_PROSE & set(split_words(self.leaf.path[-1])))


@dataclass(frozen=True, slots=True)
class _State:
    score: float
    taken: tuple[tuple[int, Stated], ...] = ()  # place of the argument, its value


def assign(options: Sequence[LeafOptions]) -> list[Stated | None]:
    """The value of each argument, None where the text does not state it; in their order."""
    order = sorted(range(len(options)), key=lambda place: -_surest(options[place]))
    states = [_State(0.0)]
    for place in order:
        reached = [state for one in states for state in _extended(one, place, options)]
        states = sorted(reached, key=lambda state: -state.score)[:BEAM]
    best = dict(states[0].taken)
    return [best.get(place) for place in range(len(options))]


def _surest(option: LeafOptions) -> float:
    return max([option.nothing, *(value.probability for value in option.values[:1])])


def _extended(state: _State, place: int, options: Sequence[LeafOptions]) -> list[_State]:
    here = options[place]
    silence = NEEDED_SILENCE if here.leaf.needed else OPTIONAL_SILENCE
    found = [_State(state.score + _log(here.nothing * silence), state.taken)]
    for value in here.values:
        if any(_conflict(value, here, other, options[at]) for at, other in state.taken):
            continue
        disorder = sum(_disordered(place, value, at, other, options) for at, other in state.taken)
        score = state.score + _log(value.probability) - DISORDER * disorder
        found.append(_State(score, (*state.taken, (place, value))))
    return found


def _log(probability: float) -> float:
    return math.log(max(probability, _LEAST))


def _conflict(one: Stated, of_one: LeafOptions, other: Stated, of_other: LeafOptions) -> bool:
    if of_one.may_share or of_other.may_share:
        return bool(one.extents) and one.extents == other.extents
    return any(a < d and c < b for a, b in one.extents for c, d in other.extents)


def _disordered(place: int, value: Stated, at: int, other: Stated, options: Sequence[LeafOptions]) -> bool:
    if not (value.extents and other.extents):
        return False
    if main_type(options[place].leaf.schema) != main_type(options[at].leaf.schema):
        return False
    return (place < at) != (value.extents[0] < other.extents[0])
