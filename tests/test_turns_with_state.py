"""A turn with compiled state: prepared for while it is routed, said in its result, and the same without."""

import dataclasses
from contextlib import asynccontextmanager

import anyio
import pytest
from support.fake_turns import FILES, call, service_of, turn
from support.making_tools import catalog_of

from adapters.engine_double import ScriptedEngine
from adapters.state_double import StatefulDouble
from nexus_gateway.access.caller import Caller, Tenant
from nexus_gateway.server.rendering import turn_meta
from nexus_gateway.settings import StateSettings
from nexus_gateway.state.in_words import in_words
from nexus_gateway.state.parts import has_own_memory
from nexus_gateway.state.service import StateOff, StateService
from nexus_gateway.turn.prompt import tool_prompt
from nexus_gateway.turn.result import Outcome
from tool_registry.index import compile_tool
from tool_registry.routing import Gate
from tool_registry.tool import ToolId

pytestmark = pytest.mark.anyio

TWO_PATHS = "copy_file a.txt b.txt c.txt"
COPY = ToolId("files", "copy_file")


@asynccontextmanager
async def state_service(folder, engine, **settings):
    service = StateService(StateSettings(**settings), folder, tool_prompt)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.run)
        planned = await service.around(engine)
        await anyio.wait_all_tasks_blocked()
        yield service, planned
        tasks.cancel_scope.cancel()


def compiled_tool():
    return compile_tool(catalog_of(**FILES).tools[COPY])


async def test_a_turn_says_what_was_done_about_state(tmp_path):
    async with state_service(tmp_path, engine := StatefulDouble()) as (state, planned):
        turns, _ = await service_of(engine=planned, state=state)
        first = turn_meta(await turn(turns, TWO_PATHS))["state"]
        assert (first["action"], first["tier"], first["completions"]) == ("recompute", None, 2)
        await state.settled(20)
        engine.forget()
        second = turn_meta(await turn(turns, TWO_PATHS))["state"]
        assert second["action"] == "materialize"
        assert second["tier"] in ("memory", "disk")
        assert second["restored_tokens"] > 0
        assert second["predicted_gain_ms"] > 0
        assert second["prefilled_tokens"] < first["prefilled_tokens"]


async def test_a_turn_that_asked_no_model_says_nothing_of_state(tmp_path):
    async with state_service(tmp_path, StatefulDouble()) as (state, planned):
        turns, _ = await service_of(engine=planned, state=state)
        result = await turn(turns, "read_file /a/b.txt")
        assert result.state is None
        assert "state" not in turn_meta(result)
        assert "not asked" in in_words(result.state)[0]


async def test_answers_are_the_same_with_state_and_without(tmp_path):
    requests = [f"copy_file a{at}.txt b{at}.txt c{at}.txt" for at in range(12)]

    async def answers(engine, *, state=None, forget=lambda: None):
        turns, _ = await service_of(engine=engine, **({} if state is None else {"state": state}))
        done = []
        for request in requests:
            result = await turn(turns, request, dry_run=True)
            done.append((result.outcome, dict(result.arguments), result.grounds, result.missing))
            forget()
        return done

    plain = await answers(StatefulDouble())
    async with state_service(tmp_path, engine := StatefulDouble()) as (state, planned):
        assert await answers(planned, state=state, forget=engine.forget) == plain
        await state.settled(20)
        assert await answers(planned, state=state, forget=engine.forget) == plain
        assert any(given is not None for given in engine.states)
    async with state_service(tmp_path, StatefulDouble(), enabled=False) as (state, engine):
        assert isinstance(engine, StatefulDouble)
        assert await answers(engine, state=state) == plain


async def test_the_best_tools_are_read_ahead_and_the_chosen_one_is_in_memory(tmp_path):
    async with state_service(tmp_path, engine := StatefulDouble()) as (state, planned):
        await state.compile([compile_tool(tool) for tool in catalog_of(**FILES)], lambda *_: None)
        engine.forget()
        foresee, foreseen = state.foresee, []

        def noted(tools, tenant):
            foreseen.append([tool.id for tool in tools])
            return foresee(tools, tenant)

        state.foresee = noted
        turns, _ = await service_of(engine=planned, state=state)
        result = await turn(turns, TWO_PATHS)
        assert [ids[0] for ids in foreseen] == [COPY]
        assert len(foreseen[0]) == 3
        assert result.state.action == "materialize"
        assert state._parts.memory.has(
            (await state._parts.anchors.of(tool_prompt(compiled_tool()), "local")).key
        )


async def test_what_the_decision_made_useless_is_given_up(tmp_path):
    async with state_service(tmp_path, engine := StatefulDouble()) as (state, _):
        tools = [compile_tool(tool) for tool in catalog_of(**FILES)]
        await state.compile(tools, lambda *_: None)
        engine.forget()
        disk, held = state._parts.lookup.tier("disk"), anyio.Event()

        async def stalled(_wanted):
            held.set()
            await anyio.sleep_forever()

        disk.get = stalled
        foreseen = state.foresee(tools, Tenant("local"))
        with anyio.fail_after(20):
            await held.wait()
            while len(foreseen.reads) < 3:
                await anyio.lowlevel.checkpoint()
            state.decided(foreseen, tools[1])
            await foreseen.reads[0].done.wait()
            await foreseen.reads[2].done.wait()
        assert not foreseen.reads[1].done.is_set()
        assert state._parts.prefetcher.cancelled == 2
        state.decided(foreseen, None)
        with anyio.fail_after(20):
            await foreseen.reads[1].done.wait()


