"""Whatever is wrong with what is kept costs a prefill: every fault leaves the answer as it is, and is counted."""

import dataclasses
import shutil

import anyio
import pytest
from support.stalled_store import StalledDisk, overruns
from support.state_layers import LABEL, layer, plain_answer, prompt

from adapters.state_double import StatefulDouble
from nexus_gateway.settings import StateSettings
from nexus_gateway.state.parts import open_parts
from nexus_gateway.state.planner import Action
from nexus_gateway.state.tiers import DiskTier
from tool_registry.blocks.block_file import BlockDamaged, StateBlock, read_block, write_block

pytestmark = pytest.mark.anyio


async def restored(state):
    """One turn with what is kept, after the context forgot."""
    state.engine.forget()
    return await state.ask()


def only_block(folder):
    [path] = folder.glob("*/*.block")
    return path


@pytest.fixture
async def compiled(tmp_path):
    """A folder with one block, and nothing in memory."""
    async with layer(tmp_path) as state:
        await state.ask()
        await state.compiled()
    assert only_block(tmp_path).stat().st_size
    return tmp_path


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


def make_a_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [truncate, flip, empty, make_a_folder])
async def test_a_damaged_file_costs_a_prefill(compiled, damage):
    async with layer(compiled) as state:
        damage(only_block(compiled))
        turn = await restored(state)
        assert turn.text == await plain_answer()
        assert turn.state.action is Action.RECOMPUTE
        assert state.engine.states[-1] is None
        assert state.parts.faults.counts


async def test_a_damaged_block_is_made_anew(compiled):
    async with layer(compiled) as state:
        flip(only_block(compiled))
        await restored(state)
        await state.compiled()  # missed or not, the next turn finds it mended
        await restored(state)
        await state.compiled()
        assert (await restored(state)).state.action is Action.MATERIALIZE


async def test_a_removed_folder_costs_a_prefill(compiled):
    async with layer(compiled) as state:
        shutil.rmtree(compiled)
        turn = await restored(state)
        assert turn.text == await plain_answer()
        assert turn.state.action is Action.RECOMPUTE
        assert state.engine.states[-1] is None


@pytest.mark.parametrize(
    "change",
    [
        {"model": "another"},
        {"build": "double 2"},
        {"device": "another"},
        {"key_type": "q8_0"},
        {"transposed_values": True},
        {"rope": "another"},
    ],
)
async def test_another_engines_block_under_the_right_name_is_not_used(compiled, change):
    async with layer(compiled) as state:
        path, secret = only_block(compiled), state.parts.disk.secret
        block = read_block(path, secret)
        facts = dataclasses.replace(block.descriptor.facts, **change)
        lie = dataclasses.replace(block.descriptor, facts=facts)
        write_block(path, dataclasses.replace(block, descriptor=lie), secret)
        turn = await restored(state)
        assert turn.text == await plain_answer()
        assert state.engine.states[-1] is None
        assert any("block" in kind for kind in state.parts.faults.counts)


async def test_another_builds_engine_finds_nothing_of_it(compiled):
    async with layer(compiled, StatefulDouble(build="double 2")) as state:
        turn = await restored(state)
        assert turn.text == await plain_answer()
        assert turn.state.action is Action.RECOMPUTE
        assert state.engine.states[-1] is None


async def test_a_block_made_with_another_secret_is_not_used(compiled):
    async with layer(compiled) as state:
        path = only_block(compiled)
        block = read_block(path, state.parts.disk.secret)
        write_block(path, block, b"another secret")
        with pytest.raises(BlockDamaged):
            read_block(path, state.parts.disk.secret)
        turn = await restored(state)
        assert turn.text == await plain_answer()
        assert state.engine.states[-1] is None


def failing(error, arguments=1):
    def get(*given):
        assert len(given) == arguments
        raise error

    return get


@pytest.mark.parametrize("error", [OSError("I/O error"), RuntimeError("odd"), MemoryError()])
async def test_a_store_that_raises_costs_a_prefill(compiled, error):
    async with layer(compiled) as state:
        state.parts.disk.get = failing(error)
        turn = await restored(state)
        assert turn.text == await plain_answer()
        assert turn.state.action is Action.RECOMPUTE
        assert state.parts.faults.counts["disk: read failed"] == 1


async def test_a_store_that_lies_about_what_it_gives_is_found_out(compiled):
    async with layer(compiled) as state:
        await state.ask(tool="quite another tool with words of its own", label="x/y")
        await state.compiled()
        other = await state.anchored("quite another tool with words of its own")
        wrong = state.parts.disk.get(other.wanted)
        assert wrong is not None
        state.parts.disk.get = lambda _wanted: wrong
        turn = await restored(state)
        assert turn.text == await plain_answer()
        assert state.engine.states[-1] is None
        assert state.parts.faults.counts["disk: another state"] == 1


async def test_a_store_that_says_it_has_what_it_has_not_costs_a_prefill(compiled):
    async with layer(compiled) as state:
        state.parts.disk.get = lambda _wanted: None
        turn = await restored(state)
        assert turn.text == await plain_answer()
        assert turn.state.reason == "the block did not come in time"


async def test_a_stalled_read_is_left_behind_and_ends_in_memory(compiled):
    async with layer(compiled, StatefulDouble(seconds_a_token=1e-4)) as state:
        disk = StalledDisk(state.parts)
        turn = await restored(state)
        assert turn.text == await plain_answer()
        assert turn.state.action is Action.RECOMPUTE
        assert disk.reached.is_set()
        late = state.parts.reads.begin(state.parts.lookup.tier("disk"), await state.anchored())
        disk.go.set()
        with anyio.fail_after(20):
            await late.done.wait()
        assert (await restored(state)).state.tier == "memory"


