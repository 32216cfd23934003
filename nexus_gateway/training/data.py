"""What the routing models learn from: public requests and tools, and requests made from tools.

Nothing whose right tool, or an equivalent of it, is right in the `test` split; no BFCL `live_*`, no irrelevance.
Forbidden tools are kept out altogether, as wrong answers too: to push them away would be tuning as well.
"""

import hashlib
import json
import random
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nexus_gateway.routing.made_requests import RequestMaker
from tool_registry.index import CompiledTool, compile_tool
from tool_registry.tool import tool_from_definition

MCP, BFCL, TOOLE, SEAL = "mcp", "bfcl", "toole", "seal"
MADE, WRITTEN = "made", "written"
WRITTEN_FILE = Path(__file__).with_name("written_requests.tsv")
"""`server/name`, a request, and the arguments it states as JSON for most, between tabs: two lines for each of some
thousand public tools, written for this training from their definitions by a large language model that saw no request
of the `test` split."""
_HELD_OUT = 8
"""Written requests of one server in so many are kept from the twin: its gate is fitted on them."""


@dataclass(frozen=True, slots=True)
class Example:
    """A request and the key of the tool it is for, within a pool: negatives come from there."""

    request: str
    gold: str
    pool: str
    source: str


@dataclass(slots=True)
class TrainingData:
    """Tools by pool and key, and the examples."""

    pools: dict[str, dict[str, CompiledTool]] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)


def held_out(key: str) -> bool:
    """Whether the twin learns from no written request for this tool's server."""
    return hashlib.sha256(key.partition("/")[0].encode()).digest()[0] % _HELD_OUT == 0


def written_requests() -> Iterator[tuple[str, str]]:
    """Tool key and request."""
    for key, request, *_ in _written_lines():
        yield key, request


def written_arguments() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Tool key, request and the arguments that the request states, where somebody has written them down."""
    for key, request, *arguments in _written_lines():
        if arguments:
            yield key, request, json.loads(arguments[0])


def _written_lines() -> Iterator[list[str]]:
    return (line.split("\t") for line in WRITTEN_FILE.read_text(encoding="utf-8").splitlines())


def load(folder: Path, *, seed: int, made_each: int, twin: bool = False) -> TrainingData:
    """Read the public data of a folder, and the written requests.

    Args:
        folder: with `registry.jsonl` and the files beside it.
        seed: of the made requests.
        made_each: requests made for each MCP tool.
        twin: leave out the `calib` rows and the held-out servers' written requests: a gate is fitted on them.
    """
    forbidden = Forbidden.read(folder)
    data = TrainingData()
    data.pools[MCP] = _tools(folder, ["registry.jsonl", "wild_tools.jsonl"], forbidden)
    for pool, tools, queries in (
        (BFCL, "bfcl_tools.jsonl", "bfcl_queries.jsonl"),
        (TOOLE, "toole_tools.jsonl", "toole_queries.jsonl"),
        (SEAL, "sealtools_tools.jsonl", "sealtools_queries.jsonl"),
    ):
        data.pools[pool] = _tools(folder, [tools], forbidden)
        data.examples += _examples(
            folder / queries, pool, data.pools[pool], lambda row: "live" not in row["id"]
        )
    data.examples += _examples(folder / "bfcl_parallel.jsonl", BFCL, data.pools[BFCL], _one_tool)
    data.examples += _examples(folder / "livemcp_requests.jsonl", MCP, data.pools[MCP], lambda _: True)
    if not twin:
        routing = folder / "routing_queries.jsonl"
        data.examples += _examples(routing, MCP, data.pools[MCP], lambda row: row["split"] == "calib")
    judged_by = _rows(folder / "routing_queries.jsonl")
    unseen = {row["query"].lower() for row in judged_by} if twin else None
    data.examples += _written(data.pools[MCP], unseen)
    data.examples += _made(data.pools[MCP], made_each, seed)
    return data


@dataclass(frozen=True, slots=True)
class Forbidden:
    """Tools that are right in the `test` split, and what is equivalent to them, wherever it is listed."""

    keys: frozenset[str]
    likenesses: Mapping[str, list[frozenset[str]]]

    @classmethod
    def read(cls, folder: Path) -> "Forbidden":
        """From the queries, the groups of equivalents and the registry."""
        keys: set[str] = set()
        for row in _rows(folder / "routing_queries.jsonl"):
            if row["split"] == "test":
                keys |= {*row["gold"], *(row.get("gold_equivalents") or [])}
        groups = json.loads((folder / "equivalents.json").read_text(encoding="utf-8"))["groups"]
        for group in groups:
            if keys & set(group):
                keys |= set(group)
        likenesses: dict[str, list[frozenset[str]]] = {}
        for row in _rows(folder / "registry.jsonl"):
            if f"{row['server']}/{row['name']}" in keys:
                likenesses.setdefault(_plain(row["name"]), []).append(_words(row.get("description")))
        return cls(frozenset(keys), likenesses)

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether a definition is one of them, by key or by name and like description."""
        if f"{row['server']}/{row['name']}" in self.keys:
            return True
        words = _words(row.get("description"))
        return any(_jaccard(words, other) >= 0.3 for other in self.likenesses.get(_plain(row["name"]), []))  # noqa: PLR2004


def _tools(folder: Path, files: Iterable[str], forbidden: Forbidden) -> dict[str, CompiledTool]:
    tools: dict[str, CompiledTool] = {}
    seen: set[tuple[str, str]] = set()
    for row in (row for name in files for row in _rows(folder / name)):
        same = (_plain(row["name"]), " ".join((row.get("description") or "").split())[:200])
        if same in seen or forbidden.holds(row):
            continue
        seen.add(same)
        definition = {name: value for name, value in row.items() if name != "server"}
        try:
            tools[f"{row['server']}/{row['name']}"] = compile_tool(
                tool_from_definition(row["server"], definition)
            )
        except ValueError:
            continue  # a definition that no server could offer
    return tools


def _examples(path: Path, pool: str, tools: Mapping[str, CompiledTool], wanted: Any) -> Iterator[Example]:
    for row in _rows(path):
        gold = next((key for key in row["gold"] if key in tools), None)
        if gold is not None and wanted(row):
            yield Example(row["query"], gold, pool, path.stem)


def _one_tool(row: Mapping[str, Any]) -> bool:
    return "live" not in row["id"] and len(set(row["gold"])) == 1


def _written(tools: Mapping[str, CompiledTool], unseen: Collection[str] | None) -> Iterator[Example]:
    """`unseen` has what a twin must not see, beside the servers that are held out."""
    for key, request in written_requests():
        if key in tools and (unseen is None or not (held_out(key) or request.lower() in unseen)):
            yield Example(request, key, MCP, WRITTEN)


def _made(tools: Mapping[str, CompiledTool], each: int, seed: int) -> Iterator[Example]:
    maker = RequestMaker(random.Random(seed))  # noqa: S311 - not for secrets
    for key, compiled in tools.items():
        if compiled.tool.description.strip():
            yield from (Example(text, key, MCP, MADE) for text in maker.make(compiled, each))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _words(text: str | None) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", (text or "").lower()))


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(1, len(one | other))
