"""What runs only after a yes: asked through the host where it can ask, by a token in the result where it can't."""

import secrets
from functools import partial

import anyio
import pytest
from mcp.server.request_state import AESGCMRequestStateCodec
from support.fake_gateway import (
    BOTH_ERAS,
    DECLINE,
    DISMISS,
    MODERN,
    NO,
    PATIENCE,
    YES,
    User,
    accept,
    fake_gateway,
    host,
    outcome,
    said,
    tool,
)

from adapters.upstream_double import FakeUpstream
from nexus_gateway.access.caller import Caller, Principal, Tenant
from nexus_gateway.settings.snapshot import ToolSettings
from nexus_gateway.turn.confirmation import PendingTokens, TokenError
from nexus_gateway.turn.result import PendingCall
from tool_registry.tool import ContentHash, ToolId

pytestmark = pytest.mark.anyio
TITLE = {"title": {"type": "string", "description": "Which note"}}
ERASE = tool("erase_note", TITLE, readOnlyHint=False, destructiveHint=True)
SHOW = tool("show_note", TITLE, readOnlyHint=True)
TAG = tool("tag_note", TITLE, readOnlyHint=False, destructiveHint=False)
PIN = tool("pin_note", TITLE)
GROCERIES = {"title": "Groceries"}
in_both_eras = pytest.mark.parametrize("era", BOTH_ERAS)
either_way = pytest.mark.parametrize(
    "erasing",
    [
        ("nexus_turn", {"request": 'erase_note "Groceries"'}),
        ("call_tool", {"tool": "erase_note", "arguments": GROCERIES}),
    ],
    ids=["nexus_turn", "call_tool"],
)


@pytest.fixture
def notes():
    return FakeUpstream("notes", [ERASE, SHOW, TAG, PIN])


@pytest.fixture
async def gateway(tmp_path, notes):
    with anyio.fail_after(100):
        async with fake_gateway(tmp_path, notes) as running:
            yield running


@pytest.fixture
async def mute(gateway):
    """A host that can't ask its user."""
    async with host(gateway, "legacy") as client:
        yield client


def call(client, name, arguments=GROCERIES, **rest):
    return client.call_tool("call_tool", {"tool": name, "arguments": arguments, **rest})


async def token_for(client, name="erase_note"):
    asked = await call(client, name)
    assert outcome(asked) == "needs_input"
    return asked.structured_content["confirm"]


@in_both_eras
@either_way
async def test_a_yes_lets_a_destructive_tool_run(gateway, notes, era, erasing):
    user = User(YES)
    async with host(gateway, era, user) as client:
        result = await client.call_tool(*erasing)
    assert notes.calls == [{"name": "erase_note", "arguments": GROCERIES}]
    assert "erase_note {'title': 'Groceries'}" in said(result)
    assert "notes/erase_note" in user.asked[0].message
    assert "Groceries" in user.asked[0].message


@in_both_eras
@either_way
@pytest.mark.parametrize("answer", [NO, DECLINE, DISMISS, accept(confirm="true"), accept()])
async def test_any_answer_but_a_yes_keeps_it_from_running(gateway, notes, era, erasing, answer):
    async with host(gateway, era, User(answer)) as client:
        result = await client.call_tool(*erasing)
    assert notes.calls == []
    assert outcome(result) == "needs_input"
    assert "did not agree" in said(result)
    assert "confirm" not in result.structured_content


@in_both_eras
async def test_a_destructive_tool_is_asked_about_each_time(gateway, notes, era):
    user = User(YES, NO)
    async with host(gateway, era, user) as client:
        await call(client, "erase_note")
        await call(client, "erase_note")
    assert len(user.asked) == 2
    assert len(notes.calls) == 1


async def test_a_modern_host_gets_the_question_as_an_interim_result(gateway, notes):
    async with host(gateway, MODERN, User()) as client:
        interim = await client.session.call_tool(
            "nexus_turn", {"request": 'erase_note "Groceries"'}, allow_input_required=True
        )
    assert interim.result_type == "input_required"
    assert interim.request_state
    (question,) = interim.input_requests.values()
    assert question.method == "elicitation/create"
    assert question.params.requested_schema["required"] == ["confirm"]
    assert notes.calls == []


async def test_an_interim_answer_works_once(gateway, notes):
    async with host(gateway, MODERN, User()) as client:
        request = {"request": 'erase_note "Groceries"'}
        interim = await client.session.call_tool("nexus_turn", request, allow_input_required=True)
        answers = dict.fromkeys(interim.input_requests, YES)
        retry = partial(
            client.call_tool,
            "nexus_turn",
            request,
            input_responses=answers,
            request_state=interim.request_state,
        )
        await retry()
        again = await retry()
    assert len(notes.calls) == 1
    assert again.is_error
    assert "used already" in said(again)


