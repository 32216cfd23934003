"""Bindings: configured or asked once, kept by server and tenant, used where no request states a value."""

import json
import stat
import sys
from dataclasses import dataclass, field, replace

import anyio
import pytest
from structlog.testing import capture_logs
from support.fake_gateway import BOTH_ERAS, User, accept, fake_gateway, host, outcome, said
from support.fake_turns import CALLER, call, service_of, turn
from support.gateways import SERVERS, run_command, write_config
from support.making_tools import ADDS, DESTROYS, READS, STRING, compiled, definition

from adapters.mcp_upstream import connect
from adapters.ports import StdioSpec
from adapters.upstream_double import FakeUpstream
from nexus_gateway.access.caller import LOCAL_TENANT, Tenant
from nexus_gateway.access.secret_values import name_looks_secret, value_looks_secret
from nexus_gateway.server.rendering import render, turn_meta
from nexus_gateway.settings import Settings
from nexus_gateway.settings.live import LiveSettings
from nexus_gateway.turn.binding_file import FILE_NAME, BindingFile, Remembered, RememberedBy
from nexus_gateway.turn.bindings import UNFIT, Bindings
from nexus_gateway.turn.bound_values import fitted
from nexus_gateway.turn.remembering import worth_keeping
from nexus_gateway.turn.result import GroundKind, Outcome

anyio_test = pytest.mark.anyio
OTHER = Tenant("other")
PROJECT = {"projectId": STRING}
LIST = definition("list_bugs", "List the open bugs", PROJECT, ["projectId"], annotations=READS)
ADD = definition("add_bug", "Add a new bug", PROJECT, ["projectId"], annotations=ADDS)
WIPE = definition("wipe_bugs", "Wipe all bugs for ever", PROJECT, ["projectId"], annotations=DESTROYS)
COUNT = definition("count_bugs", "Count the bugs", PROJECT, annotations=READS)
SILENT = definition("mark_bugs", "Mark bugs as seen", PROJECT, ["projectId"])
TRACKER = {"tracker": [LIST, ADD, WIPE, COUNT, SILENT]}


@dataclass
class Rules:
    remember_answers: bool = True
    configured: dict = field(default_factory=dict)

    def bindings(self, server):
        return self.configured.get(server, {})


def bindings_of(path=None, *, remember=True, **configured):
    return Bindings(Rules(remember, {"tracker": configured}), path)


def remembered(name="projectId", value="p-1", by=RememberedBy.ANSWER, tenant=LOCAL_TENANT, server="tracker"):
    return Remembered(tenant, server, name, value, by)


async def answered(service, request, value="p-1", caller=CALLER, **options):
    asked = await turn(service, request, caller=caller)
    assert [missing.name for missing in asked.missing] == ["projectId"]
    return await service.resume(asked.pending, {"projectId": value}, caller, confirmed=False, **options)


# --- in a turn


@anyio_test
async def test_a_configured_value_fills_required_and_optional_arguments_and_is_shown():
    service, calls = await service_of(TRACKER, bindings=bindings_of(projectId="p-1"))
    for request in ("list bugs", "count bugs", "add bug"):
        result = await turn(service, request)
        assert result.outcome is Outcome.CALLED
        assert calls.calls[-1][2]["arguments"] == {"projectId": "p-1"}
        assert turn_meta(result)["grounds"] == {"projectId": {"kind": "binding"}}
        text = render(result, explain=True)["content"][-1]["text"]
        assert text.endswith('{"projectId": "p-1"}; projectId from a binding]')


@anyio_test
async def test_a_request_that_states_another_value_wins():
    service, calls = await service_of(TRACKER, bindings=bindings_of(projectId="p-1"))
    result = await turn(service, "list bugs in project p-2")
    assert calls.calls[0][2]["arguments"] == {"projectId": "p-2"}
    assert result.grounds["projectId"].kind is GroundKind.SPAN
    await turn(service, "list bugs", context="the project is p-3")
    assert calls.calls[1][2]["arguments"] == {"projectId": "p-3"}


