"""`bench turn`: every turn ends in one of eight ways, nothing upstream is called, and answers don't depend on state."""

import json
import os
from dataclasses import dataclass, field

import anyio
import pytest
from support.fake_turns import FakeRules
from support.gateways import run_command
from support.json_lines import lines
from support.making_tools import READS, STRING, catalog_of, definition, index_of
from typer.testing import CliRunner

from adapters.embedder_double import HashingEmbedder
from adapters.ports import Completion, ModelUnusable
from nexus_gateway.bench import turn_report as columns
from nexus_gateway.bench.arguments_scoring import AcceptedArguments
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.routing import Pool
from nexus_gateway.bench.routing_data import RoutingQuery
from nexus_gateway.bench.turn import Arms, Concatenated, Verdict, measure
from nexus_gateway.bench.turn_data import TurnQuery, read_turn_queries
from nexus_gateway.bench.turn_host import HostTokens
from nexus_gateway.bench.turn_playing import Arm, Player
from nexus_gateway.bench.turn_report import Report
from nexus_gateway.cli.main import app
from nexus_gateway.routing.router import Router
from nexus_gateway.server.meta_tools import META_TOOLS
from nexus_gateway.turn.arguments import Draft
from nexus_gateway.turn.result import Ground, GroundKind, MissingArgument, TokenCount
from tool_registry.routing import Gate

WEATHER = definition(
    "forecast", "Tell the weather of a city", {"city": STRING, "days": {"type": "integer"}}, ["city"]
)
NOTE = definition("note", "Write down a note", {"text": STRING}, ["text"], _meta={"secret": "x" * 500})
LOOK = definition("look", "Look at a picture", {"picture": STRING}, ["picture"], annotations=READS)
FULL = bool(os.environ.get("NEXUS_FULL_TESTS"))
FLEET = {"sky": [WEATHER], "notes": [NOTE], "eyes": [LOOK]}
BERN = "the weather forecast of the city Bern"


def query(request, /, *gold, bound=(), **accepted):
    return TurnQuery(RoutingQuery(request, request, gold), AcceptedArguments(accepted), dict(bound))


def draft(missing=(), *, chosen=False, **arguments):
    grounds = {name: Ground(GroundKind.SPAN, chosen=chosen) for name in arguments}
    return Draft(
        arguments, grounds, [MissingArgument(name, {}) for name in missing], TokenCount(50, 40, 2, 3)
    )


@dataclass
class Writer:
    """Gives one draft, or raises it; knows what was bound."""

    draft: object
    bound: list = field(default_factory=list)

    async def write(self, _compiled, _request, _context="", bindings=()):
        await anyio.lowlevel.checkpoint()
        self.bound.append(dict(bindings))
        if isinstance(self.draft, Exception):
            raise self.draft
        return self.draft


class Engine:
    """Writes one answer to whatever is asked."""

    holds_local_state = False

    def __init__(self, answer, *, complete=True):
        self.answer, self.complete_, self.asked = answer, complete, []

    async def complete(self, segments, schema, *, max_tokens):
        await anyio.lowlevel.checkpoint()
        self.asked.append((segments, schema, max_tokens))
        if isinstance(self.answer, Exception):
            raise self.answer
        return Completion(self.answer, self.complete_, 30, 10, 5, 15)


