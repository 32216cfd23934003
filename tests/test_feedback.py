"""What hosts correct becomes a label in a file of the user's own; damage and other processes cost no label."""

import json
import stat

import anyio
import pytest
from mcp import Client
from structlog.testing import capture_logs
from support.fake_gateway import BOTH_ERAS, fake_gateway, host, outcome, tool
from support.fake_relay import FakeFleet, relaying_server
from support.fake_turns import CALLER, service_of
from support.gateways import run_command, write_config
from support.raw_host import MODERN, raw_host

from adapters.upstream_double import FakeUpstream
from nexus_gateway.access.caller import Caller, Principal
from nexus_gateway.demo.workspace import demo_servers, seed_workspace
from nexus_gateway.routing import corrections as watching
from nexus_gateway.routing.corrections import Corrections
from nexus_gateway.routing.feedback import MAX_REQUEST_CHARACTERS, FeedbackStore, Label, LabelKind
from nexus_gateway.turn.result import Outcome, TurnResult
from tool_registry.routing import Candidate, RoutingDecision, RoutingOutcome
from tool_registry.tool import ToolId

A, B, C = ToolId("s", "a"), ToolId("s", "b"), ToolId("t/x", "c d")
SECRET = "my password is hunter2"
anyio_test = pytest.mark.anyio


@pytest.fixture
def store(tmp_path):
    return FeedbackStore(tmp_path / "new" / "feedback.jsonl")


def label(number=0, kind=LabelKind.CHOSEN):
    return Label(f"request {number} \u2028 党 \ud800", C, kind, (A, B))


def test_a_label_comes_back_as_it_was_written(store):
    store.append(label())
    [read] = store.labels()
    assert (read.request, read.tool, read.kind, read.offered) == (
        label().request,
        C,
        LabelKind.CHOSEN,
        (A, B),
    )


def test_the_file_is_the_users_alone(store):
    store.append(label())
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_no_file_is_no_feedback(store):
    assert store.labels() == []
    assert store.read().precision is None
    store.clear()


def test_damaged_lines_are_left_out_with_a_warning_and_stay_in_the_file(store):
    store.append(label(1))
    damaged = [
        '{"kind": "chosen"',
        "[1]",
        "null",
        '{"kind": "routed", "count": -1}',
        '{"kind": "other"}',
        "\ufffd",
    ]
    with store.path.open("a", encoding="utf-8") as file:
        file.write("\n".join(damaged))  # the last one unfinished, as by a crash
    store.append(label(2))
    with capture_logs() as logs:
        assert [read.request[:9] for read in store.labels()] == ["request 1", "request 2"]
    assert [(entry["event"], entry["lines"]) for entry in logs] == [("feedback.damaged", len(damaged))]
    assert all(line in store.path.read_text(encoding="utf-8").split("\n") for line in damaged)


def test_the_file_is_capped_and_the_counts_and_damaged_lines_are_not_lost(tmp_path, monkeypatch):
    monkeypatch.setattr("nexus_gateway.routing.feedback._SLACK_LINES", 10)
    store = FeedbackStore(tmp_path / "f.jsonl", max_entries=5)
    store.append(label(kind=LabelKind.CONFIRMED))
    with store.path.open("a") as file:
        file.write("broken\n")
    for number in range(40):
        store.count_routed()
        store.append(label(number, LabelKind.CORRECTED if number % 4 == 0 else LabelKind.CHOSEN))
        assert store.path.read_text().count("\n") <= 5 + 10 + 1
    read = store.read()
    assert [one.request.split()[1] for one in read.labels] == ["35", "36", "37", "38", "39"]
    assert (read.routed, read.damaged) == (40, ("broken",))
    assert read.totals == {LabelKind.CHOSEN: 30, LabelKind.CORRECTED: 10, LabelKind.CONFIRMED: 1}
    assert read.precision == 0.75
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_two_processes_add_to_one_file(tmp_path):
    one, other = FeedbackStore(tmp_path / "f"), FeedbackStore(tmp_path / "f")
    for number in range(10):
        (one if number % 2 else other).append(label(number))
    assert [read.request.split()[1] for read in one.labels()] == [str(number) for number in range(10)]


def test_a_very_long_request_is_kept_by_its_beginning(store):
    store.append(Label("x" * 100_000, A, LabelKind.CHOSEN))
    assert store.labels()[0].request == "x" * MAX_REQUEST_CHARACTERS


def test_no_repr_shows_a_request(store):
    store.append(Label(SECRET, A, LabelKind.CHOSEN))
    assert SECRET not in repr(store.read()) + repr(store.labels()[0])


# --- which calls say something of a turn


def result_of(outcome, *offered, tool=None):
    routing = RoutingOutcome.ROUTED if tool else RoutingOutcome.AMBIGUOUS
    candidates = tuple(Candidate(tool_id, 0.5, 0.5, 0.5) for tool_id in offered)
    return TurnResult(outcome, "", decision=RoutingDecision(routing, candidates, 0.1, ""), tool_id=tool)


