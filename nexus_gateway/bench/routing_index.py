"""An index of many tools, compiled by the gateway's own indexer, so that a second run finds them in the store."""

from collections.abc import Callable

import anyio

from adapters.ports import Embedder
from nexus_gateway.registry.indexer import Indexer
from tool_registry.catalog import ToolCatalog
from tool_registry.compiled_store import CompiledStore
from tool_registry.index import RoutingIndex

LOOK_SECONDS = 0.2
"""Between two looks at how far the indexer is."""


async def compiled_index(
    catalog: ToolCatalog,
    embedder: Embedder,
    store: CompiledStore,
    on_progress: Callable[[int], None] = lambda _done: None,
) -> RoutingIndex:
    """The index of a catalogue.

    Args:
        catalog: the tools.
        embedder: of their texts.
        store: where vectors are kept.
        on_progress: told now and then how many tools are done.

    Raises:
        ModelError: the embedder failed.
    """

    async def loaded() -> Embedder:
        return embedder

    indexer = Indexer(store, loaded)
    indexer.follow(catalog)

    async def watch() -> None:
        while True:
            await anyio.sleep(LOOK_SECONDS)
            on_progress(indexer.counters.embedded + indexer.counters.from_store)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(indexer.run)
        tasks.start_soon(watch)
        index = await indexer.current()
        tasks.cancel_scope.cancel()
    on_progress(len(index.tools))
    return index
