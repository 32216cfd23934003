"""Registries and requests that nobody would make up, on the real embedder: a sensible outcome, never a crash."""

import json

import anyio
import pytest
from support.fake_turns import CALLER, service_of
from support.making_tools import READS, STRING, definition
from support.models import real_embedder

from nexus_gateway.routing.calibration_file import shipped
from nexus_gateway.server.found_rendering import render_found
from nexus_gateway.turn.parts import TurnOptions
from nexus_gateway.turn.result import Outcome
from tool_registry.routing import Gate

TEXT = {"text": STRING}
WEATHER = definition(
    "get_weather", "Weather forecast of a city", {"city": STRING}, ["city"], annotations=READS
)
MAIL = definition("send_email", "Send an e-mail to somebody", {"to": STRING, "body": STRING}, ["to", "body"])
ROUTE = definition("plan_route", "Plan a route by car between two places", {"to": STRING}, ["to"])
SOUND = {"a": [WEATHER], "b": [MAIL], "c": [ROUTE]}
PAGE = (
    "What will the weather be in Paris tomorrow?\n\nCopyright 2024. All rights reserved. Cookie settings | Imprint\n"
    + "Lorem ipsum dolor sit amet, <a href='https://example.com/x'>consectetur</a> adipiscing elit. " * 600
)
HUGE = "Translate a sentence into Klingon. " + "It knows idioms, dialects, registers and names. " * 420
pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def embedder():
    async with real_embedder() as embedder:
        yield embedder


@pytest.fixture
def over(embedder):
    """A service on a registry."""

    async def make(servers):
        service, calls = await service_of(
            servers, embedder=embedder, gate=Gate(calibration=shipped()), answers=['"x"'] * 5
        )
        return service, calls

    return make


async def turn(service, request):
    with anyio.fail_after(60):
        return await service.turn(request, CALLER, options=TurnOptions(dry_run=True))


async def find(service, query, **more):
    with anyio.fail_after(60):
        return await service.find(query, CALLER, **more)


def names(page):
    return [str(found.tool.id) for found in page.tools]


@pytest.mark.parametrize(
    "request_text", ["what is the weather in Paris", "weather", PAGE, "🎉", "a" * 100_000]
)
async def test_a_registry_without_a_tool_has_no_tool_for_anything(over, request_text):
    service, _ = await over({"a": []})
    result, page = await turn(service, request_text), await find(service, request_text)
    assert (result.outcome, result.candidates) == (Outcome.NO_TOOL, ())
    assert "no tool is available" in result.message
    assert (page.fits, page.tools, page.cursor) == (False, (), None)


async def test_a_registry_of_one_tool_has_it_for_what_it_is_for_and_nothing_else(over):
    service, calls = await over({"a": [WEATHER]})
    assert str((await turn(service, "What is the weather in Paris")).tool_id) == "a/get_weather"
    assert (await turn(service, "Transpose the score of this string quartet")).outcome is Outcome.NO_TOOL
    page = await find(service, "Transpose the score of this string quartet")
    assert (page.fits, names(page)) == (False, ["a/get_weather"])
    assert not calls.calls


async def test_tools_without_a_description_are_found_by_their_names(over):
    silent = [{"name": name} for name in ("createInvoice", "list_customers", "DELETE-USER", "x", "-", "工具")]
    service, _ = await over({"a": silent})
    assert names(await find(service, "create an invoice", limit=1)) == ["a/createInvoice"]
    assert names(await find(service, "list all customers", limit=1)) == ["a/list_customers"]
    assert names(await find(service, "delete a user", limit=1)) == ["a/DELETE-USER"]
    assert (await find(service, "")).total == 6


async def test_the_same_tool_on_many_servers_is_one_of_them_and_the_others_are_named(over):
    service, _ = await over({f"s{n}": [WEATHER] for n in range(8)} | {"b": [MAIL]})
    result = await turn(service, "What will the weather be in Paris?")
    assert result.outcome in (Outcome.PROPOSED, Outcome.AMBIGUOUS)
    assert {candidate.tool_id.name for candidate in result.candidates[:1]} == {"get_weather"}
    first = (await find(service, "weather in a city")).tools[0]
    assert len(first.also_on) == 7
    assert first.tool.id not in first.also_on


