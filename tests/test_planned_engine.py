"""An engine with planned state gives the inner engine's answers; what is kept is used, and said."""

import anyio
import anyio.lowlevel
import pytest
from support.state_layers import LABEL, SYSTEM, layer, plain_answer, prompt

from adapters.ports import Segment, SegmentKind
from adapters.state_double import StatefulDouble
from nexus_gateway.state.planner import Action
from tool_registry.blocks.kind import StateKind

pytestmark = pytest.mark.anyio


async def test_what_was_read_once_is_put_back_after_the_context_forgot_it(tmp_path):
    async with layer(tmp_path) as state:
        first = await state.ask()
        assert first.state.action is Action.RECOMPUTE
        await state.compiled()
        second = await state.ask()
    assert second.text == first.text == await plain_answer()
    assert (second.state.action, second.state.tier) == (Action.MATERIALIZE, "disk")
    assert second.restored_tokens > 0
    assert second.state.prefilled_tokens < first.state.prefilled_tokens
    assert not state.parts.faults.counts


async def test_the_next_time_it_comes_from_memory(tmp_path):
    async with layer(tmp_path) as state:
        await state.ask()
        await state.compiled()
        await state.ask()
        state.engine.forget()
        again = await state.ask("read b.txt")
        assert again.text == await plain_answer("read b.txt")
        assert (again.state.action, again.state.tier) == (Action.MATERIALIZE, "memory")


async def test_a_new_process_has_what_the_last_one_compiled_and_knows_what_it_cost(tmp_path):
    async with layer(tmp_path) as state:
        await state.ask()
        await state.compiled()
        await state.parts.save()
    async with layer(tmp_path) as later:
        assert later.parts.costs.prefill.seconds(100) == pytest.approx(
            1.0
        )  # 10 ms a token, as the double says
        assert (await later.ask()).state.tier == "disk"


async def test_what_is_live_is_neither_read_nor_put_back(tmp_path):
    async with layer(tmp_path) as state:
        await state.ask()
        again = await state.ask("read b.txt")
        assert (again.state.action, again.state.tier) == (Action.SKIP, "live")
        assert state.engine.states[-1] is None
        assert again.state.live_tokens > 0


async def test_the_system_part_stays_live_and_only_the_tools_part_is_put_back(tmp_path):
    async with layer(tmp_path) as state:
        await state.ask()
        await state.compiled()
        await state.ask(tool="another tool altogether", label="x/y")
        back = await state.ask()
        words = len(SYSTEM.text.split())
        assert state.engine.states[-1].start == words
        assert back.state.live_tokens == words
        assert back.text == await plain_answer()


async def test_a_kind_that_can_not_be_shared_is_put_back_from_its_start(tmp_path):
    engine = StatefulDouble(kind=StateKind.WINDOWED)
    async with layer(tmp_path, engine) as state:
        await state.ask()
        await state.compiled()
        back = await state.ask()
        assert engine.states[-1].start == 0
        assert back.text == await plain_answer()


async def test_one_tenants_state_is_not_used_for_another(tmp_path):
    async with layer(tmp_path) as state:
        await state.ask()
        await state.compiled()
        other = await state.ask(tenant="other")
        assert other.state.action is Action.RECOMPUTE
        assert other.text == await plain_answer()
        assert state.engine.states[-1] is None
        await state.compiled()
        assert (await state.ask(tenant="other")).state.action is Action.MATERIALIZE
        assert (
            state.parts.disk.entries()[0].descriptor.tenant != state.parts.disk.entries()[1].descriptor.tenant
        )


async def test_state_that_costs_more_than_reading_is_left_and_said_so(tmp_path):
    async with layer(tmp_path, StatefulDouble(seconds_a_token=1e-9)) as state:
        await state.ask()
        await state.compiled()
        state.parts.costs.prefill.rates.clear()
        for tokens in (1, 4, 16, 64, 256):
            state.parts.costs.prefill.learn(tokens, tokens * 1e-9)
        again = await state.ask()
        assert again.state.action is Action.RECOMPUTE
        assert "sooner" in again.state.reason
        assert again.state.predicted_gain_ms == 0
        assert again.text == await plain_answer()


