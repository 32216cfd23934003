"""`nexus-gateway calibrate` on a small real fleet with the packaged embedder, and what uses what it writes."""

import json
from contextlib import asynccontextmanager

import anyio
import pytest
import structlog
from support.gateways import settings_of, write_config
from support.labelled_fleet import N_REQUESTS, listed_name, servers, write_requests
from support.processes import children
from typer.testing import CliRunner

from adapters.embedder_double import HashingEmbedder
from nexus_gateway import diagnosis
from nexus_gateway.access.caller import Caller
from nexus_gateway.app import open_gateway
from nexus_gateway.cli.calibrate import LEAST_REQUESTS
from nexus_gateway.cli.main import app
from nexus_gateway.diagnosis import Verdict
from nexus_gateway.routing.calibration_file import Source, read, shipped
from nexus_gateway.routing.feedback import FILE_NAME, FeedbackStore, Label, LabelKind
from nexus_gateway.turn.parts import TurnOptions
from nexus_gateway.turn.result import Outcome
from tool_registry.routing import RoutingOutcome
from tool_registry.tool import ToolId

pytestmark = pytest.mark.usefixtures("logs_as_they_were")

NO_WRITER = '[models]\nargument = "/nowhere/a.gguf"\n'


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run `calibrate` on the labelled fleet in this process; no configuration of the machine's user takes part."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("COLUMNS", "140")

    def calibrate(*args, toml=NO_WRITER):
        options = write_config(tmp_path, servers(tmp_path), toml)
        result = CliRunner().invoke(app, ["calibrate", *map(str, [*args, *options])])
        structlog.reset_defaults()  # its log went to a stream that is closed now
        return result

    yield calibrate
    assert not children()


@pytest.fixture
def quick(monkeypatch):
    """An embedder that needs no model, for what does not depend on one."""

    @asynccontextmanager
    async def opened(*_args, **_options):
        yield HashingEmbedder()

    monkeypatch.setattr("nexus_gateway.app.open_embedder", opened)


@pytest.fixture
def requests(tmp_path):
    return write_requests(tmp_path / "requests.jsonl")


def one_json(result):
    (line,) = result.stdout.splitlines()
    return json.loads(line)


@pytest.mark.slow
def test_it_writes_a_calibration_that_serve_routes_by(run, requests, tmp_path):
    result = run("--requests", requests, "--precision", 90, "--json")
    assert result.exit_code == 0, result.stdout + result.stderr
    shown, path = one_json(result), tmp_path / "cache" / "calibration.json"
    assert shown["written"] == str(path)
    assert shown["requests"] == {"known": N_REQUESTS, "unknown": 0, "naming_their_tool": 0}
    assert shown["chosen"]["precision"] >= 90
    assert shown["chosen"] in shown["curve"]
    kept = read(path)
    assert round(kept.threshold, 4) == shown["chosen"]["threshold"]
    assert kept.made_for.n_tools == 12
    assert kept.figures["source"] == "a file"
    anyio.run(routes_by, settings_of(tmp_path, servers(tmp_path), NO_WRITER), kept)
    anyio.run(is_stale_with, settings_of(tmp_path, servers(tmp_path, ["sky"]), NO_WRITER), kept)


async def routes_by(settings, kept):
    with anyio.fail_after(100):
        async with open_gateway(settings) as gateway:
            sure = await gateway.turns.turn(
                "Weather forecast for the city of Vienna", Caller(), options=TurnOptions(dry_run=True)
            )
            unsure = await gateway.turns.turn("play a waltz on the piano", Caller())
            (finding,) = await diagnosis.calibration(gateway)
            assert gateway.router.gate.calibration == kept
    assert str(sure.tool_id) == listed_name("sky/get_forecast")
    assert sure.decision.outcome is RoutingOutcome.ROUTED
    assert unsure.outcome in (Outcome.AMBIGUOUS, Outcome.NO_TOOL)
    assert (finding.verdict, finding.detail) == (Verdict.OK, "the own calibration decides what is routed")