async def judged(asked, drafted, *, stateful=None, concatenated=None, sizes=(3,), gate=None, seed=0):
    """The judgements of one request, one a size."""
    catalog, embedder = catalog_of(**FLEET), HashingEmbedder()

    async def loaded():
        return embedder

    writer = drafted if isinstance(drafted, Writer) else Writer(drafted)
    player = Player(Router(loaded, gate or Gate(margin=0.0, floor=0.05)), catalog, FakeRules(), 30)
    arms = Arms(
        player,
        Arm(Engine("{}"), writer),
        HostTokens(len),
        None if stateful is None else Arm(Engine("{}"), Writer(stateful)),
        concatenated,
        seed,
    )
    with anyio.fail_after(30):
        measured = await measure(arms, Pool(await index_of(catalog)), [asked], sizes)
    return [one for size in sizes for one in measured[size]]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("asked", "drafted", "verdict"),
    [
        (query(BERN, "sky/forecast", city=["Bern"]), draft(city="Bern"), Verdict.EXACT),
        (query(BERN, "sky/forecast", city=["Basel"]), draft(city="Bern"), Verdict.WRONG_ARGUMENTS),
        (query(BERN, "notes/note", text=["Bern"]), draft(city="Bern"), Verdict.WRONG_TOOL),
        (query(BERN, "sky/forecast", city=["Bern"]), draft(city="Bern", chosen=True), Verdict.PROPOSED),
        (query(BERN, "sky/forecast", city=["Bern"]), draft(["city"]), Verdict.ASKED),
        (query(BERN, "sky/forecast", city=["Bern"]), ModelUnusable("out of room"), Verdict.FAILED),
    ],
)
async def test_a_turn_is_judged_by_what_was_called_and_with_which_arguments(asked, drafted, verdict):
    [one] = await judged(asked, drafted)
    assert one.ours.verdict is verdict
    called = one.ours.played.called
    assert (called is not None) is (verdict in {Verdict.EXACT, Verdict.WRONG_ARGUMENTS, Verdict.WRONG_TOOL})


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("gate", "verdict"),
    [(Gate(margin=9.0, floor=0.0), Verdict.AMBIGUOUS), (Gate(margin=0.0, floor=9.0), Verdict.NO_TOOL)],
)
async def test_a_turn_that_is_not_routed_calls_nothing(gate, verdict):
    [one] = await judged(query(BERN, "sky/forecast", city=["Bern"]), draft(city="Bern"), gate=gate)
    assert (one.ours.verdict, one.ours.played.called) == (verdict, None)


@pytest.mark.anyio
async def test_a_yes_is_given_where_one_is_asked_for_and_is_counted():
    asks = await judged(query(BERN, "sky/forecast", city=["Bern"]), draft(city="Bern"))
    reads = await judged(query("look at the picture", "eyes/look", picture=["p"]), draft(picture="p"))
    assert [one.ours.played.confirmed for one in asks + reads] == [True, False]
    assert [one.ours.verdict for one in asks + reads] == [Verdict.EXACT, Verdict.EXACT]
    report = Report({3: asks + reads}, 10)
    assert report.as_json()["sizes"]["3"]["confirmed"] == 50.0
    assert "1 of 2 turns asked for a yes" in report.notes()[0]


@pytest.mark.anyio
async def test_what_no_request_states_is_bound_for_the_right_server_alone():
    bound = {"city": "Bern", "text": "x"}
    right, wrong = Writer(draft(city="Bern")), Writer(draft(city="Bern"))
    await judged(query(BERN, "sky/forecast", bound=bound, city=["Bern"]), right)
    await judged(query(BERN, "notes/note", bound=bound, text=["x"]), wrong)
    assert (right.bound, wrong.bound) == ([{"city": "Bern"}], [{}])


@pytest.mark.anyio
async def test_turns_with_and_without_state_are_played_both_and_answers_that_differ_are_counted():
    asked = query(BERN, "sky/forecast", city=["Bern"])
    same = await judged(asked, draft(city="Bern"), stateful=draft(city="Bern"))
    other = await judged(asked, draft(city="Bern"), stateful=draft(city="Basel"))
    assert [Report({3: run}, 10).as_json()["sizes"]["3"]["state"]["differing"] for run in (same, other)] == [
        0,
        1,
    ]
    assert other[0].ours.verdict is Verdict.WRONG_ARGUMENTS, "what counts is the turn with state"
    assert Report({3: await judged(asked, draft(city="Bern"))}, 10).as_json()["sizes"]["3"]["state"] is None


