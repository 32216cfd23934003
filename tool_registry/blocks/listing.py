"""Which blocks a directory has, and how large they are: in memory, as of the last refresh.

`has` and `size` touch no file and take less than a microsecond; they may be stale in either direction.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tool_registry.blocks.block_file import SUFFIX
from tool_registry.blocks.descriptor import BlockKey

_FOLDER_CHARACTERS = 2
_SETTLED_NS = 2_000_000_000
"""A folder that changed this recently may change again within one tick of its file system's clock."""


@dataclass(slots=True)
class _Folder:
    stamp: int
    sizes: dict[str, int]


class Listing:
    """The blocks under one directory, `<2 hex>/<key>.block`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._folders: dict[str, _Folder] = {}
        self._distrusted: dict[str, int] = {}  # key -> inode: a mended block is another file

    def path(self, key: BlockKey) -> Path:
        """Where a block's file is, or would be."""
        return self._directory / key[:_FOLDER_CHARACTERS] / f"{key}{SUFFIX}"

    def has(self, key: BlockKey) -> bool:
        """Whether there is a block that nobody found damaged."""
        folder = self._folders.get(key[:_FOLDER_CHARACTERS])
        return folder is not None and key in folder.sizes and key not in self._distrusted

    def size(self, key: BlockKey) -> int:
        """Bytes of its file; 0 where there is none."""
        folder = self._folders.get(key[:_FOLDER_CHARACTERS])
        return 0 if folder is None else folder.sizes.get(key, 0)

    def items(self) -> list[tuple[BlockKey, int]]:
        """Every block and its bytes, distrusted ones too: they take up room."""
        # Copies, since another thread may refresh meanwhile.
        return [
            (BlockKey(key), size)
            for folder in list(self._folders.values())
            for key, size in list(folder.sizes.items())
        ]

    def trusts(self, key: BlockKey) -> bool:
        """False for a block that somebody found damaged."""
        return key not in self._distrusted

    def add(self, key: BlockKey, size: int) -> None:
        """There is a good block now."""
        folder = self._folders.setdefault(key[:_FOLDER_CHARACTERS], _Folder(-1, {}))
        folder.sizes[key] = size
        self._distrusted.pop(key, None)

    def discard(self, key: BlockKey) -> None:
        """There is no such block."""
        if (folder := self._folders.get(key[:_FOLDER_CHARACTERS])) is not None:
            folder.sizes.pop(key, None)
        self._distrusted.pop(key, None)

    def distrust(self, key: BlockKey) -> None:
        """Its file is there, and can't be used."""
        with suppress(OSError):
            self._distrusted[key] = self.path(key).stat().st_ino

    def refresh(self) -> None:
        """See what is there now; only folders that changed are read. Raises OSError."""
        found = dict(_folders_of(self._directory))
        for name in self._folders.keys() - found.keys():
            self._folders.pop(name, None)
        for name, stamp in found.items():
            known = self._folders.get(name)
            if known is None or known.stamp != stamp:
                settled = time.time_ns() - stamp > _SETTLED_NS
                self._folders[name] = _Folder(stamp if settled else -1, self._sizes_in(name))

    def _sizes_in(self, name: str) -> dict[str, int]:
        sizes: dict[str, int] = {}
        with suppress(FileNotFoundError), os.scandir(self._directory / name) as entries:
            for entry in entries:
                key = entry.name.removesuffix(SUFFIX)
                if key == entry.name or key.startswith("."):
                    continue
                with suppress(FileNotFoundError):  # removed by another process since
                    status = entry.stat()
                    sizes[key] = status.st_size
                    if self._distrusted.get(key, status.st_ino) != status.st_ino:
                        self._distrusted.pop(key, None)
        return sizes


def _folders_of(directory: Path) -> Iterator[tuple[str, int]]:
    """Names of its folders of blocks, and when each last changed."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if len(entry.name) == _FOLDER_CHARACTERS and entry.is_dir():
                    yield entry.name, entry.stat().st_mtime_ns
    except FileNotFoundError:
        return
