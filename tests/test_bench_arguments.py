"""`bench arguments`: its figures are what the writer and the model did, and odd files are no trouble."""

import json

import anyio
import pytest
from support.gateways import run_command
from support.json_lines import lines
from support.making_tools import STRING, catalog_of, definition
from typer.testing import CliRunner

from adapters.ports import Completion, ModelUnusable, SchemaNotCompilable, SegmentKind
from nexus_gateway.bench import arguments_naive
from nexus_gateway.bench import arguments_report as columns
from nexus_gateway.bench.arguments import SURE, Arms, Sureness, measure, sureness
from nexus_gateway.bench.arguments_data import ArgumentQuery, read_argument_queries, sampled
from nexus_gateway.bench.arguments_report import Report
from nexus_gateway.bench.arguments_scoring import AcceptedArguments
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.cli.main import app
from nexus_gateway.turn.arguments import Draft
from nexus_gateway.turn.result import Ground, GroundKind, MissingArgument, TokenCount
from tool_registry.index import compile_tool

WEATHER = definition(
    "forecast",
    "Tell the weather",
    {"city": STRING, "units": {"type": "string", "enum": ["c", "f"]}, "days": {"type": "integer"}},
    ["city"],
)
NOTE = definition("note", "Write a note", {"text": STRING}, ["text"])
FLEET = catalog_of(sky=[WEATHER], notes=[NOTE])
FORECAST, WRITE = sorted(FLEET, key=lambda tool: tool.id.name)

BERN = ArgumentQuery(
    "1",
    "the weather in Bern, please",
    FORECAST,
    AcceptedArguments({"city": ["Bern"], "units": ["c", ""]}),
    "x",
)
TULIPS = ArgumentQuery(
    "2", "note down: plant tulips", WRITE, AcceptedArguments({"text": ["plant tulips"]}), "y"
)


def draft(missing=(), *, chosen=False, **arguments):
    grounds = {name: Ground(GroundKind.SPAN, chosen=chosen) for name in arguments}
    return Draft(
        arguments, grounds, [MissingArgument(name, {}) for name in missing], TokenCount(50, 40, 2, 3)
    )


class Writer:
    """Gives the draft that is scripted for a request, or raises it; any other request lacks all."""

    def __init__(self, drafts=None):
        self.drafts = drafts or {}
        self.bindings = []

    async def write(self, compiled, request, context="", bindings=()):
        await anyio.lowlevel.checkpoint()
        self.bindings.append(dict(bindings))
        found = self.drafts.get(request) or draft(missing=compiled.schema.get("required", ()))
        if isinstance(found, Exception):
            raise found
        return found


class Engine:
    """Writes the same object naively each time; what is asked to warm it up is kept apart."""

    holds_local_state = True

    def __init__(self, answer='{"city":"Bern","days":3}', *, complete=True):
        self.answer = answer
        self.complete_ = complete
        self.warmed = []
        self.asked = []

    async def complete(self, segments, schema, *, max_tokens):
        await anyio.lowlevel.checkpoint()
        if schema == {"const": 0}:
            self.warmed.append(segments)
            return Completion("0", True, 10, 0, 1, 0)
        self.asked.append((segments, schema, max_tokens))
        if isinstance(self.answer, Exception):
            raise self.answer
        return Completion(self.answer, self.complete_, 30, 10, 5, 15)


async def judged(*queries, writer, engine=None, **arms):
    with anyio.fail_after(30):
        return await measure(Arms(engine or Engine(), writer, **arms), queries)


@pytest.mark.anyio
async def test_both_arms_write_each_request_and_are_judged_by_the_same_rules():
    told = []
    writer = Writer({BERN.text: draft(city="Bern", units="c")})
    [one] = await measure(Arms(Engine(), writer), [BERN], lambda: told.append(1))
    assert (one.ours.exact, one.ours.valid, one.ours.right, one.ours.specified) == (True, True, 1, 1)
    assert (one.naive.exact, one.naive.valid, one.naive.right) == (False, True, 1)
    assert (one.ours.values, one.ours.invented) == (2, ())
    assert (one.naive.values, one.naive.invented) == (2, ("days=3",))
    assert (one.ours.decoded, one.naive.decoded) == (50 - 40 + 5, 30 - 10 + 20)
    assert one.ours.milliseconds > 0
    assert told == [1]


