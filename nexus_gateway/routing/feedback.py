"""What hosts corrected, on disk: which tool was chosen for which request, and how many turns were routed at all.

JSON Lines, appended to by every gateway of a cache folder, readable by its user alone. Requests are kept as they
were written, so nothing here is ever logged but counts. Knows no host and no turn.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

import structlog

from nexus_gateway.files import write_atomically
from tool_registry.tool import ToolId

log = structlog.get_logger(__name__)

FILE_NAME = "feedback.jsonl"
MAX_REQUEST_CHARACTERS = 2_000
"""Kept of a request; routing reads fewer."""
MAX_DAMAGED = 100
"""Lines that can't be read are kept all the same, for a person to mend; the newest of them."""
_SLACK_LINES = 500
"""The file is written anew once it has so many lines beyond those that are kept, so that it rarely is."""
_ROUTED, _TOTALS = "routed", "totals"


class LabelKind(StrEnum):
    """How a label came to be."""

    CHOSEN = "chosen"
    """The turn offered several tools, or none; the host chose this one."""
    CORRECTED = "corrected"
    """The turn took another tool."""
    CONFIRMED = "confirmed"
    """The turn proposed this tool, and the host called it."""


@dataclass(frozen=True, slots=True)
class Label:
    """A request and the tool that was right for it, as the host saw it.

    Attributes:
        request: as it was written, up to 2,000 characters.
        offered: the tools that the turn took, proposed or offered, best first.
        at: when the host called the tool.
    """

    request: str = field(repr=False)
    tool: ToolId
    kind: LabelKind
    offered: tuple[ToolId, ...] = ()
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Feedback:
    """All that a file says.

    Attributes:
        labels: oldest first.
        routed: turns in which one tool was taken or proposed.
        totals: labels by kind since the file was begun, those that have made room for newer ones included.
        damaged: lines that can't be read.
    """

    labels: tuple[Label, ...] = ()
    routed: int = 0
    totals: Mapping[LabelKind, int] = field(default_factory=dict)
    damaged: tuple[str, ...] = field(default=(), repr=False)

    @property
    def precision(self) -> float | None:
        """The share of routed turns that no host corrected, from 0 to 1; None before the first.

        A lower bound: a call of another tool right after a turn counts as a correction, though it may be the
        next step of a task.
        """
        if not self.routed:
            return None
        return max(0.0, 1.0 - self.totals.get(LabelKind.CORRECTED, 0) / self.routed)


class FeedbackStore:
    """One file of labels. Its methods block, and raise OSError where the file can't be read or written."""

    def __init__(self, path: Path, *, max_entries: int = 5_000) -> None:
        self.path = path
        self._max_entries = max_entries
        self._lines: int | None = None  # in the file, as far as this process knows

    def append(self, label: Label) -> None:
        """Add a label."""
        self._append(_label_line(label))

    def count_routed(self) -> None:
        """Count one routed turn."""
        self._append({"kind": _ROUTED, "count": 1})

    def labels(self) -> list[Label]:
        """Every label, oldest first; lines that can't be read are skipped with a warning."""
        read = self.read()
        if read.damaged:
            log.warning("feedback.damaged", path=str(self.path), lines=len(read.damaged))
        return list(read.labels)

    def read(self) -> Feedback:
        """All that the file says; nothing where there is none."""
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return Feedback()
        return _parsed(text.split("\n"), self._max_entries)

    def clear(self) -> None:
        """Remove the file, if there is one."""
        self.path.unlink(missing_ok=True)
        self._lines = None

    def _append(self, entry: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # One write at the end of the file, so that lines of several processes don't mix.
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, (_unfinished(handle) + json.dumps(entry) + "\n").encode())
        finally:
            os.close(handle)
        if self._lines is None:
            self._lines = self.path.read_bytes().count(b"\n")
        else:
            self._lines += 1
        if self._lines > self._max_entries + _SLACK_LINES:
            self._shorten()

    def _shorten(self) -> None:
        """Keep the newest labels, and the numbers of all. What another process adds in this moment is lost."""
        read = self.read()
        totals = Counter(read.totals) - Counter(label.kind for label in read.labels)
        first = {"kind": _TOTALS, "routed": read.routed, **{str(kind): n for kind, n in totals.items()}}
        lines = [json.dumps(first), *read.damaged[-MAX_DAMAGED:]]
        lines += [json.dumps(_label_line(label)) for label in read.labels]
        write_atomically(self.path, "\n".join(lines) + "\n")
        self._lines = len(lines)


_Entry: TypeAlias = Mapping[str, Any]


def _unfinished(handle: int) -> str:
    """What ends the last line of a file, should a crash have cut it."""
    size = os.fstat(handle).st_size
    if not size:
        return ""
    os.lseek(handle, size - 1, os.SEEK_SET)
    return "" if os.read(handle, 1) == b"\n" else "\n"


def _parsed(lines: Sequence[str], most: int) -> Feedback:
    labels: list[Label] = []
    damaged: list[str] = []
    totals: Counter[str] = Counter()
    for line in filter(str.strip, lines):
        try:
            entry = json.loads(line)
            counted = _counted(entry)
            if counted is None:
                labels.append(_label(entry))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            damaged.append(line)
            continue
        totals.update({entry["kind"]: 1} if counted is None else counted)
    by_kind = {kind: totals[kind] for kind in LabelKind if totals[kind]}
    return Feedback(tuple(labels[-most:]), totals[_ROUTED], by_kind, tuple(damaged))


def _counted(entry: _Entry) -> dict[str, int] | None:
    """What a line adds to the counts; None for a label. Raises for what is neither."""
    if entry["kind"] == _ROUTED:
        return {_ROUTED: _count(entry["count"])}
    if entry["kind"] == _TOTALS:
        return {name: _count(entry[name]) for name in (_ROUTED, *LabelKind) if name in entry}
    return None


def _count(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("not a count")
    return value


def _label_line(label: Label) -> _Entry:
    return {
        "kind": str(label.kind),
        "at": label.at.isoformat(timespec="seconds"),
        "request": label.request[:MAX_REQUEST_CHARACTERS],
        "tool": [label.tool.server, label.tool.name],
        "offered": [[tool.server, tool.name] for tool in label.offered],
    }


def _label(entry: _Entry) -> Label:
    request = entry["request"]
    if not isinstance(request, str):
        raise TypeError("the request is no text")
    return Label(
        request=request,
        tool=_tool(entry["tool"]),
        kind=LabelKind(entry["kind"]),
        offered=tuple(_tool(pair) for pair in entry["offered"]),
        at=datetime.fromisoformat(entry["at"]),
    )


def _tool(pair: Iterable[object]) -> ToolId:
    server, name = pair
    if not isinstance(server, str) or not isinstance(name, str):
        raise TypeError("a tool is a server and a name")
    return ToolId(server, name)
