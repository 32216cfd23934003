"""How a signature writes what limits a number or a text: `int 1..100`, `date`, `string 2..8 chars`, `int seconds`.

Knows one schema at a time; left out is what says nothing in practice, such as a text that must not be empty or a
number that must fit 32 bits.
"""

import re
from collections.abc import Mapping
from typing import Any

MAX_PATTERN_CHARACTERS = 40
MAX_TEXT_LENGTH = 300
"""A longer text's greatest length is no news."""
_MACHINE_BOUND = 2**31 - 1
_LOOKED_AT = 400
"""Characters of a description in which a unit is looked for."""

_FORMATS = frozenset(
    {"date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "url", "uuid"}
)
_UNITS = (
    r"milliseconds|seconds|minutes|hours|days|weeks|months|years|bytes|kilobytes|megabytes|gigabytes|KB|MB|GB|ms"
    r"|pixels|px|percent|percentage|meters|metres|kilometers|kilometres|km|miles|feet|inches|centimeters|cm|mm|kg"
    r"|kilograms|grams|pounds|degrees|celsius|fahrenheit|kelvin|cents|USD|EUR|dollars|mph|km/h|tokens|characters"
    r"|pascals|joules|watts|volts|amperes|ohms|newtons|hertz|Hz|m/s|moles|liters|litres"
)
_UNIT = re.compile(rf"\b(?:in|of)\s+({_UNITS})\b|\(({_UNITS})\)", re.IGNORECASE)
_NOTATION = re.compile(
    r"\b(YYYY-MM-DD(?:[T ]HH:MM(?::SS)?Z?)?|YYYY-MM|YYYYMMDD|(?:MM|DD)[/-](?:DD|MM)[/-]YYYY|HH:MM(?::SS)?|ISO[ -]?8601)\b"
)


def constraint(name: str, schema: Mapping[str, Any]) -> str:
    """A number's or a text's type with its limits; empty where it has none that are worth a word.

    Args:
        name: the JSON type.
        schema: a plain schema of that type.
    """
    if name == "string":
        return _text(schema)
    if name in ("integer", "number"):
        parts = ["int" if name == "integer" else name, _bounds(schema), _step(schema), _unit(schema)]
        return " ".join(part for part in parts if part)
    return ""


def _text(schema: Mapping[str, Any]) -> str:
    named = schema.get("format")
    kind = named if named in _FORMATS else "string"
    pattern = schema.get("pattern", "")
    if pattern and len(pattern) <= MAX_PATTERN_CHARACTERS:
        return f"{kind} /{pattern}/"
    return " ".join(part for part in (kind, _length(schema), _notation(schema, kind)) if part)


def _notation(schema: Mapping[str, Any], kind: str) -> str:
    """How a date or a time is written, where the description shows it."""
    found = _NOTATION.search(schema.get("description", "")[:_LOOKED_AT]) if kind == "string" else None
    return found.group(1) if found else ""


def _length(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    least = least if least > 1 else 0
    if most is None or most > MAX_TEXT_LENGTH:
        return f"≥{least} chars" if least else ""
    if not least:
        return f"≤{most} chars"
    return f"{most} chars" if least == most else f"{least}..{most} chars"


def _bounds(schema: Mapping[str, Any]) -> str:
    """`1..100`, `≥1`, `>0`, `≤9`, `0..1`, `>0 <1`."""
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    low, high, above, below = (_told(bound) for bound in (low, high, above, below))
    low = None if above is not None and (low is None or above >= low) else low
    high = None if below is not None and (high is None or below <= high) else high
    if low is not None and high is not None:
        return f"{low}..{high}"
    signs = (
        (">", above if low is None else None),
        ("≥", low),
        ("<", below if high is None else None),
        ("≤", high),
    )
    return " ".join(f"{sign}{bound}" for sign, bound in signs if bound is not None)


def _told(bound: Any) -> Any:
    """A bound that is worth telling, whole numbers without a fraction."""
    if bound is None or abs(bound) >= _MACHINE_BOUND:
        return None
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def _step(schema: Mapping[str, Any]) -> str:
    step = _told(schema.get("multipleOf"))
    return "" if step in (None, 1) else f"step {step}"


def _unit(schema: Mapping[str, Any]) -> str:
    """The unit that the description names."""
    found = _UNIT.search(schema.get("description", "")[:_LOOKED_AT])
    return next((unit for unit in found.groups() if unit), "") if found else ""
