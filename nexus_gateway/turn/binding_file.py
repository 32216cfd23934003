"""The file of remembered bindings: values by tenant, server and argument, readable by its user alone.

Shared by every gateway and command of one cache folder, so it is read again whenever another process wrote it, and
each change starts from what it says at that moment. Knows no tool and no rule of what is worth remembering.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import structlog
from pydantic import TypeAdapter, ValidationError

from nexus_gateway.access.caller import Tenant
from nexus_gateway.files import write_atomically
from nexus_gateway.turn.bound_values import BoundValue

log = structlog.get_logger(__name__)

FILE_NAME = "bindings.json"
MAX_ENTRIES = 10_000
"""The oldest go first."""

_Stamp: TypeAlias = tuple[int, int, int]


class RememberedBy(StrEnum):
    """How a binding came to be."""

    SET = "set"
    """By the command: it counts as what is configured does."""
    ANSWER = "answer"
    """A user answered a question."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """One remembered value. No `repr` shows it."""

    tenant: Tenant
    server: str
    name: str
    value: BoundValue = field(repr=False)
    by: RememberedBy
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def key(self) -> tuple[str, str, str]:
        """One value for each."""
        return self.tenant, self.server, self.name


_ENTRIES = TypeAdapter(tuple[Remembered, ...])


class BindingFile:
    """Remembered bindings on disk; without a path in memory alone. Its methods block.

    A file that can't be understood is set aside under another name with a warning: nothing is remembered then, and
    what was asked once is asked again.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._stamp: _Stamp | None = None
        self._entries: tuple[Remembered, ...] = ()
        self._kept_out = ""
        self._lock = Lock()

    def entries(self) -> tuple[Remembered, ...]:
        """All of them, oldest first."""
        with self._lock:
            return self._read()

    def of(self, tenant: Tenant, server: str) -> dict[str, Remembered]:
        """What a tenant has for one server, by argument."""
        return {one.name: one for one in self.entries() if (one.tenant, one.server) == (tenant, server)}

    def put(self, *new: Remembered) -> None:
        """Remember values, in place of earlier ones for the same. Raises OSError: the file can't be written."""
        keys = {one.key for one in new}
        self._change(lambda old: (*(one for one in old if one.key not in keys), *new)[-MAX_ENTRIES:])

    def forget(self, tenant: Tenant, server: str, name: str | None = None) -> tuple[Remembered, ...]:
        """Forget one argument of a server, or all of them; what was forgotten. Raises OSError."""
        forgotten: list[Remembered] = []

        def without(old: tuple[Remembered, ...]) -> tuple[Remembered, ...]:
            named = (tenant, server)
            forgotten[:] = [
                one for one in old if (one.tenant, one.server) == named and name in (None, one.name)
            ]
            return tuple(one for one in old if one not in forgotten)

        self._change(without)
        return tuple(forgotten)

    def _change(self, change: Callable[[tuple[Remembered, ...]], tuple[Remembered, ...]]) -> None:
        # Two processes that write in the same moment: the later one wins, and one answer is asked for again.
        with self._lock:
            before = self._read()
            if self._kept_out:
                raise OSError(self._kept_out)
            after = change(before)
            if after == before:
                return
            if self.path is not None:
                text = _ENTRIES.dump_json(after, indent=1).decode()
                write_atomically(self.path, text + "\n")
                self._stamp = self._present_stamp()
            self._entries = after

    def _read(self) -> tuple[Remembered, ...]:
        if self.path is None:
            return self._entries
        stamp = self._present_stamp()  # before the text: what is written meanwhile is read again
        if stamp != self._stamp:
            self._kept_out = ""
            self._entries = () if stamp is None else self._load(self.path)
            self._stamp = stamp
        return self._entries

    def _present_stamp(self) -> _Stamp | None:
        """None where there is no file."""
        if self.path is None:
            return None
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _load(self, path: Path) -> tuple[Remembered, ...]:
        try:
            return _ENTRIES.validate_json(path.read_bytes())
        except OSError as error:
            self._kept_out = f"{path} can't be read: {error.strerror or error}"
            log.warning("bindings.unreadable", path=str(path), cause=self._kept_out)
        except (ValueError, RecursionError) as error:
            self._set_aside(path, _cause(error))
        return ()

    def _set_aside(self, path: Path, cause: str) -> None:
        aside = path.with_name(f"{path.name}.broken")
        try:
            path.replace(aside)
        except OSError as error:
            cause = self._kept_out = f"{cause}; and {path} can't be moved away: {error.strerror}"
        log.warning(
            "bindings.broken",
            path=str(path),
            moved_to=str(aside),
            cause=cause,
            fix="mend it and move it back, or set the values again with `nexus-gateway bindings set`",
        )


def _cause(error: Exception) -> str:
    """What is wrong, without the values, which the error's own text would show."""
    if isinstance(error, ValidationError):
        first: Any = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place}: {first['msg']}" if place else str(first["msg"])
    return type(error).__name__
