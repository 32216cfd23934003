"""Upstream tools and prompts under safe names, as hosts see them, and whose they are."""

from collections.abc import Iterable, Sequence

from adapters.ports import JsonObject
from nexus_gateway.access.caller import Caller
from nexus_gateway.fleet.listings import Entry
from nexus_gateway.server.names import ExposedNames, Named
from nexus_gateway.settings.snapshot import ExposeSettings
from tool_registry.catalog import ToolCatalog
from tool_registry.tool import ToolId


class ExposedTools:
    """The exposed part of a catalogue; computed once for each."""

    def __init__(self, settings: ExposeSettings, *, reserved: Iterable[str] = ()) -> None:
        self._settings = settings
        self._reserved = tuple(reserved)
        self._catalog = ToolCatalog()
        self._names = self._named([])
        self._listed: list[JsonObject] = []
        self._shown: list[ToolId] = []  # of each listed one
        self._visible: set[Named] = set()

    def listed(self, catalog: ToolCatalog, caller: Caller) -> list[JsonObject]:
        """Raw definitions under exposed names of what a caller sees, in the catalogue's order."""
        self._follow(catalog)
        if caller.visible is None:
            return self._listed
        return [raw for tool, raw in zip(self._shown, self._listed, strict=True) if caller.sees(tool)]

    def resolve(self, catalog: ToolCatalog, exposed: str) -> Named | None:
        """The server and its own name of a tool that hosts see."""
        self._follow(catalog)
        found = self._names.resolve(exposed)
        return found if found in self._visible else None

    def _follow(self, catalog: ToolCatalog) -> None:
        if catalog is self._catalog:
            return
        # Names are made for all tools, so that pinning one renames none.
        self._names = self._named([(tool.id.server, tool.id.name) for tool in catalog])
        shown = [tool for tool in catalog if self._is_shown(str(tool.id))]
        self._shown = [tool.id for tool in shown]
        self._visible = {(tool.id.server, tool.id.name) for tool in shown}
        self._listed = [
            {**tool.definition, "name": self._names.expose(tool.id.server, tool.id.name)} for tool in shown
        ]
        self._catalog = catalog

    def _is_shown(self, tool: str) -> bool:
        shown = self._settings.tools
        return shown == "all" or (shown == "pinned" and tool in self._settings.pinned)

    def _named(self, ids: Iterable[Named]) -> ExposedNames:
        return names(self._settings, ids, reserved=self._reserved)


class ExposedPrompts:
    """Prompts under exposed names; computed once for each set of ids."""

    def __init__(self, settings: ExposeSettings) -> None:
        self._settings = settings
        self._ids: list[Named] = []
        self._names = names(settings, [])

    def listed(self, entries: Sequence[Entry]) -> list[JsonObject]:
        """Raw entries under exposed names; those without a name are left out."""
        usable = self._follow(entries)
        return [
            {**entry.raw, "name": self._names.expose(entry.server, entry.raw["name"])} for entry in usable
        ]

    def resolve(self, entries: Sequence[Entry], exposed: str) -> Named | None:
        """The server and its own name of a prompt."""
        self._follow(entries)
        return self._names.resolve(exposed)

    def _follow(self, entries: Sequence[Entry]) -> list[Entry]:
        usable = {
            (entry.server, entry.raw["name"]): entry
            for entry in entries
            if isinstance(entry.raw.get("name"), str)
        }
        if list(usable) != self._ids:
            self._ids = list(usable)
            self._names = names(self._settings, usable)
        return list(usable.values())


def names(settings: ExposeSettings, ids: Iterable[Named], *, reserved: Iterable[str] = ()) -> ExposedNames:
    """The names of `ids` as configured."""
    return ExposedNames.build(ids, prefix=settings.prefix, max_length=settings.name_length, reserved=reserved)
