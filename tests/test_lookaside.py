"""The lookaside buffer scores tools as their float vectors would, within INT8, and shows only what is visible."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tool_registry.lookaside import Block, LookasideBuffer, best
from tool_registry.quantize import quantise, quantise_query

SIZES = [(1, 1), (1, 384), (2, 7), (3, 17), (31, 64), (64, 63), (65, 65), (250, 384), (1000, 100), (17, 1024)]


def _unit_rows(seed, rows, dimensions):
    vectors = np.random.default_rng(seed).standard_normal((rows, dimensions)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _one_row_each(vectors):
    return LookasideBuffer.build([row[None] for row in vectors])


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 70))
@settings(deadline=None, max_examples=60)
def test_scores_are_dot_products_within_the_bound_of_quantisation(seed, tools, dimensions):
    vectors, query = _unit_rows(seed, tools, dimensions), _unit_rows(seed + 1, 1, dimensions)[0]
    scores = _one_row_each(vectors).scan(query)
    _, row_scales = quantise(vectors)
    _, query_scale = quantise(query[None])
    # |ab - a'b'| <= |a - a'||b| + |a'||b - b'|, each error at most half a scale a dimension.
    spread = np.sqrt(dimensions) / 2
    bound = spread * (row_scales + query_scale) + spread**2 * row_scales * query_scale
    assert (np.abs(scores - vectors @ query) <= bound + 1e-6).all()


@pytest.mark.parametrize(("rows", "dimensions"), SIZES)
def test_the_scan_is_exact_integer_arithmetic(rows, dimensions):
    rng = np.random.default_rng(rows)
    codes = rng.integers(-127, 128, (rows, dimensions)).astype(np.int8)
    codes[0] = 127
    owner = np.arange(rows, dtype=np.int32)
    buffer = LookasideBuffer((Block(codes),), np.ones(rows, np.float32), owner, rows)
    query = rng.integers(-127, 128, dimensions).astype(np.float32)
    query[0] = 127  # so that the query's own scale is 1
    exact = codes.astype(np.int32) @ query.astype(np.int32)
    assert np.array_equal(buffer.scan(query), exact.astype(np.float32))


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 4), min_size=1, max_size=12))
@settings(deadline=None, max_examples=60)
def test_a_tool_scores_as_its_best_row(seed, counts):
    rows, query = _unit_rows(seed, sum(counts) + 1, 24), _unit_rows(seed + 1, 1, 24)[0]
    parts = np.split(rows[:-1], np.cumsum(counts)[:-1])
    scores = LookasideBuffer.build(parts).scan(query)
    for part, score in zip(parts, scores, strict=True):
        best = _one_row_each(part).scan(query).max() if len(part) else -np.inf
        assert score == best


def test_invisible_tools_never_reach_the_top():
    query = _unit_rows(3, 1, 32)[0]
    others = _unit_rows(4, 6, 32)
    buffer = LookasideBuffer.build([np.stack([query, -query]), *(row[None] for row in others)])
    assert buffer.top(query, 1)[0][0] == 0
    visible = np.array([False, True, True, False, True, True, True])
    found = buffer.top(query, 7, visible)
    assert {index for index, _ in found} == {1, 2, 4, 5, 6}
    assert np.isneginf(buffer.scan(query, visible)[~visible]).all()
    assert buffer.top(query, 3, np.zeros(7, np.bool_)) == []


def test_the_top_is_ordered_and_ties_go_by_index():
    vectors = _unit_rows(5, 40, 16)
    vectors[[7, 21, 33]] = vectors[2]
    buffer = _one_row_each(vectors)
    found = buffer.top(vectors[2], 4)
    assert [index for index, _ in found] == [2, 7, 21, 33]
    assert buffer.top(vectors[2], 2) == found[:2]
    everything = buffer.top(vectors[2], 100)
    assert len(everything) == 40
    assert [score for _, score in everything] == sorted((score for _, score in everything), reverse=True)
    assert buffer.top(vectors[2], 0) == []


def test_no_tools_give_no_scores():
    buffer = LookasideBuffer.build([])
    assert buffer.scan(np.ones(384, np.float32)).shape == (0,)
    assert buffer.top(np.ones(384, np.float32), 5) == []


def test_tools_without_vectors_are_never_found():
    buffer = LookasideBuffer.build([np.zeros((0, 8), np.float32)] * 2)
    assert buffer.top(np.ones(8, np.float32), 5) == []


def test_one_tool_is_found_and_a_zero_vector_scores_zero():
    assert _one_row_each(np.ones((1, 8), np.float32)).top(np.ones(8, np.float32), 5) == [
        (0, pytest.approx(8))
    ]
    assert _one_row_each(np.zeros((1, 8), np.float32)).scan(np.ones(8, np.float32)).tolist() == [0]
    assert _one_row_each(np.ones((1, 8), np.float32)).scan(np.zeros(8, np.float32)).tolist() == [0]


def _rows_owned_by(owners, tools):
    rows = len(owners)
    block = Block(np.ones((rows, 4), np.int8))
    return LookasideBuffer((block,), np.ones(rows, np.float32), np.array(owners, np.int32), tools)


def test_what_does_not_fit_is_refused_with_its_shape():
    buffer = _one_row_each(_unit_rows(1, 3, 8))
    with pytest.raises(ValueError, match=r"\(9,\).*\(8,\)"):
        buffer.scan(np.ones(9, np.float32))
    with pytest.raises(ValueError, match="3 tools"):
        buffer.scan(np.ones(8, np.float32), np.ones(4, np.bool_))
    with pytest.raises(ValueError, match="different embedders"):
        LookasideBuffer.build([np.ones((1, 8), np.float32), np.ones((1, 9), np.float32)])
    with pytest.raises(ValueError, match="order of their tools"):
        _rows_owned_by([1, 0], tools=2)
    with pytest.raises(ValueError, match="outside"):
        _rows_owned_by([2], tools=2)


def test_a_buffer_can_not_be_changed():
    buffer = _one_row_each(_unit_rows(1, 3, 8))
    with pytest.raises(ValueError, match="read-only"):
        buffer.blocks[0].codes[0, 0] = 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad):
    vectors = np.ones((3, 4), np.float32)
    vectors[1, 2] = bad
    with pytest.raises(ValueError, match="vector 1 "):
        quantise(vectors)


@pytest.mark.parametrize("size", [1e-45, 1e-38, 1e-6, 1.0, 3e38])
def test_codes_stand_for_their_vectors_at_any_magnitude(size):
    vectors = (_unit_rows(9, 5, 33) * size).astype(np.float32)
    codes, scales = quantise(vectors)
    restored = codes * scales[:, None].astype(np.float64)
    largest = np.abs(vectors).max(axis=1, keepdims=True).astype(np.float64)
    assert (np.abs(restored - vectors) <= largest / 127 * 0.51 + 1e-43).all()


def test_zero_rows_and_no_rows_are_quantised():
    codes, scales = quantise(np.zeros((2, 3), np.float32))
    assert not codes.any()
    assert not scales.any()
    assert quantise(np.zeros((0, 3), np.float32))[0].shape == (0, 3)


def test_the_registry_is_imported_without_the_native_library():
    code = "import sys, tool_registry.lookaside; print('numkong' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stdout.strip() == "False"


@given(st.integers(0, 2**32 - 1), st.integers(1, 900), st.sampled_from([1e-38, 1e-20, 1.0, 1e20, 3e38]))
@settings(deadline=None, max_examples=60)
def test_a_query_is_quantised_as_a_row_is(seed, dimensions, size):
    query = (_unit_rows(seed, 1, dimensions)[0] * size).astype(np.float32)
    codes, scale = quantise_query(query)
    row, scales = quantise(query[None])
    assert np.asarray(codes).shape == (1, dimensions)
    assert np.abs(np.asarray(codes).astype(int) - row).max() <= 1  # a value between two codes may take either
    assert scale == pytest.approx(float(scales[0]), rel=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_query_that_is_not_finite_is_refused(bad):
    query = np.ones(8, np.float32)
    query[3] = bad
    with pytest.raises(ValueError, match="NaN or infinite"):
        _one_row_each(np.ones((2, 8), np.float32)).scan(query)


@pytest.mark.parametrize("tools", [5, 100, 5_000, 20_000])
def test_the_best_are_those_of_a_full_sort_whatever_is_hidden(tools):
    rng = np.random.default_rng(tools)
    for hidden in (0.0, 0.5, 0.999, 1.0):
        scores = rng.integers(0, max(tools // 4, 2), tools).astype(np.float32)  # with many ties
        scores[rng.random(tools) < hidden] = -np.inf
        order = np.argsort(-scores, kind="stable")[:10]
        assert [index for index, _ in best(scores, 10)] == [at for at in order if scores[at] > -np.inf]


def test_the_vectors_of_a_tool_come_back_within_half_a_scale():
    parts = [_unit_rows(n, n % 3, 48) for n in range(9)]
    buffer = LookasideBuffer.build(parts)
    for tool, part in enumerate(parts):
        assert buffer.vectors(tool).shape == part.shape
        np.testing.assert_allclose(buffer.vectors(tool), part, atol=0.5 / 127 + 1e-6)


def test_several_blocks_score_as_one():
    vectors, query = _unit_rows(6, 20_000, 16), _unit_rows(7, 1, 16)[0]
    buffer = _one_row_each(vectors)
    assert len(buffer.blocks) > 2
    codes, scales = quantise(vectors)
    one = LookasideBuffer((Block(codes),), scales, np.arange(20_000, dtype=np.int32), 20_000)
    assert np.array_equal(buffer.scan(query), one.scan(query))
    np.testing.assert_array_equal(buffer.vectors(19_999), one.vectors(19_999))
