"""Approved definitions, and what became different from them.

Pure: knows no file, no server's life and no policy. What a definition says under `_meta` is not part of what is
approved, since the protocol lets it differ from one listing to the next.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import unified_diff
from types import MappingProxyType
from typing import Any, Final

from tool_registry.suspicion import visible
from tool_registry.tool import ContentHash, Tool, ToolId, content_hash

_NOT_PINNED: Final = frozenset({"_meta"})
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|\n")
_CONTEXT_LINES: Final = 1
_MOST_LINES: Final = 400


class PinsError(ValueError):
    """What should be approved definitions is not; the message says which part."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One approved definition and the hash of what counts of it."""

    content_hash: ContentHash
    definition: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pins:
    """Every approved definition by tool. Immutable: approving gives another one."""

    approved: Mapping[ToolId, Pin] = field(default_factory=lambda: MappingProxyType({}))

    def changed(self, tool: Tool) -> bool:
        """Whether a tool was approved with another definition."""
        pin = self.approved.get(tool.id)
        return pin is not None and pin.content_hash != pin_of(tool).content_hash

    def with_approved(self, tools: Iterable[Tool]) -> "Pins":
        """These, with the present definitions of `tools` approved."""
        return Pins(MappingProxyType({**self.approved, **{tool.id: pin_of(tool) for tool in tools}}))

    def with_new(self, tools: Iterable[Tool]) -> "Pins":
        """These, with tools approved that were never seen before; itself where there is none."""
        new = [tool for tool in tools if tool.id not in self.approved]
        return self.with_approved(new) if new else self


def pin_of(tool: Tool) -> Pin:
    """What approving a tool approves."""
    counted = {key: value for key, value in tool.definition.items() if key not in _NOT_PINNED}
    return Pin(content_hash(counted), counted)


def to_json(pins: Pins) -> dict[str, Any]:
    """The approved definitions by server and name."""
    servers: dict[str, dict[str, Any]] = {}
    for tool_id, pin in sorted(pins.approved.items()):
        servers.setdefault(tool_id.server, {})[tool_id.name] = dict(pin.definition)
    return {"version": 1, "servers": servers}


def from_json(value: object) -> Pins:
    """The reverse of `to_json`; hashes are computed anew. Raises PinsError."""
    if not isinstance(value, dict) or value.get("version") != 1 or not isinstance(value.get("servers"), dict):
        raise PinsError("it is no version 1 of approved definitions")
    approved: dict[ToolId, Pin] = {}
    for server, tools in value["servers"].items():
        if not isinstance(tools, dict) or not all(isinstance(tool, dict) for tool in tools.values()):
            raise PinsError(f"the entry of server {server!r} is no table of definitions")
        for name, definition in tools.items():
            approved[ToolId(server, name)] = Pin(content_hash(definition), definition)
    return Pins(MappingProxyType(approved))


def difference(approved: Mapping[str, Any], listed: Mapping[str, Any]) -> list[str]:
    """What is different in `listed`, as lines: a heading for each part, then its lines with `-` and `+`.

    Characters that can't be seen are written as escapes. At most 400 lines, with a last one that says so.
    """
    lines: list[str] = []
    for part in sorted({*approved, *listed} - _NOT_PINNED):
        before, after = _lines(approved, part), _lines(listed, part)
        if before == after:
            continue
        compared = list(unified_diff(before, after, n=_CONTEXT_LINES, lineterm=""))[2:]
        lines += [f"{visible(part)}:", *(line for line in compared if not line.startswith("@@"))]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"… and {len(lines) - _MOST_LINES:,} more lines"]
    return lines


def _lines(definition: Mapping[str, Any], part: str) -> list[str]:
    """One part of a definition: prose by sentences, anything else as indented JSON, keys in order."""
    if part not in definition:
        return []
    value = definition[part]
    if isinstance(value, str):
        return [visible(sentence) for sentence in _SENTENCE_END.split(value)]
    return [
        visible(line) for line in json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).split("\n")
    ]
