"""Turns that wait for their user: what is asked, what an answer leads to, and what an approval covers."""

from dataclasses import replace

import pytest
from support.fake_turns import CALLER, DELETE, READ, FakeRules, call, service_of, turn
from support.making_tools import catalog_of

from nexus_gateway.access.caller import Tenant
from nexus_gateway.turn.parts import TurnOptions
from nexus_gateway.turn.result import GroundKind, Outcome

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("tool", "asks"),
    [("read_file", False), ("delete_file", True), ("get_weather", True), ("copy_file", False)],
)
async def test_what_its_annotations_say_decides_whether_a_call_is_confirmed(tool, asks):
    service, calls = await service_of(answers=['"a.txt"'])
    arguments = {"get_weather": {"city": "Rome"}, "copy_file": {"source": "a", "target_path": "b"}}
    result = await call(service, tool, arguments.get(tool, {"path": "a.txt"}))
    assert (result.outcome is Outcome.NEEDS_INPUT) is result.confirm is asks
    assert len(calls.calls) == (0 if asks else 1)


async def test_a_tool_that_says_nothing_is_confirmed_once_a_destructive_one_each_time():
    service, calls = await service_of()
    for tool, arguments, again in (
        ("get_weather", {"city": "Rome"}, False),
        ("delete_file", {"path": "a"}, True),
    ):
        yes = TurnOptions(assume_yes=True)
        assert (await call(service, tool, arguments, options=yes)).outcome is Outcome.CALLED
        assert (await call(service, tool, arguments)).confirm is again
    assert len(calls.calls) == 3


async def test_an_approval_is_of_one_tenant():
    service, _ = await service_of()
    yes = TurnOptions(assume_yes=True)
    await service.call("get_weather", {"city": "Rome"}, CALLER, options=yes)
    other = replace(CALLER, tenant=Tenant("other"))
    assert (await service.call("get_weather", {"city": "Rome"}, other)).confirm


@pytest.mark.parametrize(
    ("policy", "tool", "asks"), [("always", "read_file", True), ("never", "delete_file", False)]
)
async def test_configuration_overrules_the_annotations(policy, tool, asks):
    service, _ = await service_of(rules=FakeRules(policy))
    assert (await call(service, tool, {"path": "a.txt"})).confirm is asks


async def test_a_pending_question_goes_on_with_its_answers():
    service, calls = await service_of()
    asked = await turn(service, "get_weather")
    result = await service.resume(asked.pending, {"city": "Rome", "other": 1}, CALLER, confirmed=True)
    assert result.outcome is Outcome.CALLED
    assert calls.calls[0][2]["arguments"] == {"city": "Rome"}
    assert result.grounds["city"].kind is GroundKind.ANSWER


async def test_an_answer_that_does_not_fit_is_not_called():
    service, calls = await service_of()
    asked = await turn(service, "get_weather")
    assert (
        await service.resume(asked.pending, {"city": 7}, CALLER, confirmed=True)
    ).outcome is Outcome.PROPOSED
    assert (await service.resume(asked.pending, {}, CALLER, confirmed=True)).outcome is Outcome.NEEDS_INPUT
    assert not calls.calls


async def test_a_no_after_a_confirmation_question_asks_again_and_calls_nothing():
    service, calls = await service_of()
    asked = await turn(service, "delete_file /a/b.txt")
    assert asked.confirm
    assert (await service.resume(asked.pending, {}, CALLER, confirmed=False)).confirm
    assert not calls.calls
    assert (await service.resume(asked.pending, {}, CALLER, confirmed=True)).outcome is Outcome.CALLED


@pytest.mark.parametrize(
    "now", [[READ, DELETE | {"description": "Delete everything"}], [READ]], ids=["changed", "gone"]
)
async def test_a_tool_that_changed_between_question_and_answer_is_not_called(now):
    service, calls = await service_of()
    asked = await turn(service, "delete_file /a/b.txt")
    calls.catalog = catalog_of(files=now)
    result = await service.resume(asked.pending, {}, CALLER, confirmed=True)
    assert result.outcome is Outcome.FAILED
    assert "has changed since the question" in result.message
    assert not calls.calls
