"""A bound value: a scalar that stands for an argument no request states. How it is made to fit a parameter."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from nexus_gateway.turn.validation import accepts

BoundValue: TypeAlias = str | int | float | bool


def fitted(value: BoundValue, schema: Mapping[str, Any]) -> BoundValue | None:
    """The value as `schema` takes it: itself, or the same number or boolean written the other way; None if neither.

    A command line and an environment variable give text for a number; a person gives a number for a textual id.
    """
    return next((form for form in _forms(value) if accepts(schema, form)), None)


def _forms(value: BoundValue) -> Iterator[BoundValue]:
    yield value
    if not isinstance(value, str):
        yield json.dumps(value)
        return
    try:
        other = json.loads(value)
    except (ValueError, RecursionError):
        return
    if isinstance(other, int | float):
        yield other
