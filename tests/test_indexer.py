"""The indexer computes each tool once: what is in memory or in the store is not computed again."""

from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
import structlog
from support.gateways import python_server, settings_of
from support.making_tools import STRING, catalog_of, definition
from support.processes import children

from adapters.embedder_double import HashingEmbedder
from adapters.ports import ModelMissing
from nexus_gateway.app import open_gateway
from nexus_gateway.registry.indexer import Counters, Indexer
from tool_registry.catalog import ToolCatalog, read_listing
from tool_registry.compiled_store import CompiledStore

pytestmark = pytest.mark.anyio

REGISTRY = Path(__file__).parents[2] / "shared" / "data" / "registry.jsonl"
TOOLS = [
    definition(f"tool_{place}", f"Does thing {place}", {"path": STRING}, ["path"]) for place in range(100)
]


@asynccontextmanager
async def running(directory, embedder=None, corrupt=None, **options):
    """An indexer on a real store; leaving stops it."""
    embedder = embedder or HashingEmbedder()

    async def loaded():
        if isinstance(embedder, Exception):
            raise embedder
        return embedder

    store = CompiledStore(directory, lambda path, reason: corrupt.append((path, reason)))
    indexer = Indexer(store, loaded, **options)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(indexer.run)
            yield indexer
            tasks.cancel_scope.cancel()


async def compile_once(directory, catalog, **options):
    async with running(directory, **options) as indexer:
        indexer.follow(catalog)
        return await indexer.current(), indexer.counters


def entries(directory):
    return sorted(directory.rglob("*.tool"))


async def test_a_first_start_computes_every_tool_and_an_index_of_all(tmp_path):
    catalog = catalog_of(s=TOOLS)
    index, counters = await compile_once(tmp_path, catalog)
    assert counters == Counters(embedded=100)
    assert index.epoch == catalog.epoch
    assert [compiled.id for compiled in index.tools] == list(catalog.tools)
    assert len(entries(tmp_path)) == 100


async def test_a_second_start_computes_nothing_and_gives_the_same_index(tmp_path):
    catalog, again = catalog_of(s=TOOLS), HashingEmbedder()
    first, _ = await compile_once(tmp_path, catalog)
    second, counters = await compile_once(tmp_path, catalog, embedder=again)
    assert counters == Counters(from_store=100)
    assert again.embedded_texts == 0
    query = first.lookaside.vectors(7)[0]
    assert (first.lookaside.scan(query) == second.lookaside.scan(query)).all()
    assert [tool.signature for tool in first.tools] == [tool.signature for tool in second.tools]


async def test_a_changed_tool_is_computed_again_and_only_that(tmp_path):
    changed = [*TOOLS[:-1], TOOLS[-1] | {"annotations": {"readOnlyHint": True}}]
    catalog = catalog_of(s=TOOLS)
    async with running(tmp_path) as indexer:
        indexer.follow(catalog)
        await indexer.current()
        indexer.follow(catalog.with_server("s", read_listing("s", changed)))
        index = await indexer.current()
        assert indexer.counters == Counters(embedded=101)
        assert index.epoch == 2
    _, counters = await compile_once(tmp_path, catalog_of(s=changed))
    assert counters == Counters(from_store=100)


async def test_a_tool_that_goes_and_comes_back_is_not_computed_again(tmp_path):
    catalog = catalog_of(s=TOOLS[:3])
    async with running(tmp_path) as indexer:
        for snapshot in (
            catalog,
            fewer := catalog.without_server("s"),
            fewer.with_server("s", read_listing("s", TOOLS[:3])),
        ):
            indexer.follow(snapshot)
            assert len((await indexer.current()).tools) == len(snapshot)
        assert indexer.counters == Counters(embedded=3, from_store=3)


async def test_equal_tools_of_two_servers_have_each_their_own_text_in_whatever_order_they_came(tmp_path):
    await compile_once(tmp_path, catalog_of(a=TOOLS[:5]))
    index, counters = await compile_once(tmp_path, catalog_of(b=TOOLS[:5]))
    assert counters == Counters(embedded=5)
    assert all("Server: b." in compiled.text for compiled in index.tools)


