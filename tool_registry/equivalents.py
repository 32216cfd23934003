"""Which tools of different servers are the same tool: choosing either is fine.

Two tools are equivalent when their names have the same letters and digits, whatever the case, and their
descriptions are identical or share at least half of their words (Jaccard). The relation is carried on: what is
equivalent to a third tool is one group with it. Tools without a description say too little to be equivalent.
Knows names and descriptions; knows no vectors and no ranking.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from tool_registry.tool import Tool, ToolId

LEAST_JACCARD = 0.5

_WORDS = re.compile(r"\w+")
_NOT_IN_NAMES = re.compile(r"[\W_]+")
_Groups: TypeAlias = tuple[tuple[ToolId, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Equivalents:
    """The groups of one snapshot: two or more tools each, sorted. Snapshots share what did not change."""

    _buckets: Mapping[str, tuple[Tool, ...]] = field(default_factory=lambda: MappingProxyType({}))
    _groups: Mapping[str, _Groups] = field(default_factory=lambda: MappingProxyType({}))
    _group: Mapping[ToolId, tuple[ToolId, ...]] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def build(cls, tools: Collection[Tool]) -> "Equivalents":
        """Group tools."""
        return cls().edited(tools, ())

    @property
    def groups(self) -> _Groups:
        """Of all names."""
        return tuple(group for groups in self._groups.values() for group in groups)

    def group_of(self, tool_id: ToolId) -> tuple[ToolId, ...]:
        """The tool and those that are the same, sorted; the tool alone where none is."""
        return self._group.get(tool_id) or (tool_id,)

    def edited(self, added: Collection[Tool], removed: Collection[Tool]) -> "Equivalents":
        """The next snapshot; only names that come or go are compared again. `removed` are the objects added once."""
        gone = {id(tool) for tool in removed}
        come: dict[str, list[Tool]] = {_plain(tool.id.name): [] for tool in removed}
        for tool in added:
            come.setdefault(_plain(tool.id.name), []).append(tool)
        buckets, groups, group_of = dict(self._buckets), dict(self._groups), dict(self._group)
        for name, tools in come.items():
            for tool_id in (tool_id for group in groups.pop(name, ()) for tool_id in group):
                del group_of[tool_id]
            stayed = [tool for tool in buckets.pop(name, ()) if id(tool) not in gone]
            if bucket := (*stayed, *tools):
                buckets[name] = bucket
            if found := tuple(_grouped(bucket)):
                groups[name] = found
            group_of |= {tool_id: group for group in found for tool_id in group}
        return Equivalents(buckets, groups, group_of)


@lru_cache(maxsize=65_536)
def _plain(name: str) -> str:
    return _NOT_IN_NAMES.sub("", name).lower() or name


def _grouped(bucket: Sequence[Tool]) -> Iterator[tuple[ToolId, ...]]:
    """The groups among tools of one name: each tool joins all groups that it equals a member of."""
    groups: list[list[tuple[Tool, frozenset[str]]]] = []
    for tool in bucket if len({tool.id.server for tool in bucket}) > 1 else ():
        entry = tool, frozenset(_WORDS.findall(tool.description.lower()))
        equal = [group for group in groups if any(_equivalent(entry, member) for member in group)]
        groups = [group for group in groups if group not in equal]
        groups.append([entry, *(member for group in equal for member in group)])
    for group in groups:
        if len({tool.id.server for tool, _ in group}) > 1:
            yield tuple(sorted(tool.id for tool, _ in group))


def _equivalent(one: tuple[Tool, frozenset[str]], other: tuple[Tool, frozenset[str]]) -> bool:
    (a, words_a), (b, words_b) = one, other
    if a.id.server == b.id.server or not (a.description.strip() and b.description.strip()):
        return False
    if a.description == b.description:
        return True
    return len(words_a & words_b) >= LEAST_JACCARD * max(len(words_a | words_b), 1)
