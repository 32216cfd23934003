"""Files of JSON Lines that people write: one object a line, and what is wrong with which line. Knows no file."""

import json
from collections.abc import Iterator
from typing import Any


class LineError(ValueError):
    """A line that is no JSON object; `number` is its place, from 1, and `reason` is for people."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}")
        self.number = number
        self.reason = reason


def json_objects(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each object with its line, from 1; empty lines are passed over. Raises LineError."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise LineError(number, f"not a line of JSON: {error}") from error
        if not isinstance(row, dict):
            raise LineError(number, f"expected an object, got a {type(row).__name__}")
        yield number, row
