"""The router: a request's vector, the ranking, the reranker where the choice is close, the decision.

Knows models by what they do; knows no turn, no fleet and no host.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np
import structlog
from numpy.typing import NDArray

from adapters.ports import Embedder, ModelError, Reranker
from nexus_gateway.routing.routing_text import in_other_script, routing_text
from tool_registry.index import RoutingIndex
from tool_registry.routing import Candidate, Gate, RoutingDecision, RoutingOutcome, decide, rank, rerank

log = structlog.get_logger(__name__)

RERANKED = 6
"""Candidates that a reranker reads: it costs one reading each, and the right tool is rarely placed lower."""

Measure = Callable[[str], AbstractContextManager[object]]
"""Times a stage: "embed", "scan" or "rerank"."""


Ranked = Callable[[Sequence[Candidate]], None]
"""Told, without blocking, of a ranking before anything is decided or reranked."""


def _unheard(_candidates: Sequence[Candidate]) -> None:
    return


def _untimed(_stage: str) -> AbstractContextManager[object]:
    return nullcontext()


class Router:
    """Routes requests over whatever index it is given; holds no state between them."""

    def __init__(
        self,
        embedder: Callable[[], Awaitable[Embedder]],
        gate: Gate,
        *,
        reranker: Callable[[], Awaitable[Reranker]] | None = None,
        prefer: Sequence[str] = (),
    ) -> None:
        self.gate = gate
        self._prefer = prefer
        self._reranker_failed = False
        self._embedder = embedder
        self._reranker = reranker

    async def route(
        self,
        index: RoutingIndex,
        request: str,
        *,
        visible: NDArray[np.bool_] | None = None,
        limit: int | None = None,
        measure: Measure = _untimed,
        on_ranked: Ranked = _unheard,
    ) -> RoutingDecision:
        """Decide which tool a request is for.

        Args:
            index: the compiled tools.
            request: as the user wrote it.
            visible: which tools the caller may see, shape (tools,); all where None.
            limit: candidates kept in the decision; the gate's number where None.
            measure: times the stages.
            on_ranked: told of the ranking before the decision.

        Raises:
            ModelError: the embedder failed.
        """
        text = routing_text(request)
        embedder = await self._embedder()
        with measure("embed"):
            query = (await embedder.embed_requests([text]))[0]
        gate = self.gate if limit is None else replace(self.gate, candidates=limit)
        with measure("scan"):
            ranked = rank(index, text, query, visible=visible, limit=max(20, limit or 0), prefer=self._prefer)
            on_ranked(ranked)
            decision = decide(ranked, gate)
        if decision.outcome is RoutingOutcome.AMBIGUOUS and self._reranker and not ranked[0].exact:
            with measure("rerank"):
                ranked = await self.reranked(index, request, ranked)
            decision = decide(ranked, gate)
        if embedder.english_only and decision.outcome is RoutingOutcome.ROUTED and in_other_script(text):
            reason = "the embedding model knows English only (nexus-gateway doctor says more)"
            return replace(decision, outcome=RoutingOutcome.AMBIGUOUS, reason=reason)
        return decision

    async def candidates(
        self,
        index: RoutingIndex,
        request: str,
        *,
        visible: NDArray[np.bool_] | None = None,
    ) -> list[Candidate]:
        """The ranking that a decision is made from, for calibrating. Raises ModelError."""
        text = routing_text(request)
        embedder = await self._embedder()
        query = (await embedder.embed_requests([text]))[0]
        return rank(index, text, query, visible=visible, prefer=self._prefer)

    async def reranked(
        self, index: RoutingIndex, request: str, candidates: list[Candidate]
    ) -> list[Candidate]:
        """The candidates as a reranker orders them; as they are where there is none or it fails."""
        if self._reranker is None:
            return candidates
        texts = [index.tools[index.position[candidate.tool_id]].text for candidate in candidates[:RERANKED]]
        try:
            scores = await (await self._reranker()).score(routing_text(request), texts)
        except ModelError as error:
            if not self._reranker_failed:
                log.warning("router.not_reranked", cause=str(error))
            self._reranker_failed = True
            return candidates
        return rerank(candidates, scores)