@anyio_test
async def test_where_the_request_may_mean_another_value_only_a_tool_that_reads_is_called():
    service, calls = await service_of(TRACKER, bindings=bindings_of(projectId="p-1"))
    assert (await turn(service, "add a new bug to the apollo project")).outcome is Outcome.PROPOSED
    assert not calls.calls
    assert (await turn(service, "list bugs of the apollo project")).outcome is Outcome.CALLED


@anyio_test
async def test_a_value_that_does_not_fit_is_asked_for_and_the_question_says_why():
    tool = definition("list_bugs", "List", {"projectId": {"type": "integer"}}, ["projectId"])
    service, _ = await service_of({"tracker": [tool]}, bindings=bindings_of(projectId="p-1"))
    result = await turn(service, "list bugs")
    assert [(missing.name, missing.reason) for missing in result.missing] == [("projectId", UNFIT)]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [("7", "integer", 7), (7, "string", "7"), ("007", "string", "007"), ("true", "boolean", True),
     ("p", "integer", None), ("null", "integer", None), (1.5, "integer", None)],
)  # fmt: skip
def test_a_value_is_written_as_its_parameter_takes_it(value, kind, expected):
    assert fitted(value, {"type": kind}) == expected


@anyio_test
async def test_an_answer_is_used_by_later_calls_of_the_server_until_it_is_forgotten(tmp_path):
    bindings = bindings_of(tmp_path / FILE_NAME)
    service, calls = await service_of(TRACKER, bindings=bindings)
    first = await answered(service, "list bugs")
    assert (first.outcome, first.remembered) == (Outcome.CALLED, ("projectId",))
    undo = "nexus-gateway bindings forget tracker projectId"
    assert turn_meta(first)["remembered"] == {"arguments": ["projectId"], "undo": [undo]}
    assert f"remembered projectId for tracker; `{undo}` undoes it" in str(render(first, explain=True))
    second = await turn(service, "add bug")
    assert calls.calls[-1][1:] == ("add_bug", {"name": "add_bug", "arguments": {"projectId": "p-1"}})
    assert second.grounds["projectId"].kind is GroundKind.BINDING
    assert second.remembered == ()
    BindingFile(tmp_path / FILE_NAME).forget(LOCAL_TENANT, "tracker")
    assert (await turn(service, "list bugs")).outcome is Outcome.NEEDS_INPUT


@anyio_test
async def test_an_answer_is_of_one_tenant_and_one_server(tmp_path):
    service, _ = await service_of(
        TRACKER | {"board": [replace_name(LIST, "list_cards")]}, bindings=bindings_of(tmp_path / FILE_NAME)
    )
    await answered(service, "list bugs")
    other = replace(CALLER, tenant=OTHER)
    assert (await turn(service, "list bugs", caller=other)).outcome is Outcome.NEEDS_INPUT
    assert (await turn(service, "list cards")).outcome is Outcome.NEEDS_INPUT
    assert (await turn(service, "list bugs")).outcome is Outcome.CALLED


def replace_name(tool, name):
    return tool | {"name": name, "description": name.replace("_", " ")}


@anyio_test
async def test_nothing_is_remembered_unless_that_is_configured(tmp_path):
    assert not Settings().turn.remember_answers
    service, _ = await service_of(TRACKER, bindings=bindings_of(tmp_path / FILE_NAME, remember=False))
    assert (await answered(service, "list bugs")).remembered == ()
    assert not (tmp_path / FILE_NAME).exists()


@anyio_test
async def test_an_answer_fills_no_optional_argument_and_no_call_that_destroys(tmp_path):
    service, calls = await service_of(TRACKER, bindings=bindings_of(tmp_path / FILE_NAME))
    await answered(service, "list bugs")
    assert (await turn(service, "wipe bugs")).missing
    await turn(service, "count bugs")
    assert calls.calls[-1][2]["arguments"] == {}


