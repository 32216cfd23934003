"""Compiled state changes no answer: turns over real tools end alike with blocks of an earlier run and without any."""

import os
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from support.fake_turns import FakeRules
from support.making_tools import index_of

from adapters.embedder_double import HashingEmbedder
from adapters.ports import ModelUnusable
from nexus_gateway.app import compiled_state, open_writer
from nexus_gateway.bench.arguments_data import sampled
from nexus_gateway.bench.routing_data import read_tools
from nexus_gateway.bench.turn_data import read_turn_queries
from nexus_gateway.bench.turn_playing import Arm, Player
from nexus_gateway.routing.router import Router
from nexus_gateway.settings import Settings
from nexus_gateway.turn.arguments import ArgumentWriter
from nexus_gateway.turn.result import Outcome
from tool_registry.catalog import ToolCatalog
from tool_registry.index import compile_tool
from tool_registry.routing import Gate

DATA = Path(__file__).parents[2] / "shared" / "data"
FULL = bool(os.environ.get("NEXUS_FULL_TESTS"))
REQUESTS = 50 if FULL else 10
SECONDS = 500 if FULL else 110
SHORT = 200
"""Characters of a signature that is read quickly."""

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="needs the shared data")


@pytest.fixture
def settings(tmp_path):
    """The argument model writes by itself, and nothing is compiled but what the test wants."""
    made = Settings(cache_dir=tmp_path)
    models = replace(made.models, reader="off", threads=1, n_ctx=4096)
    return replace(made, models=models, state=replace(made.state, compile=False))


@asynccontextmanager
async def arm_of(settings, state):
    """The gateway's writer, with its layer of state at work where there is one."""
    async with open_writer(settings, state) as (engine, writer), anyio.create_task_group() as tasks:
        if state is None:
            yield Arm(engine, writer)
        else:
            tasks.start_soon(state.run)
            yield Arm(engine, writer, state)
        tasks.cancel_scope.cancel()


class Refusing:
    """An engine that is of no use: a turn that needs it fails."""

    holds_local_state = False

    async def complete(self, _segments, _schema, *, max_tokens):
        await anyio.lowlevel.checkpoint()
        raise ModelUnusable("asked")


async def played(arm, query, catalog):
    """One turn among the right tool alone."""
    embedder = HashingEmbedder()

    async def loaded():
        return embedder

    only = ToolCatalog(1, {tool.id: tool for tool in catalog if str(tool.id) in query.routing.gold}, ())
    player = Player(Router(loaded, Gate(margin=0.0, floor=0.0)), only, FakeRules("never"), 100)
    return await player.play(arm, await index_of(only), query.text, query)


async def asking(catalog):
    """Requests whose arguments need the model: of the others state says nothing."""

    async def engine():
        return Refusing()

    arm = Arm(Refusing(), ArgumentWriter(engine, max_tokens=8))
    every = read_turn_queries(DATA / "routing_queries.jsonl", catalog, split=None)
    asked = [one for one in every if (await played(arm, one, catalog)).result.outcome is Outcome.FAILED]
    if FULL:
        return sampled(asked, REQUESTS, 0)
    short = {str(tool.id) for tool in catalog if len(compile_tool(tool).signature) <= SHORT}
    one_a_tool = {one.routing.gold[0]: one for one in asked if one.routing.gold[0] in short}
    return sampled([*one_a_tool.values()], REQUESTS, 0)


def answer(one):
    result = one.result
    missing = [argument.name for argument in result.missing]
    return result.outcome, result.tool_id, dict(result.arguments), missing, result.message, one.called


@pytest.mark.timeout(SECONDS + 10)
@pytest.mark.anyio
async def test_turns_end_alike_with_blocks_of_an_earlier_run_and_without_any(settings, tmp_path):
    catalog = read_tools(DATA / "registry.jsonl")
    queries = await asking(catalog)
    keys = {query.routing.gold[0] for query in queries}
    tools = [compile_tool(tool) for tool in catalog if str(tool.id) in keys]
    with anyio.fail_after(SECONDS):
        async with arm_of(settings, None) as arm:
            without = [await played(arm, query, catalog) for query in queries]
        earlier = compiled_state(settings, tmp_path / "blocks")
        async with arm_of(settings, earlier):
            report = await earlier.compile(tools, lambda *_: None)
        assert (report.compiled, report.failed) == (len(tools), {})
        async with arm_of(settings, compiled_state(settings, tmp_path / "blocks")) as arm:
            having = [await played(arm, query, catalog) for query in queries]
    assert [answer(one) for one in having] == [answer(one) for one in without]
    assert all(one.written for one in without)
    assert sum(one.result.state.restored_tokens for one in having) > 0, "no block was put back"
    assert sum(one.decoded for one in having) < sum(one.decoded for one in without)
