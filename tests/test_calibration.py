"""From evidence to a probability: the fit, what a threshold buys, what a calibration was made for, its JSON form."""

import hashlib
import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from tool_registry.calibration import (
    FLEET_LIMIT,
    SKETCH_SIZE,
    Calibration,
    CalibrationError,
    CalibrationIdentity,
    margin_calibration,
)
from tool_registry.logistic import Logistic, fit_logistic
from tool_registry.risk_coverage import choose_floor, choose_threshold, point_at, risk_coverage, wilson_low
from tool_registry.routing import Candidate, Gate, RoutingOutcome, decide
from tool_registry.tool import ToolId


def sampled(n=4_000, seed=7):
    """Examples of a known law: logit = 2 a - 100 b + 0.5, on very different scales."""
    rng = random.Random(seed)
    examples = [{"a": rng.gauss(0, 1), "b": rng.gauss(0, 0.01)} for _ in range(n)]
    labels = [rng.random() < 1 / (1 + math.exp(-(2 * e["a"] - 100 * e["b"] + 0.5))) for e in examples]
    return examples, labels


def test_the_fit_finds_the_law_that_made_the_labels():
    found = fit_logistic(*sampled(), names=("a", "b"), ridge=0.01)
    assert found.weights[0] == pytest.approx(2, abs=0.2)
    assert found.weights[1] == pytest.approx(-100, abs=12)
    assert found.bias == pytest.approx(0.5, abs=0.15)


def test_probabilities_are_right_as_often_as_they_say():
    examples, labels = sampled()
    found = fit_logistic(examples, labels, names=("a", "b"))
    said = np.array([found.probability(example) for example in examples])
    for low in (0.1, 0.3, 0.5, 0.7):
        within = (said >= low) & (said < low + 0.2)
        assert np.array(labels)[within].mean() == pytest.approx(said[within].mean(), abs=0.06)


def test_separable_data_and_labels_of_one_kind_stay_finite():
    apart = [{"a": float(a)} for a in range(20)]
    for labels in ([a >= 10 for a in range(20)], [True] * 20, [False] * 20):
        found = fit_logistic(apart, labels, names=("a",))
        assert all(map(math.isfinite, (*found.weights, found.bias)))
        assert 0 < found.probability({"a": 0.0}) < 1
    assert fit_logistic(apart, [True] * 20, names=("a",)).probability({"a": 3.0}) > 0.9


def test_a_constant_feature_a_missing_one_and_none_at_all_do_no_harm():
    examples = [{"a": float(a % 5), "same": 3.0} for a in range(40)]
    labels = [a % 5 > 2 for a in range(40)]
    found = fit_logistic(examples, labels, names=("a", "same", "never"))
    assert found.weights[1:] == (0.0, 0.0)
    assert found.probability({"a": 4.0}) == found.probability({"a": 4.0, "same": 99.0})
    assert fit_logistic(examples, labels, names=()).probability({}) == pytest.approx(16 / 40, abs=0.03)


def test_a_sample_weight_counts_as_so_many_rows():
    examples, labels = sampled(60)
    twice = fit_logistic(examples * 2, labels * 2, names=("a", "b"))
    weighted = fit_logistic(examples, labels, names=("a", "b"), sample_weights=[2.0] * 60)
    assert weighted.weights == pytest.approx(twice.weights)
    assert weighted.bias == pytest.approx(twice.bias)


def test_an_enormous_logit_is_a_probability_too():
    steep = Logistic(("a",), (1e6,), 0.0)
    assert steep.probability({"a": 1e6}) == pytest.approx(1.0)
    assert steep.probability({"a": -1e6}) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("names", "weights", "bias"), [(("a",), (), 0.0), ((), (), math.nan), (("a",), (math.inf,), 0.0)]
)
def test_a_logistic_of_wrong_parts_is_refused(names, weights, bias):
    with pytest.raises(ValueError, match="weight"):
        Logistic(names, weights, bias)


@pytest.mark.parametrize(
    ("right", "n", "low"), [(0, 0, 0.0), (0, 10, 0.0), (10, 10, 0.7225), (81, 263, 0.2553), (95, 100, 0.8883)]
)
def test_wilson_bounds_are_those_of_the_tables(right, n, low):
    assert wilson_low(right, n) == pytest.approx(low, abs=5e-4)


