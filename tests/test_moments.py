"""Days said from today, times of day, and both as a schema wants them."""

from datetime import date, time

import pytest

from nexus_gateway.bench.arguments_dates import date_stands_in
from nexus_gateway.turn.dated import Moments, dated
from nexus_gateway.turn.dates import dates
from nexus_gateway.turn.relative_dates import days_said
from nexus_gateway.turn.times import times

MONDAY = date(2026, 11, 30)
DAY = {"type": "string", "description": "The day, YYYY-MM-DD"}
MOMENT = {"type": "string", "description": "When, as YYYY-MM-DDTHH:MM:SS"}
CLOCK = {"type": "string", "description": "The time, HH:MM"}


def value(schema, text, answer):
    start = text.index(answer)
    found = dated(schema, start, start + len(answer), Moments.of(text, MONDAY))
    return None if found is None else found.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("remind me tomorrow", date(2026, 12, 1)),
        ("the day after tomorrow at 5", date(2026, 12, 2)),
        ("what was said yesterday", date(2026, 11, 29)),
        ("in three days", date(2026, 12, 3)),
        ("2 weeks ago", date(2026, 11, 16)),
        ("in a month", date(2026, 12, 30)),
        ("on Friday", date(2026, 12, 4)),
        ("this Monday", date(2026, 12, 7)),
        ("Wednesday next week", date(2026, 12, 9)),
        ("next week on Monday", date(2026, 12, 7)),
    ],
)
def test_days_said_from_today_are_dates(text, expected):
    (found,) = days_said(text, dates(text), MONDAY)
    assert (found.value, found.sure) == (expected, True)


@pytest.mark.parametrize(
    "text", ["next week", "in March", "on the 5th", "in 99999 days", "some days ago", "Friday's list"]
)
def test_what_is_no_single_day_is_none(text):
    assert days_said(text, dates(text), MONDAY) == []


def test_next_friday_is_a_date_that_may_be_understood_otherwise():
    (found,) = days_said("book it for next Friday", [], MONDAY)
    assert (found.value, found.sure) == (date(2026, 12, 4), False)


def test_a_text_may_say_what_day_it_is():
    text = "What's the weather tomorrow in Oslo? today is 2023.10.1"
    assert value(DAY, text, "tomorrow") == "2023-10-02"
    assert value(DAY, text, "2023.10.1") == "2023-10-02", (
        "the day it is counted from is not the one that is meant"
    )
    assert value(DAY, "the news, today is 2023.10.1", "2023.10.1") == "2023-10-01"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at 4pm", time(16)),
        ("12 a.m.", time(0)),
        ("12:30 PM", time(12, 30)),
        ("16:05:09", time(16, 5, 9)),
        ("noon", time(12)),
    ],
)
def test_times_of_day(text, expected):
    assert [one.value for one in times(text)] == [expected]


@pytest.mark.parametrize("text", ["25:00", "13pm", "version 1.2:30", "4 people", "3:4", "I am 12"])
def test_what_is_no_time(text):
    assert times(text) == []


def test_day_and_time_go_together_where_the_schema_wants_both():
    text = "move it to November 1, 2023 at 8pm"
    assert value(MOMENT, text, "November 1, 2023") == "2023-11-01T20:00:00"
    assert value(MOMENT, text, "8pm") == "2023-11-01T20:00:00"
    assert value(DAY, text, "November 1, 2023") == "2023-11-01"
    assert value(CLOCK, text, "8pm") == "20:00"


def test_a_time_that_nobody_stated_is_not_made_up():
    assert value(MOMENT, "move it to November 1, 2023", "November 1, 2023") is None


@pytest.mark.parametrize(
    ("written", "text", "stands"),
    [
        ("2024-11-01", "on November 1st, 2024", True),
        ("2024-03-12", "on 12/03/2024", True),
        ("2024-11-01T20:00:00", "November 1, 2024 at 8pm", True),
        ("2024-11-01T20:00:00", "November 1, 2024 at 7pm", False),
        ("2024-11-02", "on November 1st, 2024", False),
        ("2024-11-01", "tomorrow", False),
        ("Berlin", "November 1, 2024", False),
    ],
)
def test_the_benchmark_knows_a_date_by_its_day(written, text, stands):
    assert date_stands_in(written, text) is stands
