"""Tools are compiled in the background: those worth it, while nobody waits, one bad tool alone."""

from contextlib import asynccontextmanager

import anyio
import pytest
from structlog.testing import capture_logs
from support.state_layers import LABEL, TOOL_TEXT, layer, prompt

from adapters.ports import ModelUnusable
from adapters.state_double import StatefulDouble
from nexus_gateway.state import compiler as compiler_module
from nexus_gateway.state.compiler import Compilable

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_quiet_time(monkeypatch):
    monkeypatch.setattr(compiler_module, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(compiler_module, "_LOOK_SECONDS", 0.001)


def tools(count, *, words=20):
    return [Compilable(f"s/t{at}", prompt(f"tool t{at} " + "word " * words)) for at in range(count)]


@asynccontextmanager
async def told(state):
    """Until the compiler has logged the end of a run."""
    ended, run = anyio.Event(), state.parts.compiler.compile

    async def watched(*args, **more):
        report = await run(*args, **more)
        ended.set()
        return report

    state.parts.compiler.compile = watched
    yield
    with anyio.fail_after(20):
        await ended.wait()


def labels(state):
    return sorted(entry.label for entry in state.parts.disk.entries())


async def test_a_small_fleet_is_compiled_whole_and_the_log_says_when_it_begins_and_ends(tmp_path):
    async with layer(tmp_path) as state:
        with capture_logs() as logs:
            async with told(state):
                state.parts.compiler.follow(tools(5))
            await anyio.wait_all_tasks_blocked()
        assert labels(state) == [f"s/t{at}" for at in range(5)]
        events = {line["event"]: line for line in logs}
        assert events["state.compiling"]["tools"] == 5
        assert events["state.compiled"]["blocks"] == 5


async def test_of_a_large_fleet_only_what_is_used_is_compiled(tmp_path):
    async with layer(tmp_path) as state:
        for _ in range(3):
            state.parts.usage.count("s/t7")
        async with told(state):
            state.parts.compiler.follow(tools(compiler_module.MOST_NEVER_USED + 10))
        assert labels(state) == ["s/t7"]


async def test_under_a_small_budget_the_most_used_are_chosen(tmp_path):
    async with layer(tmp_path) as state:
        for at, uses in enumerate((1, 9, 3, 30, 5)):
            state.parts.usage.count(f"s/t{at}", uses)
        compiler = state.parts.compiler
        wanted = tools(5)
        tokens = {tool.label: 22 for tool in wanted}
        values = {one.name: one.worth for one in compiler.valued(tokens)}
        assert sorted(values, key=values.get, reverse=True) == ["s/t3", "s/t1", "s/t4", "s/t2", "s/t0"]
        budget = 2 * int(22 * state.engine.bytes_per_token)
        parts = compiler._parts
        compiler._parts = type(parts)(
            **{n: getattr(parts, n) for n in parts.__slots__} | {"budget_bytes": budget}
        )
        assert [one.label for one in await compiler.worth_it(wanted)] == ["s/t3", "s/t1"]


async def test_what_is_there_is_not_compiled_again(tmp_path):
    async with layer(tmp_path) as state:
        report = await state.parts.compiler.compile(tools(2))
        assert (report.compiled, report.present) == (2, 0)
        again = await state.parts.compiler.compile(tools(3))
        assert (again.compiled, again.present) == (1, 2)
        assert len(state.engine.saved) == 3
        assert await state.parts.compiler.worth_it(tools(3)) == []


async def test_with_nothing_to_compile_the_system_part_is_read_before_the_first_turn(tmp_path):
    async with layer(tmp_path) as state:
        await state.parts.compiler.compile(tools(2))
    read = anyio.Event()

    class Told(StatefulDouble):
        async def save(self, anchor):
            read.set()
            return await super().save(anchor)

    async with layer(tmp_path, Told()) as later:
        later.parts.compiler.follow(tools(2))
        with anyio.fail_after(20):
            await read.wait()
        assert (await later.ask()).state.live_tokens > 0


async def test_a_store_that_can_not_be_told_what_blocks_are_worth_is_filled_all_the_same(tmp_path):
    async with layer(tmp_path) as state:

        async def broken(_worth):
            await anyio.lowlevel.checkpoint()
            raise OSError("locked")

        state.parts.compiler._parts.store.revalue = broken
        assert len(await state.parts.compiler.worth_it(tools(2))) == 2
        assert "locked" in state.parts.faults.causes["worth not kept"]


async def test_one_bad_tool_leaves_the_others_alone(tmp_path):
    class Choosy(StatefulDouble):
        async def save(self, anchor):
            if len(self.saved) == 1 and not self.refused:
                self.refused = True
                raise ModelUnusable("the prompt leaves no room")
            return await super().save(anchor)

        refused = False

    async with layer(tmp_path, Choosy()) as state:
        report = await state.parts.compiler.compile(tools(3))
        assert report.compiled == 2
        assert report.failed == {"s/t1": "the prompt leaves no room"}
        assert state.parts.faults.counts["compiling"] == 1


async def test_an_engine_that_saves_something_else_is_not_believed(tmp_path):
    class Odd(StatefulDouble):
        async def save(self, anchor):
            return type(found := await super().save(anchor))(0, found.end, found.data)

    async with layer(tmp_path, Odd()) as state:
        report = await state.parts.compiler.compile(tools(1))
        assert list(report.failed) == ["s/t0"]
        assert labels(state) == []


async def test_it_stands_back_while_the_engine_is_busy(tmp_path):
    async with layer(tmp_path) as state:
        with state.engine.being_busy():
            state.parts.compiler.follow(tools(2))
            for _ in range(20):
                await anyio.sleep(0.001)
            assert not state.engine.saved
        async with told(state):
            pass
        assert len(labels(state)) == 2


async def test_a_newer_catalogue_ends_the_run_of_an_older_one(tmp_path):
    class Moving(StatefulDouble):
        async def save(self, anchor):
            if len(self.saved) == 1:
                state.parts.compiler.follow([Compilable("s/new", prompt("a new tool"))])
            saved = await super().save(anchor)
            if len(self.saved) == 3:
                done.set()
            return saved

    done = anyio.Event()
    async with layer(tmp_path, Moving()) as state:
        state.parts.compiler.follow(tools(5))
        with anyio.fail_after(20):
            await done.wait()
        assert [label for label in labels(state) if label != "s/new"] == ["s/t0", "s/t1"]
        assert state.engine.saved[2] == (await state.anchored("a new tool")).anchor


async def test_a_tool_that_left_keeps_its_block_and_loses_its_worth_until_it_is_back(tmp_path):
    async with layer(tmp_path) as state:

        def worths():
            return {entry.label: entry.worth > 0 for entry in state.parts.disk.entries()}

        await state.parts.compiler.worth_it(tools(2))
        await state.parts.compiler.compile(tools(2))
        assert worths() == {"s/t0": True, "s/t1": True}
        await state.parts.compiler.worth_it(tools(1))
        assert worths() == {"s/t0": True, "s/t1": False}
        await state.parts.compiler.worth_it(tools(2))
        assert worths() == {"s/t0": True, "s/t1": True}


async def test_cancelling_stops_it_and_keeps_what_is_done(tmp_path):
    async with layer(tmp_path) as state, anyio.create_task_group() as tasks:

        def seen(done, _wanted, _label):
            if done == 2:
                tasks.cancel_scope.cancel()

        tasks.start_soon(state.parts.compiler.compile, tools(50), seen)
    async with layer(tmp_path) as later:
        assert labels(later) == ["s/t0", "s/t1"]


async def test_what_a_turn_missed_is_compiled_before_what_nobody_asked_for(tmp_path):
    async with layer(tmp_path) as state:

        def seen(done, _wanted, _label):
            if done == 1:
                state.parts.compiler.missed(missed, LABEL)
            order.append(list(labels(state)))

        order, missed = [], await state.anchored(TOOL_TEXT)
        await state.parts.compiler.compile(tools(4), seen)
        assert LABEL in order[2]
        assert "s/t2" not in order[2]


async def test_what_is_missed_is_bounded_and_asked_for_once(tmp_path):
    async with layer(tmp_path) as state:
        for at in range(compiler_module.MOST_MISSED + 10):
            anchored = await state.anchored(f"tool {at}")
            state.parts.compiler.missed(anchored, f"s/{at}")
            state.parts.compiler.missed(anchored, f"s/{at}")
        assert len(state.parts.compiler._missed) <= compiler_module.MOST_MISSED


async def test_without_a_store_memory_takes_what_is_compiled(tmp_path):
    async with layer(tmp_path) as state:
        parts = state.parts.compiler._parts
        state.parts.compiler._parts = type(parts)(
            **{name: getattr(parts, name) for name in parts.__slots__} | {"store": None}
        )
        report = await state.parts.compiler.compile(tools(2))
        assert report.compiled == 2
        assert len(state.parts.memory) == 2
        assert labels(state) == []