@anyio_test
async def test_the_answer_to_a_call_that_destroys_is_not_remembered(tmp_path):
    service, calls = await service_of(TRACKER, bindings=bindings_of(tmp_path / FILE_NAME))
    asked = await answered(service, "wipe bugs")
    assert asked.confirm
    done = await service.resume(asked.pending, {}, CALLER, confirmed=True)
    assert (done.outcome, done.remembered, len(calls.calls)) == (Outcome.CALLED, (), 1)


@anyio_test
async def test_an_answer_is_remembered_once_the_call_was_confirmed_and_had_no_error(tmp_path):
    path = tmp_path / FILE_NAME
    service, calls = await service_of(TRACKER, bindings=bindings_of(path))
    asked = await answered(service, "mark bugs")
    assert (asked.confirm, asked.remembered, path.exists()) == (True, (), False)
    done = await service.resume(asked.pending, {}, CALLER, confirmed=True)
    assert done.remembered == ("projectId",)
    assert done.grounds["projectId"].kind is GroundKind.ANSWER

    async def fails(*_args, **_more):
        return {"content": [], "isError": True}

    BindingFile(path).forget(LOCAL_TENANT, "tracker")
    calls.call_tool = fails
    assert (await answered(service, "list bugs", "a typo")).remembered == ()
    assert BindingFile(path).entries() == ()


@anyio_test
async def test_what_grounds_the_other_arguments_is_not_lost_by_a_question():
    tool = definition("move", "Move", {"owner": STRING, "to": STRING}, ["owner", "to"], annotations=READS)
    service, _ = await service_of({"tracker": [tool]}, bindings=bindings_of(owner="me"))
    asked = await turn(service, "move")
    done = await service.resume(asked.pending, {"to": "x"}, CALLER, confirmed=False)
    assert {name: ground.kind for name, ground in done.grounds.items()} == {
        "owner": GroundKind.BINDING, "to": GroundKind.ANSWER
    }  # fmt: skip


@anyio_test
async def test_an_exact_call_is_as_its_host_wrote_it():
    service, calls = await service_of(TRACKER, bindings=bindings_of(projectId="p-1"))
    await call(service, "count_bugs", {})
    assert calls.calls[0][2]["arguments"] == {}


# --- which answers are kept


@pytest.mark.parametrize(
    ("tool", "name", "value", "kept"),
    [
        ("list_bugs", "projectId", "p-1", True),
        ("list_bugs", "jira_project_key", "WEB", True),
        ("list_bugs", "accountId", 12, True),
        ("list_bugs", "owner", "Ann de Vries", True),
        ("list_bugs", "workspace", "sales", True),
        ("get_bug", "bugId", "b-1", False),
        ("read_file", "path", "/a", False),
        ("send", "message", "hello", False),
        ("get_project", "projectId", "p-1", False),
        ("archive_projects", "projectId", "p-1", False),
        ("list_bugs", "accountKey", "abc", False),
        ("list_bugs", "projectToken", "abc", False),
        ("list_bugs", "project", "the one that Ann made last week", False),
        ("list_bugs", "project", "x" * 101, False),
        ("list_bugs", "project", "a\nb", False),
        ("list_bugs", "project", "\ud800", False),
        ("list_bugs", "project", " ", False),
        ("list_bugs", "project", "ghp_abcdefghijkl", False),
        ("list_bugs", "project", True, False),
        ("list_bugs", "project", {"id": 1}, False),
    ],
)
def test_only_the_short_name_of_a_place_is_worth_keeping(tool, name, value, kept):
    made = compiled("tracker", tool, "", {name: STRING}, [name])
    assert worth_keeping(made.tool, name, STRING, value) is kept


@pytest.mark.parametrize("mark", [{"writeOnly": True}, {"format": "password"}])
def test_what_the_schema_marks_as_secret_is_not_kept(mark):
    made = compiled("tracker", "list_bugs", "", PROJECT, ["projectId"])
    assert not worth_keeping(made.tool, "projectId", STRING | mark, "p-1")


