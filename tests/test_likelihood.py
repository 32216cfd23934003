"""Reranking by the argument model: what it prefers, and that it leaves the engine as it was."""

import anyio
import numpy as np
import pytest

from adapters.llama_cpp import library
from adapters.llama_cpp.aside import aside
from adapters.llama_cpp.engine import open_engine
from adapters.llama_cpp.likelihood import LikelihoodReranker
from adapters.llama_cpp.options import EngineOptions
from adapters.ports import ModelUnusable, Segment, SegmentKind

pytestmark = [pytest.mark.anyio]

REQUEST = "What will the weather be like in Paris tomorrow?"
TEXTS = ["Delete a file from disk.", "Get the weather forecast of a city.", "Send an e-mail to somebody."]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SMALL = EngineOptions(n_ctx=512)


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def engine(smollm):
    async with open_engine(smollm, SMALL) as opened:
        yield opened


def nothing():
    return None


def prompt(tool):
    return [Segment(SegmentKind.TOOL, tool), Segment(SegmentKind.REQUEST, "Weather in Rome?")]


async def test_the_tool_that_makes_the_request_likelier_scores_higher(engine):
    scores = await LikelihoodReranker(engine).score(REQUEST, TEXTS)

    assert len(scores) == 3
    assert int(np.argmax(scores)) == 1
    assert scores[1] > 0


async def test_a_score_does_not_depend_on_the_other_texts(engine):
    reranker = LikelihoodReranker(engine)
    together = await reranker.score(REQUEST, TEXTS)
    alone = [(await reranker.score(REQUEST, [text]))[0] for text in TEXTS]

    assert together == pytest.approx(alone, abs=1e-4)


@pytest.mark.parametrize(("request_text", "texts", "scores"), [("x", [], []), ("  ", ["a", "b"], [0.0, 0.0])])
async def test_nothing_to_weigh_gives_no_preference(engine, request_text, texts, scores):
    assert await LikelihoodReranker(engine).score(request_text, texts) == scores


async def test_a_pasted_page_counts_by_its_beginning(engine):
    scores = await LikelihoodReranker(engine).score("weather " * 5000, ["forecast " * 5000, "x"])

    assert np.isfinite(scores).all()


async def test_log_probabilities_are_those_of_decoding_token_by_token(engine):
    def by_hand(context, tokens, target):
        found = []
        with context.leased((), nothing, tokens=200, keep=False) as sequence:
            (logits,) = context.decode(sequence, tokens, nothing)
            for token in target:
                values = np.array(logits, dtype=np.float64)
                found.append(values[token] - values.max() - np.log(np.exp(values - values.max()).sum()))
                (logits,) = context.decode(sequence, [token], nothing)
        return found

    def work(parts):
        head, body, target = (
            parts.prompts.text(text) for text in ("Tools help.", " Ask:", " where is Rome?")
        )
        expected = by_hand(parts.context, [*head, *body], target)
        with aside(parts.context, 200, nothing) as asked:
            return expected, [
                asked.log_likelihoods(head, body, target),
                asked.log_likelihoods(head, body, target),  # after the kept head
                asked.log_likelihoods((), [*head, *body], target),
            ]

    expected, found = await engine.run(work)
    for values in found:
        np.testing.assert_allclose(values, expected, atol=0.1)  # other shapes of batches, other roundings
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)


async def test_texts_longer_than_a_batch_are_weighed_in_parts(smollm, engine):
    whole = await LikelihoodReranker(engine).score(REQUEST, TEXTS)
    async with open_engine(smollm, EngineOptions(n_ctx=512, n_batch=4)) as narrow:
        in_parts = await LikelihoodReranker(narrow).score(REQUEST, TEXTS)

    assert in_parts == pytest.approx(whole, abs=0.1)


async def test_the_state_of_the_last_prompt_is_kept(engine):
    first = await engine.complete(prompt("get_weather(city)"), SCHEMA, max_tokens=16)
    again = await engine.complete(prompt("get_weather(city)"), SCHEMA, max_tokens=16)
    await LikelihoodReranker(engine).score(REQUEST, TEXTS)
    after = await engine.complete(prompt("get_weather(city)"), SCHEMA, max_tokens=16)

    assert after.text == again.text == first.text
    assert after.reused_tokens == again.reused_tokens > 0


async def test_where_both_do_not_fit_the_last_prompt_goes(smollm):
    async with open_engine(smollm, EngineOptions(n_ctx=256, resident_tokens=0)) as engine:
        await engine.complete(prompt("word " * 150), SCHEMA, max_tokens=16)
        scores = await LikelihoodReranker(engine).score(REQUEST, ["forecast " * 100, *TEXTS])
        after = await engine.complete(prompt("word " * 150), SCHEMA, max_tokens=16)

    assert len(scores) == 4
    assert after.reused_tokens == 0


async def test_cancellation_stops_between_evaluations_and_leaves_the_engine_usable(engine, monkeypatch):
    binding = library.llama()
    decode, calls = binding.llama_decode, []

    def counted(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            anyio.from_thread.run_sync(scope.cancel)
        return decode(*arguments)

    monkeypatch.setattr(binding, "llama_decode", counted)
    with anyio.CancelScope() as scope:
        await LikelihoodReranker(engine).score(REQUEST, TEXTS * 10)
    assert scope.cancelled_caught
    assert len(calls) < 10

    assert int(np.argmax(await LikelihoodReranker(engine).score(REQUEST, TEXTS))) == 1


async def test_a_closed_engine_is_an_error_and_not_a_crash(smollm):
    async with open_engine(smollm, SMALL) as engine:
        reranker = LikelihoodReranker(engine)
    with pytest.raises(ModelUnusable, match="is closed"):
        await reranker.score(REQUEST, TEXTS)


async def test_identity_is_the_engine_s_and_that_of_the_score(engine):
    identity = LikelihoodReranker(engine).identity

    assert engine.identity in identity
    assert identity != engine.identity