def whole(name, **arguments):
    return json.dumps({"name": name, "arguments": arguments})


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Engine(whole("sky/forecast", city="Bern")), Verdict.EXACT),
        (Engine(whole("sky/forecast", city="Rome")), Verdict.WRONG_ARGUMENTS),
        (Engine(whole("notes/note", text="Bern")), Verdict.WRONG_TOOL),
        (Engine('{"name":"sky/fore', complete=False), Verdict.FAILED),
        (Engine(ModelUnusable("out of room")), Verdict.FAILED),
    ],
)
async def test_the_model_with_every_schema_before_it_chooses_among_all_and_is_judged_alike(answer, verdict):
    arm = Concatenated(answer, 100_000, 1, len)
    [one] = await judged(query(BERN, "sky/forecast", city=["Bern"]), draft(city="Bern"), concatenated=arm)
    assert (one.chosen, one.fits) == (verdict, True)
    [(segments, schema, budget)] = answer.asked
    assert schema["properties"]["name"]["enum"] == ["eyes/look", "notes/note", "sky/forecast"]
    assert all(name in segments[0].text for name in schema["properties"]["name"]["enum"])
    assert (segments[1].text, budget) == (BERN, 256)


@pytest.mark.anyio
async def test_schemas_that_do_not_fit_the_context_are_counted_and_the_model_is_not_asked():
    engine = Engine(whole("sky/forecast", city="Bern"))
    asked = query(BERN, "sky/forecast", city=["Bern"])
    few, many = await judged(
        asked, draft(city="Bern"), concatenated=Concatenated(engine, 900, 1, len), sizes=(1, 3)
    )
    assert (few.fits, many.fits, many.chosen, len(engine.asked)) == (True, False, None, 1)
    report = Report({1: [few], 3: [many]}, 10)
    figures = {size: of["concatenated"] for size, of in report.as_json()["sizes"].items()}
    assert [figures[size]["does_not_fit"] for size in ("1", "3")] == [0.0, 100.0]
    assert [figures[size]["exact"] for size in ("1", "3")] == [100.0, 0.0]
    assert "1 prompts with all schemas did not fit" in report.notes()[1]
    [none] = await judged(asked, draft(city="Bern"), concatenated=Concatenated(engine, 900, 0, len))
    assert none.fits is None


def test_a_host_carries_whole_entries_less_what_no_model_is_shown():
    counted = []
    host = HostTokens(lambda text: counted.append(text) or len(text))
    [note] = catalog_of(notes=[NOTE])
    assert host.of_tools([note, note]) == 2 * len(counted[0])
    assert len(counted) == 1, "a definition is counted once"
    entry = json.loads(counted[0].rstrip(","))
    assert entry == {name: part for name, part in NOTE.items() if name != "_meta"}
    assert host.of_meta_tools() == sum(map(len, counted[1:]))
    assert [json.loads(text.rstrip(","))["name"] for text in counted[1:]] == [
        tool["name"] for tool in META_TOOLS
    ]


@pytest.mark.anyio
async def test_shares_add_up_and_each_table_has_a_cell_for_each_column():
    arm = Concatenated(Engine(whole("notes/note", text="x")), 100_000, 1, len)
    asked = query(BERN, "sky/forecast", city=["Bern"])
    runs = [
        *await judged(asked, draft(city="Bern"), stateful=draft(city="Bern"), concatenated=arm),
        *await judged(asked, draft(["city"]), stateful=draft(["city"])),
        *await judged(asked, draft(city="Bern", chosen=True), stateful=draft(city="Bern", chosen=True)),
    ]
    report = Report({3: runs}, 100, seed=7)
    document = json.loads(json.dumps(report.as_json()))
    of = document["sizes"]["3"]
    assert (document["seed"], of["n"], of["state"]["ms_ratio"]["n"], of["concatenated"]["n"]) == (7, 3, 3, 1)
    assert sum(of[verdict] for verdict in Verdict) == pytest.approx(100, abs=0.1)
    assert of["executed"] == pytest.approx(of["exact"] + of["wrong_tool"] + of["wrong_arguments"])
    assert of["proposed_right"] == of["proposed"] == pytest.approx(33.33)
    assert of["decoded_tokens"]["mean"] == 50 - 40 + 5
    assert {len(row) for row in report.rows()} == {len(columns.COLUMNS)}
    assert {len(row) for row in report.cost_rows()} == {len(columns.COST_COLUMNS)}