async def labels_after(store, *steps):
    """Labels after steps: a result is a turn's end, a tool a call, a number seconds that pass."""
    corrections = Corrections(store)
    for step in steps:
        if isinstance(step, TurnResult):
            corrections.turned("do it", step, CALLER)
        else:
            corrections.called(step, CALLER)
    await written(corrections)
    return [(read.kind, read.tool, read.offered) for read in store.labels()]


async def written(corrections):
    """Let it write what waits: that is done before it ends."""
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(corrections.run)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


AMBIGUOUS = result_of(Outcome.AMBIGUOUS, A, B)
NO_TOOL = result_of(Outcome.NO_TOOL, A)
CALLED = result_of(Outcome.CALLED, A, B, tool=A)
PROPOSED = result_of(Outcome.PROPOSED, A, B, tool=A)
ASKED = result_of(Outcome.NEEDS_INPUT, A, tool=A)
FAILED = result_of(Outcome.FAILED, A, tool=A)
EMPTY = TurnResult(Outcome.NO_TOOL, "The request is empty.")


@anyio_test
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([AMBIGUOUS, B], [(LabelKind.CHOSEN, B, (A, B))]),
        ([AMBIGUOUS, C], [(LabelKind.CHOSEN, C, (A, B))]),
        ([NO_TOOL, B], [(LabelKind.CHOSEN, B, (A,))]),
        ([CALLED, B], [(LabelKind.CORRECTED, B, (A, B))]),
        ([CALLED, A], []),
        ([PROPOSED, A], [(LabelKind.CONFIRMED, A, (A, B))]),
        ([PROPOSED, B], [(LabelKind.CORRECTED, B, (A, B))]),
        ([ASKED, A], [(LabelKind.CONFIRMED, A, (A,))]),
        ([FAILED, B], []),
        ([EMPTY, B], []),
        ([B], []),
        ([AMBIGUOUS, B, C], [(LabelKind.CHOSEN, B, (A, B))]),
        ([AMBIGUOUS, FAILED, B], []),
        ([AMBIGUOUS, CALLED, B], [(LabelKind.CORRECTED, B, (A, B))]),
    ],
)
async def test_a_call_after_a_turn_says_which_tool_was_right(store, steps, expected):
    assert await labels_after(store, *steps) == expected


@anyio_test
async def test_a_call_long_after_a_turn_is_about_something_else(store, monkeypatch):
    monkeypatch.setattr(watching, "WINDOW_SECONDS", -1.0)
    assert await labels_after(store, AMBIGUOUS, B) == []


@anyio_test
async def test_one_hosts_call_says_nothing_of_anothers_turn(store):
    corrections = Corrections(store)
    corrections.turned("do it", AMBIGUOUS, CALLER)
    corrections.called(B, Caller(principal=Principal("another")))
    await written(corrections)
    assert store.labels() == []


@anyio_test
async def test_turns_that_took_a_tool_are_counted(store):
    await labels_after(store, CALLED, PROPOSED, ASKED, AMBIGUOUS, NO_TOOL, FAILED, CALLED, B)
    assert (store.read().routed, store.read().precision) == (4, 0.75)


@anyio_test
async def test_only_so_many_turns_are_remembered(store, monkeypatch):
    monkeypatch.setattr(watching, "MOST_WATCHED", 3)
    corrections = Corrections(store)
    for number in range(10):
        corrections.turned("do it", AMBIGUOUS, Caller(principal=Principal(str(number))))
    for number in range(10):
        corrections.called(B, Caller(principal=Principal(str(number))))
    await written(corrections)
    assert len(store.labels()) == 3


