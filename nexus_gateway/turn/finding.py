"""Finding tools for a need, page by page over one ranking; without a need, listing all of them by server.

Knows the index and the router by what they do; how a tool is shown is the server's business.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import anyio

from adapters.ports import ModelError
from nexus_gateway.access.caller import Caller
from nexus_gateway.routing.masks import Masks
from nexus_gateway.turn.cursors import digest, offset_of, to_cursor
from nexus_gateway.turn.parts import TurnParts
from tool_registry.index import RoutingIndex, compile_tool
from tool_registry.routing import LEXICAL_WEIGHT, MOST_LEXICAL, Candidate, RoutingOutcome
from tool_registry.tool import Tool, ToolId

SEARCH_PAGE, LISTING_PAGE = 5, 50
"""Tools a page unless a limit is given."""
DEPTH = 100
"""Tools ranked for a search, whatever its limit: all its pages are cut from one ranking."""
_BEST_SCORE = 1 + LEXICAL_WEIGHT * MOST_LEXICAL
NEAREST = 3
"""Tools shown where none fits."""


@dataclass(frozen=True, slots=True)
class FoundTool:
    """One tool that was found.

    Attributes:
        relevance: from 0 to 1; None in a listing.
        also_on: the same tool of other servers.
    """

    tool: Tool
    signature: str
    relevance: float | None = None
    also_on: tuple[ToolId, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundPage:
    """One page.

    Attributes:
        tools: best first; by server and name in a listing.
        fits: whether any tool fits; `tools` are only the nearest where none does.
        reason: why, for people.
        cursor: for the next page; None on the last one.
        total: tools of the whole listing; None for a search.
    """

    tools: tuple[FoundTool, ...]
    fits: bool
    reason: str
    outcome: RoutingOutcome | None = None
    cursor: str | None = None
    total: int | None = None


def relevance(candidate: Candidate) -> float:
    """A candidate's score as a share of the best that there can be; 1 for a tool that the request names."""
    if candidate.exact:
        return 1.0
    return round(min(max(candidate.score / _BEST_SCORE, 0.0), 1.0), 3)


class Finder:
    """Answers `find_tools`."""

    def __init__(self, parts: TurnParts, masks: Masks) -> None:
        self._parts = parts
        self._masks = masks
        self._tools_digest = (-1, "")  # epoch and digest: it is asked for with each page

    async def find(self, query: str, caller: Caller, *, limit: int | None, cursor: str | None) -> FoundPage:
        """A page of the best tools for a need, or of all tools where the query is blank.

        Raises:
            ModelError: the embedder failed, or the turn's deadline passed.
            CursorError: the cursor can't be used.
        """
        with anyio.move_on_after(self._parts.deadline_seconds):
            if not query.strip():
                return await self._listing(caller, limit or LISTING_PAGE, cursor)
            return await self._search(query, caller, limit or SEARCH_PAGE, cursor)
        raise ModelError(
            f"nothing was found within {self._parts.deadline_seconds:g} s (turn.deadline_seconds)"
        )

    async def _listing(self, caller: Caller, limit: int, cursor: str | None) -> FoundPage:
        """No model is waited for: what there is can be listed, and called, without one."""
        await self._parts.calls.first_sync()
        catalog = self._parts.calls.catalog
        search, now = _search_digest("", caller), self._digest_of(catalog.epoch, catalog)
        offset = offset_of(cursor, search=search, tools=now) if cursor else 0
        tools = [tool for tool in catalog if caller.sees(tool.id)]
        shown = tools[offset : offset + limit]
        more = offset + limit < len(tools)
        return FoundPage(
            tuple(FoundTool(tool, compile_tool(tool).signature) for tool in shown),
            fits=bool(tools),
            reason="" if tools else "no tool is available",
            cursor=to_cursor(offset + limit, search=search, tools=now) if more else None,
            total=len(tools),
        )

    async def _search(self, query: str, caller: Caller, limit: int, cursor: str | None) -> FoundPage:
        index = await self._parts.ready(None)
        tools = (compiled.tool for compiled in index.tools)
        search, now = _search_digest(query, caller), self._digest_of(index.epoch, tools)
        offset = offset_of(cursor, search=search, tools=now) if cursor else 0
        mask = self._masks.mask(index, caller)
        decision = await self._parts.router.route(index, query, visible=mask, limit=DEPTH)
        fits = decision.outcome is not RoutingOutcome.ABSTAINED
        ranked = decision.candidates if fits else decision.candidates[:NEAREST]
        more = fits and offset + limit < len(ranked)
        return FoundPage(
            tuple(_found(index, candidate, caller) for candidate in ranked[offset : offset + limit]),
            fits=fits,
            reason=decision.reason,
            outcome=decision.outcome,
            cursor=to_cursor(offset + limit, search=search, tools=now) if more else None,
        )

    def _digest_of(self, epoch: int, tools: Iterable[Tool]) -> str:
        if self._tools_digest[0] != epoch:
            parts = (part for tool in tools for part in (tool.id.server, tool.id.name, tool.content_hash))
            self._tools_digest = (epoch, digest(parts))
        return self._tools_digest[1]


def _found(index: RoutingIndex, candidate: Candidate, caller: Caller) -> FoundTool:
    compiled = index.tools[index.position[candidate.tool_id]]
    return FoundTool(
        compiled.tool, compiled.signature, relevance(candidate), _also_on(index, compiled.id, caller)
    )


def _also_on(index: RoutingIndex, tool: ToolId, caller: Caller) -> tuple[ToolId, ...]:
    return tuple(one for one in index.equivalents.group_of(tool) if one != tool and caller.sees(one))


def _search_digest(query: str, caller: Caller) -> str:
    return digest([query.strip(), repr(caller.visible)])
