"""The lock that writers of one directory share, across threads and processes. Readers take none.

The operating system gives it back when its holder ends, however it ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

LOCK_SECONDS = 10.0
"""The longest wait for it. Holders rename and remove files, which takes milliseconds."""


@contextmanager
def locked(directory: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold a directory's lock; the directory is made where it is missing. Not re-entrant.

    Raises:
        TimeoutError: somebody else held it for all of `seconds`.
        OSError: the directory can't be written.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(directory / ".lock", timeout=seconds, mode=0o600)
    with lock:
        yield