@anyio_test
async def test_a_disk_that_cannot_be_written_costs_a_label_and_no_answer(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with capture_logs() as logs:
        corrections = Corrections(FeedbackStore(tmp_path / "file" / "feedback.jsonl"))
        corrections.turned(SECRET, AMBIGUOUS, CALLER)
        corrections.called(B, CALLER)
        await written(corrections)
    assert [entry["event"] for entry in logs] == ["feedback.unwritable"]
    assert SECRET not in str(logs)


@anyio_test
async def test_a_real_turn_has_what_a_label_needs(store):
    service, _ = await service_of()
    with anyio.fail_after(30):
        result = await service.turn("read_file /a/b.txt", CALLER)
    corrections = Corrections(store)
    corrections.turned("read_file /a/b.txt", result, CALLER)
    corrections.called(ToolId("files", "copy_file"), CALLER)
    await written(corrections)
    [read] = store.labels()
    assert read.kind is LabelKind.CORRECTED
    assert str(read.offered[0]) == "files/read_file"


# --- through the server

READ = tool("read_file", {"path": {"type": "string"}}, readOnlyHint=True)
COPY = tool("copy_file", {"path": {"type": "string"}}, readOnlyHint=True)


@anyio_test
@pytest.mark.parametrize("era", BOTH_ERAS)
async def test_a_host_that_chooses_itself_leaves_labels_and_a_failing_call_none(store, tmp_path, era):
    corrections = Corrections(store)
    with anyio.fail_after(60):
        async with (
            fake_gateway(tmp_path, FakeUpstream("s", [READ, COPY]), corrections=corrections) as gateway,
            host(gateway, era) as client,
        ):
            turned = await client.call_tool("nexus_turn", {"request": "read_file or copy_file a.txt"})
            assert outcome(turned) == "ambiguous"
            await client.call_tool("find_tools", {"query": "copy"})
            await client.call_tool("call_tool", {"tool": "s/copy_file", "arguments": {"path": 5}})
            await client.call_tool("call_tool", {"tool": "s/copy_file", "arguments": {"path": "a.txt"}})
            await client.call_tool("nexus_turn", {"request": "read_file a.txt"})
            await client.call_tool("call_tool", {"tool": "copy_file", "arguments": {"path": "a.txt"}})
            await client.call_tool("nexus_turn", {"request": "read_file a.txt", "dry_run": True})
            await client.call_tool("call_tool", {"tool": "read_file", "arguments": {"path": "a.txt"}})
    await written(corrections)
    assert [(str(read.kind), read.tool.name) for read in store.labels()] == [
        ("chosen", "copy_file"),
        ("corrected", "copy_file"),
        ("confirmed", "read_file"),
    ]
    assert (store.read().routed, store.read().precision) == (2, 0.5)


@anyio_test
async def test_exposed_tools_that_a_host_calls_are_told_of_unless_they_fail():
    called, failing = [], {"content": [], "isError": True}

    async def answer(_server, params, _caller, _on_progress):
        return failing if params["name"] == "fails" else {"content": []}

    fleet = FakeFleet({"s": [tool("works"), tool("fails")]}, answers={"tools/call": answer})
    with anyio.fail_after(60):
        async with (
            relaying_server(fleet, on_called=lambda tool_id, _caller: called.append(tool_id)) as server,
            Client(server) as client,
        ):
            await client.call_tool("s__fails", {})
            await client.call_tool("s__works", {})
    assert called == [ToolId("s", "works")]


def test_a_whole_gateway_on_a_real_server_keeps_what_its_host_corrects(tmp_path):
    seed_workspace(tmp_path / "workspace")
    files = demo_servers(tmp_path / "workspace")["files"].transport
    lines = [
        f"cache_dir = {json.dumps(str(tmp_path / 'cache'))}",
        "[feedback]\nkeep = true",
        f"[servers.files]\ncommand = {json.dumps(files.command)}\nargs = {json.dumps(list(files.args))}",
    ]
    config = tmp_path / "nexus.toml"
    config.write_text("\n".join(lines))
    with raw_host(config, MODERN) as gateway:
        request = "read_file or get_file_info: packing-list.txt"
        turned = gateway.call("nexus_turn", {"request": request})
        assert turned["result"]["structuredContent"]["outcome"] == "ambiguous", turned
        arguments = {"path": "packing-list.txt"}
        called = gateway.call("call_tool", {"tool": "files/read_file", "arguments": arguments})
        assert "Rain jacket" in str(called["result"]["content"])
    shown = run_command("feedback", "--json", "--config", str(config))
    assert shown.returncode == 0, shown.stderr
    [kept] = json.loads(shown.stdout)["labels"]
    assert (kept["kind"], kept["request"], kept["tool"]) == ("chosen", request, "files/read_file")
    assert {"files/read_file", "files/get_file_info"} <= set(kept["offered"])


# --- the command


def test_the_command_shows_labels_and_the_precision(tmp_path):
    options = write_config(tmp_path, {}, "[feedback]\nkeep = true\n")
    store = FeedbackStore(tmp_path / "cache" / "feedback.jsonl")
    for _ in range(4):
        store.count_routed()
    store.append(Label("tidy [bold]up[/bold]", B, LabelKind.CORRECTED, (A,)))
    shown = run_command("feedback", *options)
    assert shown.returncode == 0, shown.stderr
    assert "4 routed turns, 75.0 % of them not corrected" in shown.stdout
    assert "tidy [bold]up[/bold]" in shown.stdout
    assert "1 labels: 0 chosen, 1 corrected, 0 confirmed" in shown.stdout
    parsed = json.loads(run_command("feedback", "--json", *options).stdout)
    assert parsed["precision"] == 75.0
    assert parsed["labels"][0]["tool"] == "s/b"
    assert parsed["labels"][0]["offered"] == ["s/a"]


def test_the_command_forgets_and_says_when_nothing_is_kept(tmp_path):
    options = write_config(tmp_path, {})
    store = FeedbackStore(tmp_path / "cache" / "feedback.jsonl")
    store.append(label())
    assert "forgot 1 labels" in run_command("feedback", "--clear", *options).stdout
    assert not store.path.exists()
    shown = run_command("feedback", *options)
    assert shown.returncode == 0
    assert "set keep = true in [feedback]" in shown.stdout
    assert "no turn was routed yet" in shown.stdout
