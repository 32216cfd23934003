"""Numbers and dates as people write them, and how a schema wants dates."""

from datetime import date

import pytest

from nexus_gateway.turn.dates import dates, wanted_format
from nexus_gateway.turn.numbers import MAX_DIGITS, numbers


def values(text):
    return [number.value for number in numbers(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("take 5 of 12", [5, 12]),
        ("-5 or +7 degrees", [-5, 7]),
        ("2.50 euros", [2.5]),
        ("1,200 and $1,234.56", [1200, 1234.56]),
        ("3.5k, 300K, 5M, 3bn", [3500, 300_000, 5_000_000, 3_000_000_000]),
        ("1.5 million, 5 dozen", [1_500_000, 60]),
        ("a tolerance of 1e-9", [1e-9]),
        ("50% of it", [50]),
        ("1, 2 and 3", [1, 2, 3]),
        ("[5,3,8] and 1,2", [5, 3, 8, 1, 2]),
        ("(3, -4)", [3, -4]),
        ("3-5 items", [3, 5]),
        ("1920x1080", [1920, 1080]),
        ("the 12th.", [12]),
        ("call it v2.3.1", []),
        ("10 km/h, 10k/h", [10, 10]),
        ("", []),
    ],
)
def test_numbers_in_digits(text, expected):
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two million rows", [2_000_000]),
        ("a dozen eggs", [12]),
        ("two dozen", [24]),
        ("twenty-one guests", [21]),
        ("sixteen", [16]),
        ("a hundred and five", [105]),
        ("one hundred twenty three thousand four hundred", [123_400]),
        ("Seven days, five nights", [7, 5]),
        ("a day and half", []),
        ("often someone", []),
    ],
)
def test_numbers_in_words(text, expected):
    assert values(text) == expected


def test_a_whole_number_stays_one_and_a_fraction_a_fraction():
    assert [type(value) for value in values("2, 2.0 and 1.5k")] == [int, float, int]


def test_numbers_say_where_they_stand_in_reading_order():
    text = "from three to 1,200 or two million"
    assert [text[number.start : number.end] for number in numbers(text)] == ["three", "1,200", "two million"]


def test_a_number_of_absurd_length_is_none():
    assert values("9" * MAX_DIGITS) == [int("9" * MAX_DIGITS)]
    assert values("9" * (MAX_DIGITS + 1)) == []


@pytest.mark.parametrize("text", ["1," * 5_000, "one " * 3_000, "1e" * 5_000, "-" * 10_000, "a-" * 5_000])
def test_long_odd_texts_are_read_to_their_end(text):
    assert isinstance(numbers(text), list)
    assert isinstance(dates(text), list)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("June 1st, 2022", date(2022, 6, 1)),
        ("on Sept. 3, 2020", date(2020, 9, 3)),
        ("the 5th of June 2022", date(2022, 6, 5)),
        ("1 Jan 2024", date(2024, 1, 1)),
        ("2024-05-06", date(2024, 5, 6)),
        ("2022/1/2", date(2022, 1, 2)),
        ("31.12.2024", date(2024, 12, 31)),
        ("12-25-2023", date(2023, 12, 25)),
        ("3/4/2021", date(2021, 3, 4)),
    ],
)
def test_full_dates_are_understood_the_month_first_where_both_readings_are_possible(text, expected):
    (found,) = dates(f"book it {text}, please")
    assert found.value == expected


@pytest.mark.parametrize(
    "text", ["tomorrow", "May 2022", "June 5th", "2024-13-45", "Feb 30, 2023", "2024-05-06T10:00", "1/1/0000"]
)
def test_what_is_no_full_date_stays_as_it_is(text):
    assert dates(text) == []


def test_dates_say_where_they_stand():
    text = "from June 1st, 2022 to 2022-06-09"
    assert [text[found.start : found.end] for found in dates(text)] == ["June 1st, 2022", "2022-06-09"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"format": "date"}, "%Y-%m-%d"),
        ({"description": "Day as YYYY-MM-DD."}, "%Y-%m-%d"),
        ({"description": "in the format MM/DD/YYYY"}, "%m/%d/%Y"),
        ({"description": "dd.mm.yyyy"}, "%d.%m.%Y"),
        ({"description": "e.g. 2024-01-31"}, "%Y-%m-%d"),
        ({"description": "%Y%m%d"}, "%Y%m%d"),
        ({"description": "The day of the flight"}, None),
        ({"description": {"en": "YYYY-MM-DD"}}, None),
        ({"format": "date-time"}, None),
        ({}, None),
    ],
)
def test_a_schema_says_how_it_wants_dates_or_does_not(schema, expected):
    assert wanted_format(schema) == expected