def test_the_curve_trades_risk_for_coverage():
    curve = risk_coverage([0.9, 0.8, 0.7, 0.6], [True, True, False, True])
    assert [point.threshold for point in curve.points] == [0.9, 0.8, 0.7, 0.6]
    assert [point.coverage for point in curve.points] == [0.25, 0.5, 0.75, 1.0]
    assert [point.precision for point in curve.points] == [1.0, 1.0, pytest.approx(2 / 3), 0.75]
    assert [point.absent for point in curve.points] == [None] * 4


def test_the_least_threshold_that_is_precise_enough_is_chosen():
    probabilities = np.linspace(1.0, 0.5, 201)
    right = [place < 100 or place % 5 == 0 for place in range(201)]
    threshold = choose_threshold(probabilities, right, precision=0.95)
    point = point_at(threshold, probabilities, right)
    assert point.precision >= 0.95
    lower = [other for other in risk_coverage(probabilities, right).points if other.threshold < threshold]
    assert not any(other.meets(0.95, 1.0) for other in lower)
    assert point.routed > 100


def test_few_rows_are_not_enough_to_be_sure_even_if_all_are_right():
    def all_right(n):
        return choose_threshold(np.linspace(0.9, 0.6, n), [True] * n, precision=0.95)

    assert all_right(34) is None
    assert all_right(35) == pytest.approx(0.6)


def test_what_is_more_likely_wrong_is_never_routed():
    probabilities = np.linspace(0.9, 0.3, 121)
    assert choose_threshold(probabilities, [True] * 121, precision=0.9) == pytest.approx(0.5, abs=0.006)


def test_requests_without_their_tool_keep_the_threshold_up():
    probabilities, right = np.linspace(1.0, 0.5, 501), [True] * 501
    absent = np.linspace(0.9, 0.4, 100)
    assert choose_threshold(probabilities, right, precision=0.95) == 0.5
    held = choose_threshold(
        probabilities, right, precision=0.95, absent_probabilities=absent, absent_limit=0.1
    )
    assert np.mean(absent >= held) <= 0.1
    assert held == pytest.approx(0.85)  # the 11th of the absent rows has 0.8495


def test_a_row_is_decided_by_its_first_stage_that_reaches_the_threshold():
    stages = [[0.9, 0.1], [0.2, 0.8], [0.2, 0.3], [0.8, 0.95]]
    right = [[True, False], [False, True], [True, True], [False, True]]
    at = point_at(0.75, stages, right, [[0.1, 0.8], [0.2, 0.2]])
    assert (at.routed, at.right, at.absent) == (3, 2, 0.5)


def test_the_floor_loses_few_of_the_requests_that_a_tool_fits():
    probabilities = [place / 100 for place in range(100)]
    fits = [place >= 10 for place in range(100)]
    floor = choose_floor(probabilities, fits, lost_limit=0.1)
    assert sum(p < floor and fit for p, fit in zip(probabilities, fits, strict=True)) == 9
    assert choose_floor([0.9, 0.95], [True, True]) == 0.5
    assert choose_floor([0.3], [False]) == 0.0


def hashes(start, stop):
    return [
        hashlib.blake2b(str(number).encode(), digest_size=16).hexdigest() for number in range(start, stop)
    ]


def identity(start=0, stop=100, embedder="e", reranker=None):
    return CalibrationIdentity.of(hashes(start, stop), embedder, reranker)


@pytest.mark.parametrize("size", [10, 100, 3_000])
@pytest.mark.parametrize(("gone", "come"), [(0, 0), (0.1, 0.1), (0.0, 0.5), (0.5, 0.0), (0.4, 0.4), (1, 1)])
def test_the_share_of_tools_that_changed_is_measured_by_a_small_sketch(size, gone, come):
    then = identity(0, size)
    now = identity(int(gone * size), int((1 + come) * size))
    kept = size - int(gone * size)
    expected = 1 - kept / max(size, then.n_tools, now.n_tools)
    assert len(then.fleet) <= SKETCH_SIZE
    assert then.changed_share(now) == pytest.approx(expected, abs=1e-9 if size <= 100 else 0.08)


