"""A host's file on the disk: its bytes, whether it may be written, and whether it is still what it was.

Knows files and who may do what with them. Does not know what they say.
"""

import os
import stat
from pathlib import Path

from adapters.hosts.document import HostFileError

PRIVATE = 0o600


def read_file(file: Path) -> bytes | None:
    """A file's bytes; None where there is none. Raises HostFileError."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostFileError(f"{file} can't be read: {error.strerror}") from None


def mode_of(file: Path) -> int:
    """The permissions of a file; those of a private one where it does not exist."""
    return stat.S_IMODE(file.stat().st_mode) if file.exists() else PRIVATE


def require_writable(file: Path) -> None:
    """Renaming over a read-only file, or another user's, would work, and is not what its owner meant.

    Raises:
        HostFileError: the file is there and should not be replaced.
    """
    if not file.exists():
        return
    if not mode_of(file) & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(file, os.W_OK):
        raise HostFileError(f"{file} is read-only; make it writable, then try again")
    if hasattr(os, "geteuid") and file.stat().st_uid != os.geteuid():
        raise HostFileError(f"{file} belongs to another user; run this as that user, without sudo")


def require_same(file: Path, before: bytes | None) -> None:
    """Raises HostFileError: a file is not what it was when the change was planned."""
    if read_file(file) != before:
        raise HostFileError(f"{file} has been changed meanwhile; quit the host and try again")
