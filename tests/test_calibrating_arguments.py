"""Fitting the gate of arguments to a user's own requests: what is right, what is chosen, what is written and used."""

import json
from dataclasses import replace
from types import SimpleNamespace

import anyio
import pytest
import structlog
from support.fake_turns import CALLER, FILES, service_of, turn
from support.gateways import write_config
from support.making_tools import STRING, catalog_of, compiled, index_of
from support.processes import children
from typer.testing import CliRunner

from adapters.engine_double import ScriptedEngine
from adapters.ports import ModelUnusable
from adapters.reader_double import ScriptedReader, found
from nexus_gateway.cli.calibrate_arguments import (
    LEAST_DRAFTS,
    arguments_json,
    calibrate_arguments,
    print_arguments,
)
from nexus_gateway.cli.main import app
from nexus_gateway.demo.workspace import demo_servers, seed_workspace
from nexus_gateway.routing.request_file import RequestFileError, WrittenRequest, read_requests
from nexus_gateway.settings import Settings
from nexus_gateway.turn import confidence
from nexus_gateway.turn.arguments import ArgumentWriter, Draft
from nexus_gateway.turn.calibrating_arguments import Drafted, could_run, fit_arguments, says_the_same
from nexus_gateway.turn.result import Ground, GroundKind, MissingArgument, Outcome

pytestmark = pytest.mark.anyio

INTEGER = {"type": "integer"}
SCHEMA = {
    "type": "object",
    "properties": {
        "path": STRING,
        "limit": INTEGER | {"default": 10},
        "deep": {"type": "boolean"},
        "id": STRING,
    },
}


@pytest.mark.parametrize(
    ("written", "right", "same"),
    [
        ({"path": "a"}, {"path": "a"}, True),
        ({"path": "a"}, {"path": "A"}, False),
        ({"path": "a.txt"}, {"path": "atxt"}, False),
        ({"limit": 5}, {"limit": 5.0}, True),
        ({"deep": True}, {"deep": 1}, False),
        ({"path": "a"}, {}, False),
        ({}, {"path": "a"}, False),
        ({"path": "a", "limit": 10}, {"path": "a"}, True),
        ({"path": "a"}, {"path": "a", "limit": 10}, True),
        ({"path": "a"}, {"path": "a", "limit": 5}, False),
        ({"path": [1, {"b": 2}]}, {"path": [1.0, {"b": 2}]}, True),
        ({"path": [1, 2]}, {"path": [2, 1]}, False),
        ({"path": None}, {}, False),
        ({}, {}, True),
    ],
)
def test_arguments_are_right_where_they_are_equal_as_json_defaults_aside(written, right, same):
    draft = Draft(written, {name: Ground(GroundKind.SPAN) for name in written})
    assert says_the_same(draft, right, SCHEMA) is same


def test_what_a_binding_gave_may_be_left_out_but_not_differ():
    draft = Draft({"id": "c-1"}, {"id": Ground(GroundKind.BINDING)})
    assert says_the_same(draft, {}, SCHEMA)
    assert says_the_same(draft, {"id": "c-1"}, SCHEMA)
    assert not says_the_same(draft, {"id": "c-2"}, SCHEMA)


def test_only_a_complete_and_valid_draft_could_run():
    tool = compiled("s", "t", "", {"path": STRING, "n": INTEGER}, ["path"])
    assert could_run(Draft({"path": "a"}), tool)
    assert not could_run(Draft({}), tool)
    assert not could_run(Draft({"path": "a", "n": "x"}), tool)
    assert not could_run(Draft({"path": "a"}, missing=[MissingArgument("n", INTEGER)]), tool)


def drafts(count, *, right, evidence=lambda place: 0.0):
    return [Drafted({"taken": evidence(place)}, right(place)) for place in range(count)]


