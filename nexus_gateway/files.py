"""Small files that must never be seen half written."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write `text` to `path` by renaming a finished temporary file over it. Raises OSError."""
    write_bytes_atomically(path, text.encode(), mode=mode)


def write_bytes_atomically(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write `content` as it is to `path` by renaming a finished temporary file over it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