async def test_a_tool_listed_twice_by_one_server_is_there_once(over):
    service, _ = await over({"a": [WEATHER, {**WEATHER, "description": "another"}, MAIL]})
    assert (await find(service, "")).total == 2
    assert (await find(service, "weather in Paris", limit=1)).tools[0].tool.description == WEATHER[
        "description"
    ]


async def test_a_description_of_20_000_characters_neither_hides_its_tool_nor_draws_requests(over):
    service, _ = await over({**SOUND, "d": [definition("translate_sentence", HUGE, TEXT, ["text"])]})
    assert names(await find(service, "translate this into Klingon", limit=1)) == ["d/translate_sentence"]
    assert names(await find(service, "what is the weather in Paris", limit=1)) == ["a/get_weather"]
    page = await find(service, "translate this into Klingon", limit=1)
    assert len(page.tools[0].signature) < 200


async def test_tools_in_many_languages_stand_beside_each_other(over):
    foreign = [
        definition("wetter_abrufen", "Ruft die Wettervorhersage für eine Stadt ab", {"stadt": STRING}),
        definition("发送邮件", "给某人发送电子邮件", {"收件人": STRING}),
        definition("найти_файл", "Найти файл по имени", {"имя": STRING}),
        definition("ファイル検索", "ファイルを検索する", {"名前": STRING}),
    ]
    service, _ = await over({**SOUND, "d": foreign})
    assert names(await find(service, "what is the weather in Paris", limit=1)) == ["a/get_weather"]
    assert names(await find(service, "Wettervorhersage für eine Stadt", limit=1)) == ["d/wetter_abrufen"]
    assert names(await find(service, "发送电子邮件", limit=1)) == ["d/发送邮件"]
    assert names(await find(service, "найти файл", limit=1)) == ["d/найти_файл"]
    assert names(await find(service, "ファイルを検索", limit=1)) == ["d/ファイル検索"]
    for request in ("给妈妈发送电子邮件", "найди файл отчёт.txt", "查一下巴黎的天气"):
        assert (await turn(service, request)).outcome in (Outcome.AMBIGUOUS, Outcome.NO_TOOL), request


@pytest.mark.parametrize("word", ["weather", "WEATHER!", "Paris", "delete", "the", "?", "hi", "42", "🎉"])
async def test_one_word_is_at_most_a_question_and_never_a_call(over, word):
    service, calls = await over(SOUND)
    with anyio.fail_after(60):
        result = await service.turn(word, CALLER)
    assert result.outcome in (Outcome.NO_TOOL, Outcome.AMBIGUOUS, Outcome.NEEDS_INPUT)
    assert not calls.calls
    page = await find(service, word)
    assert all(0 <= found.relevance <= 1 for found in page.tools)


async def test_a_pasted_page_is_routed_by_its_beginning_and_a_page_alone_is_no_request(over):
    service, _ = await over(SOUND)
    assert names(await find(service, PAGE, limit=1)) == ["a/get_weather"]
    assert (await turn(service, PAGE)).outcome in (Outcome.PROPOSED, Outcome.NEEDS_INPUT, Outcome.AMBIGUOUS)
    alone = await turn(service, PAGE.split("\n\n", 1)[1])
    assert alone.outcome in (Outcome.NO_TOOL, Outcome.AMBIGUOUS)


async def test_whatever_is_found_can_be_written_as_json(over):
    odd = definition("odd", "lone \x00 \u2028 \ufffd", {"\x00": {"type": ["string", "null"]}})
    service, _ = await over({"a": [odd, {"name": "bare"}]})
    for query in ("lone", "", "\udcff lone", "\x00"):
        assert json.dumps(render_found(await find(service, query), "schemas"))
    assert (await turn(service, "lone \udcff")).outcome is not Outcome.FAILED
