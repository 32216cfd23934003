"""What would change in a file, as a unified diff without secrets."""

import difflib
import json
from pathlib import Path

from adapters.hosts.document import HostFileError, read_document
from adapters.hosts.known import Dialect
from nexus_gateway.hosts.masking import masked

_NOTHING = "/dev/null"
_LONGEST_LINE = 500
"""Bytes. A file with longer lines is all on one line, and is shown with one member a line."""


def difference(file: Path, before: bytes | None, after: bytes | None, dialect: Dialect) -> str:
    """The diff from one content of a file to another; None is no file. Values of env and headers are hidden."""
    contents = (before or b"", after or b"")
    spread = dialect is not Dialect.TOML and any(
        len(line) > _LONGEST_LINE for raw in contents for line in raw.splitlines()
    )
    old, new = (_lines(raw, dialect, spread=spread) for raw in contents)
    old_name, new_name = (_NOTHING if raw is None else str(file) for raw in (before, after))
    return "\n".join(difflib.unified_diff(old, new, old_name, new_name, lineterm=""))


def _lines(raw: bytes, dialect: Dialect, *, spread: bool) -> list[str]:
    if not raw:
        return []
    try:
        found = read_document(raw, dialect, ("no such member",))
    except HostFileError:
        return ["(a file that can't be read)"]
    text = json.dumps(found.document, indent=2, ensure_ascii=False) if spread else found.text
    return masked(text, found.document).splitlines()
