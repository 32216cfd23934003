"""The remote engine when its server misbehaves: what passes is tried again, the rest is said plainly."""

import json
import logging
import socket

import anyio
import keyring
import keyring.backend
import keyring.errors
import pytest
from servers.chat_server import (
    SECONDS,
    chat_server,
    cut_in_the_middle,
    endless,
    failing,
    never,
    says,
    status,
)

from adapters.openai import api
from adapters.openai_engine import RemoteOptions, open_openai_engine
from adapters.ports import ModelUnusable, SchemaNotCompilable, Segment, SegmentKind

pytestmark = pytest.mark.anyio

DAYS = {"type": "integer", "minimum": 1}
PROMPT = [
    Segment(SegmentKind.SYSTEM, "Fill in."),
    Segment(SegmentKind.TOOL, "\nFunction: f(city, days)"),
    Segment(SegmentKind.REQUEST, "Paris, three days"),
    Segment(SegmentKind.ANSWER, '{"city":"Paris","days":'),
]
RIGHT = '{"city": "Paris", "days": 3}'
KEY = "sk-sesame-1234"
REFUSES_FORMS = failing(400, "unknown response_format")


def options(url, **changes):
    return RemoteOptions(
        **{"url": url, "model": "m", "timeout_seconds": SECONDS, "pause_seconds": 0.01} | changes
    )


async def complete(chat, schema=DAYS, prompt=PROMPT, **changes):
    async with open_openai_engine(options(chat.url, **changes)) as engine:
        return await engine.complete(prompt, schema, max_tokens=16)


async def failure_of(chat, **changes):
    with pytest.raises(ModelUnusable) as raised:
        await complete(chat, **changes)
    return str(raised.value)


async def test_a_server_that_is_down_is_named_with_the_question_whether_it_runs():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        async with open_openai_engine(options(url, retries=1)) as engine:
            with pytest.raises(ModelUnusable, match="is the server running") as raised:
                await engine.complete(PROMPT, DAYS, max_tokens=16)
            with pytest.raises(ModelUnusable, match="is the server running"):
                await engine.check()
    assert url in str(raised.value)


async def test_a_server_that_is_slow_past_the_deadline_is_given_up_and_told():
    with chat_server(never) as chat:
        message = await failure_of(chat, timeout_seconds=0.2)
        assert "within 0.2 s" in message
        assert "timeout_seconds" in message
        assert await anyio.to_thread.run_sync(chat.hung_up.wait, SECONDS)
    assert len(chat.asked) == 1


async def test_cancelling_a_call_closes_its_request():
    with chat_server(never) as chat:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(complete, chat)
            with anyio.fail_after(SECONDS):
                while not chat.asked:  # noqa: ASYNC110 - the server is a thread
                    await anyio.sleep(0.005)
            tasks.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(chat.hung_up.wait, SECONDS)


