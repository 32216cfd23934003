"""`bench reuse`: the replay keeps to its budgets and policies, and a small run with the real model gives the object."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from support.json_lines import lines
from support.making_tools import STRING, definition
from typer.testing import CliRunner

from nexus_gateway.bench.reuse import ToolCost
from nexus_gateway.bench.reuse_replay import (
    LeastRecentlyUsed,
    NoReuse,
    WorthAByte,
    learned,
    policies,
    replay,
    zipf,
)
from nexus_gateway.bench.reuse_report import Executed, Report, spearman
from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.main import app
from nexus_gateway.state.planner import Action
from tool_registry.blocks.descriptor import RuntimeFacts, StateDescriptor
from tool_registry.blocks.kind import StateKind

FACTS = RuntimeFacts("m", "b", "cpu", "d", "f16", "f16", False, True, "", "", "", "", StateKind.DENSE)


def cost(label, tokens=100, *, prefill=None, reading=0.001, placing=0.001, request=0.1):
    return ToolCost(
        label=label,
        descriptor=StateDescriptor(FACTS, label, 30, 30 + tokens, ""),
        payload_bytes=tokens * 1000,
        file_bytes=tokens * 1000,
        prefill=tokens * 0.004 if prefill is None else prefill,
        reading=reading,
        placing=placing,
        request=request,
    )


def many(count=40):
    return [cost(f"s/{place}", 50 + 37 * place % 400) for place in range(count)]


def test_turns_follow_zipf_and_depend_on_the_seed_alone():
    turns = zipf(50, 5_000, 1)
    assert turns == zipf(50, 5_000, 1) != zipf(50, 5_000, 2)
    counts = [count for _, count in Counter(turns).most_common()]
    harmonic = sum(1 / rank for rank in range(1, 51))
    assert counts[0] == pytest.approx(5_000 / harmonic, rel=0.1)
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.25)


def test_a_turn_costs_its_prefill_the_first_time_and_the_block_from_then_on():
    one = cost("s/a", prefill=0.8, reading=0.01, placing=0.02, request=0.1)
    planner, _ = learned([one])
    lru = replay([one], [0, 0, 0, 0], LeastRecentlyUsed(one.file_bytes), planner)
    assert lru.reused == (False, True, True, True)
    assert lru.mean_seconds == pytest.approx((0.9 + 3 * 0.13) / 4)
    assert replay([one], [0, 0], NoReuse(), planner).mean_seconds == pytest.approx(0.9)


def test_a_block_that_takes_longer_than_decoding_is_kept_by_lru_but_not_used():
    slow = cost("s/slow", 10, prefill=0.01, reading=0.5)
    planner, _ = learned([slow] * 30)
    assert planner.plan(slow.descriptor, 30, "disk", slow.file_bytes).action is Action.RECOMPUTE
    assert replay([slow], [0, 0, 0], LeastRecentlyUsed(slow.file_bytes), planner).hit == 0


def test_lru_drops_what_was_not_used_for_longest():
    a, b, c = (cost(f"s/{name}") for name in "abc")
    planner, _ = learned([a, b, c])
    lru = LeastRecentlyUsed(2 * a.file_bytes)
    assert replay([a, b, c], [0, 1, 0, 2, 0, 1], lru, planner).reused == (
        False,
        False,
        True,
        False,
        True,
        False,
    )
    assert list(lru.kept) == ["s/a", "s/b"]


def test_ours_does_not_let_a_tool_that_came_once_push_out_one_that_comes_often():
    often, once = cost("s/often"), cost("s/once")
    planner, _ = learned([often, once])
    turns = [0, 0, 0, 1, 0, 1, 0]
    assert replay([often, once], turns, WorthAByte(often.file_bytes, planner), planner).hit == 4 / 7
    assert replay([often, once], turns, LeastRecentlyUsed(often.file_bytes), planner).hit == 2 / 7


@pytest.mark.parametrize("percent", [5, 20, 100])
def test_no_policy_goes_over_its_budget_and_all_of_it_keeps_everything(percent):
    costs = many()
    planner, _ = learned(costs)
    turns = zipf(len(costs), 800, 3)
    budget = sum(one.file_bytes for one in costs) * percent // 100
    found = {}
    for name, policy in policies(budget, planner).items():
        found[name] = replay(costs, turns, policy, planner)
        assert name == "none" or policy.bytes <= budget
    assert found["none"].hit == 0
    assert found["ours"].mean_seconds <= found["lru"].mean_seconds < found["none"].mean_seconds
    if percent == 100:
        assert found["ours"].reused == found["lru"].reused
        assert found["ours"].hit == 1 - len(set(turns)) / len(turns)


def test_a_gain_is_predicted_from_the_tools_before_it_alone():
    costs = many()
    _, predicted = learned(costs)
    _, shorter = learned(costs[:10])
    assert shorter == predicted[:10]
    assert learned([*costs[:10], replace(costs[10], prefill=9.0)])[1] == predicted[:11]
    assert spearman(predicted[5:], [one.gain for one in costs[5:]]) > 0.95


def test_rank_correlation_is_of_ranks_and_shares_them_among_equals():
    assert spearman([1, 2, 3, 4], [10, 100, 1_000, 10_000]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 1, 2], [1, 1, 5]) == pytest.approx(1)
    assert spearman([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(0.9487, abs=1e-4)
    assert spearman([1], [1]) is spearman([1, 1], [1, 2]) is None


def test_the_object_has_the_promised_keys_and_the_replay_is_held_against_real_turns():
    costs = many(5)
    planner, predicted = learned(costs)
    turns = zipf(5, 50, 0)
    budgets = {
        percent: {
            name: replay(costs, turns, policy, planner)
            for name, policy in policies(costs[0].file_bytes * percent, planner).items()
        }
        for percent in (5, 20, 100)
    }
    executed = [Executed(1.0, 1.0), Executed(1.0, 2.0), Executed(3.0, 2.0)]
    document = Report(costs, 1, 50, budgets, predicted, executed).as_json()
    assert (document["n"], document["tools"], document["left_out"]) == (50, 5, 1)
    assert {tuple(of) for of in document["budgets"].values()} == {("ours", "lru", "none")}
    assert document["budgets"]["5"]["none"]["mean_ms"] == pytest.approx(
        1000 * sum(costs[place].first_argument(reused=False) for place in turns) / 50, abs=0.001
    )
    assert document["executed"]["median_error"] == 0.5
    assert set(document["gain"]) == {"spearman", "median_error"}
    assert json.loads(json.dumps(document)) == document


@pytest.fixture
def options(tmp_path):
    (tmp_path / "nexus.toml").write_text('cache_dir = "cache"\n[models]\nthreads = 1\nn_ctx = 512\n')
    rows = [
        {"server": "s"} | definition(f"read_{place}", f"Read thing number {place}", {"name": STRING})
        for place in range(3)
    ]
    rows.append({"server": "s"} | definition("long", "long " * 600, {"name": STRING}))
    tools = lines(tmp_path / "tools.jsonl", *rows)
    return ["--config", str(tmp_path / "nexus.toml"), "--tools", str(tools)]


@pytest.mark.usefixtures("logs_as_they_were")
def test_a_small_run_measures_replays_and_really_runs_turns(options):
    more = ["--pool", "4", "--turns", "60", "--execute", "2"]
    ran = CliRunner().invoke(app, ["bench", "reuse", *options, *more])
    assert ran.exit_code == Exit.OK, ran.output
    document = json.loads(ran.stdout.splitlines()[-1])
    assert (document["n"], document["tools"], document["left_out"]) == (60, 3, 1)
    assert document["executed"]["n"] == 2
    assert document["budgets"]["100"]["ours"]["hit"] <= 57 / 60
    assert document["all_bytes"] > 3 * 20 * 23_000
    assert all(value > 0 for value in document["costs_ms"].values())
    assert "replayed" in ran.stdout


@pytest.mark.usefixtures("logs_as_they_were")
def test_a_folder_that_is_too_small_for_a_block_is_said_with_the_option(options):
    ran = CliRunner().invoke(app, ["bench", "reuse", *options, "--pool", "4", "--disk-mb", "1", "--json"])
    assert (ran.exit_code, ran.stdout) == (Exit.FAILED, "")
    assert "--disk-mb" in ran.stderr
