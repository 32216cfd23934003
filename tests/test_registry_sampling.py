"""The registries that routing is measured in: those of ../shared/bench/registry_sample.py, tool for tool."""

import importlib.util
import json
from pathlib import Path

import pytest

from nexus_gateway.bench.registry_sampling import Sampler

SHARED = Path(__file__).parents[2] / "shared"
REFERENCE = SHARED / "bench" / "registry_sample.py"
SIZES = (1, 2, 7, 10, 50, 100, 250, 1000, 2_683, 2_684, 9_999)
FLEET = Sampler.of((f"{server}/{tool}", server) for server in "abcdefgh" for tool in range(10))


def reference():
    spec = importlib.util.spec_from_file_location("registry_sample", REFERENCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not REFERENCE.exists(), reason="needs the shared data")
def test_a_request_is_routed_among_the_very_tools_that_everybody_else_routes_it_among():
    sample = reference()
    registry, by_server = sample.load(SHARED / "data" / "registry.jsonl")
    sampler = Sampler.of((key, tool["server"]) for key, tool in registry.items())
    lines = (SHARED / "data" / "routing_queries.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for place, row in enumerate(map(json.loads, lines)) if place % 9 == 0 or len(row["gold"]) > 1]
    for place, query in enumerate(rows):
        gold, right = query["gold"][0], {*query["gold"], *query["gold_equivalents"]}
        for size in SIZES[place % 3 :: 3]:
            wanted = sample.sample(query, size, registry, by_server)
            assert sampler.sample(query["id"], gold, right - {gold}, size) == wanted


def test_the_right_tools_own_server_takes_half_at_most_and_other_right_tools_stay_out():
    drawn = FLEET.sample("q", "c/3", {"a/1", "c/4"}, 12)
    assert drawn[0] == "c/3"
    assert len({*drawn}) == 12
    assert sum(key.startswith("c/") for key in drawn) in {6, 7}
    assert not {"a/1", "c/4"} & {*drawn}


def test_another_request_gets_other_servers():
    assert FLEET.sample("q", "c/3", set(), 12) == FLEET.sample("q", "c/3", set(), 12)
    assert FLEET.sample("q", "c/3", set(), 12) != FLEET.sample("other", "c/3", set(), 12)


def test_every_tool_is_there_where_as_many_are_wanted():
    assert FLEET.sample("q", "c/3", {"a/1"}, 80) == sorted(FLEET.server_of)
    assert FLEET.others("q", 80) == sorted(FLEET.server_of)


def test_a_request_that_no_tool_fits_gets_whole_servers_too():
    drawn = FLEET.others("q", 40)
    assert len({*drawn}) == 40
    assert {sum(key.startswith(server) for key in drawn) for server in "abcdefgh"} == {0, 10}
    assert FLEET.others("q", 0) == []