def test_names_and_values_of_credentials_are_known_by_their_look():
    secret = [
        "password",
        "apiKey",
        "API_KEY",
        "accessToken",
        "client_secret",
        "connectionString",
        "passphrase",
    ]
    open_ = ["projectKey", "key", "projectId", "connectionId", "max_tokens", "author", "compass", "monkey"]
    assert [name for name in secret if not name_looks_secret(name)] == []
    assert [name for name in open_ if name_looks_secret(name)] == []
    secret = ["sk-abcdefghijkl", "ghp_abcdefgh", "postgres://me:pw@h/db", "aB3" * 12, "Bearer x"]
    open_ = ["p-1", "6f1c2d3e-0000-4000-8000-123456789abc", "https://h/a", "us-east-1", "deadbeef" * 5, 7]
    assert [value for value in secret if not value_looks_secret(value)] == []
    assert [value for value in open_ if value_looks_secret(value)] == []


def test_a_credential_in_the_file_is_never_used(tmp_path):
    path = tmp_path / FILE_NAME
    BindingFile(path).put(remembered("apiToken", by=RememberedBy.SET))
    tool = compiled("tracker", "list_bugs", "", {"apiToken": STRING}, ["apiToken"])
    assert bindings_of(path).of_call(tool, LOCAL_TENANT).values == {}


def test_what_is_configured_counts_before_what_is_remembered_and_changes_with_the_settings(tmp_path):
    tool = compiled("tracker", "list_bugs", "", PROJECT, ["projectId"])
    BindingFile(tmp_path / FILE_NAME).put(remembered(value="p-9", by=RememberedBy.SET))
    live = LiveSettings(Settings())
    bindings = Bindings(live, tmp_path / FILE_NAME)
    assert bindings.of_call(tool, LOCAL_TENANT).values == {"projectId": "p-9"}
    assert "p-9" not in repr(bindings.of_call(tool, LOCAL_TENANT))
    rules = Rules(configured={"tracker": {"projectId": "p-1"}})
    assert Bindings(rules, tmp_path / FILE_NAME).of_call(tool, LOCAL_TENANT).values == {"projectId": "p-1"}


# --- the file


def test_the_file_is_the_users_alone_and_no_repr_shows_a_value(tmp_path):
    file = BindingFile(tmp_path / "new" / FILE_NAME)
    file.put(remembered(value="hunter2"))
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert "hunter2" not in repr(file.entries())


def test_values_come_back_with_their_types_and_the_latest_counts(tmp_path):
    file = BindingFile(tmp_path / FILE_NAME)
    file.put(remembered("a", "7"), remembered("b", 7), remembered("c", 1.5), remembered("d", value=True))
    file.put(remembered("a", "8 党"), remembered("a", "1", tenant=OTHER))
    values = {name: one.value for name, one in BindingFile(file.path).of(LOCAL_TENANT, "tracker").items()}
    assert values == {"b": 7, "c": 1.5, "d": True, "a": "8 党"}
    assert type(values["d"]) is bool


def test_what_another_process_wrote_is_seen_at_once_and_not_overwritten(tmp_path):
    one, other = BindingFile(tmp_path / FILE_NAME), BindingFile(tmp_path / FILE_NAME)
    one.put(remembered("a"))
    other.put(remembered("b"))
    one.put(remembered("c"))
    assert [entry.name for entry in other.entries()] == ["a", "b", "c"]
    assert [entry.name for entry in other.forget(LOCAL_TENANT, "tracker", "a")] == ["a"]
    assert set(one.of(LOCAL_TENANT, "tracker")) == {"b", "c"}
    one.path.unlink()
    assert other.entries() == ()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", '{"a": "hunter2"}', "\x00", "[" * 100_000, '[{"tenant": "hunter2", "server": 1}]'],
)
def test_a_broken_file_is_set_aside_with_a_warning_and_nothing_stops(tmp_path, text):
    path = tmp_path / FILE_NAME
    path.write_text(text)
    with capture_logs() as logs:
        bindings = bindings_of(path)
        tool = compiled("tracker", "list_bugs", "", PROJECT, ["projectId"])
        assert bindings.of_call(tool, LOCAL_TENANT).values == {}
        assert bindings.remember(tool, {"projectId": "p-1"}, LOCAL_TENANT) == ("projectId",)
    assert [entry["event"] for entry in logs] == ["bindings.broken"]
    assert "hunter2" not in str(logs)
    assert path.with_name(f"{FILE_NAME}.broken").read_text() == text
    assert len(BindingFile(path).entries()) == 1


