"""Which server a resource URI belongs to. URIs pass verbatim, so the listings tell, not a prefix."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate

from adapters.ports import JsonObject
from nexus_gateway.fleet.listings import Entry
from tool_registry.catalog import ToolCatalog

MAX_LINKS = 4096


class ResourceRoutes:
    """Routes by listings, templates, and the links that tools gave away."""

    def __init__(self) -> None:
        self._links: dict[str, str] = {}

    def servers(
        self, uri: str, resources: Sequence[Entry], templates: Sequence[Entry], catalog: ToolCatalog
    ) -> list[str]:
        """Whom to ask, in order; empty where nobody is known to have it.

        First the server that lists it; else one that gave a link to it (results, app tools), those whose template
        matches, or the only one that has resources at all.
        """
        listed = [entry.server for entry in resources if entry.raw.get("uri") == uri]
        if listed:
            return listed[:1]
        linked = [self._links[uri]] if uri in self._links else []
        linked += [tool.id.server for tool in catalog if uri in _app_resources(tool.definition)]
        matching = [entry.server for entry in templates if _matches(entry.raw.get("uriTemplate"), uri)]
        if found := [*linked, *matching]:
            return list(dict.fromkeys(found))
        owners = {entry.server for entry in (*resources, *templates)}
        return list(owners) if len(owners) == 1 else []

    def of_template(self, template: str, templates: Sequence[Entry]) -> str | None:
        """The first server that lists a template."""
        return next((entry.server for entry in templates if entry.raw.get("uriTemplate") == template), None)

    def learn(self, server: str, result: Mapping[str, Any]) -> None:
        """Remember the resources that a tool's result links to: they need not be listed anywhere."""
        content = result.get("content")
        for block in content if isinstance(content, list) else ():
            uri = (
                block.get("uri") if isinstance(block, dict) and block.get("type") == "resource_link" else None
            )
            if isinstance(uri, str):
                self._links.pop(uri, None)
                self._links[uri] = server
        while len(self._links) > MAX_LINKS:
            del self._links[next(iter(self._links))]


def unique(entries: Iterable[Entry], key: str) -> list[JsonObject]:
    """Raw entries without those whose `key` an earlier server listed already: they couldn't be reached."""
    first: dict[Any, JsonObject] = {}
    for entry in entries:
        value = entry.raw.get(key)
        if isinstance(value, str):
            first.setdefault(value, entry.raw)
    return list(first.values())


def _app_resources(definition: Mapping[str, Any]) -> tuple[Any, ...]:
    """The `ui://` resources that a tool of the apps extension shows."""
    meta = definition.get("_meta")
    if not isinstance(meta, Mapping):
        return ()
    ui = meta.get("ui")
    return (meta.get("ui/resourceUri"), ui.get("resourceUri") if isinstance(ui, Mapping) else None)


def _matches(template: object, uri: str) -> bool:
    if not isinstance(template, str):
        return False
    parsed = _parsed(template)
    if parsed is None:  # beyond what is understood: what comes before its first variable decides
        return uri.startswith(template.partition("{")[0])
    return parsed.match(uri) is not None


@lru_cache(maxsize=1024)
def _parsed(template: str) -> UriTemplate | None:
    try:
        return UriTemplate.parse(template)
    except InvalidUriTemplate:
        return None
