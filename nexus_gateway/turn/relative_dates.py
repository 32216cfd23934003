"""Days that are said from where one stands, "tomorrow" or "next Friday", as dates.

Today is the day that the text names as such ("today is 2024-03-01"), or the clock's. Days without a year and weeks or
months as a whole are no single date and stay as they are.
"""

import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta

from dateutil.relativedelta import relativedelta

from nexus_gateway.turn.dates import WrittenDate
from nexus_gateway.turn.numbers import numbers

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY = "|".join(_WEEKDAYS)
_SHIFTS = {
    "the day after tomorrow": 2,
    "day after tomorrow": 2,
    "tomorrow": 1,
    "today": 0,
    "tonight": 0,
    "yesterday": -1,
}
_MOST_DAYS = 3660
_NAMED_TODAY = re.compile(r"\btoday(?:'s date)?(?:\s+is|\s*[:,=])?\s+(?:the\s+)?$", re.IGNORECASE)
_SAID = re.compile(
    rf"\b(?P<shift>{'|'.join(_SHIFTS)})\b"
    r"|\bin (?P<ahead>\w+) (?P<unit>day|week|month)s?\b(?! of)"
    r"|\b(?P<ago>\w+) (?P<unit_ago>day|week|month)s? ago\b"
    rf"|\b(?P<week_day>{_DAY}),? (?:of )?next week\b|\bnext week(?:,? on)? (?P<day_of_week>{_DAY})\b"
    rf"|\b(?P<which>next|this|coming|upcoming|on|by|until)\s+(?P<day>{_DAY})\b",
    re.IGNORECASE,
)


def days_said(text: str, written: Sequence[WrittenDate], clock: date) -> list[WrittenDate]:
    """Every such day of a text; `written` are its full dates, one of which may be said to be today.

    A day that people understand in two ways, such as next Friday, is not `sure`.
    """
    named = today_named(text, written)
    today = clock if named is None else named.value
    found = []
    for match in _SAID.finditer(text):
        if named is not None and _NAMED_TODAY.match(text[: named.start], match.start()):
            continue  # the words "today is" themselves
        day = _meant(match, today)
        if day is not None:
            sure = (match["which"] or "").lower() != "next"
            found.append(WrittenDate(day, match.start(), match.end(), sure=sure))
    return found


def today_named(text: str, written: Sequence[WrittenDate]) -> WrittenDate | None:
    """The full date that a text says to be today's."""
    return next((one for one in written if _NAMED_TODAY.search(text[: one.start])), None)


def _meant(match: re.Match[str], today: date) -> date | None:
    for way in _WAYS:
        day = way(match, today)
        if day is not None:
            return day
    return None


def _shifted(match: re.Match[str], today: date) -> date | None:
    said = match["shift"]
    return None if said is None else today + timedelta(days=_SHIFTS[said.lower()])


def _counted(match: re.Match[str], today: date) -> date | None:
    said, unit, sign = match["ahead"], match["unit"], 1
    if said is None:
        said, unit, sign = match["ago"], match["unit_ago"], -1
    if said is None:
        return None
    count = 1 if said.lower() in ("a", "an") else next((number.value for number in numbers(said)), None)
    if not isinstance(count, int) or count > _MOST_DAYS:
        return None
    units = {
        "day": relativedelta(days=count),
        "week": relativedelta(weeks=count),
        "month": relativedelta(months=count),
    }
    return today + sign * units[unit.lower()]


def _in_next_week(match: re.Match[str], today: date) -> date | None:
    said = match["week_day"] or match["day_of_week"]
    if said is None:
        return None
    return today + timedelta(days=7 - today.weekday() + _WEEKDAYS.index(said.lower()))


def _coming(match: re.Match[str], today: date) -> date | None:
    said = match["day"]
    if said is None:
        return None
    ahead = (_WEEKDAYS.index(said.lower()) - today.weekday() - 1) % 7 + 1
    return today + timedelta(days=ahead)


_WAYS: tuple[Callable[[re.Match[str], date], date | None], ...] = (_shifted, _counted, _in_next_week, _coming)
