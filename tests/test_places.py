"""Places are written as a tool wants them, from a table of places, and never guessed."""

import pytest

from nexus_gateway.training.places import write_places
from nexus_gateway.turn.places import written_place

CITY = {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
FORMATTED = {"type": "string", "description": "In the format of 'City, State', such as 'Berkeley, CA'."}
SPELT = {"type": "string", "description": "City and state, like 'Austin, Texas'"}
COUNTRY = {"type": "string", "description": "City and country, for example 'Paris, France'"}


@pytest.mark.parametrize("schema", [CITY, FORMATTED])
@pytest.mark.parametrize(
    ("stated", "written"),
    [
        ("Walnut Creek", "Walnut Creek, CA"),
        ("mountain view", "Mountain View, CA"),
        ("NYC", "New York, NY"),
        ("Saint Helena", "Saint Helena, CA"),
        ("Denver, Colorado", "Denver, CO"),
        ("London", "London, UK"),
        ("São Paulo", "São Paulo, Brazil"),
    ],
)
def test_a_city_gets_its_state_or_its_country(schema, stated, written):
    assert written_place(schema, stated) == written


@pytest.mark.parametrize(
    ("schema", "stated", "written"),
    [
        (SPELT, "Dallas", "Dallas, Texas"),
        (SPELT, "Dallas, TX", "Dallas, Texas"),
        (COUNTRY, "Lyon", "Lyon, France"),
        (COUNTRY, "Chicago", "Chicago, USA"),
    ],
)
def test_the_form_is_that_of_the_examples(schema, stated, written):
    assert written_place(schema, stated) == written


@pytest.mark.parametrize("stated", ["Austin, TX", "CA", "97 Main St; DROP", "Hogsmeade", 'Aust"in', "", 7])
def test_what_is_complete_or_no_known_place_stays_as_it_is(stated):
    assert written_place(CITY, stated) is None


def test_a_description_that_asks_for_no_state_changes_nothing():
    assert written_place({"type": "string", "description": "The city, e.g. 'Boston'"}, "Austin") is None
    assert written_place({"type": "string"}, "Austin") is None
    assert written_place({**CITY, "enum": ["Austin"]}, "Austin") is None


def test_the_larger_place_is_meant_unless_the_other_is_near_its_size(tmp_path):
    cities = [
        {"name": "Springfield", "countrycode": "US", "admin1code": "IL", "population": 9_000},
        {"name": "Springfield", "countrycode": "US", "admin1code": "MO", "population": 16_000},
        {"name": "Springfield", "countrycode": "NZ", "admin1code": "E9", "population": 400_000},
        {"name": "Hamlet", "countrycode": "US", "admin1code": "NC", "population": 50},
    ]
    path = tmp_path / "places.tsv"
    assert write_places(path, cities, {"NZ": "New Zealand", "US": "United States"}) == 1
    assert path.read_text(encoding="utf-8").splitlines()[-1] == "Springfield\tMO\tNew Zealand*"
