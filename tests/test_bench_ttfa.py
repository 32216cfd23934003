"""`bench ttfa`: its arms are what they are called, a restore says exactly what decoding says, and the object is whole."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from support.gateways import run_command, settings_of
from support.json_lines import lines
from support.making_tools import STRING, catalog_of, definition
from typer.testing import CliRunner

from nexus_gateway.bench.decision_speed import decision_us
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.routing_data import RoutingQuery
from nexus_gateway.bench.state_bench import open_bench
from nexus_gateway.bench.state_cases import BESIDE, Case, case_of, draw_requests, draw_uniform, schema_text
from nexus_gateway.bench.state_lab import Place
from nexus_gateway.bench.ttfa import ODD_OFFSETS, Agreement, Run, Timed, agreement, measure
from nexus_gateway.bench.ttfa_arms import NEIGHBOURS, Arm, Reading
from nexus_gateway.bench.ttfa_report import COLUMNS, FIGURE_COLUMNS, Report
from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.main import app

FORECAST = definition("forecast", "Tell the weather of a city. Never asks twice.", {"city": STRING}, ["city"])
NOTE = definition("note", "Write a note", {"text": STRING, "title": STRING}, ["text"])
LONG = definition("long", "a long tale " * 900)
FLEET = catalog_of(sky=[FORECAST], notes=[NOTE])
LARGER = catalog_of(sky=[FORECAST], notes=[NOTE, *({"name": f"n{place}"} for place in range(12))])
QUERIES = [
    RoutingQuery("1", "the weather in Bern, please", ("sky/forecast",)),
    RoutingQuery("2", "note down: plant tulips", ("radio/play", "notes/note")),
    RoutingQuery("3", "play jazz", ("radio/play",)),
]


def test_divergence_is_zero_for_equal_distributions_alone_and_in_nats():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=500).astype(np.float32)
    assert agreement(logits, logits.copy()) == Agreement(0.0, True)
    half, third = np.log(np.array([0.5, 0.5, 1e-30])), np.log(np.array([0.25, 0.75, 1e-30]))
    assert agreement(half, third).kl == pytest.approx(0.5 * np.log(4 / 3), rel=1e-9)
    assert not agreement(np.array([1.0, 0.0]), np.array([0.0, 1.0])).top1
    nudged = logits.copy()
    nudged[7] += np.float32(0.01)
    assert 0 < agreement(logits, nudged).kl < 1e-4


def test_requests_are_drawn_by_the_seed_among_those_whose_tool_is_there():
    drawn = draw_requests(LARGER, QUERIES, 10, 1)
    assert {(str(one.compiled.id), one.request) for one in drawn} == {
        ("sky/forecast", "the weather in Bern, please"),
        ("notes/note", "note down: plant tulips"),
    }
    for one in drawn:
        names = [str(tool.id) for tool in one.beside]
        assert len(set(names)) == len(names) == BESIDE + 1
        assert str(one.compiled.id) in names
    assert [one.request for one in draw_requests(LARGER, QUERIES, 1, 4)] == [
        one.request for one in draw_requests(LARGER, QUERIES, 1, 4)
    ]
    with pytest.raises(BenchError, match="radio/play"):
        draw_requests(LARGER, QUERIES[2:], 5, 0)


def test_uniform_draws_no_tool_twice_and_every_one_has_a_request():
    drawn = draw_uniform(LARGER, 50, 0)
    assert {one.compiled.id for one in drawn} == set(LARGER.tools)
    assert all(one.request.strip() for one in drawn)
    order = [one.compiled.id for one in drawn]
    assert order == [one.compiled.id for one in draw_uniform(LARGER, 50, 0)]
    assert order != [one.compiled.id for one in draw_uniform(LARGER, 50, 1)]


def test_a_tool_in_full_is_its_whole_schema_as_listed():
    [line] = schema_text([next(tool for tool in FLEET if tool.id.name == "forecast")]).strip().splitlines()
    shown = json.loads(line.removeprefix("Tool: "))
    assert shown == {
        "name": "forecast",
        "description": FORECAST["description"],
        "parameters": FORECAST["inputSchema"],
    }


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return settings_of(tmp_path_factory.mktemp("ttfa"), {}, "[models]\nthreads = 1\nn_ctx = 1024\n")


@pytest.fixture(scope="module")
def opened(settings):
    """The real model, a small context and a real store."""
    with open_bench(settings, flash_attention=True, disk_mb=64) as found:
        yield found


@pytest.fixture
def bench(opened):
    return opened.bench


def cases(opened, fleet=FLEET, queries=QUERIES):
    return [case_of(opened.encoder, drawn) for drawn in draw_requests(fleet, queries, 10, 0)]


def test_all_prompts_of_a_case_share_the_systems_part_and_the_request(opened):
    first, second = cases(opened)
    assert first.system == second.system
    for case in (first, second):
        parts = (case.system, case.signature, case.schema, case.concatenated, case.request)
        assert all(parts)
        assert len(case.signature) < len(case.schema) < len(case.concatenated)


def test_what_is_put_back_says_exactly_what_decoding_the_same_batches_says(opened, bench):
    case = cases(opened)[0]
    with bench.prepared(case) as compiled:
        found = {arm: bench.run(arm, case, compiled) for arm in Arm if arm is not Arm.CONCAT}
        reference = found[Arm.FULL].logits
        for arm in (Arm.RESTORE, Arm.DISK, Arm.LIMIT):
            assert np.array_equal(found[arm].logits, reference), arm
        assert agreement(reference, found[Arm.SIGNATURE].logits).kl > 1e-3, (
            "another prompt says another thing"
        )
        for before in ODD_OFFSETS[1:3]:
            assert agreement(reference, bench.crowded(case, compiled, before, 7)) == Agreement(0.0, True)
        for reading in found.values():
            assert 0 <= reading.reading + reading.placing < reading.seconds
        assert compiled.descriptor.start == len(case.system)
        assert compiled.descriptor.end == len(case.system) + len(case.schema)


def test_without_flash_attention_a_restore_is_exact_alone_and_near_among_neighbours(settings):
    with open_bench(settings, flash_attention=False, disk_mb=64) as opened:
        case = cases(opened)[0]
        with opened.bench.prepared(case) as compiled:
            reference = opened.bench.run(Arm.FULL, case, compiled).logits
            assert np.array_equal(opened.bench.run(Arm.RESTORE, case, compiled).logits, reference)
            assert agreement(reference, opened.bench.crowded(case, compiled, 7, 19)).kl < 0.1
            again = opened.bench.run(Arm.FULL, case, compiled).logits
            assert np.array_equal(again, reference), "neighbours leave nothing behind"


def test_a_block_is_in_the_store_for_its_case_alone(opened, bench):
    case = cases(opened)[0]
    with bench.prepared(case) as compiled:
        assert bench.file_bytes(compiled) > len(compiled.payload) > len(case.schema) * 20_000
    with pytest.raises(BenchError, match="lost the block"):
        bench.run(Arm.DISK, case, compiled)


def test_a_context_holds_the_systems_part_alone_between_arms(opened, bench):
    case = cases(opened)[0]
    with bench.prepared(case) as compiled:
        bench.crowded(case, compiled, 7, 19)
        bench._blocks.settle(case.system)
    lab = bench._lab
    assert [lab.tokens(place) for place in Place] == [len(case.system), 0, 0, 0, 0]


def test_tools_that_exceed_the_context_are_counted_not_measured(opened, bench):
    fleet = catalog_of(sky=[FORECAST], tales=[LONG])
    queries = [QUERIES[0], RoutingQuery("9", "tell a tale", ("tales/long",))]
    told = []
    run = measure(bench, cases(opened, fleet, queries), seed=0, concat=True, advance=lambda: told.append(1))
    [timed] = run.timed
    assert (timed.label, run.left_out, run.overflows, len(told)) == ("sky/forecast", 1, 1, 2)
    assert set(timed.seconds) == set(Arm) - {Arm.CONCAT}


COMPILED = SimpleNamespace(payload=b"x" * 230, descriptor=SimpleNamespace(start=0, end=10))


class Tape:
    """Stands in for `Bench`: writes down which arm ran when."""

    def __init__(self):
        self.ran = []

    def fits(self, case):
        return True

    fits_concatenated = fits

    def prepared(self, case):
        return nullcontext(COMPILED)

    def run(self, arm, case, compiled):
        self.ran.append(arm)
        return Reading(1.0, 0.0, 0.0, np.zeros(4, np.float32))

    def crowded(self, case, compiled, before, between):
        assert 0 < before + between <= NEIGHBOURS
        return np.zeros(4, np.float32)


def test_every_case_runs_every_arm_once_in_an_order_that_is_rotated():
    tape = Tape()
    case = Case("s/t", (1,), (2,), (3,), (4,), (5,))
    measure(tape, [case] * len(Arm), seed=0, concat=True, advance=lambda: None)
    rounds = [tape.ran[start : start + len(Arm)] for start in range(0, len(tape.ran), len(Arm))]
    assert all(sorted(one) == sorted(Arm) for one in rounds)
    assert {one[0] for one in rounds} == set(Arm)
    measure(tape, [case], seed=0, concat=False, advance=lambda: None)
    assert Arm.CONCAT not in tape.ran[-5:]


def timed(factor, *, kl=0.0, concat=True):
    seconds = {Arm.FULL: 10.0, Arm.SIGNATURE: 3.0, Arm.RESTORE: 1.0, Arm.DISK: 1.25, Arm.LIMIT: 0.5}
    seconds |= {Arm.CONCAT: 80.0} if concat else {}
    return Timed(
        label="s/t",
        seconds={arm: value * (factor if arm is Arm.FULL else 1) for arm, value in seconds.items()},
        restoring={Arm.RESTORE: 0.002, Arm.DISK: 0.01},
        tokens=dict.fromkeys(("system", "schema", "signature", "request", "concat10", "block"), 100),
        block_bytes=2_300_000,
        alone=[Agreement(0.0, True)],
        crowded=[Agreement(kl, kl == 0)],
    )


def test_the_object_has_ratios_request_by_request_and_the_worst_divergence():
    run = Run([timed(1), timed(2, kl=0.25), timed(3, concat=False)], left_out=2, overflows=1)
    report = Report(run, flash_attention=True, decision_us={"p50": 1.0, "p99": 2.0})
    document = report.as_json()
    assert document["n"] == 3
    assert document["ratio"]["full_over_restore"] == {"p10": 10.0, "p50": 20.0, "p90": 30.0, "n": 3}
    assert document["ratio"]["concat10_over_restore"]["n"] == 2
    assert document["ratio"]["restore_over_limit"]["p50"] == 2.0
    assert (document["restore_ms"]["p50"], document["disk_ms"]["p50"]) == (2.0, 10.0)
    assert (document["kl_max"], document["top1"]) == (0.25, 5 / 6)
    assert document["kl"] == {
        "alone": {"max": 0.0, "top1": 1.0},
        "crowded": {"max": 0.25, "top1": 2 / 3},
    }
    assert (document["bytes_per_token"], document["left_out"], document["concat10_overflows"]) == (
        23_000,
        2,
        1,
    )
    assert document["decision_us"] == {"p50": 1.0, "p99": 2.0}
    assert {len(row) for row in report.rows()} == {len(COLUMNS)}
    assert {len(row) for row in report.figure_rows()} == {len(FIGURE_COLUMNS)}


def test_an_arm_that_never_ran_has_no_row_and_no_ratio():
    report = Report(Run([timed(1, concat=False)], 0, 1), flash_attention=False, decision_us=None)
    assert report.as_json()["ratio"]["concat10_over_restore"] is None
    assert len(report.rows()) == len(Arm) - 1


def test_decisions_are_timed_one_by_one():
    found = decision_us(rounds=200)
    assert 0 < found["p50"] <= found["p99"]


@pytest.fixture
def options(tmp_path):
    (tmp_path / "nexus.toml").write_text('cache_dir = "cache"\n[models]\nthreads = 1\nn_ctx = 1024\n')
    tools = lines(tmp_path / "tools.jsonl", {"server": "sky"} | FORECAST, {"server": "notes"} | NOTE)
    rows = [{"id": query.id, "query": query.text, "gold": list(query.gold)} for query in QUERIES]
    queries = lines(tmp_path / "queries.jsonl", *rows)
    return ["--config", str(tmp_path / "nexus.toml"), "--tools", str(tools), "--queries", str(queries)]


def test_a_whole_run_prints_tables_and_last_the_object(options):
    ran = run_command("bench", "ttfa", *options, "--limit", "5")
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout.splitlines()[-1])
    assert document.items() >= {"n": 2, "kl_max": 0.0, "top1": 1.0, "flash_attention": True}.items()
    assert set(document["ratio"]) >= {
        "full_over_restore",
        "signature_over_restore",
        "concat10_over_restore",
        "restore_over_limit",
    }
    assert document["decision_us"]["p50"] > 0
    assert "Time to the first argument token" in ran.stdout


@pytest.mark.usefixtures("logs_as_they_were")
def test_uniform_needs_no_requests_and_flash_attention_can_be_off(options):
    more = ["--uniform", "--limit", "1", "--no-flash", "--no-concat", "--json"]
    ran = CliRunner().invoke(app, ["bench", "ttfa", *options[:4], *more])
    assert ran.exit_code == Exit.OK, ran.output
    document = json.loads(ran.stdout)
    assert (document["n"], document["flash_attention"], document["kl"]["alone"]["max"]) == (1, False, 0.0)
    assert document["ratio"]["concat10_over_restore"] is None


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ((), Exit.USAGE, "--uniform"),
        (("--queries", "/nowhere.jsonl"), Exit.FAILED, "/nowhere.jsonl can't be read"),
        (("--uniform", "--disk-mb", "1"), Exit.FAILED, "--disk-mb"),
    ],
)
@pytest.mark.usefixtures("logs_as_they_were")
def test_what_is_wrong_is_said_with_the_option_that_mends_it(options, given, code, message):
    ran = CliRunner().invoke(app, ["bench", "ttfa", *options[:4], *given])
    assert (ran.exit_code, ran.stdout) == (code, "")
    assert message in ran.stderr
