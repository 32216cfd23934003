"""Completions that run at once: each is what it is alone, bit for bit, whoever runs, leaves or fails beside it."""

import contextvars
import hashlib
import os

import anyio
import pytest
from anyio import from_thread

from adapters.llama_cpp import library
from adapters.llama_cpp.context import Context
from adapters.llama_cpp.engine import open_engine
from adapters.llama_cpp.likelihood import LikelihoodReranker
from adapters.llama_cpp.options import EngineOptions
from adapters.llama_cpp.sequences import Pool
from adapters.ports import ModelUnusable, Segment, SegmentKind

pytestmark = [pytest.mark.anyio]

FULL = os.environ.get("NEXUS_FULL_TESTS") == "1"
TURNS, EACH = 8, 50 if FULL else 6
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
LETTERS = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 400}},
    "required": ["text"],
}
CITIES = ("Paris", "Lima", "Cairo", "Perth", "Oslo", "Quito", "Rome", "Seoul", "Graz", "Bern")
TOOLS = tuple(
    f"tool_{name}(city: string)\nSays what the {name} of a city is." for name in ("heat", "rain", "wind")
)
SMALL = EngineOptions(n_ctx=512, resident_tokens=256, threads=2)

heard = contextvars.ContextVar("heard", default=None)


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def engine(smollm):
    async with open_engine(smollm, SMALL) as opened:
        yield opened


@pytest.fixture
def bits(monkeypatch):
    """What `complete` is told of each logits that a completion saw, as a digest beside its text."""
    decode = Context.decode

    def listened(self, *arguments, **options):
        logits = decode(self, *arguments, **options)
        if (digest := heard.get()) is not None:
            digest.update(logits.tobytes())
        return logits

    monkeypatch.setattr(Context, "decode", listened)


def prompt(number):
    return [
        Segment(SegmentKind.SYSTEM, "Write the arguments of the tool as JSON."),
        Segment(SegmentKind.TOOL, TOOLS[number % len(TOOLS)]),
        Segment(SegmentKind.REQUEST, f"Request {number}: how is {CITIES[number % len(CITIES)]}?"),
    ]


async def complete(engine, number, schema=WEATHER, max_tokens=8):
    digest = hashlib.sha256()
    token = heard.set(digest)
    try:
        answer = await engine.complete(prompt(number), schema, max_tokens=max_tokens)
    finally:
        heard.reset(token)
    return answer.text, digest.hexdigest()


async def test_eight_turns_at_once_see_the_same_bits_as_one_after_the_other(engine, bits, monkeypatch):
    packed, pack = [], Pool._pack
    monkeypatch.setattr(Pool, "_pack", lambda self: packed.append(pack(self)))
    numbers = range(TURNS * EACH)
    alone = {number: await complete(engine, number) for number in numbers}
    together, most = {}, []

    async def turn(first):
        for number in range(first, TURNS * EACH, TURNS):
            most.append(engine._desk.calls)
            together[number] = await complete(engine, number)

    async with anyio.create_task_group() as tasks:
        for first in range(TURNS):
            tasks.start_soon(turn, first)
    assert together == alone
    assert max(most) >= TURNS - 1
    assert packed, "the context was never full, so nothing was moved"


async def test_a_turn_that_is_cancelled_leaves_the_others_as_they_were(engine, bits):
    alone = {number: await complete(engine, number) for number in range(4)}
    together, started = {}, anyio.Event()

    async def turn(number):
        together[number] = await complete(engine, number)

    async def endless():
        with anyio.CancelScope() as scope:
            tasks.start_soon(stop, scope)
            await complete(engine, 9, LETTERS, 200)
        assert scope.cancelled_caught

    async def stop(scope):
        await started.wait()
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(endless)
        for number in range(4):
            tasks.start_soon(turn, number)
        while len(together) < 2:
            await anyio.wait_all_tasks_blocked()
            await anyio.sleep(0.01)
        started.set()
    assert together == alone
    assert await complete(engine, 1) == alone[1]


async def test_who_finds_no_room_waits_for_it(smollm, bits):
    options = EngineOptions(n_ctx=256, resident_tokens=0, threads=2)
    async with open_engine(smollm, options) as engine:
        numbers = range(5)
        alone = {number: await complete(engine, number, max_tokens=120) for number in numbers}
        together = {}

        async def turn(number):
            together[number] = await complete(engine, number, max_tokens=120)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for number in numbers:
                    tasks.start_soon(turn, number)
        assert together == alone
        with pytest.raises(ModelUnusable, match=r"tokens and SmolLM2.* runs with a context of 256; .*n_ctx"):
            await engine.complete([Segment(SegmentKind.REQUEST, "7" * 2000)], WEATHER, max_tokens=16)


async def test_a_decode_that_fails_is_the_failure_of_one_turn(engine, bits, monkeypatch):
    alone = {number: await complete(engine, number) for number in range(6)}
    binding, together, failed = library.llama(), {}, []
    decode, calls = binding.llama_decode, []

    def failing(*arguments):
        calls.append(arguments)
        return 1 if len(calls) == 9 else decode(*arguments)

    async def turn(number):
        try:
            together[number] = await complete(engine, number)
        except ModelUnusable as error:
            failed.append((number, str(error)))

    monkeypatch.setattr(binding, "llama_decode", failing)
    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(turn, number)
    ((number, message),) = failed
    assert "no room in its context" in message
    assert together == {other: found for other, found in alone.items() if other != number}
    assert await complete(engine, number) == alone[number]


async def test_reranking_beside_turns_changes_neither(engine, bits):
    alone = {number: await complete(engine, number) for number in range(3)}
    reranker, together, scores = LikelihoodReranker(engine), {}, []
    expected = list(await reranker.score("How warm is Graz?", TOOLS))

    async def turn(number):
        together[number] = await complete(engine, number)

    async def rerank():
        scores.append(list(await reranker.score("How warm is Graz?", TOOLS)))

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(turn, number)
            tasks.start_soon(rerank)
    assert together == alone
    assert scores == [expected] * 3


async def test_closing_waits_for_those_that_run_and_refuses_others(smollm, monkeypatch):
    binding, running, texts = library.llama(), anyio.Event(), []
    decode = binding.llama_decode

    def seen(*arguments):
        if not running.is_set():
            from_thread.run_sync(running.set)
        return decode(*arguments)

    async def turn(engine, number):
        texts.append(await complete(engine, number))

    async with anyio.create_task_group() as tasks:
        async with open_engine(smollm, SMALL) as engine:
            monkeypatch.setattr(binding, "llama_decode", seen)
            for number in range(3):
                tasks.start_soon(turn, engine, number)
            await running.wait()
        with pytest.raises(ModelUnusable, match="is closed"):
            await complete(engine, 0)
    assert len(texts) == 3
