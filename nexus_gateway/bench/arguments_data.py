"""Requests with the arguments that are right for them, from files.

JSON Lines in UTF-8, as `routing_data` reads them. A row has "query", "gold": ["server/name", ...] and the arguments:

    "args_alternatives": [{tool: {parameter: [values]}}]   any of the values, "" for none at all (BFCL)
    "args": {...}, "args_kind": exact, subset or matcher   with "args_ignore" and "args_ungrounded": what no request
                                                           states, so that it is bound; a matcher's
                                                           "args_alternatives" has the matchers

and, where known, "id", "split", and "_meta": {"category"} or "source".
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nexus_gateway.bench.arguments_expected import ExpectedArguments
from nexus_gateway.bench.arguments_scoring import AcceptedArguments, Gold
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.routing_data import keys_of, row_id, rows, text_of
from tool_registry.catalog import ToolCatalog
from tool_registry.schema import normalise, properties
from tool_registry.tool import Tool

QueryT = TypeVar("QueryT")


@dataclass(frozen=True, slots=True, eq=False)
class ArgumentQuery:
    """A request, the tool that it is for, and what the arguments should be.

    Attributes:
        bindings: values that no request states, as a user would have set them once.
    """

    id: str
    text: str
    tool: Tool
    gold: Gold
    category: str
    bindings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def server(self) -> str:
        """The tool's."""
        return self.tool.id.server


def read_argument_queries(
    path: Path, tools: ToolCatalog, *, category: str | None = None, split: str | None = None
) -> list[ArgumentQuery]:
    """The requests of a file whose arguments and tool are known, of one category and split where these are given.

    Raises:
        BenchError: the file can't be read, a line is malformed, or no request is left.
    """
    by_key = {str(tool.id): tool for tool in tools}
    categories: set[str] = set()
    queries: list[ArgumentQuery] = []
    for place, row in rows(path):
        tool = next((by_key[key] for key in keys_of(row, "gold", place) if key in by_key), None)
        gold = _gold(row, place)
        if tool is None or gold is None or (split is not None and row.get("split") != split):
            continue
        named = _category(row, path)
        categories.add(named)
        if category in (None, named):
            text = text_of(row, "query", place)
            queries.append(ArgumentQuery(row_id(row), text, tool, gold, named, _bindings(row, place, tool)))
    if not queries:
        raise BenchError(_none_left(path, category, split, categories))
    return queries


def sampled(queries: Sequence[QueryT], limit: int | None, seed: int) -> list[QueryT]:
    """At most `limit` of the requests, drawn by the seed, in their order."""
    if limit is None or limit >= len(queries):
        return list(queries)
    places = random.Random(seed).sample(range(len(queries)), limit)  # noqa: S311 - no secret
    return [queries[place] for place in sorted(places)]


def _gold(row: Mapping[str, Any], place: str) -> Gold | None:
    arguments, alternatives = row.get("args"), row.get("args_alternatives")
    match row.get("args_kind"):
        case ("exact" | "subset" | "matcher") as kind if isinstance(arguments, Mapping):
            return ExpectedArguments(arguments, kind, _unstated(row, place), _pattern(row, alternatives))
        case None if alternatives and "args_kind" not in row:
            return AcceptedArguments(_accepted(alternatives, place))
    return None


def _accepted(alternatives: object, place: str) -> Mapping[str, list[Any]]:
    match alternatives:
        case [{**by_tool}, *_] if len(by_tool) == 1:
            accepted = next(iter(by_tool.values()))
            if isinstance(accepted, Mapping) and all(isinstance(each, list) for each in accepted.values()):
                return accepted
    raise BenchError(f"{place}: args_alternatives is not [{{tool: {{parameter: [values]}}}}]")


def _unstated(row: Mapping[str, Any], place: str) -> tuple[str, ...]:
    return (*keys_of(row, "args_ignore", place), *keys_of(row, "args_ungrounded", place))


def _bindings(row: Mapping[str, Any], place: str, tool: Tool) -> dict[str, Any]:
    """A value for each text argument that no request states: the known one, or any."""
    known = properties(normalise(tool.input_schema))
    texts = [name for name in _unstated(row, place) if known.get(name, {}).get("type") == "string"]
    return {name: (row.get("args") or {}).get(name, f"{name}-1") for name in texts}


def _pattern(row: Mapping[str, Any], alternatives: object) -> Mapping[str, Any] | None:
    """The arguments of the row's own tool; other calls may be listed before it."""
    names = {str(key).partition("/")[2] for key in row["gold"]}
    for call in alternatives if isinstance(alternatives, list) else ():
        if isinstance(call, Mapping) and call.get("tool") in names and not call.get("optional"):
            parameters = call.get("parameters")
            return parameters if isinstance(parameters, Mapping) else None
    return None


def _category(row: Mapping[str, Any], path: Path) -> str:
    meta = row.get("_meta")
    named = meta.get("category") if isinstance(meta, Mapping) else None
    return str(named or row.get("source") or path.stem)


def _none_left(path: Path, category: str | None, split: str | None, categories: set[str]) -> str:
    if category is not None and categories:
        return f"{path} holds no request of category {category!r}; there are: {', '.join(sorted(categories))}"
    of_split = f" of split {split!r}" if split is not None else ""
    return f"{path}: no request{of_split} has known arguments (args or args_alternatives) and its tool in --tools"