def test_the_least_threshold_is_chosen_above_which_enough_is_right():
    rows = drafts(
        100, right=lambda place: place % 4 > 0, evidence=lambda place: -3.0 if place % 4 == 0 else -0.1
    )
    fit = fit_arguments(rows, requests=125, precision=0.95)
    assert (fit.requests, fit.drafts) == (125, 100)
    assert (fit.chosen.routed, fit.chosen.right) == (75, 75)
    assert fit.chosen.coverage == 0.6, "of all requests"
    assert max(point.coverage for point in fit.curve.points) == 0.8, "the others never run"
    made = fit.calibration("a reader", {"source": "x"})
    assert made.threshold == fit.chosen.threshold
    assert (made.reader, made.figures["source"]) == ("a reader", "x")
    assert (made.figures["runs_unasked"], made.figures["right"]) == (60.0, 100.0)
    assert made.right.probability({"taken": -0.1}) > made.threshold > made.right.probability({"taken": -3.0})


def test_where_nothing_tells_right_from_wrong_nothing_is_chosen_and_nothing_would_run():
    fit = fit_arguments(drafts(100, right=lambda place: place % 2 == 0), requests=100, precision=0.95)
    assert fit.chosen is None
    made = fit.calibration("r", {})
    assert made.threshold == 1.0
    assert made.figures["runs_unasked"] == 0.0
    assert made.right.probability({"taken": 0.0}) < made.threshold


def test_no_draft_is_judged_by_a_fit_that_has_seen_it():
    """Five odd ones with evidence of their own: a fit that has seen them knows them, another does not."""
    rows = drafts(
        60, right=lambda place: place > 0, evidence=lambda place: 5.0 if place == 0 else 0.1 * place
    )
    fit = fit_arguments(rows, requests=60, precision=0.95)
    first = fit.curve.points[-1]
    assert first.routed == 60
    own = fit.right.probability({"taken": 5.0})
    assert own not in {point.threshold for point in fit.curve.points}


def test_too_few_rows_to_leave_some_out_are_refused():
    with pytest.raises(ValueError, match="3 drafts are too few"):
        fit_arguments(drafts(3, right=lambda _: True), requests=3, precision=0.9)


def read(tmp_path, text, name="r.jsonl"):
    (tmp_path / name).write_text(text)
    return [row.arguments for row in read_requests(tmp_path / name)]


def test_a_file_of_requests_may_have_arguments(tmp_path):
    rows = [
        {"query": "a", "tool": "s/t", "args": {"path": "x"}},
        {"query": "a", "tool": "s/t", "args": {}},
        {"query": "a", "tool": "s/t", "args": None},
        {"query": "a", "tool": "s/t"},
        {"query": "a", "gold": ["s/t"], "args": {"path": "x"}, "args_kind": "subset"},
        {"query": "a", "gold": ["s/t"], "args": {"path": "x"}, "args_kind": "exact"},
    ]
    text = "\n".join(map(json.dumps, rows))
    assert read(tmp_path, text) == [{"path": "x"}, {}, None, None, None, {"path": "x"}]
    assert read(tmp_path, 'query,tool,args\na,s/t,"{""n"": 5}"\nb,s/t,\n', "r.csv") == [{"n": 5}, None]


@pytest.mark.parametrize("bad", ["[1]", '"path"', "5", "true", '"{"'])
def test_arguments_that_are_no_object_are_named_by_their_line(tmp_path, bad):
    with pytest.raises(RequestFileError, match=r'r\.jsonl:1: "args" is no JSON object'):
        read(tmp_path, f'{{"query": "a", "tool": "s/t", "args": {bad}}}')


class Doubtful(ScriptedReader):
    """Finds the path, surely where it is a `.txt`; else it is unsure, and takes the first half of it."""

    def answer(self, request, question):
        path = request.rpartition(" ")[2]
        if not question.text.startswith("path") or "/" not in path:
            return found(request, None)
        return found(request, path, probability=0.99 if path.endswith(".txt") else 0.6)


