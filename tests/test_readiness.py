"""Waiting until turns can run: what is wrong comes out as it is, progress or not."""

import anyio
import pytest

from adapters.ports import ModelMissing
from nexus_gateway.fleet.fleet import Fleet
from nexus_gateway.readiness import Readiness
from nexus_gateway.registry.indexer import Indexer
from tool_registry.compiled_store import CompiledStore


async def no_embedder():
    raise ModelMissing("there is no embedder")


async def quiet(_step, _total, _message):
    pass


@pytest.mark.anyio
@pytest.mark.parametrize("on_progress", [None, quiet])
async def test_a_missing_embedder_is_said_plainly(tmp_path, on_progress):
    indexer = Indexer(CompiledStore(tmp_path, lambda *_: None), no_embedder)
    fleet = Fleet([], None, on_catalog=indexer.follow)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.run)
        with anyio.fail_after(30):
            try:
                await Readiness(fleet, indexer, []).wait(on_progress)
            except ModelMissing as error:
                said = str(error)
        tasks.cancel_scope.cancel()
    assert said == "there is no embedder"
