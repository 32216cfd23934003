"""The planner decides by measured costs; costs follow what is measured, and survive whatever their file says."""

import json

import pytest

from nexus_gateway.state import costs as cost_file
from nexus_gateway.state.costs import Costs, LinearCost, Prefill
from nexus_gateway.state.planner import Action, Planner
from tool_registry.blocks.descriptor import RuntimeFacts, StateDescriptor
from tool_registry.blocks.kind import StateKind

FACTS = RuntimeFacts("m", "b", "cpu", "d", "f16", "f16", False, True, "", "", "", "", StateKind.DENSE)
WANTED = StateDescriptor(FACTS, "chain", 40, 140, "salt")
SIZE = 2_000_000


def planner_of(*, prefill=0.01, own_memory=False):
    costs = Costs()
    costs.prefill.learn(100, 100 * prefill)
    return Planner(costs, own_memory=own_memory), costs


def test_a_gain_is_put_back_and_says_what_it_is_expected_to_be():
    planner, _ = planner_of()
    plan = planner.plan(WANTED, 40, "disk", SIZE)
    assert (plan.action, plan.tier, plan.restored_tokens) == (Action.MATERIALIZE, "disk", 100)
    assert plan.compute_seconds == pytest.approx(1.0)
    assert plan.gain_seconds == pytest.approx(plan.compute_seconds - plan.cache_seconds)
    assert 0 < plan.cache_seconds < plan.budget_seconds <= plan.compute_seconds


def test_memory_is_cheaper_than_disk():
    planner, _ = planner_of()
    memory, disk = (planner.plan(WANTED, 40, tier, SIZE) for tier in ("memory", "disk"))
    assert memory.gain_seconds > disk.gain_seconds


def test_a_loss_is_not_put_back():
    planner, _ = planner_of(prefill=1e-6)
    plan = planner.plan(WANTED, 40, "disk", SIZE)
    assert plan.action is Action.RECOMPUTE
    assert plan.gain_seconds < 0


@pytest.mark.parametrize("tier", ["", "memory", "disk"])
def test_what_is_live_needs_nothing(tier):
    planner, _ = planner_of()
    assert planner.plan(WANTED, 140, tier, SIZE).action is Action.SKIP


def test_what_is_partly_live_gains_only_the_rest():
    planner, _ = planner_of()
    whole, part = planner.plan(WANTED, 40, "memory", SIZE), planner.plan(WANTED, 130, "memory", SIZE)
    assert part.restored_tokens == 10
    assert part.gain_seconds < whole.gain_seconds


def test_what_is_kept_nowhere_is_read():
    planner, _ = planner_of()
    assert planner.plan(WANTED, 0, "", 0).action is Action.RECOMPUTE


def test_a_device_with_memory_of_its_own_is_measured_first_and_then_believed():
    planner, costs = planner_of(own_memory=True)
    costs.restore = LinearCost(10.0, 0.0)
    for _ in range(3):
        assert planner.plan(WANTED, 40, "memory", SIZE).action is Action.MATERIALIZE
        costs.restore.learn(SIZE, 10.0)
    assert planner.plan(WANTED, 40, "memory", SIZE).action is Action.RECOMPUTE


def test_reading_ahead_needs_a_gain_that_is_likely_enough():
    planner, costs = planner_of()
    costs.reads["disk"] = LinearCost(0.5, 0.0)
    assert planner.prefetch(WANTED, 40, "disk", SIZE, 0.9).action is Action.PREFETCH
    assert planner.prefetch(WANTED, 40, "disk", SIZE, 0.1).action is Action.SKIP
    assert planner.prefetch(WANTED, 140, "disk", SIZE, 0.9).action is Action.SKIP
    assert planner.prefetch(WANTED, 40, "memory", SIZE, 0.9).action is Action.MATERIALIZE


def test_a_linear_cost_follows_what_is_measured():
    cost = LinearCost(0.5, 0.5)
    for _ in range(200):
        for mib in (1, 4, 16):
            cost.learn(mib << 20, 0.01 + 0.002 * mib)
    assert cost.fixed == pytest.approx(0.01, rel=0.05)
    assert cost.per_mib == pytest.approx(0.002, rel=0.05)


def test_one_stall_does_not_turn_the_planner():
    cost = LinearCost(0.001, 0.001)
    for _ in range(20):
        cost.learn(4 << 20, 0.005)
    cost.learn(4 << 20, 60.0)
    assert cost.seconds(4 << 20) < 0.05
    for _ in range(30):
        cost.learn(4 << 20, 0.005)
    assert cost.seconds(4 << 20) == pytest.approx(0.005, rel=0.05)


def test_prefill_is_by_length_and_the_nearest_measured_length_stands_in():
    prefill = Prefill()
    prefill.learn(8, 0.08)
    prefill.learn(500, 1.0)
    assert prefill.seconds(8) == pytest.approx(0.08)
    assert prefill.seconds(400) == pytest.approx(0.8)
    assert prefill.seconds(16) == pytest.approx(0.16)
    assert prefill.seconds(0) == 0


def test_costs_are_kept_for_each_engine(tmp_path):
    path = tmp_path / "costs.json"
    _, costs = planner_of()
    costs.read("disk").learn(SIZE, 0.03)
    cost_file.save(path, "one", costs.to_json())
    cost_file.save(path, "other", Costs().to_json())
    kept = cost_file.load(path, "one")
    assert kept.prefill.seconds(100) == pytest.approx(1.0)
    assert kept.read("disk").seconds(SIZE) == pytest.approx(costs.read("disk").seconds(SIZE))
    assert kept.to_json() == costs.to_json()
    assert not cost_file.load(path, "nobody").prefill.rates


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        json.dumps({"version": 99, "one": {}}),
        json.dumps(
            {"version": 1, "one": {"prefill": {"x": [1, 2], "3": ["a", 1], "4": [-1, 1]}, "restore": [1]}}
        ),
        '{"version": 1, "one": {"restore": [NaN, 1, 1], "reads": {"disk": [1e999, 0, 1]}, "prefill": []}}',
        json.dumps({"version": 1, "one": {"restore": [10**400, 1, 1], "prefill": {"3": [10**400, 1]}}}),
        '{"one":' * 100_000,
        json.dumps({"version": 1, "one": 7}),
    ],
)
def test_a_damaged_file_of_costs_is_guessed_anew(tmp_path, text):
    path = tmp_path / "costs.json"
    path.write_text(text, encoding="utf-8")
    costs = cost_file.load(path, "one")
    assert costs.to_json() == Costs().to_json()
    cost_file.save(path, "one", costs.to_json())


def test_a_cost_that_keeps_blocks_from_being_used_is_doubted_until_one_is_tried_again():
    planner, costs = planner_of()
    costs.restore.learn(SIZE, 30.0)  # a stall
    costs.read("disk").learn(SIZE, 30.0)
    tries = 0
    while planner.plan(WANTED, 40, "disk", SIZE).action is Action.RECOMPUTE:
        costs.doubt("disk")
        tries += 1
        assert tries < 100
    assert tries > 10