async def test_another_model_computes_its_own(tmp_path):
    catalog = catalog_of(s=TOOLS[:3])
    await compile_once(tmp_path, catalog)
    _, counters = await compile_once(tmp_path, catalog, embedder=HashingEmbedder(identity="other"))
    assert counters == Counters(embedded=3)
    assert len(entries(tmp_path)) == 6


@pytest.mark.parametrize("damage", [b"", b"rubbish", None], ids=["empty", "rubbish", "one bit"])
async def test_a_damaged_entry_is_reported_and_computed_again(tmp_path, damage):
    catalog, corrupt = catalog_of(s=TOOLS[:3]), []
    await compile_once(tmp_path, catalog)
    victim = entries(tmp_path)[0]
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if damage is None else damage)
    index, counters = await compile_once(tmp_path, catalog, corrupt=corrupt)
    assert counters == Counters(embedded=1, from_store=2)
    assert [path for path, _ in corrupt] == [victim]
    assert len(index.tools) == 3
    assert victim.read_bytes() == whole, "it is whole again"


async def test_a_store_that_cannot_be_written_costs_a_warning_alone(tmp_path):
    (tmp_path / "blocked").write_text("a file where the directory should be")
    with structlog.testing.capture_logs() as logs:
        index, counters = await compile_once(tmp_path / "blocked", catalog_of(s=TOOLS))
    assert len(index.tools) == 100
    assert counters == Counters(embedded=100)
    warnings = [entry for entry in logs if entry["event"] == "store.unwritable"]
    assert warnings
    assert "blocked" in warnings[0]["cause"]


async def test_a_missing_model_is_an_error_to_who_waits_and_does_not_stop_the_indexer(tmp_path):
    async with running(tmp_path, ModelMissing("run `nexus-gateway models pull`")) as indexer:
        indexer.follow(catalog_of(s=TOOLS[:1]))
        for _ in range(2):
            with pytest.raises(ModelMissing, match="models pull"):
                await indexer.current()
        assert indexer.index.epoch == 0


class OnceBroken(HashingEmbedder):
    """Fails the first time."""

    def __init__(self):
        super().__init__()
        self.failed = anyio.Event()

    async def embed_tools(self, texts):
        if not self.failed.is_set():
            self.failed.set()
            raise ModelMissing("gone for a moment")
        return await super().embed_tools(texts)


async def test_a_compilation_that_failed_is_tried_again_with_the_next_catalogue(tmp_path):
    embedder, catalog = OnceBroken(), catalog_of(s=TOOLS[:2])
    async with running(tmp_path, embedder) as indexer:
        indexer.follow(catalog)
        await embedder.failed.wait()
        indexer.follow(catalog.with_server("t", read_listing("t", TOOLS[2:3])))
        assert len((await indexer.current()).tools) == 3


async def test_the_latest_of_many_catalogues_is_what_is_waited_for(tmp_path):
    catalog, told = ToolCatalog(), []
    async with running(tmp_path, on_index=lambda index: told.append(index.epoch)) as indexer:
        for count in range(1, 20):
            catalog = catalog.with_server("s", read_listing("s", TOOLS[:count]))
            indexer.follow(catalog)
            await anyio.lowlevel.checkpoint()
        assert len((await indexer.current()).tools) == 19
    assert told == sorted(told)
    assert told[-1] == 19


async def test_no_tools_are_an_empty_index(tmp_path):
    async with running(tmp_path) as indexer:
        assert (await indexer.current()).tools == ()


async def start(folder):
    """A gateway on the listing server with the packaged embedder, up to its first index; what the log says of it."""
    settings = settings_of(folder, {"many": python_server("listing_server.py", str(REGISTRY), "500")})
    with structlog.testing.capture_logs() as logs, anyio.fail_after(140):
        async with open_gateway(settings) as gateway:
            index = await gateway.readiness.wait()
            assert len(index.tools) == 500
    assert not children()
    return [entry for entry in logs if entry["event"] == "registry.compiled"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not REGISTRY.exists(), reason="the measuring data is not here")
async def test_a_second_start_with_500_real_tools_embeds_none_says_the_log(tmp_path):
    first, second = await start(tmp_path), await start(tmp_path)
    assert [(entry["tools"], entry["embedded"], entry["from_store"]) for entry in first] == [(500, 500, 0)]
    assert [(entry["tools"], entry["embedded"], entry["from_store"]) for entry in second] == [(500, 0, 500)]
