"""The indexer: turns catalogue snapshots into routing indexes, computing only what is not known yet."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import anyio
import anyio.to_thread
import numpy as np
import structlog
from numpy.typing import NDArray

from adapters.ports import Embedder, ModelError
from tool_registry.catalog import ToolCatalog
from tool_registry.compiled_store import CompiledRecord, CompiledStore, StoreError
from tool_registry.index import COMPILER_VERSION, CompiledTool, RoutingIndex, compile_tool
from tool_registry.schema import normalise
from tool_registry.tool import Tool

log = structlog.get_logger(__name__)

EMBED_BATCH = 64
"""Tools embedded between two looks at cancellation and progress."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What the indexer has computed since it started."""

    embedded: int = 0
    from_store: int = 0


class Indexer:
    """Follows the catalogue. `index` is always a whole snapshot; it lags while vectors are computed."""

    def __init__(
        self,
        store: CompiledStore,
        embedder: Callable[[], Awaitable[Embedder]],
        *,
        on_index: Callable[[RoutingIndex], None] = lambda _index: None,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._on_index = on_index
        self._wanted = ToolCatalog()
        self._index = RoutingIndex()
        self._identity = ""  # of the model that `_index` was made with
        self._failed: tuple[int, ModelError] | None = None
        self._moved = anyio.Event()  # replaced whenever `_wanted` or `_index` changes
        self.counters = Counters()

    @property
    def index(self) -> RoutingIndex:
        """The latest complete index."""
        return self._index

    def follow(self, catalog: ToolCatalog) -> None:
        """Take a newer catalogue; returns at once."""
        self._wanted = catalog
        self._signal()

    async def current(self) -> RoutingIndex:
        """The index of the latest catalogue, waiting while it is compiled. Raises ModelError."""
        await self._embedder()
        while self._index.epoch != self._wanted.epoch:
            if self._failed is not None and self._failed[0] == self._wanted.epoch:
                raise self._failed[1]
            await self._moved.wait()
        return self._index

    async def run(self) -> None:
        """Compile newer catalogues until cancelled. A failing embedder leaves the last index in place."""
        while True:
            if self._index.epoch == self._wanted.epoch:
                await self._moved.wait()
                continue
            catalog = self._wanted
            try:
                self._index = await self._build(catalog)
            except ModelError as error:
                log.warning("registry.not_compiled", cause=str(error))
                self._failed = (catalog.epoch, error)
                self._signal()
                if self._wanted is catalog:
                    await self._moved.wait()
                continue
            self._signal()
            self._on_index(self._index)

    def _signal(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    async def _build(self, catalog: ToolCatalog) -> RoutingIndex:
        embedder = await self._embedder()
        identity = f"{embedder.identity}:{COMPILER_VERSION}"
        last = self._index if identity == self._identity else RoutingIndex()
        before = self.counters
        drafts = await anyio.to_thread.run_sync(self._known, last, list(catalog), identity)
        await self._embed_missing(drafts, embedder, identity)
        index = await anyio.to_thread.run_sync(_moved, last, catalog.epoch, drafts)
        self._identity = identity
        log.info(
            "registry.compiled",
            epoch=catalog.epoch,
            tools=len(drafts),
            embedded=self.counters.embedded - before.embedded,
            from_store=self.counters.from_store - before.from_store,
            memory_mb=round(index.memory_bytes / 1e6, 1),
        )
        return index

    def _known(self, last: RoutingIndex, tools: Sequence[Tool], identity: str) -> list["_Draft"]:
        """What the last index or the store has; compiled here where neither has it. Runs in a worker thread."""
        same = {id(compiled.tool): compiled for compiled in last.tools}
        drafts: list[_Draft] = []
        for tool in tools:
            compiled = same.get(id(tool)) or last.get(tool.id)
            if compiled is not None and compiled.tool.content_hash == tool.content_hash:
                drafts.append(_Draft(compiled, kept=True))
            else:
                drafts.append(self._stored(tool, identity) or _Draft(compile_tool(tool)))
        return drafts

    def _stored(self, tool: Tool, identity: str) -> "_Draft | None":
        record = self._store.read(tool.content_hash, _key(tool, identity))
        if record is None:
            return None
        self.counters = replace(self.counters, from_store=self.counters.from_store + 1)
        compiled = CompiledTool(tool, normalise(tool.input_schema), record.signature, record.text)
        return _Draft(compiled, record.vectors)

    async def _embed_missing(self, drafts: Sequence["_Draft"], embedder: Embedder, identity: str) -> None:
        missing = [draft for draft in drafts if draft.vectors is None and not draft.kept]
        for start in range(0, len(missing), EMBED_BATCH):
            batch = missing[start : start + EMBED_BATCH]
            rows = await embedder.embed_tools([draft.compiled.text for draft in batch])
            for draft, row in zip(batch, rows, strict=True):
                draft.vectors = row[np.newaxis, :]
            self.counters = replace(self.counters, embedded=self.counters.embedded + len(batch))
            await anyio.to_thread.run_sync(self._save, batch, identity)

    def _save(self, drafts: Sequence["_Draft"], identity: str) -> None:
        try:
            for draft in drafts:
                if draft.vectors is not None:
                    record = CompiledRecord(draft.compiled.signature, draft.compiled.text, draft.vectors)
                    tool = draft.compiled.tool
                    self._store.write(tool.content_hash, _key(tool, identity), record)
        except StoreError as error:
            log.warning("store.unwritable", cause=str(error))


def _moved(last: RoutingIndex, epoch: int, drafts: Sequence["_Draft"]) -> RoutingIndex:
    vectors = [draft.vectors for draft in drafts if draft.vectors is not None and not draft.kept]
    return last.moved(epoch, [draft.compiled for draft in drafts], vectors)


def _key(tool: Tool, identity: str) -> str:
    """The server's name is in the text that is embedded, and not in the definition's hash."""
    return f"{identity}:{tool.id.server}"


@dataclass(slots=True, eq=False)
class _Draft:
    """A tool on its way into an index.

    Attributes:
        vectors: None until they are known, and for a tool that stays where it is.
        kept: it is in the last index, which has its vectors.
    """

    compiled: CompiledTool
    vectors: NDArray[np.float32] | None = None
    kept: bool = False
