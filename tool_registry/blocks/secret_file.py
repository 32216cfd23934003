"""A directory's secret: what makes its keys and checksums, and tells its blocks from anybody else's."""

from pathlib import Path

from tool_registry.atomic_file import replace_file

SECRET_BYTES = 32
_NAME = "secret"


def kept_secret(directory: Path) -> bytes | None:
    """The secret; None where there is none, or a damaged one. Raises OSError: it can't be read."""
    try:
        with (directory / _NAME).open("rb") as file:
            found = file.read(SECRET_BYTES + 1)
    except FileNotFoundError:
        return None
    return found if len(found) == SECRET_BYTES else None


def agreed_secret(directory: Path, offer: bytes) -> bytes:
    """The secret; `offer` becomes it where there is none. Under the directory's lock. Raises OSError."""
    found = kept_secret(directory)
    if found is None:
        replace_file(directory / _NAME, offer)
    return found or offer
