"""Files that must never be seen half written."""

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes, *, mode: int = 0o600, is_durable: bool = False) -> None:
    """Write a finished temporary file beside `path` and rename it over it; a rename within a folder is atomic.

    With `is_durable` it is on the disk before the old file goes, so that not even a power cut loses both.

    Raises:
        OSError: the folder is missing or can't be written.
    """
    handle, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