async def test_reads_that_stall_are_bounded_and_one_for_each_block(compiled):
    async with layer(compiled) as state:
        disk = StalledDisk(state.parts)
        anchored = await state.anchored()
        tier = state.parts.lookup.tier("disk")
        assert state.parts.reads.begin(tier, anchored) is state.parts.reads.begin(tier, anchored)
        for tool in range(20):
            state.parts.reads.begin(tier, await state.anchored(f"tool {tool}"))
        assert state.parts.reads.dropped == 13
        await disk.reached.wait()
        turn = await restored(state)
        assert turn.text == await plain_answer()
        disk.go.set()


async def test_a_turn_with_a_stalled_store_starts_after_its_budget(compiled):
    """By how much is measured with `python tests/support/stalled_store.py`; here, that each one does start."""
    assert len(await overruns(compiled, 3)) == 3


async def test_a_full_disk_costs_the_keeping_alone(tmp_path, monkeypatch):
    async with layer(tmp_path) as state:

        def full(*_args):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("tool_registry.blocks.store.write_temporary", full)
        first = await state.ask()
        await state.compiled()
        second = await state.ask()
        assert first.text == second.text == await plain_answer()
        assert any("block" in kind for kind in state.parts.faults.counts)
        assert not list(tmp_path.glob("*/*.block"))


async def test_a_folder_that_can_not_be_written_leaves_memory(tmp_path):
    (tmp_path / "blocks").write_text("a file", encoding="utf-8")
    async with layer(tmp_path / "blocks") as state:
        assert (await state.ask()).text == await plain_answer()
        await state.compiled()
        assert (await restored(state)).text == await plain_answer()
        await state.parts.save()
        assert state.parts.faults.counts


async def test_figures_that_can_not_be_kept_for_any_reason_are_noted_and_no_more(tmp_path):
    async with layer(tmp_path) as state:
        state.parts.usage.save = failing(RuntimeError("odd"), arguments=0)
        await state.parts.save()
        assert state.parts.faults.counts == {"figures not kept": 1}


async def test_tokens_that_can_not_be_had_cost_the_plan_alone(compiled):
    class Tokenless(StatefulDouble):
        broken = False

        async def anchor(self, segments):
            if self.broken:
                self.broken = False  # the engine itself needs it later
                raise RuntimeError("no tokens")
            return await super().anchor(segments)

    engine = Tokenless()
    async with layer(compiled, engine) as state:
        engine.broken = True
        turn = await state.ask()
        assert turn.text == await plain_answer()
        assert turn.state.action is Action.RECOMPUTE
        assert state.parts.faults.counts == {"planning": 1}


async def test_a_planner_that_fails_costs_the_plan_alone(compiled):
    async with layer(compiled) as state:
        state.parts.lookup.plan = failing(ZeroDivisionError())
        turn = await state.ask()
        assert turn.text == await plain_answer()
        assert state.parts.faults.counts["planning"] == 1


async def test_an_engine_that_refuses_a_block_is_not_given_it_again(compiled):
    class Refusing(StatefulDouble):
        async def complete(self, segments, schema, *, max_tokens, state=None):
            self.states.append(state)
            return await super().complete(segments, schema, max_tokens=max_tokens)

    async with layer(compiled, Refusing()) as state:
        turn = await restored(state)
        assert turn.text == await plain_answer()
        assert turn.state.reason == "the engine refused the block"
        assert not len(state.parts.memory)
        assert (await restored(state)).state.action is Action.RECOMPUTE
        assert state.engine.states[-1] is None
        assert state.parts.faults.counts["engine: refused a state"] == 1


async def test_each_kind_of_fault_is_logged_once(compiled):
    async with layer(compiled) as state:
        state.parts.disk.get = failing(OSError("I/O error"))
        for _ in range(3):
            await restored(state)
        assert state.parts.faults.counts["disk: read failed"] == 3
        assert "I/O error" in state.parts.faults.causes["disk: read failed"]


async def test_a_memory_tier_that_is_wrong_is_not_believed(compiled):
    async with layer(compiled) as state:
        anchored = await state.anchored()
        lie = dataclasses.replace(anchored.wanted, chain="another")
        state.parts.memory.put(anchored.key, StateBlock(lie, memoryview(bytes(64)), LABEL, 1.0))
        turn = await restored(state)
        assert turn.text == await plain_answer()
        assert state.engine.states[-1] is None


async def test_memory_keeps_to_its_budget_and_lets_go_what_is_worth_least(tmp_path):
    parts = open_parts(StatefulDouble(), StateSettings(memory_mb=1), tmp_path)
    blocks = []
    for tool in range(3):
        anchored = await parts.anchors.of(prompt(f"tool {tool}"), "local")
        blocks.append(
            (anchored.key, StateBlock(anchored.wanted, memoryview(bytes(400_000)), f"s/{tool}", 1.0))
        )
    parts.usage.count("s/0", 5)
    parts.usage.count("s/2", 9)
    held = parts.memory
    assert all(held.put(key, block) for key, block in blocks)
    assert [held.has(key) for key, _ in blocks] == [True, False, True]
    assert held.bytes_used == 800_000
    assert held.lease(blocks[2][0]) is blocks[2][1]
    assert not held.put(*blocks[1])
    parts.usage.count("s/1", 99)
    assert held.put(*blocks[1])
    assert [held.has(key) for key, _ in blocks] == [False, True, True]
    assert DiskTier.name == "disk"