ROW = {"query": "in Bern", "gold": ["sky/forecast"], "args": {"city": "Bern"}, "args_kind": "exact"}


def test_requests_have_their_tool_and_their_arguments_or_are_left_out(tmp_path):
    path = lines(
        tmp_path / "queries.jsonl",
        ROW | {"id": "1", "split": "test", "args_ignore": ["days"], "gold_equivalents": ["other/forecast"]},
        ROW | {"id": "2", "split": "test", "args": None, "args_kind": None},
        ROW | {"id": "3", "split": "calib"},
    )
    catalog = catalog_of(**FLEET)
    [only] = read_turn_queries(path, catalog, split="test")
    assert (only.routing.id, only.text, only.routing.right) == (
        "1",
        "in Bern",
        {"sky/forecast", "other/forecast"},
    )
    assert only.gold.accepts({"city": "Bern", "days": 3}, {})
    assert [one.routing.id for one in read_turn_queries(path, catalog, split=None)] == ["1", "3"]
    with pytest.raises(BenchError, match="no request of split 'x' has known arguments"):
        read_turn_queries(path, catalog, split="x")


@pytest.fixture
def files(tmp_path):
    """Options for two requests with the real models, and a cache of their own."""
    (tmp_path / "nexus.toml").write_text('cache_dir = "cache"\n[models]\nthreads = 1\nreader = "off"\n')
    tools = [{"server": server} | tool for server, listed in FLEET.items() for tool in listed]
    requests = [
        ROW | {"query": "Tell me the weather of Bern or Rome, please", "id": "a"},
        ROW
        | {
            "query": "write down a note: plant tulips",
            "gold": ["notes/note"],
            "args": {"text": "plant tulips"},
        },
    ]
    return {
        "--config": tmp_path / "nexus.toml",
        "--tools": lines(tmp_path / "tools.jsonl", *tools),
        "--queries": lines(tmp_path / "queries.jsonl", *requests),
        "--split": "all",
    }


def words(files, *more):
    return "bench", "turn", *(str(word) for option in files.items() for word in option), *more


def test_a_whole_run_with_the_real_models_prints_tables_and_last_the_object(files):
    naive = ["--concatenated-limit", "1"] if FULL else ["--no-concatenated"]
    ran = run_command(*words(files, "--sizes", "9", *naive))
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout.splitlines()[-1])
    assert set(document["sizes"]) == {"3"}, "there are no more tools"
    of = document["sizes"]["3"]
    assert (of["n"], of["failed"], of["state"]["differing"]) == (2, 0, 0)
    assert sum(of[verdict] for verdict in Verdict) == pytest.approx(100, abs=0.1)
    assert of["written"] == 50.0
    assert 0 < of["decoded_tokens"]["p50_written"] < of["state"]["decoded_tokens"]["p50_written"]
    assert of["host_tokens_p50"] > 0
    assert (of["concatenated"] is None) is not FULL
    assert "How turns end" in ran.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sizes", "10,0"], "'0' is no number of tools above 0"),
        (["--split", "test"], "no request of split 'test'"),
        (["--queries", "/nowhere.jsonl"], "/nowhere.jsonl can't be read"),
    ],
)
@pytest.mark.usefixtures("logs_as_they_were")
def test_what_is_wrong_is_said_and_ends_with_1(files, options, message):
    ran = CliRunner().invoke(app, words(files, *options))
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert message in ran.stderr
