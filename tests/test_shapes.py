"""Values beside the examples of a description: what is not shaped like them is doubtful, places are written out."""

import re

import pytest

from nexus_gateway.turn.shapes import completion, misshapen

CITY = {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
FORMATTED = {"type": "string", "description": "In the format of 'City, State', such as 'Berkeley, CA'."}
COUNTRY = {"type": "string", "description": "City and country, for example 'Paris, France'"}


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


@pytest.mark.parametrize("schema", [CITY, FORMATTED])
def test_a_city_goes_on_with_two_letters_where_the_examples_do(schema):
    pattern = completion(schema, "Walnut Creek")
    assert pattern is not None
    assert re.search(pattern, "Walnut Creek, CA")
    assert not re.search(pattern, "Walnut Creek, California")
    assert not re.search(pattern, "Berkeley, CA"), "the place is the request's"


def test_a_city_goes_on_with_a_word_where_the_examples_do():
    pattern = completion(COUNTRY, "Lyon")
    assert pattern is not None
    assert re.search(pattern, "Lyon, France")


@pytest.mark.parametrize("value", ["Austin, TX", "CA", "97 Main St; DROP", "san francisco", 'Aust"in'])
def test_what_is_complete_or_no_place_stays_as_it_is(value):
    assert completion(CITY, value) is None
    assert completion({"type": "string"}, value) is None
