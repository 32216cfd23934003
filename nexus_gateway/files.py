"""Small files that must never be seen half written."""

import os
from pathlib import Path

from tool_registry.atomic_file import replace_file


def write_atomically(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write `text` to `path` by renaming a finished temporary file over it. Raises OSError."""
    write_bytes_atomically(path, text.encode(), mode=mode)


def write_new(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file that nobody has yet, and have it on the disk. Raises OSError, also where there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            path.chmod(mode)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def write_bytes_atomically(
    path: Path, content: bytes, *, mode: int = 0o600, is_durable: bool = False
) -> None:
    """Write `content` as it is to `path` by renaming a finished temporary file over it. Raises OSError.

    With `is_durable` it is on the disk before the old file goes, so that not even a power cut loses both.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content, mode=mode, is_durable=is_durable)
