"""Which part of the text goes to which argument: the likeliest assignment of all, each part once."""

from nexus_gateway.turn.assignment import LeafOptions, assign
from nexus_gateway.turn.reading import Stated
from nexus_gateway.turn.result import Ground, GroundKind
from tool_registry.question import Leaf

NUMBER, STRING = {"type": "number"}, {"type": "string"}


def leaf(name, schema=NUMBER, *, needed=True):
    return Leaf((name,), schema, needed)


def at(start, probability, value=None):
    value = start if value is None else value
    return Stated(value, Ground(GroundKind.SPAN, str(value)), probability, ((start, start + 1),))


def values(options):
    return [one and one.value for one in assign(options)]


def test_two_arguments_do_not_share_a_part_of_the_text():
    first = LeafOptions(leaf("hits"), 0.01, [at(10, 0.6), at(20, 0.4)])
    second = LeafOptions(leaf("at_bats"), 0.01, [at(10, 0.9), at(20, 0.1)])
    assert values([first, second]) == [20, 10]


def test_where_the_model_is_undecided_the_order_of_the_arguments_counts():
    likely = [at(10, 0.5), at(20, 0.5)]
    assert values([LeafOptions(leaf("a"), 0.0, likely), LeafOptions(leaf("b"), 0.0, likely)]) == [10, 20]
    backwards = [at(20, 0.5), at(10, 0.5)]
    assert values([LeafOptions(leaf("a"), 0.0, backwards), LeafOptions(leaf("b"), 0.0, backwards)]) == [
        10,
        20,
    ]


def test_what_is_needed_comes_before_what_is_optional():
    needed = LeafOptions(leaf("y"), 0.5, [at(20, 0.3)])
    optional = LeafOptions(leaf("z", needed=False), 0.5, [at(20, 0.5)])
    assert values([needed, optional]) == [20, None]


def test_an_argument_that_nothing_states_gets_nothing():
    assert values([LeafOptions(leaf("a", needed=False), 0.9, [at(10, 0.1)])]) == [None]
    assert values([LeafOptions(leaf("a"), 1.0, [])]) == [None]
    assert assign([]) == []


def test_a_query_may_hold_what_another_argument_takes():
    query = LeafOptions(
        leaf("query", STRING), 0.0, [Stated("pizza in Rome", Ground(GroundKind.SPAN), 0.9, ((0, 13),))]
    )
    place = LeafOptions(leaf("city", STRING), 0.0, [Stated("Rome", Ground(GroundKind.SPAN), 0.9, ((9, 13),))])
    assert values([query, place]) == ["pizza in Rome", "Rome"]


def test_many_arguments_with_many_values_are_assigned_within_the_beam():
    options = [LeafOptions(leaf(f"p{n}"), 0.1, [at(10 * k, 0.05) for k in range(12)]) for n in range(32)]
    found = [one for one in values(options) if one is not None]
    assert len(found) == len(set(found)) == 12
