"""What hosts' servers cost: tools and tokens of their definitions in each host's prompt, and what the gateway takes.

Counts what a host puts before a model: each definition of `tools/list`, as compact JSON. Starts nothing and opens no
model: whoever calls gives the catalogue and a counter.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from adapters.hosts.known import Place
from adapters.ports import UpstreamSpec
from nexus_gateway.access.secret_values import MASK
from nexus_gateway.fleet.status import ServerState, ServerStatus
from nexus_gateway.hosts.candidates import Candidate
from nexus_gateway.server.meta_tools import META_TOOLS
from tool_registry.catalog import ToolCatalog

LONGEST_NAME = 64
"""Characters that several hosts allow for `mcp__server__tool`; a longer one can break a whole session."""
CHARACTERS_A_TOKEN = 4
_SHORTEST_SECRET = 4
"""Characters; hiding a "1" would only make a message unreadable."""

Count = Callable[[str], int]


def rough_count(text: str) -> int:
    """Tokens of a text where no tokenizer is there: a quarter of its characters."""
    return -(-len(text) // CHARACTERS_A_TOKEN)


@dataclass(frozen=True, slots=True)
class Start:
    """One server to start: a candidate of one host, or the same one of several.

    Attributes:
        key: its name in the fleet, where names are unique.
    """

    key: str
    spec: UpstreamSpec = field(repr=False)  # may hold secrets


@dataclass(frozen=True, slots=True)
class ServerCost:
    """One server of one host.

    Attributes:
        state: `ready`, `failed`, `disabled`, `listed` (not started), `gateway` or `unusable`.
        cause: why it is not ready; empty where it is.
        tokens: of its definitions; 0 where they are not known.
    """

    name: str
    state: str
    cause: str = ""
    tools: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class HostBill:
    """What one file of one host costs.

    Attributes:
        collisions: servers by the tool name that they share.
        long_names: `server/tool` of names too long for several hosts.
    """

    place: Place
    servers: tuple[ServerCost, ...]
    collisions: Mapping[str, tuple[str, ...]]
    long_names: tuple[str, ...] = ()

    @property
    def tools(self) -> int:
        """Tools of all servers that are ready."""
        return sum(server.tools for server in self.servers)

    @property
    def tokens(self) -> int:
        """Tokens of their definitions."""
        return sum(server.tokens for server in self.servers)

    @property
    def has_gateway(self) -> bool:
        """Whether the gateway is registered there."""
        return any(server.state == "gateway" for server in self.servers)

    @property
    def is_worth_registering(self) -> bool:
        """Whether there is a server that could go behind the gateway."""
        return not self.has_gateway and any(s.state in {"ready", "failed", "listed"} for s in self.servers)


def to_start(
    found: Sequence[tuple[Place, Sequence[Candidate]]],
) -> tuple[dict[tuple[int, str], str], list[Start]]:
    """Which servers to start, each once; and the key of each by the position of its place and its name."""
    starts: list[Start] = []
    keys: dict[tuple[int, str], str] = {}
    for position, (place, candidates) in enumerate(found):
        for one in candidates:
            if one.spec is None or not one.is_usable or one.unasked:
                continue
            same = next((s for s in starts if s.spec.transport == one.spec.transport), None)
            if same is None:
                taken = any(start.key == one.name for start in starts)
                key = f"{one.name} ({place.label}, {position})" if taken else one.name
                same = Start(key, replace(one.spec, server=key))
                starts.append(same)
            keys[position, one.name] = same.key
    return keys, starts


def bill(
    found: Sequence[tuple[Place, Sequence[Candidate]]],
    keys: Mapping[tuple[int, str], str],
    statuses: Iterable[ServerStatus],
    catalog: ToolCatalog,
    count: Count,
) -> list[HostBill]:
    """The bill of each place; servers that were not started are listed without figures."""
    by_key = {status.server: status for status in statuses}
    names: dict[str, list[str]] = defaultdict(list)
    tokens: Counter[str] = Counter()
    for tool in catalog:
        names[tool.id.server].append(tool.id.name)
        tokens[tool.id.server] += count(_as_listed(tool.definition))
    bills: list[HostBill] = []
    for position, (place, candidates) in enumerate(found):
        costs = []
        owners: dict[str, list[str]] = defaultdict(list)
        for one in candidates:
            key = keys.get((position, one.name), "")
            costs.append(_cost(one, by_key.get(key), len(names[key]), tokens[key]))
            for tool_name in names[key]:
                owners[tool_name].append(one.name)
        shared = {name: tuple(servers) for name, servers in sorted(owners.items()) if len(servers) > 1}
        bills.append(HostBill(place, tuple(costs), shared, _too_long(owners)))
    return bills


def through_nexus(count: Count) -> tuple[int, int]:
    """Tools and tokens of the gateway itself, whatever is behind it."""
    return len(META_TOOLS), sum(count(_as_listed(tool)) for tool in META_TOOLS)


def _as_listed(definition: Mapping[str, Any]) -> str:
    return json.dumps(definition, ensure_ascii=False, separators=(",", ":"))


def _cost(one: Candidate, status: ServerStatus | None, tools: int, tokens: int) -> ServerCost:
    if one.is_gateway:
        return ServerCost(one.name, "gateway", "the gateway itself")
    if one.disabled:
        return ServerCost(one.name, "disabled", "the host does not start it")
    if one.refusal:
        return ServerCost(one.name, "unusable", one.refusal)
    if status is None:
        return ServerCost(one.name, "listed", one.unasked)
    if status.state is ServerState.READY:
        return ServerCost(one.name, "ready", "", tools, tokens)
    return ServerCost(one.name, "failed", _without_secrets(status.cause, one.spec) or "no answer yet")


def _without_secrets(cause: str, spec: UpstreamSpec | None) -> str:
    """What a server said before it died, without the values that it was given."""
    transport = spec.transport if spec else None
    given = {**getattr(transport, "env", {}), **getattr(transport, "headers", {})}
    for value in sorted(given.values(), key=len, reverse=True):
        cause = cause.replace(value, MASK) if len(value) >= _SHORTEST_SECRET else cause
    return cause


def _too_long(owners: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(
        f"{server}/{tool}"
        for tool, servers in sorted(owners.items())
        for server in servers
        if len(f"mcp__{server}__{tool}") > LONGEST_NAME
    )