async def test_a_question_of_nexus_turn_is_not_answered_through_nexus_read(gateway, notes):
    async with host(gateway, MODERN, User()) as client:
        request = {"request": 'erase_note "Groceries"'}
        interim = await client.session.call_tool("nexus_turn", request, allow_input_required=True)
        result = await client.call_tool(
            "nexus_read",
            request,
            input_responses=dict.fromkeys(interim.input_requests, YES),
            request_state=interim.request_state,
        )
    assert notes.calls == []
    assert outcome(result) == "no_tool"


@in_both_eras
async def test_a_host_that_cannot_ask_gets_a_token_that_works_once(gateway, notes, era):
    async with host(gateway, era) as client:
        asked = await client.call_tool("nexus_turn", {"request": 'erase_note "Groceries"'})
        token = asked.structured_content["confirm"]
        assert token in said(asked)
        assert notes.calls == []
        first = await call(client, "notes/erase_note", confirm=token)
        second = await call(client, "notes/erase_note", confirm=token)
    assert not first.is_error
    assert len(notes.calls) == 1
    assert second.is_error
    assert "used already" in said(second)


async def test_a_token_is_good_for_its_arguments_alone(mute, notes):
    result = await call(mute, "erase_note", {"title": "Diary"}, confirm=await token_for(mute))
    assert result.is_error
    assert "other arguments" in said(result)
    assert notes.calls == []


async def test_a_token_is_good_for_its_tool_alone(mute, notes):
    result = await call(mute, "erase_note", confirm=await token_for(mute, "pin_note"))
    assert result.is_error
    assert "another tool" in said(result)
    assert notes.calls == []


async def test_a_token_is_good_for_the_definition_that_was_asked_about(mute, gateway, notes):
    token = await token_for(mute)
    await gateway.relist("notes", [ERASE | {"description": "Erases all notes."}])
    result = await call(mute, "erase_note", confirm=token)
    assert result.is_error
    assert "has changed" in said(result)
    assert notes.calls == []


@pytest.mark.parametrize("token", ["", "yes", "v1.AAAA", "\x00", "é" * 5000])
async def test_what_is_no_token_is_refused(mute, notes, token):
    result = await call(mute, "erase_note", confirm=token)
    assert result.is_error
    assert "not a confirmation of this gateway" in said(result)
    assert notes.calls == []


async def test_an_altered_token_is_refused(mute, notes):
    token = await token_for(mute)
    place = len(token) // 2
    altered = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
    assert (await call(mute, "erase_note", confirm=altered)).is_error
    assert notes.calls == []


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


PENDING = PendingCall(ToolId("notes", "erase_note"), ContentHash("h"), GROCERIES, ("when",))


def tokens(clock, key=secrets.token_bytes(32)):  # noqa: B008 - one key for all
    return PendingTokens(AESGCMRequestStateCodec([key]), ttl_seconds=60, now=clock)


def test_a_token_gives_back_the_pending_call_until_it_expires():
    clock = Clock()
    issuer = tokens(clock)
    early, late = issuer.seal(PENDING, Caller()), issuer.seal(PENDING, Caller())
    clock.now += 59
    assert issuer.redeem(early, Caller()) == PENDING
    clock.now += 1
    with pytest.raises(TokenError, match="expired"):
        issuer.redeem(late, Caller())


def test_a_used_token_stays_used_until_it_has_expired():
    clock = Clock()
    issuer = tokens(clock)
    token = issuer.seal(PENDING, Caller())
    issuer.redeem(token, Caller())
    clock.now += 59
    with pytest.raises(TokenError, match="used already"):
        issuer.redeem(token, Caller())
    clock.now += 60
    with pytest.raises(TokenError, match="expired"):
        issuer.redeem(token, Caller())


@pytest.mark.parametrize(
    "other",
    [Caller(tenant=Tenant("other")), Caller(principal=Principal("other"))],
    ids=["tenant", "principal"],
)
def test_a_token_is_good_for_its_caller_alone(other):
    issuer = tokens(Clock())
    token = issuer.seal(PENDING, Caller())
    with pytest.raises(TokenError, match="another caller"):
        issuer.redeem(token, other)
    assert issuer.redeem(token, Caller()) == PENDING  # a stranger's try does not use it up


def test_a_token_of_another_gateway_is_refused():
    foreign = tokens(Clock(), secrets.token_bytes(32)).seal(PENDING, Caller())
    with pytest.raises(TokenError, match="not a confirmation of this gateway"):
        tokens(Clock()).redeem(foreign, Caller())


@in_both_eras
async def test_a_tool_without_annotations_is_asked_about_once(gateway, notes, era):
    user = User(YES)
    async with host(gateway, era, user) as client:
        for title in ("Groceries", "Diary"):
            assert not (await call(client, "pin_note", {"title": title})).is_error
    assert len(user.asked) == 1
    assert len(notes.calls) == 2


async def test_a_no_to_a_tool_without_annotations_is_not_remembered_as_a_yes(gateway, notes):
    user = User(NO, YES)
    async with host(gateway, MODERN, user) as client:
        await call(client, "pin_note")
        await call(client, "pin_note")
    assert len(user.asked) == 2
    assert len(notes.calls) == 1


