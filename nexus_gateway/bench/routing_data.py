"""What routing is measured on: tools, requests with their right tools, and requests that no tool fits, from files.

JSON Lines in UTF-8. A tool's key is `server/name`.

    tool            {"server", "name", "description", "inputSchema", ...}: the definition as its server lists it
    request         {"query", "gold": [keys]} and, where known, "id", "source", "split", "gold_equivalents", "gold_near"
    no tool fits    {"query", "candidate_tools": [definitions]} and "id"
    equivalents     {"groups": [[keys], ...]}: one JSON object; the same tool on several servers

Every error names the file, the line and what is expected there.
"""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nexus_gateway.bench.errors import BenchError
from nexus_gateway.json_lines import LineError, json_objects
from tool_registry.catalog import SetAside, ToolCatalog, read_listing
from tool_registry.tool import Tool

CANDIDATE_SERVER = "candidates"
"""The server of tools that come with a request."""

Groups = Mapping[str, frozenset[str]]
"""Key -> the keys of the same tool, itself included."""


@dataclass(frozen=True, slots=True)
class RoutingQuery:
    """A request and the keys of its tools.

    Attributes:
        id: seeds the registries it is routed in.
        gold: any of them is right.
        equivalents: right too: the same tools on other servers.
        near: neither right nor a clear error; only left out where no right tool is to be had.
        source: where the request comes from, for figures by source.
    """

    id: str
    text: str
    gold: tuple[str, ...]
    equivalents: frozenset[str] = frozenset()
    near: frozenset[str] = frozenset()
    source: str = ""

    @property
    def right(self) -> frozenset[str]:
        """Every key that counts as a hit."""
        return self.equivalents.union(self.gold)


@dataclass(frozen=True, slots=True)
class UnfitQuery:
    """A request that none of the tools it comes with can serve."""

    id: str
    text: str
    tools: tuple[Tool, ...]


def read_tools(path: Path) -> ToolCatalog:
    """The tools of a file; unusable definitions and second ones of a key are set aside, as a server's would be.

    Raises:
        BenchError: the file can't be read, a line is malformed, or no tool is left.
    """
    by_server: dict[str, list[dict[str, Any]]] = {}
    for place, row in rows(path):
        server = text_of(row, "server", place)
        by_server.setdefault(server, []).append({name: row[name] for name in row if name != "server"})
    listings = [read_listing(server, listed) for server, listed in by_server.items()]
    tools = {tool.id: tool for listing in listings for tool in listing.tools}
    aside: list[SetAside] = [one for listing in listings for one in listing.set_aside]
    if not tools:
        raise BenchError(
            f"{path} holds no usable tool: it needs a line of JSON for each, with server and name"
        )
    return ToolCatalog(1, MappingProxyType(dict(sorted(tools.items()))), tuple(aside))


def read_equivalents(path: Path) -> Groups:
    """Groups of the same tool. Raises BenchError."""
    try:
        groups = json.loads(_content(path))["groups"]
        return {key: frozenset(group) for group in groups for key in group}
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f'{path}: expected {{"groups": [["server/name", ...], ...]}}: {error}') from error


def read_queries(path: Path, *, split: str | None, groups: Groups | None = None) -> list[RoutingQuery]:
    """The requests of a file, of one split where it is given; groups of equivalents add to what is right.

    Raises:
        BenchError: the file can't be read, a line is malformed, or no request is left.
    """
    splits: set[str] = set()
    queries: list[RoutingQuery] = []
    for place, row in rows(path):
        query = _query(row, place, path.stem, groups or {})
        splits.add(str(row.get("split", "none")))
        if split is None or row.get("split") == split:
            queries.append(query)
    if not splits:
        raise BenchError(f"{path} holds no request: it needs a line of JSON for each, with query and gold")
    if not queries:
        raise BenchError(f"{path} holds no request of split {split!r}; there is: {', '.join(sorted(splits))}")
    return queries


