"""`bench scan`: its arms do one job, and a tiny run gives the promised object."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from nexus_gateway.bench import scan
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.cli.bench_scan import as_json
from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.main import app


def run(*arguments):
    return CliRunner().invoke(app, ["bench", "scan", *arguments])


@pytest.mark.parametrize("tools", [1, 5, 300, 5_000])
def test_all_arms_find_the_same_visible_tools(tools):
    fleet = scan._Fleet.made(384, tools)
    arms = fleet.arms()
    for query in fleet.queries:
        exact = np.where(fleet.visible, fleet.rows @ query, -np.inf)
        expected = np.sort(exact[exact > -np.inf])[::-1][: scan.TOP]
        for name in (scan.GATEWAY, scan.NUMPY, scan.NUMPY_OUR_TOP):
            found = [score for _, score in arms[name](query) if score > -np.inf]
            np.testing.assert_allclose(found, expected, atol=0.02, err_msg=name)


def test_reading_arms_read_as_many_bytes_as_the_scan():
    fleet = scan._Fleet.made(384, 300)
    assert fleet.codes.size == 384 * 300 == sum(block.codes.size for block in fleet.buffer.blocks)
    arms = fleet.arms()
    assert int(arms[scan.READS[0]](None)) == int(fleet.codes.view(np.uint64).sum())
    assert int(arms[scan.READS[1]](None)) == int(fleet.codes.astype(int).sum())
    assert int(arms[scan.MAXIMUM](None)) == 127


def test_arms_that_differ_stop_the_run():
    fleet = scan._Fleet.made(64, 50)
    arms = fleet.arms() | {scan.NUMPY: lambda _query: [(0, 9.0)]}
    with pytest.raises(BenchError, match="do not find the same"):
        scan._check(arms, fleet.queries)


def test_ratios_are_taken_round_by_round():
    seconds = dict.fromkeys(scan.ARMS, (1e-06, 1e-05, 2e-06)) | {scan.NUMPY: (2e-6, 20e-6, 4e-6)}
    case = scan.Case(384, 250, seconds, scan.READS[0])
    figures = as_json([case])["384"]["250"]
    assert (figures["over_numpy_p10"], figures["over_numpy"], figures["over_numpy_p90"]) == (0.5, 0.5, 0.5)
    assert (figures["us"], figures["over_read"], figures["n"]) == (2.0, 1.0, 3)


def test_the_command_prints_a_table_and_one_object():
    result = run("--sizes", "20,300", "--dims", "64,96", "--rounds", "2")
    assert result.exit_code == Exit.OK, result.output
    document = json.loads(result.stdout.splitlines()[-1])
    assert {dims: set(sizes) for dims, sizes in document.items()} == {
        "64": {"20", "300"},
        "96": {"20", "300"},
    }
    assert all(
        figures[key] > 0
        for sizes in document.values()
        for figures in sizes.values()
        for key in ("us", "over_numpy", "over_read")
    )
    assert "scan / numpy" in result.stdout
    alone = run("--sizes", "20", "--dims", "64", "--rounds", "1", "--json")
    assert list(json.loads(alone.stdout)) == ["64"]


@pytest.mark.parametrize(
    "options", [("--sizes", "many"), ("--sizes", "0"), ("--dims", "64,"), ("--dims", "-1")]
)
def test_numbers_that_are_none_are_refused(options):
    result = run(*options, "--rounds", "1")
    assert result.exit_code == Exit.USAGE
    assert "is not a list of numbers" in " ".join(result.output.split())


def test_a_size_that_does_not_fit_into_memory_is_refused():
    result = run("--sizes", "10000000", "--dims", "65536", "--rounds", "1")
    assert result.exit_code == Exit.FAILED
    assert "choose smaller --sizes" in " ".join(result.output.split())
