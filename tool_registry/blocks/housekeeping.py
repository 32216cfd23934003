"""What a directory of blocks is rid of: files that can't be used, and leftovers of killed processes.

Knows files; knows no states but by reading them, and no worth.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tool_registry.blocks.block_file import TEMPORARY_SUFFIX, BlockDamaged, read_block
from tool_registry.blocks.descriptor import BlockKey, block_key
from tool_registry.blocks.listing import Listing

TEMPORARY_SECONDS = 3600.0
"""A temporary file is a killed process's after this long."""

Seen: TypeAlias = Callable[[int, int], None]
"""Told how many of how many files were checked."""


@dataclass(frozen=True, slots=True)
class Removed:
    """A file that was removed, and why."""

    path: Path
    reason: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GcReport:
    """What a collection did.

    Attributes:
        kept: blocks that are left.
        kept_bytes: of their files.
    """

    removed: tuple[Removed, ...] = ()
    kept: int = 0
    kept_bytes: int = 0

    @property
    def freed_bytes(self) -> int:
        """Of the removed files."""
        return sum(one.size_bytes for one in self.removed)


@dataclass(frozen=True, slots=True)
class Faulty:
    """A block's file that can't be used. Its inode and size say whether it is still the one that was read."""

    key: BlockKey
    path: Path
    reason: str
    inode: int
    size_bytes: int

    def is_there(self) -> bool:
        """False where it was removed or replaced since."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return False
        return (status.st_ino, status.st_size) == (self.inode, self.size_bytes)


def faulty_blocks(listing: Listing, secret: bytes, seen: Seen) -> Iterator[Faulty]:
    """Read every listed block whole, and distrust and tell those that can't be used."""
    items = sorted(listing.items())
    for done, (key, _) in enumerate(items, start=1):
        path = listing.path(key)
        try:
            status = path.stat()
            reason = _fault(path, key, secret)
        except FileNotFoundError:
            listing.discard(key)
            reason = ""
        if reason:
            listing.distrust(key)
            yield Faulty(key, path, reason, status.st_ino, status.st_size)
        seen(done, len(items))


def _fault(path: Path, key: BlockKey, secret: bytes) -> str:
    """Why a file can't be used; empty where it can. Raises FileNotFoundError."""
    try:
        block = read_block(path, secret)
    except FileNotFoundError:
        raise
    except BlockDamaged as error:
        return str(error)
    except (OSError, MemoryError) as error:
        return f"can't be read: {cause_of(error)}"
    return "" if block_key(secret, block.descriptor) == key else "holds another state than its name says"


def cause_of(error: BaseException) -> str:
    """An error in a few words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def remove_leftovers(directory: Path) -> Iterator[Removed]:
    """Remove the temporary files that killed processes left. Raises OSError."""
    for path in (*directory.glob(f".*{TEMPORARY_SUFFIX}"), *directory.glob(f"??/.*{TEMPORARY_SUFFIX}")):
        with suppress(FileNotFoundError):  # a living process's, renamed in this moment
            status = path.stat()
            if time.time() - status.st_mtime > TEMPORARY_SECONDS:
                path.unlink()
                yield Removed(path, "left behind by a process that was killed", status.st_size)