def read_unfit(path: Path) -> list[UnfitQuery]:
    """Requests that no tool fits. Raises BenchError."""
    queries = [
        UnfitQuery(text=text_of(row, "query", place), id=row_id(row), tools=_candidates(row, place))
        for place, row in rows(path)
    ]
    if not queries:
        raise BenchError(
            f"{path} holds no request: it needs a line of JSON for each, with query and candidate_tools"
        )
    return queries


def _query(row: Mapping[str, Any], place: str, source: str, groups: Groups) -> RoutingQuery:
    gold = keys_of(row, "gold", place)
    if not gold:
        raise BenchError(
            f"{place}: gold names no tool; requests that no tool fits are measured with --irrelevance"
        )
    known = {key for tool in gold for key in groups.get(tool, ())}
    return RoutingQuery(
        text=text_of(row, "query", place),
        id=row_id(row),
        gold=gold,
        equivalents=frozenset({*known, *keys_of(row, "gold_equivalents", place)} - {*gold}),
        near=frozenset(keys_of(row, "gold_near", place)),
        source=str(row.get("source") or source),
    )


def _candidates(row: Mapping[str, Any], place: str) -> tuple[Tool, ...]:
    listed = row.get("candidate_tools")
    if not isinstance(listed, list):
        raise BenchError(f"{place}: candidate_tools is missing; a list of tool definitions is expected")
    return read_listing(CANDIDATE_SERVER, listed).tools


def row_id(row: Mapping[str, Any]) -> str:
    """The row's own id, or its text: it seeds registries, so it must not depend on where the file is."""
    return str(row.get("id") or row["query"])


def text_of(row: Mapping[str, Any], name: str, place: str) -> str:
    """A text that has to be there. Raises BenchError."""
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BenchError(f"{place}: {name} is {'missing' if value is None else 'no text'}")
    return value


def keys_of(row: Mapping[str, Any], name: str, place: str) -> tuple[str, ...]:
    """A list of names; empty where there is none. Raises BenchError."""
    value = row.get(name) or []
    if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
        raise BenchError(f'{place}: {name} is no list of tools ("server/name")')
    return tuple(value)


def rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row with the place that an error names. Raises BenchError."""
    try:
        for number, row in json_objects(_content(path)):
            yield f"{path}, line {number}", row
    except LineError as error:
        raise BenchError(f"{path}, {error}") from error


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BenchError(f"{path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BenchError(f"{path} is not UTF-8: {error.reason} at byte {error.start:,}") from error


def of_server(
    catalog: ToolCatalog, queries: Sequence[RoutingQuery], server: str
) -> tuple[ToolCatalog, list[RoutingQuery]]:
    """The tools of one server alone, and the requests that are meant for it.

    Raises:
        BenchError: no such server, or no request is meant for it.
    """
    tools = {tool_id: tool for tool_id, tool in catalog.tools.items() if tool_id.server == server}
    if not tools:
        names = {tool_id.server for tool_id in catalog.tools}
        alike = difflib.get_close_matches(server, names, cutoff=0.3) or sorted(names)[:5]
        raise BenchError(f"no tool is of a server {server!r}; among the servers are: {', '.join(alike)}")
    keys = {str(tool_id) for tool_id in tools}
    meant = [query for query in queries if keys.intersection(query.gold)]
    if not meant:
        raise BenchError(f"no request is meant for a tool of {server!r}")
    return ToolCatalog(catalog.epoch, MappingProxyType(tools), ()), meant


def require_known(catalog: ToolCatalog, queries: Sequence[RoutingQuery]) -> None:
    """Check that there is something to measure. Raises BenchError where no request's right tool is there."""
    keys = {str(tool_id) for tool_id in catalog.tools}
    if not any(keys.intersection(query.gold) for query in queries):
        raise BenchError(
            f"nothing to measure: none of the {len(queries)} requests has its right tool among the tools; "
            f"the first one wants {queries[0].gold[0]!r}"
        )