def row(place, *, wrong=False, nothing=False, **more):
    request = "read_file" if nothing else f"read_file /a/{place}.{'odd' if wrong else 'txt'}"
    right = f"/b/{place}" if wrong else request.rpartition(" ")[2]
    return WrittenRequest(place, request, ("files/read_file",), arguments={"path": right}, **more)


ROWS = [row(place, wrong=place % 5 == 0) for place in range(60)]
"""As a file may list them: the folds must not fall together with its order."""


async def gateway(tmp_path, reader=None):
    reader = reader or Doubtful()

    async def reads():
        return reader

    async def writes():
        return ScriptedEngine([])

    settings = Settings(cache_dir=tmp_path)
    calibrated = confidence.in_use(tmp_path / confidence.FILE_NAME)
    writer = ArgumentWriter(writes, max_tokens=32, reader=reads, calibration=calibrated)
    turns, calls = await service_of(FILES, writer=writer)
    return SimpleNamespace(settings=settings, reader=SimpleNamespace(get=reads), turns=turns), calls


async def calibrated(fake, rows, **options):
    options = {"precision": 0.95, "dry_run": False, "quiet": True} | options
    with anyio.fail_after(60):
        return await calibrate_arguments(fake, await index_of(catalog_of(**FILES)), rows, **options)


async def test_what_is_fitted_is_what_the_next_gateway_runs_by(tmp_path):
    fake, _ = await gateway(tmp_path)
    done = await calibrated(fake, ROWS)
    assert not done.cause
    assert done.path == tmp_path / confidence.FILE_NAME
    shown = arguments_json(done)
    assert (shown["requests"], shown["could_run"], shown["written"]) == (60, 60, str(done.path))
    assert (shown["chosen"]["runs_unasked"], shown["chosen"]["precision"]) == (48, 100.0)
    assert shown["chosen"] in shown["curve"]
    kept = confidence.read(done.path)
    assert kept.reader == "scripted reader"
    assert kept.figures["wanted_precision"] == 95.0
    following, calls = await gateway(tmp_path)
    assert (await turn(following.turns, "read_file /new/one.txt")).outcome is Outcome.CALLED
    assert (await turn(following.turns, "read_file /new/one.odd")).outcome is Outcome.PROPOSED
    assert len(calls.calls) == 1


async def test_a_dry_run_shows_the_curve_and_writes_nothing(tmp_path, capsys):
    fake, _ = await gateway(tmp_path)
    done = await calibrated(fake, ROWS, dry_run=True)
    assert done.fit.chosen
    assert not (tmp_path / confidence.FILE_NAME).exists()
    print_arguments(done)
    shown = " ".join(capsys.readouterr().out.split())
    assert "arguments of 60 requests; the drafts of 60 could run" in shown
    assert "<- chosen" in shown
    assert "80% of the requests run without a question, 100.0% of them with the right arguments" in shown
    assert "dry run, nothing was written" in shown


async def test_too_few_rows_with_arguments_are_said_with_how_many_are_needed(tmp_path, capsys):
    fake, _ = await gateway(tmp_path, ScriptedReader(error=ModelUnusable("must not be asked")))
    others = [replace(one, arguments=None) for one in ROWS]
    done = await calibrated(fake, [*ROWS[: LEAST_DRAFTS - 1], *others])
    assert not done.failed, "most files have none"
    assert done.cause == (
        '39 requests with "args" for connected tools are too few to fit the gate of arguments: at least 40 whose '
        "draft could run are needed"
    )
    print_arguments(done)
    assert "the gate stays as it is" in " ".join(capsys.readouterr().err.split())


async def test_drafts_that_could_not_run_do_not_count(tmp_path):
    fake, _ = await gateway(tmp_path)
    incomplete = [row(place, nothing=True) for place in range(60, 100)]
    done = await calibrated(fake, [*ROWS[: LEAST_DRAFTS - 1], *incomplete])
    assert (done.requests, done.drafts, done.fit) == (79, 39, None)
    assert "and the drafts of 40 could not run, are too few" in done.cause
    done = await calibrated(fake, [*ROWS, *incomplete])
    assert done.fit.chosen.coverage == 0.48, "of the hundred"


