"""Requests whose right tool is known: those that a file has, resolved in a fleet, and those made from its tools."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nexus_gateway.routing.made_requests import RequestMaker
from nexus_gateway.routing.request_file import WrittenRequest
from tool_registry.index import RoutingIndex
from tool_registry.tool import ToolId

MADE_SEED = 2026


@dataclass(frozen=True, slots=True)
class LabelledRequest:
    """A request and its right tools, all of them in the fleet.

    Attributes:
        tools: any of them is right; at least one.
        equivalents: right too, on other servers.
        near: nearly right: neither right nor a fair distractor where the right one is taken away.
    """

    request: str
    tools: frozenset[ToolId]
    equivalents: frozenset[ToolId] = frozenset()
    near: frozenset[ToolId] = frozenset()

    @property
    def right(self) -> frozenset[ToolId]:
        """Every tool that is right."""
        return self.tools | self.equivalents


@dataclass(frozen=True, slots=True)
class Resolved:
    """What of a file concerns this fleet."""

    known: tuple[LabelledRequest, ...]
    unknown: tuple[WrittenRequest, ...]


def resolve(index: RoutingIndex, written: Iterable[WrittenRequest]) -> Resolved:
    """Look the tools up in a fleet; a row that names none of its tools is unknown."""
    known: list[LabelledRequest] = []
    unknown: list[WrittenRequest] = []
    for row in written:
        tools = _found(index, row.tools)
        equivalents = _found(index, row.equivalents)
        if tools or equivalents:
            near = _found(index, row.near)
            known.append(labelled(index, row.request, tools or equivalents, equivalents, near))
        else:
            unknown.append(row)
    return Resolved(tuple(known), tuple(unknown))


def labelled(
    index: RoutingIndex,
    request: str,
    tools: frozenset[ToolId],
    equivalents: frozenset[ToolId] = frozenset(),
    near: frozenset[ToolId] = frozenset(),
) -> LabelledRequest:
    """With the same tools of other servers as equivalents."""
    same = frozenset(other for tool in tools for other in index.equivalents.group_of(tool))
    return LabelledRequest(request, tools, (equivalents | same) - tools, near)


def made_from_tools(index: RoutingIndex, count: int, seed: int = MADE_SEED) -> list[LabelledRequest]:
    """About `count` requests made from the fleet's own definitions, spread evenly over its tools. Seeded."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    maker = RequestMaker(rng)
    tools = list(index.tools)
    rng.shuffle(tools)
    if not tools or count < 1:
        return []
    each = -(-count // len(tools))
    made = [
        labelled(index, request, frozenset([compiled.id]))
        for compiled in tools[:count]
        for request in maker.make(compiled, each)
    ]
    rng.shuffle(made)
    return made[:count]


def _found(index: RoutingIndex, references: Sequence[str]) -> frozenset[ToolId]:
    return frozenset(compiled.id for reference in references for compiled in index.find(reference))