async def test_an_abstained_turn_gives_up_all_of_it(tmp_path):
    async with state_service(tmp_path, StatefulDouble()) as (state, planned):
        decided = []
        state.decided = lambda foreseen, chosen: decided.append((foreseen is not None, chosen))
        turns, _ = await service_of(engine=planned, state=state, gate=Gate(floor=0.99))
        assert (await turn(turns, "sing a song")).outcome is Outcome.NO_TOOL
        assert decided == [(True, None)]


async def test_a_callers_tenant_salts_what_is_kept_for_it(tmp_path):
    async with state_service(tmp_path, engine := StatefulDouble()) as (state, planned):
        turns, _ = await service_of(engine=planned, state=state)
        await turn(turns, TWO_PATHS)
        await state.settled(20)
        engine.forget()
        other = await turn(turns, TWO_PATHS, caller=Caller(tenant=Tenant("other")))
        assert other.state.action == "recompute"


async def test_writing_arguments_and_calling_count_as_uses(tmp_path):
    async with state_service(tmp_path, StatefulDouble()) as (state, planned):
        turns, _ = await service_of(engine=planned, state=state)
        usage = state._parts.usage
        before = usage.expected(str(COPY))
        await turn(turns, TWO_PATHS)
        assert usage.expected(str(COPY)) > before + 0.9
        await call(turns, str(COPY), {"source": "a", "target_path": "b"})
        assert usage.expected(str(COPY)) > before + 1.9


async def test_figures_are_kept_when_the_gateway_stops(tmp_path):
    async with state_service(tmp_path, StatefulDouble()) as (state, planned):
        turns, _ = await service_of(engine=planned, state=state)
        await turn(turns, TWO_PATHS)
    async with state_service(tmp_path, StatefulDouble()) as (later, _):
        assert later._parts.usage.expected(str(COPY)) > 0.9
        assert later._parts.costs.prefill.rates


async def test_an_engine_elsewhere_is_left_as_it_is_and_the_reason_is_told(tmp_path):
    async with state_service(tmp_path, scripted := ScriptedEngine([])) as (state, engine):
        assert engine is scripted
        assert "server" in (await state.report()).off
        with pytest.raises(StateOff, match="server"):
            await state.compile([compiled_tool()], lambda *_: None)
    assert not list(tmp_path.iterdir())


async def test_a_layer_that_can_not_be_opened_leaves_the_engine_as_it_is(tmp_path, monkeypatch):
    def broken(*_args):
        raise RuntimeError("odd")

    monkeypatch.setattr("nexus_gateway.state.service.open_parts", broken)
    async with state_service(tmp_path, double := StatefulDouble()) as (state, engine):
        assert engine is double
        assert "odd" in (await state.report()).off


async def test_a_kind_of_state_that_can_not_be_kept_is_off(tmp_path):
    async with state_service(tmp_path, StatefulDouble(kind="unsupported")) as (state, engine):
        assert isinstance(engine, StatefulDouble)
        assert "can't be kept" in (await state.report()).off


async def test_a_device_with_memory_of_its_own_is_named(tmp_path):
    async with state_service(tmp_path, StatefulDouble(backend="cuda")) as (state, _):
        assert "measures as a gain" in (await state.report()).note


@pytest.mark.parametrize(
    ("backend", "device", "own"),
    [
        ("cpu", "AVX2=1", False),
        ("Metal, BLAS", "gpu Apple M3; accelerator Accelerate; NEON=1", False),
        ("CUDA0", "gpu NVIDIA RTX 4090; AVX2=1", True),
        ("Vulkan0", "integrated gpu Intel Iris; AVX2=1", False),
        ("Vulkan0, Vulkan1", "integrated gpu Intel Iris; gpu AMD; AVX2=1", True),
        ("something", "unknown", True),
    ],
)
def test_a_discrete_device_is_told_by_its_name_and_kind(backend, device, own):
    facts = dataclasses.replace(StatefulDouble().facts, backend=backend, device=device)
    assert has_own_memory(facts) is own


async def test_what_is_kept_is_counted_for_people(tmp_path):
    async with state_service(tmp_path, StatefulDouble()) as (state, _):
        await state.compile([compiled_tool()], lambda *_: None)
        report = await state.report()
        assert (report.blocks, report.off, dict(report.faults)) == (1, "", {})
        assert report.size_bytes > 0


def test_the_whole_schema_is_read_where_that_is_chosen_and_it_is_not_too_long():
    tool = compiled_tool()
    signature, schema = (tool_prompt(tool, text)[1].text for text in ("signature", "schema"))
    assert tool.signature in signature
    assert '"source":{"type":"string"}' in schema
    assert tool.signature not in schema
    assert tool_prompt(tool)[0] == tool_prompt(tool, "schema")[0]


async def test_in_words_a_plan_has_what_was_predicted_and_measured(tmp_path):
    async with state_service(tmp_path, engine := StatefulDouble()) as (state, planned):
        turns, _ = await service_of(engine=planned, state=state)
        await turn(turns, TWO_PATHS)
        await state.settled(20)
        engine.forget()
        said = "\n".join(in_words((await turn(turns, TWO_PATHS)).state))
        for word in ("put back from", "predicted", "measured", "gain", "2 model calls"):
            assert word in said
