"""The gatekeeper: gives the router the gate that suits its models and the fleet as it is now.

Which calibration counts is known only once the embedder is loaded and the tools are listed, so it is chosen
before the first turn and again whenever the tools change. Knows identities; knows no server and no turn.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path

import anyio.to_thread
import structlog

from adapters.ports import Embedder, ModelError, ProgressCallback, Reranker
from nexus_gateway.routing.calibration_file import Chosen, load
from nexus_gateway.routing.router import Router
from nexus_gateway.settings import RoutingSettings
from tool_registry.calibration import Calibration, CalibrationIdentity
from tool_registry.index import RoutingIndex
from tool_registry.routing import Gate
from tool_registry.tool import ContentHash

log = structlog.get_logger(__name__)

Ready = Callable[[ProgressCallback | None], Awaitable[RoutingIndex]]
"""Waits for the current index. Raises ModelError."""


class Gatekeeper:
    """Chooses the calibration of one router.

    Args:
        router: its gate is replaced.
        path: of the user's own calibration.
        overrides: numbers that count instead of the calibrated ones.
        embedder: the embedder, waiting while it loads.
        reranker: the same of the reranker; None where nothing is reranked.
    """

    def __init__(
        self,
        router: Router,
        path: Path,
        overrides: RoutingSettings,
        embedder: Callable[[], Awaitable[Embedder]],
        reranker: Callable[[], Awaitable[Reranker]] | None = None,
    ) -> None:
        self._router = router
        self._path = path
        self._overrides = overrides
        self._embedder = embedder
        self._reranker = reranker
        self._followed: RoutingIndex | None = None
        self._said = ""

    def after(self, ready: Ready) -> Ready:
        """`ready`, with the gate set for the index that it gives."""

        async def wait(on_progress: ProgressCallback | None = None) -> RoutingIndex:
            index = await ready(on_progress)
            if index is not self._followed:
                chosen = await self.choose(compiled.tool.content_hash for compiled in index.tools)
                self._router.gate = self._gate(chosen.calibration)
                self._followed = index
                self._say(chosen)
            return index

        return wait

    async def identity(self, fleet: Iterable[ContentHash]) -> CalibrationIdentity:
        """What a calibration for this fleet is made for. Raises ModelError for want of the embedder."""
        embedder = await self._embedder()
        return CalibrationIdentity.of(fleet, embedder.identity, await self._reranker_identity())

    async def choose(self, fleet: Iterable[ContentHash]) -> Chosen:
        """The calibration for this fleet. Raises ModelError for want of the embedder."""
        return await anyio.to_thread.run_sync(load, self._path, await self.identity(fleet))

    async def _reranker_identity(self) -> str | None:
        """None where nothing is reranked: a reranker that can't be loaded costs the reranking alone."""
        try:
            return None if self._reranker is None else (await self._reranker()).identity
        except ModelError:
            return None

    def _gate(self, calibration: Calibration) -> Gate:
        given = self._overrides
        gate = Gate(
            calibration=replace(
                calibration,
                threshold=calibration.threshold if given.threshold is None else given.threshold,
                floor=calibration.floor if given.floor is None else given.floor,
            )
        )
        return gate if given.candidates is None else replace(gate, candidates=given.candidates)

    def _say(self, chosen: Chosen) -> None:
        """Once for each state: a fleet moves often."""
        if chosen.note and chosen.note != self._said:
            log.warning("routing.calibration", source=str(chosen.source), cause=chosen.note)
        self._said = chosen.note