async def is_stale_with(settings, kept):
    with anyio.fail_after(100):
        async with open_gateway(settings) as gateway:
            await gateway.turns.turn("rain", Caller())
            (finding,) = await diagnosis.calibration(gateway)
            assert gateway.router.gate.calibration == kept
    assert finding.verdict is Verdict.NOTE
    assert "about 67% of the tools differ" in finding.detail
    assert finding.fix == "nexus-gateway calibrate"


def test_people_see_the_curve_and_a_dry_run_writes_nothing(quick, run, tmp_path):
    stranger = {"query": "play a song", "tool": "music/play"}
    path = write_requests(tmp_path / "requests.jsonl", extra=[stranger])
    result = run("--requests", path, "--precision", 80, "--dry-run")
    assert result.exit_code == 0, result.stdout + result.stderr
    assert "<- chosen" in result.stdout
    assert "With the right tool and its server taken away" in result.stdout
    assert "dry run: nothing was written" in result.stdout
    assert f"skipped: line {N_REQUESTS + 1}: no tool music/play is connected" in result.stderr
    assert not (tmp_path / "cache" / "calibration.json").exists()


def test_too_few_requests_are_refused_with_how_many_are_needed(quick, run, tmp_path):
    path = write_requests(tmp_path / "requests.jsonl", most=LEAST_REQUESTS - 1)
    result = run("--requests", path)
    assert result.exit_code == 1
    assert f"{LEAST_REQUESTS - 1} requests for 10 connected tools are too few" in " ".join(
        result.stderr.split()
    )
    assert f"at least {LEAST_REQUESTS} requests" in " ".join(result.stderr.split())
    assert not (tmp_path / "cache" / "calibration.json").exists()


@pytest.mark.slow
def test_made_requests_are_said_to_be_optimistic_and_keep_the_shipped_threshold(run, tmp_path):
    result = run("--from-tools", 96, "--precision", 80)
    assert result.exit_code == 0, result.stdout + result.stderr
    assert "optimistic" in result.stdout
    kept = read(tmp_path / "cache" / "calibration.json")
    assert kept.figures["source"] == "made from the tools"
    assert kept.threshold >= shipped().threshold


def test_what_hosts_corrected_is_a_source_too(quick, run, tmp_path, requests):
    store = FeedbackStore(tmp_path / "cache" / FILE_NAME)
    for line in requests.read_text().splitlines():
        row = json.loads(line)
        store.append(Label(row["query"], ToolId(*row["tool"].split("/")), LabelKind.CHOSEN))
    store.append(Label("play a song", ToolId("music", "play"), LabelKind.CHOSEN))
    result = run("--from-feedback", "--precision", 80)
    assert result.exit_code == 0, result.stdout + result.stderr
    assert "Precision on your own traffic" in result.stdout
    assert "feedback: no tool music/play is connected" in result.stderr
    assert read(tmp_path / "cache" / "calibration.json").figures["source"] == "feedback"


def test_the_calibration_goes_where_the_configuration_says(quick, run, requests, tmp_path):
    result = run(
        "--requests",
        requests,
        "--precision",
        80,
        "--json",
        toml=f'{NO_WRITER}[routing]\ncalibration = "mine/gate.json"\n',
    )
    assert one_json(result)["written"] == str(tmp_path / "mine" / "gate.json")
    assert read(tmp_path / "mine" / "gate.json")


def test_without_requests_it_says_where_they_can_come_from(run):
    result = run()
    assert result.exit_code == 2
    for way in ("--requests", "--from-feedback", "--from-tools"):
        assert way in result.stderr


def test_a_bad_file_of_requests_ends_with_2_and_its_line(run, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"query": "x", "tool": "s/t"}\nnonsense\n')
    result = run("--requests", bad)
    assert result.exit_code == 2
    assert f"{bad}:2: not a line of JSON" in result.stderr


def test_without_an_embedder_it_fails_with_the_cause(run, requests):
    result = run("--requests", requests, toml='[models]\nembedder = "/nowhere/e"\n')
    assert result.exit_code == 1
    assert "/nowhere/e" in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_the_shipped_calibration_is_for_the_packaged_embedder(tmp_path):
    async def chosen():
        with anyio.fail_after(100):
            async with open_gateway(settings_of(tmp_path, {}, NO_WRITER)) as gateway:
                return await gateway.gatekeeper.choose([])

    assert anyio.run(chosen).source is Source.SHIPPED
