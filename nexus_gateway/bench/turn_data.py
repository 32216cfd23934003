"""Requests whose tool and arguments are known both, from one file: `routing_data` and `arguments_data` read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nexus_gateway.bench.arguments_data import read_argument_queries
from nexus_gateway.bench.arguments_scoring import Gold
from nexus_gateway.bench.routing_data import Groups, RoutingQuery, read_queries
from tool_registry.catalog import ToolCatalog


@dataclass(frozen=True, slots=True, eq=False)
class TurnQuery:
    """A request, the tools that are right for it and what their arguments should be.

    Attributes:
        bound: values that no request states, as a user would have set them once for the right tools' servers.
    """

    routing: RoutingQuery
    gold: Gold
    bound: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The request."""
        return self.routing.text

    @property
    def remember_answers(self) -> bool:
        """False; this and `bindings` make it `BindingRules`."""
        return False

    def bindings(self, server: str) -> Mapping[str, Any]:
        """What is bound for a server."""
        servers = {key.partition("/")[0] for key in self.routing.right}
        return self.bound if server in servers else {}


def read_turn_queries(
    path: Path, tools: ToolCatalog, *, split: str | None, groups: Groups | None = None
) -> list[TurnQuery]:
    """The requests of a file whose tool and arguments are known, of one split where it is given.

    Raises:
        BenchError: the file can't be read, a line is malformed, or no request is left.
    """
    known = {query.id: query for query in read_argument_queries(path, tools, split=split)}
    return [
        TurnQuery(query, known[query.id].gold, known[query.id].bindings)
        for query in read_queries(path, split=split, groups=groups)
        if query.id in known
    ]
