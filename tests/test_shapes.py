"""Values beside the examples of a description: what is not shaped like them is doubtful."""

import pytest

from nexus_gateway.turn.shapes import misshapen


@pytest.mark.parametrize(
    ("described", "value", "wrong"),
    [
        ("The city and state, e.g. San Francisco, CA", "Berlin", True),
        ("The city and state, e.g. San Francisco, CA", "Austin, TX", False),
        ("Currency code, such as 'USD' or 'EUR'", "US dollars", True),
        ("Currency code, such as 'USD' or 'EUR'", "GBP", False),
        ("The date, e.g. '2024-01-31'", "next Monday", True),
        ("The date, e.g. '2024-01-31'", "2023-12-02", False),
        ("A name, e.g. 'Ana'", "Ben", False),
        ("", "anything", False),
    ],
)
def test_a_value_is_held_against_the_examples_of_its_description(described, value, wrong):
    assert misshapen({"type": "string", "description": described}, value) is wrong
