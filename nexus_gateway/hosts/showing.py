"""What would change in a file, as a unified diff without secrets."""

import difflib
from pathlib import Path

from adapters.hosts.document import HostFileError, read_document
from adapters.hosts.known import Dialect
from nexus_gateway.hosts.masking import masked

_NOTHING = "/dev/null"


def difference(file: Path, before: bytes | None, after: bytes | None, dialect: Dialect) -> str:
    """The diff from one content of a file to another; None is no file. Values of env and headers are hidden."""
    lines = difflib.unified_diff(
        _lines(before, dialect),
        _lines(after, dialect),
        _NOTHING if before is None else str(file),
        _NOTHING if after is None else str(file),
        lineterm="",
    )
    return "\n".join(lines)


def _lines(raw: bytes | None, dialect: Dialect) -> list[str]:
    if not raw:
        return []
    try:
        found = read_document(raw, dialect, ("no such member",))
    except HostFileError:
        return ["(a file that can't be read)"]
    return masked(found.text, found.document).splitlines()