async def test_arguments_that_the_tool_does_not_have_are_skipped_and_named(tmp_path):
    fake, _ = await gateway(tmp_path)
    strange = replace(ROWS[0], line=7, arguments={"file": "x"})
    unknown = replace(ROWS[0], tools=("nobody/nothing",))
    done = await calibrated(fake, [*ROWS, strange, unknown])
    assert done.requests == 60
    assert done.skipped == ("line 7: files/read_file has no argument file",)


async def test_where_no_threshold_is_right_often_enough_it_fails_and_writes_nothing(tmp_path):
    fake, _ = await gateway(tmp_path)
    done = await calibrated(fake, [row(place, wrong=True) for place in range(50)])
    assert done.failed
    assert "no threshold is right in 95 % of the drafts above it" in done.cause
    assert arguments_json(done)["chosen"] is None
    assert arguments_json(done)["curve"]
    assert not (tmp_path / confidence.FILE_NAME).exists()


async def test_without_a_reader_there_is_no_gate_and_a_broken_one_fails_with_its_cause(tmp_path):
    fake, _ = await gateway(tmp_path)
    fake.reader = None
    done = await calibrated(fake, ROWS)
    assert not done.failed
    assert '[models] reader = "off"' in done.cause
    fake, _ = await gateway(tmp_path, ScriptedReader(error=ModelUnusable("the reader is broken")))
    done = await calibrated(fake, ROWS)
    assert done.failed
    assert done.cause == "the reader is broken"
    assert not (tmp_path / confidence.FILE_NAME).exists()


async def test_drafting_needs_no_calibration_and_asks_nobody(tmp_path):
    fake, calls = await gateway(tmp_path)
    await calibrated(fake, ROWS)
    assert not calls.calls
    index = await index_of(catalog_of(**FILES))
    draft = await fake.turns.draft(index.find("files/read_file")[0], "read_file /a/b.txt", CALLER)
    assert draft.arguments == {"path": "/a/b.txt"}


@pytest.mark.slow
@pytest.mark.usefixtures("logs_as_they_were")
def test_on_the_demo_servers_with_the_real_models_drafts_are_made_and_too_few_are_said_so(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    monkeypatch.setattr("nexus_gateway.cli.calibrate_arguments.LEAST_DRAFTS", 3)
    seed_workspace(tmp_path / "work")
    specs = {name: spec.transport for name, spec in demo_servers(tmp_path / "work").items()}
    servers = {
        name: {"command": specs[name].command, "args": [*specs[name].args], "env": dict(specs[name].env)}
        for name in ("files", "notes")
    }
    rows = [
        {
            "query": "read the file trips/oslo.md",
            "tool": "files/read_file",
            "args": {"path": "trips/oslo.md"},
        },
        {"query": "read the file budget.csv", "tool": "files/read_file", "args": {"path": "budget.csv"}},
        {"query": "please read it", "tool": "files/read_file", "args": {"path": "budget.csv"}},
        {"query": "read the note Book ideas", "tool": "notes/read_note"},
    ]
    requests = tmp_path / "requests.jsonl"
    requests.write_text("\n".join(map(json.dumps, rows)))
    options = write_config(tmp_path, servers)
    result = CliRunner().invoke(app, ["calibrate", "--requests", str(requests), "--json", *options])
    structlog.reset_defaults()  # its log went to a stream that is closed now
    assert result.exit_code == 1, result.stdout + result.stderr
    shown = json.loads(result.stdout)
    assert "4 requests for 2 connected tools are too few" in shown["cause"]
    assert (shown["arguments"]["requests"], shown["arguments"]["could_run"]) == (3, 2)
    assert "3 requests" in shown["arguments"]["cause"]
    assert "the drafts of 1 could not run, are too few" in shown["arguments"]["cause"]
    assert shown["arguments"]["written"] is None
    assert not (tmp_path / "cache" / confidence.FILE_NAME).exists()
    assert not children()