def test_a_file_that_cannot_be_read_is_left_alone(tmp_path):
    path = tmp_path / FILE_NAME
    path.mkdir()
    with capture_logs() as logs:
        bindings = bindings_of(path)
        tool = compiled("tracker", "list_bugs", "", PROJECT, ["projectId"])
        assert bindings.of_call(tool, LOCAL_TENANT).values == {}
        assert bindings.remember(tool, {"projectId": "p-1"}, LOCAL_TENANT) == ()
    assert [entry["event"] for entry in logs] == ["bindings.unreadable", "bindings.unwritable"]
    assert path.is_dir()


# --- from a host to a real server


def real_server_gateway(cache):
    """A gateway in this process, on a real server over stdio."""
    transport = StdioSpec(sys.executable, (str(SERVERS / "tracker_server.py"),))

    def to_the_server(spec, *args, **more):
        return connect(replace(spec, transport=transport), *args, **more)

    bindings = Bindings(Rules(), cache / FILE_NAME)
    return fake_gateway(cache, FakeUpstream("tracker", []), connect=to_the_server, bindings=bindings)


async def project_of(client, request, *said_with_it):
    """Which project a turn called the server with."""
    result = await client.call_tool("nexus_turn", {"request": request})
    assert outcome(result) == "called"
    assert all(text in said(result) for text in said_with_it)
    return json.loads(result.content[0].text)["projectId"]


@anyio_test
@pytest.mark.parametrize("era", BOTH_ERAS)
async def test_a_host_is_asked_once_by_a_real_server_and_its_answer_is_used(tmp_path, monkeypatch, era):
    user = User(*(accept(projectId=value) for value in ("broken", "p-1", "p-5")))
    undo = "`nexus-gateway bindings forget tracker projectId` undoes it"
    with anyio.fail_after(90):
        async with real_server_gateway(tmp_path) as gateway, host(gateway, era, user) as client:
            failed = await client.call_tool("nexus_turn", {"request": "list bugs"})
            assert (failed.is_error, len(user.asked)) == (True, 1)
            assert await project_of(client, "list bugs", undo) == "p-1"
            assert await project_of(client, "list bugs", "projectId from a binding") == "p-1"
            assert await project_of(client, "list bugs of project p-2") == "p-2"
            assert len(user.asked) == 2
            monkeypatch.setattr("nexus_gateway.server.host_connection.LOCAL_TENANT", OTHER)
            assert await project_of(client, "list bugs") == "p-5"
            monkeypatch.undo()
            assert await project_of(client, "list bugs") == "p-1"
            assert len(user.asked) == 3


@anyio_test
async def test_what_the_command_of_another_process_forgets_is_asked_again(tmp_path):
    options = write_config(tmp_path, {"tracker": {"command": "x"}})
    user, cache = User(accept(projectId="p-1"), accept(projectId="p-6")), tmp_path / "cache"
    with anyio.fail_after(110):
        async with real_server_gateway(cache) as gateway, host(gateway, "legacy", user) as client:
            assert await project_of(client, "list bugs") == "p-1"
            forget = ("bindings", "forget", "tracker", "projectId", *options)
            forgotten = await anyio.to_thread.run_sync(run_command, *forget)
            assert forgotten.stdout == "forgot projectId of tracker\n", forgotten.stderr
            assert await project_of(client, "list bugs") == "p-6"
