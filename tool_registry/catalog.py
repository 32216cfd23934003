"""The catalogue: an immutable snapshot of every usable tool, with an epoch, and the difference of two."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tool_registry.tool import Tool, ToolId, UnusableToolError, tool_from_definition


@dataclass(frozen=True, slots=True)
class SetAside:
    """A listed definition that is not in use, and why."""

    server: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """What one upstream listed: usable tools in its order, and what was set aside."""

    tools: tuple[Tool, ...]
    set_aside: tuple[SetAside, ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogDiff:
    """What has to be compiled (`added`, `changed`) and forgotten (`removed`) to go from one snapshot to another."""

    added: tuple[Tool, ...]
    changed: tuple[Tool, ...]
    removed: tuple[ToolId, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


@dataclass(frozen=True, slots=True)
class ToolCatalog:
    """All usable tools by id, sorted by id. `epoch` grows by one with each snapshot that differs."""

    epoch: int = 0
    tools: Mapping[ToolId, Tool] = field(default_factory=lambda: MappingProxyType({}))
    set_aside: tuple[SetAside, ...] = ()

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools.values())

    def __len__(self) -> int:
        return len(self.tools)

    def with_server(self, server: str, listing: Listing) -> "ToolCatalog":
        """This catalogue with `server` replaced by `listing`; itself where nothing changed."""
        others = [tool for tool in self if tool.id.server != server]
        aside = tuple(s for s in self.set_aside if s.server != server) + listing.set_aside
        merged = {tool.id: tool for tool in sorted([*others, *listing.tools], key=lambda tool: tool.id)}
        following = ToolCatalog(self.epoch + 1, MappingProxyType(merged), aside)
        return following if following.differs(self) else self

    def without_server(self, server: str) -> "ToolCatalog":
        """This catalogue without a server's tools."""
        return self.with_server(server, Listing(()))

    def differs(self, other: "ToolCatalog") -> bool:
        """Whether tools or set-aside entries differ; epochs don't count."""
        return bool(self.diff(other)) or self.set_aside != other.set_aside

    def diff(self, older: "ToolCatalog") -> CatalogDiff:
        """What changed since `older`, by content hash."""
        added = tuple(tool for tool in self if tool.id not in older.tools)
        changed = tuple(
            tool
            for tool in self
            if tool.id in older.tools and older.tools[tool.id].content_hash != tool.content_hash
        )
        removed = tuple(tool_id for tool_id in older.tools if tool_id not in self.tools)
        return CatalogDiff(added, changed, removed)


def read_listing(server: str, definitions: Iterable[object]) -> Listing:
    """Sort an upstream's listed entries into usable tools and set-aside ones; never raises for a bad entry."""
    tools: dict[str, Tool] = {}
    aside: list[SetAside] = []
    for position, definition in enumerate(definitions):
        try:
            tool = tool_from_definition(server, definition)
        except UnusableToolError as error:
            aside.append(SetAside(server, _label(definition, position), str(error)))
            continue
        if tool.id.name in tools:
            aside.append(SetAside(server, tool.id.name, "listed twice; the first definition is in use"))
            continue
        tools[tool.id.name] = tool
    return Listing(tuple(tools.values()), tuple(aside))


def _label(definition: object, position: int) -> str:
    name = definition.get("name") if isinstance(definition, Mapping) else None
    return name[:80] if isinstance(name, str) and name.strip() else f"entry {position + 1}"