@pytest.mark.anyio
async def test_the_value_that_is_cut_out_has_to_be_asked_for_and_what_is_known_must_not_be():
    asks = Writer({BERN.text: draft(city="Bern")})
    [one] = await judged(BERN, writer=asks)
    assert (one.cut.name, one.cut.request, one.detected) == ("city", "the weather in , please", True)
    assert not one.falsely_missing
    guesses = Writer({BERN.text: draft(["city"]), "the weather in , please": draft(city="please")})
    [one] = await judged(BERN, writer=guesses)
    assert not one.detected
    assert one.falsely_missing
    [one] = await judged(BERN, writer=asks, cut=False, naive=False)
    assert (one.cut, one.naive, one.detected) == (None, None, False)


@pytest.mark.anyio
async def test_what_depends_on_the_tool_alone_is_in_the_cache_before_either_arm_writes():
    engine = Engine()
    await judged(BERN, writer=Writer(), engine=engine)
    ours, naive = ([segment.text for segment in prompt[:-1]] for prompt in engine.warmed)
    assert any("forecast(" in text for text in ours)
    [(asked, schema, budget)] = engine.asked
    assert [segment.text for segment in asked] == [*naive, BERN.text]
    assert (schema["additionalProperties"], schema["required"], budget) == (False, ["city"], 160)
    assert all(BERN.text not in segment.text for prompt in engine.warmed for segment in prompt)


@pytest.mark.anyio
async def test_an_engine_that_keeps_nothing_is_not_warmed_and_the_object_says_so():
    engine = Engine()
    engine.holds_local_state = False
    run = await judged(BERN, writer=Writer(), engine=engine)
    assert engine.warmed == []
    assert (Report(run, resident=False).as_json()["prefix"], Report(run).as_json()["prefix"]) == (
        "decoded",
        "resident",
    )


def test_the_naive_prompt_is_the_agreed_one():
    system, request = arguments_naive.naive_segments(compile_tool(FORECAST), "hello")
    instructions, tool = system.text.split("\nTool: ")
    assert instructions == (
        "You call tools. Copy values exactly from the request. Only include arguments that the request gives."
    )
    assert json.loads(tool) == {
        "name": "forecast",
        "description": "Tell the weather",
        "parameters": WEATHER["inputSchema"],
    }
    assert (request.kind, request.text) == (SegmentKind.REQUEST, "hello")


@pytest.mark.anyio
async def test_naive_json_that_was_not_closed_is_neither_valid_nor_exact():
    [one] = await judged(BERN, writer=Writer(), engine=Engine('{"city":"Be', complete=False))
    assert (one.naive.arguments, one.naive.valid, one.naive.exact, one.naive.values) == (
        None,
        False,
        False,
        0,
    )


@pytest.mark.anyio
async def test_a_model_that_fails_for_one_request_is_a_failure_of_that_one():
    writer = Writer({BERN.text: ModelUnusable("out of room"), TULIPS.text: draft(text="plant tulips")})
    first, second = await judged(BERN, TULIPS, writer=writer, engine=Engine(SchemaNotCompilable("no mask")))
    assert (first.ours.failure, first.ours.valid, first.sure.confidence) == ("out of room", False, None)
    assert (second.ours.exact, second.naive.failure) == (True, "no mask")
    figures = Report([first, second]).as_json()
    assert (figures["failed"], figures["valid"], figures["decoded_tokens_ratio_p50"]) == (1, 50.0, None)
    assert "out of room" in Report([first, second]).failures(5)[0]


@pytest.mark.anyio
async def test_arguments_with_something_missing_are_valid_where_it_is_asked_for_and_never_run():
    writer = Writer({BERN.text: draft(["city"], days=3), TULIPS.text: draft()})
    asking, silent = await judged(BERN, TULIPS, writer=writer)
    assert (asking.ours.valid, asking.sure.confidence) == (True, None)
    assert (silent.ours.valid, silent.sure.confidence) == (False, None)