async def test_an_approval_outlives_the_gateway_and_ends_with_a_changed_definition(tmp_path):
    first, second = FakeUpstream("notes", [PIN]), FakeUpstream("notes", [PIN])
    async with fake_gateway(tmp_path, first) as gateway, host(gateway, MODERN, User(YES)) as client:
        await call(client, "pin_note")
    user = User(NO)
    async with fake_gateway(tmp_path, second) as gateway, host(gateway, MODERN, user) as client:
        await call(client, "pin_note")
        assert user.asked == []
        await gateway.relist("notes", [PIN | {"futureField": 1}])
        await call(client, "pin_note")
    assert len(user.asked) == 1
    assert len(second.calls) == 1


async def test_approvals_that_cannot_be_written_cost_no_call(tmp_path):
    (tmp_path / "approvals.json").mkdir()
    notes = FakeUpstream("notes", [PIN])
    async with fake_gateway(tmp_path, notes) as gateway, host(gateway, MODERN, User(YES)) as client:
        for _ in range(2):
            assert not (await call(client, "pin_note")).is_error
    assert len(notes.calls) == 2


@in_both_eras
@pytest.mark.parametrize("name", ["show_note", "tag_note"])
async def test_what_only_reads_or_adds_is_never_asked_about(gateway, notes, era, name):
    async with host(gateway, era, User()) as client:
        await call(client, name)
        await client.call_tool("nexus_turn", {"request": f'{name} "Groceries"'})
    assert notes.calls == [{"name": name, "arguments": GROCERIES}] * 2


async def test_configuration_decides_otherwise(tmp_path):
    user = User(YES)
    settings = {"erase_note": ToolSettings(confirm="never"), "show_note": ToolSettings(confirm="always")}
    notes = FakeUpstream("notes", [ERASE, SHOW])
    async with (
        fake_gateway(tmp_path, notes, tools=settings) as gateway,
        host(gateway, MODERN, user) as client,
    ):
        await call(client, "erase_note")
        assert user.asked == []
        await call(client, "show_note")
    assert len(user.asked) == 1
    assert len(notes.calls) == 2


@in_both_eras
async def test_a_missing_argument_is_asked_for_and_then_used(gateway, notes, era):
    user = User(accept(title="Groceries"))
    async with host(gateway, era, user) as client:
        result = await client.call_tool("nexus_turn", {"request": "show_note"})
    assert outcome(result) == "called"
    assert notes.calls == [{"name": "show_note", "arguments": GROCERIES}]
    field = user.asked[0].requested_schema["properties"]["title"]
    assert (field["type"], field["description"]) == ("string", "Which note")


@in_both_eras
@pytest.mark.parametrize(("last", "called"), [(YES, 1), (NO, 0)])
async def test_a_destructive_tool_asks_for_its_argument_first_and_then_for_the_yes(
    gateway, notes, era, last, called
):
    user = User(accept(title="Groceries"), last)
    async with host(gateway, era, user) as client:
        await client.call_tool("nexus_turn", {"request": "erase_note"})
    assert [list(asked.requested_schema["properties"]) for asked in user.asked] == [["title"], ["confirm"]]
    assert len(notes.calls) == called


@in_both_eras
async def test_an_answer_to_a_missing_argument_is_no_yes_to_the_call(gateway, notes, era):
    async with host(gateway, era, User(accept(title="Groceries", confirm=True), NO)) as client:
        await client.call_tool("nexus_turn", {"request": "erase_note"})
    assert notes.calls == []


async def test_a_host_that_cannot_ask_is_told_what_is_missing(mute, notes):
    result = await mute.call_tool("nexus_turn", {"request": "show_note"})
    assert outcome(result) == "needs_input"
    assert [missing["name"] for missing in result.structured_content["missing"]] == ["title"]
    assert "confirm" not in result.structured_content
    assert "Missing: title (string) Which note" in said(result)
    assert notes.calls == []


async def test_a_dry_run_calls_nothing_and_asks_nothing(gateway, notes):
    async with host(gateway, MODERN, User()) as client:
        result = await client.call_tool("nexus_turn", {"request": 'erase_note "Groceries"', "dry_run": True})
    assert outcome(result) == "proposed"
    assert result.structured_content["arguments"] == GROCERIES
    assert notes.calls == []


async def test_a_user_who_never_answers_leaves_a_token(tmp_path, notes):
    async def silent(_context, _params):
        await anyio.sleep_forever()

    async with (
        fake_gateway(tmp_path, notes, answer_timeout_seconds=0.05) as gateway,
        host(gateway, "legacy", silent) as client,
    ):
        with anyio.fail_after(PATIENCE):
            result = await call(client, "erase_note")
    assert outcome(result) == "needs_input"
    assert result.structured_content["confirm"]
    assert notes.calls == []
