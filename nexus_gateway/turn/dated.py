"""A date or a time of day that an answer means, written as its schema wants it.

Knows the dates and times of a text and where an answer lies in it; knows no model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from nexus_gateway.turn.dates import WrittenDate, dates, wanted_format
from nexus_gateway.turn.relative_dates import days_said, today_named
from nexus_gateway.turn.times import WrittenTime, times

_HOUR = "%H"
_DAY = "%d"


@dataclass(frozen=True, slots=True)
class Moments:
    """The dates and times of a text.

    Attributes:
        today: the date that the text says to be today's, if any is meant from there.
    """

    dates: Sequence[WrittenDate] = ()
    times: Sequence[WrittenTime] = ()
    today: WrittenDate | None = None

    @classmethod
    def of(cls, text: str, clock: date) -> "Moments":
        """Find them; days said from today count from the day that the text names, else from the clock's."""
        written = dates(text)
        said = days_said(text, written, clock)
        today = today_named(text, written) if said else None
        every = [one for one in (*written, *said) if one is not today]
        return cls(sorted(every, key=lambda one: one.start), times(text), today)


@dataclass(frozen=True, slots=True)
class Dated:
    """A value, the part of the text it comes from, and whether it can only mean that."""

    value: str
    start: int
    end: int
    sure: bool = True


def dated(schema: Mapping[str, Any], start: int, end: int, moments: Moments) -> Dated | None:
    """The date or time that the text from `start` to `end` names; None where it names none or none is wanted."""
    wanted = wanted_format(schema)
    if wanted is None:
        return None
    at = _at(moments.times, start, end)
    if _DAY not in wanted:
        return None if at is None else Dated(at.value.strftime(wanted), at.start, at.end)
    day = _at(moments.dates, start, end) or _instead_of_today(start, end, moments)
    if day is None and at is not None and len(moments.dates) == 1:
        day = moments.dates[0]
    if day is None:
        return None
    if _HOUR not in wanted:
        return Dated(day.value.strftime(wanted), day.start, day.end, day.sure)
    at = at or min(moments.times, key=lambda one: abs(one.start - day.end), default=None)
    if at is None:
        return None
    moment = datetime.combine(day.value, at.value)
    return Dated(moment.strftime(wanted), min(day.start, at.start), max(day.end, at.end), day.sure)


def _instead_of_today(start: int, end: int, moments: Moments) -> WrittenDate | None:
    """The one day meant, for an answer that is the day from which it is counted."""
    today = moments.today
    if today is None or not (today.start < end and start < today.end) or len(moments.dates) != 1:
        return None
    return moments.dates[0]


def _at(every: Sequence[Any], start: int, end: int) -> Any:
    return next((one for one in every if one.start < end and start < one.end), None)