def test_a_draft_is_as_sure_as_it_says_or_sure_where_nothing_was_chosen():
    forecast = compile_tool(FORECAST)
    assert sureness(draft(city="Bern"), forecast) == Sureness(1.0, SURE)
    assert sureness(draft(city="Bern", chosen=True), forecast) == Sureness(0.0, SURE)
    assert sureness(draft(city=5), forecast).confidence is None
    said = draft(city="Bern", chosen=True)
    said.confidence, said.target = 0.7, 0.6
    assert sureness(said, forecast) == Sureness(0.7, 0.6)
    assert sureness(said, forecast).runs
    said.target = 0.8
    assert not sureness(said, forecast).runs
    said.missing = [MissingArgument("city", {})]
    assert sureness(said, forecast).confidence is None


@pytest.mark.anyio
async def test_values_that_no_request_states_are_bound_and_have_a_ground():
    bound = ArgumentQuery("3", TULIPS.text, WRITE, AcceptedArguments({"text": ["-"]}), "y", {"text": "b-1"})
    writer = Writer({TULIPS.text: draft(text="b-1")})
    [one] = await judged(bound, writer=writer)
    assert writer.bindings[0] == {"text": "b-1"}
    assert one.ours.invented == ()


@pytest.mark.anyio
async def test_the_object_has_the_promised_keys_and_its_figures_are_percentages():
    writer = Writer(
        {BERN.text: draft(city="Bern", days=9), TULIPS.text: draft(text="plant tulips", chosen=True)}
    )
    report = Report(await judged(BERN, TULIPS, writer=writer))
    document = json.loads(json.dumps(report.as_json()))
    assert [*document][:6] == ["n", "exact", "naive_exact", "valid", "naive_valid", "specified_args"]
    promised = {
        "n": 2,
        "exact": 50.0,
        "naive_exact": 0.0,
        "valid": 100.0,
        "naive_valid": 50.0,
        "specified_args": 100.0,
        "invented": 33.33,
        "missing_detected": 100.0,
        "false_missing": 0.0,
        "decoded_tokens_ratio_p50": 0.375,
        "forced_token_share": 60.0,
    }
    assert document.items() >= promised.items()
    assert document["selective"] == {
        "threshold": 0.5,
        "precision": 0.0,
        "precision_wilson_low": 0.0,
        "coverage": 50.0,
    }
    assert [(at["threshold"], at["coverage"], at["precision"]) for at in document["curve"]] == [
        (0.0, 100.0, 50.0),
        (1.0, 50.0, 0.0),
    ]
    assert {name: of["exact"] for name, of in document["by_server"].items()} == {"notes": 100.0, "sky": 0.0}
    assert {name: of["n"] for name, of in document["by_category"].items()} == {"x": 1, "y": 1}
    assert document["time_ratio_p50"] > 0


@pytest.mark.anyio
async def test_tables_have_a_cell_for_each_column_and_failures_are_told_in_full():
    writer = Writer({BERN.text: draft(city="Rome"), TULIPS.text: draft(text="plant tulips")})
    report = Report(await judged(BERN, TULIPS, writer=writer, naive=False, cut=False))
    assert {len(row) for row in report.rows()} == {len(columns.COLUMNS)}
    assert [row[0] for row in report.rows()] == ["all", "x", "y", "notes", "sky"]
    assert {len(row) for row in report.figure_rows()} == {len(columns.FIGURE_COLUMNS)}
    assert report.as_json()["naive_exact"] is report.as_json()["missing_detected"] is None
    [told] = report.failures(5)
    assert all(part in told for part in ('"Bern"', '"Rome"', BERN.text, "sky/forecast", "city=Rome"))
    assert report.failures(0) == []


@pytest.mark.anyio
async def test_the_curve_has_few_points_however_many_confidences_there_are():
    drafts = {}
    for place in range(50):
        drafts[f"in Bern {place}"] = draft(city="Bern")
        drafts[f"in Bern {place}"].confidence, drafts[f"in Bern {place}"].target = place / 50, 0.9
    queries = [ArgumentQuery(text, text, FORECAST, BERN.gold, "x") for text in drafts]
    curve = Report(await judged(*queries, writer=Writer(drafts), naive=False, cut=False)).as_json()["curve"]
    assert (curve[0]["coverage"], curve[-1]["coverage"], len(curve)) == (100.0, 2.0, columns.MAX_POINTS)


ROW = {"query": "in Bern", "gold": ["sky/forecast"], "args_alternatives": [{"forecast": {"city": ["Bern"]}}]}
EXPECTED = {"query": "in Bern", "gold": ["sky/forecast"], "args": {"city": "Bern"}, "args_kind": "subset"}