async def test_too_many_requests_wait_as_long_as_the_server_says(monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(api.anyio, "sleep", sleep)
    busy = failing(429, "slow down", retry_after="7")
    with chat_server(busy, busy, says(RIGHT)) as chat:
        completion = await complete(chat)
    assert completion.text == "3"
    assert slept == [7.0, 7.0]


async def test_a_wait_beyond_the_deadline_is_not_begun():
    with chat_server(failing(429, "slow down", retry_after="25")) as chat:
        message = await failure_of(chat)
    assert "answered 429" in message
    assert "slow down" in message
    assert len(chat.asked) == 1


async def test_no_server_makes_us_wait_longer_than_the_cap(monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(api.anyio, "sleep", sleep)
    with chat_server(failing(503, "", retry_after="86400"), says(RIGHT)) as chat:
        await complete(chat, timeout_seconds=3600.0)
    assert slept == [api.MAX_PAUSE_SECONDS]


@pytest.mark.parametrize("code", [500, 502, 503])
async def test_a_failure_that_passes_costs_another_attempt(code):
    with chat_server(failing(code, "oops"), says(RIGHT)) as chat:
        completion = await complete(chat)
    assert (completion.text, completion.complete) == ("3", True)
    assert len(chat.asked) == 2


async def test_a_failure_that_stays_is_told_with_the_servers_own_words():
    with chat_server(*[failing(500, "out of memory")] * 3) as chat:
        message = await failure_of(chat, retries=2)
    assert "answered 500" in message
    assert "out of memory" in message
    assert len(chat.asked) == 3


@pytest.mark.parametrize("broken", [status(200, "{not json"), status(200, "[]"), cut_in_the_middle])
async def test_a_broken_body_is_asked_for_again(broken):
    with chat_server(broken, says(RIGHT)) as chat:
        assert (await complete(chat)).text == "3"


@pytest.mark.parametrize(
    ("broken", "cause"), [(status(200, "<html>"), "not a JSON object"), (cut_in_the_middle, "broke")]
)
async def test_a_body_that_stays_broken_is_told(broken, cause):
    with chat_server(broken, broken) as chat:
        assert cause in await failure_of(chat, retries=1)


async def test_json_that_is_no_completion_is_told():
    with chat_server(status(200, {"object": "list"})) as chat:
        assert "no chat completion" in await failure_of(chat)


async def test_a_huge_body_is_not_read_to_its_end():
    with chat_server(endless) as chat:
        assert "more than 4,194,304 bytes" in await failure_of(chat)
        assert await anyio.to_thread.run_sync(chat.hung_up.wait, SECONDS)


async def test_an_answer_against_the_schema_is_repaired_once():
    with chat_server(says('{"city": "Paris", "days": 0}'), says(RIGHT)) as chat:
        completion = await complete(chat)
    assert (completion.text, completion.complete) == ("3", True)
    assert (completion.prompt_tokens, completion.sampled_tokens, completion.forced_tokens) == (40, 10, 0)
    again = chat.bodies[1]["messages"]
    assert [message["role"] for message in again] == ["system", "user", "assistant", "user"]
    assert again[2]["content"] == '{"city": "Paris", "days": 0}'
    assert "days: 0 is less than the minimum of 1" in again[3]["content"]


async def test_an_answer_that_stays_wrong_is_incomplete_and_empty():
    with chat_server(*[says('{"city": "Paris", "days": "x"}')] * 2) as chat:
        completion = await complete(chat)
    assert (completion.text, completion.complete) == ("", False)
    assert len(chat.asked) == 2


async def test_an_answer_that_was_cut_is_incomplete_and_not_repaired():
    with chat_server(says('{"city": "Paris", "days": ', "length")) as chat:
        assert not (await complete(chat)).complete
    assert len(chat.asked) == 1


@pytest.mark.parametrize(
    "text", ['{"days": NaN}', '{"days": 1e999}', '{"days": ' + "[" * 5000, '{"days": "\\ud800"}']
)
async def test_what_is_no_json_or_no_text_is_never_handed_on(text):
    with chat_server(*[says(text)] * 8) as chat:
        completion = await complete(chat, schema={})
    assert (completion.text, completion.complete) == ("", False)


async def test_a_redirect_is_not_followed_and_gets_no_key(monkeypatch):
    monkeypatch.setenv("ENGINE_KEY", KEY)
    with chat_server() as elsewhere, chat_server(status(307, {}, location=elsewhere.url)) as chat:
        message = await failure_of(chat, api_key_env="ENGINE_KEY")
    assert "redirects are not followed" in message
    assert elsewhere.url in message
    assert not elsewhere.asked
    assert chat.asked[0][1]["Authorization"] == f"Bearer {KEY}"


async def test_a_key_is_in_no_message_and_no_log_even_if_the_server_quotes_it(monkeypatch, caplog):
    monkeypatch.setenv("ENGINE_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    with chat_server(failing(401, f"wrong key {KEY}")) as chat:
        chosen = options(chat.url, api_key_env="ENGINE_KEY")
        async with open_openai_engine(chosen) as engine:
            with pytest.raises(ModelUnusable, match="api_key_env") as raised:
                await engine.complete(PROMPT, DAYS, max_tokens=16)
            shown = [str(raised.value), repr(engine), repr(chosen), repr(engine._api._key), caplog.text]
    assert "wrong key ***" in shown[0]
    assert not any(KEY in text for text in shown)


async def test_a_model_that_is_not_there_is_told_with_what_to_check():
    with chat_server(failing(404, "model 'm' not found")) as chat:
        message = await failure_of(chat)
    assert "model 'm' not found" in message
    assert "model in [engine]" in message
    assert len(chat.asked) == 1


async def test_a_prompt_that_is_too_long_is_told_at_once():
    with chat_server(failing(400, "maximum context length is 512 tokens, you requested 900")) as chat:
        assert "shorten the request" in await failure_of(chat)
    assert len(chat.asked) == 1


async def test_more_calls_than_may_wait_are_refused(monkeypatch):
    monkeypatch.setattr("adapters.openai_engine.MAX_WAITING", 0)
    with chat_server() as chat:
        assert "busy" in await failure_of(chat)


async def test_a_schema_that_is_none_is_not_sent():
    with chat_server() as chat, pytest.raises(SchemaNotCompilable):
        await complete(chat, schema={"type": 3})
    assert not chat.asked


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("http://models.example/v1", "plain_http"),
        ("https://me:secret@models.example/v1", "api_key_env"),
        ("https://models.example/v1?key=secret", "api_key_env"),
        ("${UNSET}", "must begin with http"),
        ("ftp://models.example", "must begin with http"),
    ],
)
async def test_a_url_that_is_not_to_be_used_says_why(url, fix):
    with pytest.raises(ModelUnusable, match=fix) as raised:
        async with open_openai_engine(options(url)):
            pass
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://localhost:1/v1", "http://[::1]:1/v1", "http://127.0.0.5:1"])
async def test_this_machine_needs_no_encryption(url):
    async with open_openai_engine(options(url)) as engine:
        assert engine.identity == f"m at {url}"
        assert not engine.holds_local_state


async def test_another_machine_may_be_spoken_to_plainly_if_told():
    async with open_openai_engine(options("http://models.example/v1", plain_http=True)) as engine:
        assert "models.example" in engine.identity


@pytest.mark.parametrize(("value", "fix"), [(None, "set it to the key"), ("two words", "no usable key")])
async def test_a_key_that_is_not_there_or_not_one_is_told(monkeypatch, value, fix):
    monkeypatch.delenv("ENGINE_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("ENGINE_KEY", value)
    with pytest.raises(ModelUnusable, match=fix) as raised:
        async with open_openai_engine(options("http://127.0.0.1:1/v1", api_key_env="ENGINE_KEY")):
            pass
    assert "ENGINE_KEY" in str(raised.value)
    assert "two words" not in str(raised.value)


class _Ring(keyring.backend.KeyringBackend):
    priority = 1

    def get_password(self, service, username):
        if service == "locked":
            raise keyring.errors.KeyringLocked
        return KEY if (service, username) == ("nexus/engines", "me") else None

    def set_password(self, service, username, password):
        raise NotImplementedError


@pytest.fixture
def ring():
    before = keyring.get_keyring()
    keyring.set_keyring(_Ring())
    yield
    keyring.set_keyring(before)


async def test_the_keyring_may_hold_the_key(ring):
    with chat_server(says(RIGHT)) as chat:
        await complete(chat, api_key_keyring="nexus/engines/me")
    assert chat.asked[0][1]["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("entry", "fix"),
    [("nexus/you", "keyring set nexus you"), ("locked/me", "unlock it"), ("nexus", "SERVICE/USER")],
)
async def test_a_keyring_without_the_key_says_what_to_do(ring, entry, fix):
    with pytest.raises(ModelUnusable, match=fix):
        async with open_openai_engine(options("http://127.0.0.1:1/v1", api_key_keyring=entry)):
            pass


async def test_without_a_key_none_is_sent_and_the_body_is_what_it_should_be():
    with chat_server(says(RIGHT)) as chat:
        await complete(chat, extra_body={"repeat_penalty": 1.0, "model": "other"})
    path, headers, body = chat.asked[0]
    assert path == "/v1/chat/completions"
    assert "Authorization" not in headers
    assert json.loads(json.dumps(body))["model"] == "m"
    assert (body["repeat_penalty"], body["temperature"]) == (1.0, 0)
