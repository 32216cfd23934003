"""The file of approved definitions, shared by every gateway and command of one cache directory.

Read again whenever another process wrote it. Writing starts from what the file says at that moment, so that the
approvals of two processes add up.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import structlog

from nexus_gateway.files import write_atomically
from tool_registry.pins import Pins, PinsError, from_json, to_json

log = structlog.get_logger(__name__)

FILE_NAME = "pins.json"
"""In the cache folder."""

_Stamp: TypeAlias = tuple[int, int, int]


class PinFile:
    """Approved definitions on disk; without a path, or where it can't be written, in memory alone."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp: _Stamp | None = None
        self._pins = Pins()
        self._unwritable = False
        self._damage = ""

    def read(self) -> Pins:
        """What is approved now. Raises PinsError: the file is there and can't be used."""
        if self._path is not None and self.is_stale():
            self._stamp = self._present_stamp()  # before the text: what is written meanwhile is read again
            # A file that was taken away under us takes no approval away: what is in memory is written again.
            self._damage = "" if self._stamp is None else self._load(self._path)
        if self._damage:
            raise PinsError(self._damage)
        return self._pins

    def is_stale(self) -> bool:
        """Whether another process wrote or removed the file since it was read."""
        return self._present_stamp() != self._stamp

    def update(self, change: Callable[[Pins], Pins]) -> Pins:
        """Approve what `change` adds to what the file says now. Raises PinsError."""
        before = self.read()
        self._pins = change(before)
        if self._pins is not before or (self._stamp is None and before.approved):
            self._write()
        return self._pins

    def _write(self) -> None:
        if self._path is None or self._unwritable:
            return
        try:
            write_atomically(self._path, json.dumps(to_json(self._pins), ensure_ascii=False))
        except OSError as error:
            self._unwritable = True
            log.warning("pins.unwritable", path=str(self._path), cause=str(error))
            return
        self._stamp = self._present_stamp()

    def _present_stamp(self) -> _Stamp | None:
        """None where there is no file, or none that counts."""
        if self._path is None or self._unwritable:
            return None
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _load(self, path: Path) -> str:
        """Take the file's approvals; why not, where it can't be used."""
        try:
            self._pins = from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError) as error:  # PinsError is a ValueError
            return (
                f"the approved definitions in {path} can't be read: {error}. Mend the file, or delete it: what is"
                " listed next is then approved"
            )
        return ""
