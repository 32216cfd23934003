"""`bench proxy`: what it says can be trusted, and a tiny run of it works."""

import json
import sys

import anyio
import pytest

from adapters.ports import Era
from nexus_gateway.bench import fastmcp_venv, report
from nexus_gateway.bench.arms import DIRECT, FASTMCP, GATEWAY, Arm, LiveArm, arms
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.figures import latency_ms, latency_ratio, per_second, percentile, throughput_ratio
from nexus_gateway.bench.measure import Plan, Sample, measure_calls
from nexus_gateway.bench.proxy import Case, Footprint, Progress, Run, run, steps

TINY = Plan(rounds=2, calls={1: 3, 4: 8}, warm_up=1, lists=1, transports=("stdio",), eras=(Era.LEGACY,))


def sample(*milliseconds, elapsed=None):
    seconds = tuple(value / 1000 for value in milliseconds)
    return Sample(seconds, sum(seconds) if elapsed is None else elapsed / 1000)


def quiet():
    return Progress(lambda _text: None, lambda: None)


class EchoingClient:
    """A client in this process; answers what it was asked, or with `wrong`."""

    def __init__(self, wrong=None):
        self.asked, self.most, self._running, self._wrong = [], 0, 0, wrong

    async def request(self, method, params):
        self._running += 1
        self.most = max(self.most, self._running)
        await anyio.lowlevel.checkpoint()
        self._running -= 1
        self.asked.append(params["arguments"]["text"])
        return {"content": [{"type": "text", "text": self._wrong or self.asked[-1]}]}


def live(name, client):
    return LiveArm(name, client, None, 0.0, 0.0)


def test_percentiles_are_values_that_were_measured():
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, share) for share in (0.1, 0.5, 0.9, 0.99)] == [1.0, 3.0, 5.0, 5.0]


def test_ratios_are_taken_round_by_round_so_that_a_slow_spell_of_the_machine_cancels_out():
    direct = [sample(1, 1, 1), sample(10, 10, 10), sample(2, 2, 2)]
    gateway = [sample(2, 2, 9), sample(20, 20, 20), sample(4, 4, 4)]
    ratio = latency_ratio(gateway, direct)
    assert (ratio.p10, ratio.p50, ratio.p90, ratio.n) == (2.0, 2.0, 2.0, 3)
    assert latency_ms(direct, 0.99) == pytest.approx(10)


def test_throughput_counts_what_was_done_at_once():
    direct, gateway = [sample(10, 10, elapsed=10)], [sample(20, 20, elapsed=40)]
    assert per_second(direct) == pytest.approx(200)
    assert throughput_ratio(gateway, direct).p50 == pytest.approx(0.25)


@pytest.mark.anyio
async def test_arms_take_turns_and_each_makes_its_calls_with_that_many_callers():
    one, other = EchoingClient(), EchoingClient()
    told = []
    samples = await measure_calls([live("one", one), live("other", other)], TINY, lambda: told.append(1))
    calls = TINY.warm_up + TINY.rounds * sum(TINY.calls.values())
    assert (len(one.asked), len(other.asked)) == (calls, calls)
    assert (one.most, other.most) == (4, 4)
    assert [len(taken.seconds) for taken in samples[4]["other"]] == [8, 8]
    assert len(told) == 2 * TINY.rounds * len(TINY.calls)


@pytest.mark.anyio
async def test_an_answer_to_something_else_stops_the_run():
    with pytest.raises(BenchError, match="asked to echo"):
        await live("odd", EchoingClient(wrong="something else")).call("this")


@pytest.mark.anyio
async def test_an_arm_that_does_not_start_is_named_with_its_last_words(tmp_path):
    broken = Arm("broken", lambda *_of: (sys.executable, "-c", "import sys; sys.exit('no cheese')"))
    with anyio.fail_after(60), pytest.raises(BenchError, match=r"broken: .*\n.*no cheese"):
        await run([broken], TINY, quiet())


@pytest.mark.anyio
async def test_an_http_upstream_is_reached_in_the_modern_era():
    plan = Plan(rounds=1, calls={2: 2}, warm_up=1, lists=1, transports=("http",), eras=(Era.MODERN,))
    with anyio.fail_after(100):
        measured = await run(arms(None)[:1], plan, quiet())
    assert [(case.transport, case.era) for case in measured.cases] == [("http", Era.MODERN)]
    assert len(measured.lists[Era.MODERN][DIRECT]) == 1
    assert not measured.footprints  # nothing was started but dialled


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.anyio
async def test_a_tiny_run_through_the_gateway_gives_the_promised_object():
    told = []
    with anyio.fail_after(390):
        measured = await run(arms(None), TINY, Progress(lambda _text: None, lambda: told.append(1)))
    document = json.loads(json.dumps(report.as_json(measured, fastmcp_version=None)))
    legacy = document["stdio"]["legacy"]
    assert legacy["n"] == TINY.rounds
    assert legacy["hop_ratio_p50"] > 0
    assert legacy["throughput_ratio_4"] > 0
    assert document["list500_ratio"] > 0
    assert document["footprint"][GATEWAY]["rss_mb"] > document["footprint"][DIRECT]["rss_mb"] > 0
    assert not any(key.startswith("fastmcp") for key in legacy)
    assert len(told) == steps(2, TINY)
    assert all(report.call_rows(measured))


def test_the_object_has_the_keys_that_are_promised_and_tables_have_a_row_for_each_figure():
    rounds = {DIRECT: [sample(1, 2)], GATEWAY: [sample(2, 4)], FASTMCP: [sample(4, 8)]}
    cases = [
        Case(transport, era, dict.fromkeys((1, 8, 64), rounds))
        for era in Era
        for transport in ("stdio", "http")
    ]
    measured = Run(cases, dict.fromkeys(Era, rounds), [Footprint(GATEWAY, 1.0, 2.0, 2**20)])
    document = report.as_json(measured, fastmcp_version="4.0")
    for transport in ("stdio", "http"):
        for era in ("legacy", "modern"):
            figures = document[transport][era]
            assert figures["hop_ratio_p50"] == 2.0
            assert figures["fastmcp_hop_ratio_p50"] == 4.0
            assert figures["throughput_ratio_64"] == 0.5
            assert figures["fastmcp_throughput_ratio_64"] == 0.25
            assert figures["arms"][DIRECT]["64"]["p50_ms"] == 1.0
    assert (document["list500_ratio"], document["fastmcp_list500_ratio"]) == (2.0, 4.0)
    assert document["versions"]["fastmcp"] == "4.0"
    assert len(report.call_rows(measured)) == 2 * 2 * 3 * 3
    assert {len(row) for row in report.call_rows(measured)} == {len(report.COLUMNS)}
    assert {len(row) for row in report.list_rows(measured)} == {len(report.LIST_COLUMNS)}
    assert {len(row) for row in report.footprint_rows(measured)} == {len(report.FOOTPRINT_COLUMNS)}


def environment(folder, script):
    """A stand-in for FastMCP's environment, whose interpreter is a shell script."""
    python = folder / "bench" / "fastmcp" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return python


def test_an_environment_that_has_fastmcp_is_used_as_it_is(tmp_path):
    python = environment(tmp_path, "echo 4.5.6")
    assert fastmcp_venv.install_fastmcp(tmp_path) == fastmcp_venv.FastMcp(python, "4.5.6")


def test_what_pip_says_is_passed_on(tmp_path):
    python = environment(tmp_path, "echo no such index >&2; exit 1")
    with pytest.raises(BenchError, match="no such index"):
        fastmcp_venv._install(python)
