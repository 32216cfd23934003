"""Times of day as people write them: `4pm`, `16:00`, `noon`. Knows no dates and no time zones."""

import re
from dataclasses import dataclass
from datetime import time

_TIME = re.compile(
    r"(?<![\d:.])(?P<hour>\d{1,2})(?::(?P<minute>\d{2})(?::(?P<second>\d{2}))?)?\s*(?P<half>a\.?m\b\.?|p\.?m\b\.?)"
    r"|(?<![\d:.])(?P<hour24>\d{1,2}):(?P<minute24>\d{2})(?::(?P<second24>\d{2}))?(?![\d:])"
    r"|\b(?P<named>noon|midday|midnight)\b",
    re.IGNORECASE,
)
_NOON = 12


@dataclass(frozen=True, slots=True)
class WrittenTime:
    """A time in a text, where it stands."""

    value: time
    start: int
    end: int


def times(text: str) -> list[WrittenTime]:
    """Every time of day of a text."""
    read = ((match, _value(match)) for match in _TIME.finditer(text))
    return [WrittenTime(value, match.start(), match.end()) for match, value in read if value is not None]


def _value(match: re.Match[str]) -> time | None:
    if match["named"]:
        return time(0 if match["named"].lower() == "midnight" else _NOON)
    if match["half"]:
        hour = int(match["hour"])
        if not 1 <= hour <= _NOON:
            return None
        hour = hour % _NOON + (_NOON if match["half"][0] in "pP" else 0)
        parts = (hour, int(match["minute"] or 0), int(match["second"] or 0))
    else:
        parts = (int(match["hour24"]), int(match["minute24"]), int(match["second24"] or 0))
    try:
        return time(*parts)
    except ValueError:
        return None