def test_another_model_or_another_fleet_makes_it_stale_and_says_which():
    made = identity()
    assert made.staleness(identity()) is None
    assert made.staleness(identity(20, 120)) is None
    assert "embedding model" in made.staleness(identity(embedder="f"))
    assert "made with no reranker" in made.staleness(identity(reranker="r"))
    assert "another reranker" in identity(reranker="q").staleness(identity(reranker="r"))
    assert identity(reranker="q").staleness(identity()) is None  # nothing is reranked now: nothing is wrong
    assert "version of the ranking" in replace(made, ranking_version="0").staleness(identity())
    changed = made.staleness(identity(50, 150))
    assert "about 50% of the tools differ" in changed
    assert FLEET_LIMIT < 0.5


def test_a_calibration_for_any_fleet_is_never_stale_for_its_tools():
    anywhere = CalibrationIdentity("e")
    assert anywhere.staleness(identity()) is None
    assert identity().staleness(CalibrationIdentity.of([], "e")) is None  # no tool is connected yet


FITTED = Calibration(
    Logistic(("margin", "cosine"), (3.5, -0.25), 0.125),
    Logistic(("reranked",), (2.0,), -1.0),
    Logistic(("cosine",), (4.0,), -2.0),
    0.75,
    0.125,
    identity(reranker="r"),
    {"requests": 50, "source": "a file"},
)


def test_it_is_the_same_after_a_round_trip_through_json():
    assert Calibration.from_json(FITTED.to_json()) == FITTED
    plain = FITTED.without_reranking()
    assert Calibration.from_json(plain.to_json()) == plain


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), 99, "format"),
        (("threshold",), 1.5, "`threshold`"),
        (("threshold",), True, "`threshold`"),
        (("floor",), None, "`floor`"),
        (("right",), None, "`right`"),
        (("right", "bias"), math.nan, "`bias`"),
        (("right", "weights", "margin"), "much", "`margin`"),
        (("right_reranked",), [], "`right_reranked`"),
        (("made_for", "embedder"), 5, "`embedder`"),
        (("made_for", "fleet"), ["xyz"], "`fleet`"),
        (("figures",), [], "`figures`"),
    ],
)
def test_a_wrong_part_is_named(path, value, message):
    fields = json.loads(FITTED.to_json())
    part = fields
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(CalibrationError, match=message):
        Calibration.from_json(json.dumps(fields))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_what_is_no_calibration_at_all_is_refused(text):
    with pytest.raises(CalibrationError):
        Calibration.from_json(text)


def ranked(margin=0.2, cosine=0.6, **best):
    first = Candidate(ToolId("s", "a"), 0.7, cosine, 1.0, **best)
    return [first, Candidate(ToolId("s", "b"), 0.7 - margin, cosine - margin, 0.5)]


def outcome(candidates, calibration):
    return decide(candidates, Gate(calibration=calibration)).outcome


def test_a_gate_routes_offers_or_abstains_by_probability():
    calibration = margin_calibration(0.1, 0.3, identity())
    assert outcome(ranked(margin=0.11), calibration) is RoutingOutcome.ROUTED
    assert outcome(ranked(margin=0.09), calibration) is RoutingOutcome.AMBIGUOUS
    assert outcome(ranked(cosine=0.29), calibration) is RoutingOutcome.ABSTAINED
    assert outcome(ranked(cosine=0.01), margin_calibration(0.1, None, identity())) is RoutingOutcome.ROUTED
    assert outcome(ranked(margin=0.11), replace(calibration, threshold=0.99)) is RoutingOutcome.AMBIGUOUS
    assert outcome([], calibration) is RoutingOutcome.ABSTAINED


def test_a_named_tool_is_routed_whatever_the_calibration_says():
    never = replace(margin_calibration(9.0, 9.0, identity()), threshold=1.0, floor=1.0)
    assert outcome(ranked(exact=True), never) is RoutingOutcome.ROUTED


def test_a_reranking_that_was_never_calibrated_is_not_trusted():
    calibration = margin_calibration(0.1, 0.3, identity())
    assert outcome(ranked(reranked=9.0), calibration) is RoutingOutcome.AMBIGUOUS
    calibrated = replace(calibration, right_reranked=Logistic(("reranked",), (5.0,), 0.0))
    assert outcome(ranked(reranked=9.0), calibrated) is RoutingOutcome.ROUTED
    assert outcome(ranked(reranked=-9.0), calibrated) is RoutingOutcome.AMBIGUOUS