def test_rows_of_both_forms_are_read_and_those_without_arguments_or_tool_passed_over(tmp_path):
    path = lines(
        tmp_path / "queries.jsonl",
        ROW | {"_meta": {"category": "plain"}},
        EXPECTED | {"source": "mcp", "args_ignore": ["units"], "args_ungrounded": ["days", "city"]},
        ROW | {"gold": ["radio/play"]},
        EXPECTED | {"args": None, "args_kind": None, "args_alternatives": [{"x": 1}]},
        ROW | {"id": "last", "split": "calib"},
    )
    first, second, third = read_argument_queries(path, FLEET)
    assert [one.category for one in (first, second, third)] == ["plain", "mcp", "queries"]
    assert dict(first.gold.stated) == {"city": ["Bern"]}
    assert dict(second.gold.stated) == {}
    assert second.bindings == {"units": "units-1", "city": "Bern"}, "texts alone are bound"
    assert [one.id for one in read_argument_queries(path, FLEET, split="calib")] == ["last"]
    assert [one.category for one in read_argument_queries(path, FLEET, category="mcp")] == ["mcp"]


@pytest.mark.parametrize(
    ("row", "asked", "message"),
    [
        (ROW, {"category": "live"}, "no request of category 'live'; there are: queries"),
        (ROW, {"split": "test"}, "no request of split 'test' has known arguments"),
        ({"query": "x", "gold": ["sky/forecast"]}, {}, "no request has known arguments"),
        (ROW | {"args_alternatives": [{"a": {}, "b": {}}]}, {}, "line 1: args_alternatives is not"),
        (ROW | {"args_alternatives": [{"a": {"city": "Bern"}}]}, {}, "line 1: args_alternatives is not"),
        (EXPECTED | {"args_ignore": "id"}, {}, "line 1: args_ignore is no list"),
        (ROW | {"query": ""}, {}, "line 1: query is no text"),
    ],
)
def test_a_bad_file_is_named_with_the_line_and_what_is_wrong(tmp_path, row, asked, message):
    with pytest.raises(BenchError, match=message):
        read_argument_queries(lines(tmp_path / "queries.jsonl", row), FLEET, **asked)


def test_a_sample_depends_on_its_seed_alone_and_keeps_the_order():
    assert sampled(range(100), 5, 1) == sampled(range(100), 5, 1) == sorted(sampled(range(100), 5, 1))
    assert sampled(range(100), 5, 1) != sampled(range(100), 5, 2)
    assert sampled(range(3), None, 0) == sampled(range(3), 9, 0) == [0, 1, 2]


@pytest.fixture
def files(tmp_path):
    """Options for two requests with the real model, and a cache of its own."""
    (tmp_path / "nexus.toml").write_text('cache_dir = "cache"\n[models]\nthreads = 1\nreader = "off"\n')
    rows = [
        {
            "query": query.text,
            "gold": [str(query.tool.id)],
            "args_alternatives": [{"t": query.gold.alternatives}],
        }
        for query in (BERN, TULIPS)
    ]
    return {
        "--config": tmp_path / "nexus.toml",
        "--tools": lines(tmp_path / "tools.jsonl", {"server": "sky"} | WEATHER, {"server": "notes"} | NOTE),
        "--queries": lines(tmp_path / "queries.jsonl", *rows),
    }


def words(files, *more):
    return "bench", "arguments", *(str(word) for option in files.items() for word in option), *more


def test_a_whole_run_with_the_real_model_prints_tables_and_last_the_object(files):
    ran = run_command(*words(files, "--failures", "2"))
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout.splitlines()[-1])
    assert document.items() >= {"n": 2, "valid": 100.0, "failed": 0, "cut": 2}.items()
    assert document["naive_valid"] is not None
    assert document["decoded_tokens_ratio_p50"] is not None
    assert set(document["by_server"]) == {"sky", "notes"}
    assert "exactly right" in ran.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--category", "live"], "no request of category 'live'; there are: queries"),
        (["--split", "test"], "no request of split 'test'"),
        (["--engine", "/nowhere/model.gguf"], "/nowhere/model.gguf"),
    ],
)
@pytest.mark.usefixtures("logs_as_they_were")
def test_what_is_wrong_is_said_and_ends_with_1(files, options, message):
    ran = CliRunner().invoke(app, words(files, *options))
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert message in ran.stderr
