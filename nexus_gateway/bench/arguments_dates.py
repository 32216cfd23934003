"""Whether a value is a date that a request has in other words, judged by dateutil alone, whatever the writer found.

Numbers may be read with the day or the month first. Of a time of day the hour has to be there. Days relative to today
("tomorrow") count as not there.
"""

import re
from collections.abc import Iterator
from datetime import date, datetime

from dateutil import parser

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_WRITTEN = re.compile(
    rf"{_MONTH}\s*\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}|\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH},?\s+\d{{4}}|"
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"(?P<date>\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})(?:[T ](?P<time>\d{2}:\d{2}.*))?"
)
_HALF_DAY = 12


def date_stands_in(value: str, text: str) -> bool:
    """Whether a value is such a date, with or without a time."""
    found = _VALUE.fullmatch(value.strip())
    if found is None or set(_readings(found["date"])).isdisjoint(dates_in(text)):
        return False
    hour = int(found["time"][:2]) if found["time"] else 0
    return (
        hour == 0
        or re.search(rf"(?<!\d)0?(?:{hour}|{hour % _HALF_DAY or _HALF_DAY})(?!\d)|noon", text) is not None
    )


def dates_in(text: str) -> set[date]:
    """Every full date of a text, in both readings where two are possible."""
    return {day for match in _WRITTEN.finditer(text) for day in _readings(match.group())}


def _readings(written: str) -> Iterator[date]:
    plain = re.sub(r"\bof\b", " ", written, flags=re.IGNORECASE)
    for day_first in (False, True):
        try:
            moment: datetime = parser.parse(plain, dayfirst=day_first)
        except (ValueError, OverflowError):
            continue
        yield moment.date()
