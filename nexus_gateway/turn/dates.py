"""Full dates as people write them, and how a schema wants them: `June 1st, 2022` for `YYYY-MM-DD` is 2022-06-01.

Dates without a year stay as they are: what day is meant is the user's to say.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from dateutil import parser as dateutil_parser

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"\b(?:{_MONTH}\s*{_DAY},?\s+\d{{4}}|(?:the\s+)?{_DAY}\s+(?:of\s+)?{_MONTH},?\s+\d{{4}}|"
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[/.-]\d{1,2}[/.-]\d{4})\b",
    re.IGNORECASE,
)
_FILLERS = re.compile(r"\b(?:the|of)\b", re.IGNORECASE)
_FORMATS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, flags), written)
    for pattern, flags, written in (
        (r"yyyy-mm-ddthh:mm:ss", re.IGNORECASE, "%Y-%m-%dT%H:%M:%S"),
        (r"yyyy-mm-dd hh:mm:ss|%Y-%m-%d %H:%M:%S", re.IGNORECASE, "%Y-%m-%d %H:%M:%S"),
        (r"yyyy-mm-dd hh:mm|%Y-%m-%d %H:%M", re.IGNORECASE, "%Y-%m-%d %H:%M"),
        (r"mm/dd/yyyy hh:mm", re.IGNORECASE, "%m/%d/%Y %H:%M"),
        (r"dd/mm/yyyy hh:mm", re.IGNORECASE, "%d/%m/%Y %H:%M"),
        (r"\b(?:19|20)\d\d-[01]\d-[0-3]\dT[0-2]\d:\d\d:\d\d\b(?!Z)", 0, "%Y-%m-%dT%H:%M:%S"),
        (r"\b(?:19|20)\d\d-[01]\d-[0-3]\d [0-2]\d:\d\d:\d\d\b", 0, "%Y-%m-%d %H:%M:%S"),
        (r"iso[ -]?8601\b.*\btime\b|\btime\b.*\biso[ -]?8601\b", re.IGNORECASE, "%Y-%m-%dT%H:%M:%S"),
        (r"yyyy-mm-dd|%Y-%m-%d", re.IGNORECASE, "%Y-%m-%d"),
        (r"yyyy/mm/dd|%Y/%m/%d", re.IGNORECASE, "%Y/%m/%d"),
        (r"yyyymmdd|%Y%m%d", re.IGNORECASE, "%Y%m%d"),
        (r"mm/dd/yyyy|%m/%d/%Y", re.IGNORECASE, "%m/%d/%Y"),
        (r"dd/mm/yyyy|%d/%m/%Y", re.IGNORECASE, "%d/%m/%Y"),
        (r"mm-dd-yyyy", re.IGNORECASE, "%m-%d-%Y"),
        (r"dd-mm-yyyy", re.IGNORECASE, "%d-%m-%Y"),
        (r"mm\.dd\.yyyy", re.IGNORECASE, "%m.%d.%Y"),
        (r"dd\.mm\.yyyy", re.IGNORECASE, "%d.%m.%Y"),
        (r"\b(?:19|20)\d\d-[01]\d-[0-3]\d\b", 0, "%Y-%m-%d"),
        (r"\b(?:19|20)\d\d/[01]\d/[0-3]\d\b", 0, "%Y/%m/%d"),
        (r"\bhh:mm\b(?! ?[ap(])|\b24[- ]hour\b|%H:%M", re.IGNORECASE, "%H:%M"),
    )
)


@dataclass(frozen=True, slots=True)
class WrittenDate:
    """A date in a text, where it stands.

    Attributes:
        sure: False where people may understand the words otherwise.
    """

    value: date
    start: int
    end: int
    sure: bool = True


def dates(text: str) -> list[WrittenDate]:
    """Every full date of a text; numbers with the month first where both readings are possible."""
    found = []
    for match in _DATE.finditer(text):
        try:
            value = dateutil_parser.parse(_FILLERS.sub(" ", match.group())).date()
        except (ValueError, OverflowError):
            continue
        found.append(WrittenDate(value, match.start(), match.end()))
    return found


def wanted_format(schema: Mapping[str, Any]) -> str | None:
    """How a schema wants dates, or times of day, as `strftime` writes it; None where it does not say."""
    if schema.get("format") == "date":
        return "%Y-%m-%d"
    described = schema.get("description")
    if not isinstance(described, str):
        return None
    return next((written for pattern, written in _FORMATS if pattern.search(described)), None)
