"""What each block of a directory was worth when its worth was last said, in one JSON file that processes share.

Losing it costs nothing but quality: a block of unknown worth goes first.
"""

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tool_registry.atomic_file import replace_file
from tool_registry.blocks.descriptor import BlockKey
from tool_registry.blocks.listing import Listing
from tool_registry.blocks.small_files import number, read_object
from tool_registry.blocks.worth import Candidate, faded

FILE_NAME = "worth.json"


class Worths:
    """One reading of the file."""

    def __init__(self, said: dict[BlockKey, tuple[float, float]]) -> None:
        self.said = said
        self._now = time.time()

    def of(self, key: BlockKey, last_used: float) -> float:
        """Seconds a byte, less for the time since it was said or the block was used; 0 where nothing was said."""
        worth, at = self.said.get(key, (0.0, 0.0))
        return faded(worth, self._now - max(at, last_used))


class WorthFile:
    """The file. It blocks; writers hold the directory's lock."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def read(self) -> Worths:
        """What the file says now."""
        said: dict[BlockKey, tuple[float, float]] = {}
        for key, value in read_object(self._path).items():
            if isinstance(value, list) and len(value) == 2:  # noqa: PLR2004 - worth and time
                said[BlockKey(key)] = number(value[0]), number(value[1])
        return Worths(said)

    def update(self, worth: Mapping[BlockKey, float], present: Iterable[BlockKey]) -> None:
        """Say what blocks are worth from now on, and forget those that are not `present`. Raises OSError."""
        now = time.time()
        known = self.read().said | {key: (number(value), now) for key, value in worth.items()}
        kept = {key: known[key] for key in present if key in known}
        replace_file(self._path, json.dumps(kept).encode())


def candidates(listing: Listing, worths: Worths) -> list[Candidate]:
    """Every block of a listing with its worth, the last used first. A distrusted one is worth nothing."""
    found: list[tuple[float, Candidate]] = []
    for key, size in listing.items():
        try:
            last_used = listing.path(key).stat().st_mtime
        except FileNotFoundError:
            continue
        worth = worths.of(key, last_used) if listing.trusts(key) else 0.0
        found.append((last_used, Candidate(key, size, worth)))
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])]
