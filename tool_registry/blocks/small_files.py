"""Small files that several processes share, read so that a damaged one does no harm."""

import json
import sys
from pathlib import Path
from typing import Any

MAX_BYTES = 32 * 1024 * 1024


def read_object(path: Path) -> dict[str, Any]:
    """A file's JSON object; an empty one where the file is missing, unreadable or damaged."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        value = json.loads(data) if len(data) <= MAX_BYTES else {}
    except (OSError, RecursionError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def number(value: object) -> float:
    """A finite number that is not negative; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value <= sys.float_info.max else 0.0  # an `int` may be larger
