"""Small files that several processes share: never seen half written, and of no harm when they are damaged."""

import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

MAX_BYTES = 32 * 1024 * 1024


def replace_file(path: Path, data: bytes) -> None:
    """Write a file of this user alone and rename it to its place. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


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
