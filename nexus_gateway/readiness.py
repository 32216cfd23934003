"""Waiting until turns can run: servers heard, models loaded, tools compiled; said as progress meanwhile."""

from collections.abc import Sequence
from typing import Any

import anyio

from adapters.ports import ModelError, ProgressCallback
from nexus_gateway.fleet.fleet import Fleet
from nexus_gateway.fleet.status import ServerState
from nexus_gateway.models import ModelSlot
from nexus_gateway.registry.indexer import Indexer
from tool_registry.index import RoutingIndex

PROGRESS_SECONDS = 1.0


class Readiness:
    """What an early turn waits for. After the first time it costs nothing but the latest index."""

    def __init__(
        self,
        fleet: Fleet,
        indexer: Indexer,
        models: Sequence[ModelSlot[Any]],
        *,
        patience_seconds: float = 15.0,
    ) -> None:
        self._fleet = fleet
        self._indexer = indexer
        self._models = models
        self._patience = patience_seconds
        self._heard = False
        self._compiled = False

    async def wait(self, on_progress: ProgressCallback | None = None) -> RoutingIndex:
        """The current index.

        A server that has neither answered nor failed after `patience_seconds` is left out. Raises ModelError.
        """
        if on_progress is None:
            return await self._current()
        failure: ModelError | None = None
        index = RoutingIndex()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._report, on_progress)
            try:
                index = await self._current()
            except ModelError as error:  # raised below as it is: the task group would wrap it in a group
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return index

    def missing(self) -> list[str]:
        """What a turn would wait for or do without, for anybody to read: no names, no causes, which the log has.

        The first sync is over once `wait` has returned; models that failed stay on the list.
        """
        loading = [f"the {model.what} is loading" for model in self._models if not model.settled]
        failed = [f"the {model.what} failed; the log has the cause" for model in self._models if model.error]
        if not self._heard:
            return ["servers are connecting", *loading, *failed]
        return loading + failed or ([] if self._compiled else ["tools are being compiled"])

    async def _current(self) -> RoutingIndex:
        if not self._heard:
            with anyio.move_on_after(self._patience):
                await self._fleet.first_sync()
            self._heard = True
        index = await self._indexer.current()
        self._compiled = True
        return index

    async def _report(self, on_progress: ProgressCallback) -> None:
        step = 0
        while True:
            await anyio.sleep(PROGRESS_SECONDS)
            step += 1
            await on_progress(step, None, self._awaited())

    def _awaited(self) -> str:
        loading = [f"loading the {model.what}" for model in self._models if not model.settled]
        connecting = [
            s.server for s in self._fleet.statuses() if s.state is ServerState.CONNECTING and not s.cause
        ]
        servers = [f"connecting to {', '.join(connecting)}"] if connecting else []
        return "; ".join(servers + loading) or "compiling tools"