async def test_what_a_restore_costs_is_not_learned_while_others_hold_it_up(tmp_path):
    async with layer(tmp_path) as state:
        await state.ask()
        await state.compiled()
        with state.engine.being_busy():
            assert (await state.ask()).restored_tokens > 0
        assert not state.parts.costs.restore.measured
        state.engine.forget()
        await state.ask()
        assert state.parts.costs.restore.measured == 1


async def test_what_another_process_stores_is_found_once_figures_are_kept(tmp_path):
    async with layer(tmp_path) as here:
        async with layer(tmp_path) as other:
            await other.ask()
            await other.compiled()
        assert not here.parts.lookup.stored(await here.anchored())
        await here.parts.save()
        assert here.parts.lookup.stored(await here.anchored())
        assert (await here.ask()).state.tier == "disk"


async def test_the_measurements_of_all_completions_of_a_turn_are_added_to_the_first_ones_plan(tmp_path):
    async with layer(tmp_path) as state:
        first, second = await state.ask(), await state.ask("read b.txt")
        both = first.state.with_more(second.state)
        assert both.completions == 2
        assert both.action is Action.RECOMPUTE
        assert both.prefilled_tokens == first.state.prefilled_tokens + second.state.prefilled_tokens


async def test_blocks_are_leased_while_the_engine_uses_them(tmp_path):
    class Watching(StatefulDouble):
        async def complete(self, segments, schema, *, max_tokens, state=None):
            if state is not None:
                seen.append([kept.leases for kept in layered.parts.memory._kept.values()])
            return await super().complete(segments, schema, max_tokens=max_tokens, state=state)

    seen = []
    async with layer(tmp_path, Watching()) as layered:
        await layered.ask()
        await layered.compiled()
        await layered.ask()
        layered.engine.forget()
        await layered.ask()
        assert seen[-1] == [1]
        assert [kept.leases for kept in layered.parts.memory._kept.values()] == [0]


async def test_a_completion_that_is_cancelled_gives_its_lease_back(tmp_path):
    class Stuck(StatefulDouble):
        stuck = False

        async def complete(self, segments, schema, *, max_tokens, state=None):
            if self.stuck:
                reached.set()
                await anyio.sleep_forever()
            return await super().complete(segments, schema, max_tokens=max_tokens, state=state)

    reached, engine = anyio.Event(), Stuck()
    async with layer(tmp_path, engine) as state:
        await state.ask()
        await state.compiled()
        await state.ask()
        engine.forget()
        engine.stuck = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(state.ask)
            await reached.wait()
            assert [kept.leases for kept in state.parts.memory._kept.values()] == [1]
            tasks.cancel_scope.cancel()
        assert [kept.leases for kept in state.parts.memory._kept.values()] == [0]


async def test_foreseen_blocks_are_in_memory_when_they_are_needed(tmp_path):
    async with layer(tmp_path) as state:
        await state.ask()
        await state.compiled()
        ahead = state.parts.prefetcher.foresee([prompt()], "local")
        with anyio.fail_after(20):
            while not ahead.reads:
                await anyio.lowlevel.checkpoint()
            await ahead.reads[0].done.wait()
        state.parts.prefetcher.decided(ahead, prompt())
        assert (await state.ask()).state.tier == "memory"
        assert state.parts.prefetcher.begun == 1


async def test_a_full_queue_drops_what_is_foreseen_and_holds_nobody_up(tmp_path):
    async with layer(tmp_path) as state:
        for _ in range(100):
            state.parts.prefetcher.foresee([prompt()], "local")
        assert state.parts.prefetcher.dropped > 0
        assert (await state.ask()).text == await plain_answer()


async def test_without_a_task_group_nothing_is_read_and_answers_are_the_same(tmp_path):
    async with layer(tmp_path) as state:
        await state.ask()
        await state.compiled()
    state.engine.forget()
    again = await state.ask()
    assert again.state.action is Action.RECOMPUTE
    assert again.text == await plain_answer()


async def test_a_prompt_without_a_tool_is_planned_too(tmp_path):
    bare = [SYSTEM, Segment(SegmentKind.REQUEST, "hello")]
    async with layer(tmp_path) as state:
        done = await state.parts.engine.complete(bare, {"type": "string"}, max_tokens=8)
        assert done.state is not None
    assert LABEL not in str(done.state)
