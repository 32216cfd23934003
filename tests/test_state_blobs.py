"""llama.cpp's bytes of a sequence: taken apart to the last of them, and refused wherever they don't fit."""

import mmap
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.raw_context import raw_context, raw_model
from support.tiny_models import WINDOW, write_tiny_model

from adapters.llama_cpp.state_blob import (
    MAGIC,
    AttentionShape,
    BlobMalformed,
    BlobShape,
    RecurrentShape,
    Row,
    parse_state,
)

KEPT = ("dense", "windowed", "recurrent", "hybrid", "latent")
TEXT = "A text of more tokens than a window has"
BOTH = pytest.mark.parametrize("flash", [True, False], ids=["flash", "plain"])
KINDS = pytest.mark.parametrize("name", KEPT)
F16 = 1


@pytest.fixture
def opened(tmp_path, request):
    """Open a tiny model and a context of it; both are closed after the test."""

    def open_tiny(name, *, seed=1, **options):
        model = raw_model(write_tiny_model(tmp_path, name, seed=seed))
        context = raw_context(model.__enter__(), **options)
        request.addfinalizer(lambda: model.__exit__(None, None, None))
        found = context.__enter__()
        request.addfinalizer(lambda: context.__exit__(None, None, None))
        return found

    return open_tiny


def saved(context, text=TEXT):
    """The state after a text, and its number of tokens."""
    tokens = context.model.tokenise(text)
    context.clear()
    context.read_chunks(0, tokens)
    return context.read(0), len(tokens)


def made_blob(positions, *, streams=1, layers=1, row=4, transposed=0, values=True, value_type=F16):
    """A state as the layout says, of zeros."""
    count = len(positions)
    parts = [struct.pack("<IiII", MAGIC, 0, streams, count)]
    parts += [struct.pack("<iIi", position, 1, 0) for position in positions]
    parts.append(struct.pack("<II", transposed, layers))
    rows = struct.pack("<iQ", F16, row) + bytes(row * count)
    value_rows = struct.pack("<iQ", value_type, row) + bytes(row * count)
    columns = struct.pack("<iII", F16, 2, row // 2) + bytes(row * count)
    parts += [rows] * layers + [columns if transposed else value_rows] * (layers if values else 0)
    return b"".join([*parts, bytes(4 * (streams - 1))])


@BOTH
@KINDS
def test_a_state_has_the_shape_that_one_token_showed(opened, name, flash):
    context = opened(name, flash=flash)
    shape = context.shape()
    data, tokens = saved(context)
    parsed = parse_state(data, shape)
    assert parsed.shape == shape == parse_state(data).shape
    assert (parsed.start, parsed.end, parsed.tokens) == (0, tokens, tokens)
    assert parsed.in_order


def test_the_sections_say_what_each_kind_keeps(opened):
    shapes = {name: opened(name).shape().sections for name in KEPT}
    counts = {name: [len(section.keys) for section in shapes[name][:1]] for name in ("dense", "latent")}
    assert counts == {"dense": [4], "latent": [4]}
    assert shapes["latent"][0].values == ()
    assert [len(section.values) for section in shapes["windowed"]] == [2, 2]
    assert shapes["recurrent"][0].layers == 2
    assert isinstance(shapes["hybrid"][0], AttentionShape)
    assert isinstance(shapes["hybrid"][1], RecurrentShape)


def test_looking_for_the_shape_leaves_the_context_empty(opened):
    for name in KEPT:
        context = opened(name)
        context.shape()
        assert context.end(0) == 0


def test_a_window_holds_the_last_positions_alone(opened):
    data, tokens = saved(opened("windowed"))
    whole, last = parse_state(data).positions
    assert whole.tolist() == list(range(tokens))
    assert last.tolist() == list(range(tokens - WINDOW, tokens))


def test_the_layout_is_read_as_it_is_written_down():
    parsed = parse_state(made_blob([3, 4, 5], layers=2, row=8))
    assert parsed.shape == BlobShape((AttentionShape(1, False, (Row(F16, 8),) * 2, (Row(F16, 8),) * 2),))
    assert (parsed.start, parsed.end) == (3, 6)
    assert parsed.shape.bytes_per_token == 32
    (section,) = parse_state(made_blob([0], transposed=1)).shape.sections
    assert section.transposed
    (section,) = parse_state(made_blob([0], streams=3)).shape.sections
    assert section.streams == 3
    (section,) = parse_state(made_blob([0], values=False)).shape.sections
    assert section.values == ()


def test_cells_out_of_order_are_noticed_but_no_fault():
    parsed = parse_state(made_blob([5, 6, 3, 4]))
    assert (parsed.start, parsed.end) == (3, 7)
    assert not parsed.in_order


@pytest.mark.parametrize("positions", [[], [0, 2], [1, 1], [-1, 0], [2, 3, 3, 5]], ids=str)
def test_positions_that_are_no_run_are_refused(positions):
    with pytest.raises(BlobMalformed):
        parse_state(made_blob(positions))


def test_cells_of_two_streams_or_of_other_sequences_are_refused():
    one = made_blob([0])
    body = one[12:]
    with pytest.raises(BlobMalformed, match="two streams"):
        parse_state(struct.pack("<IiI", MAGIC, 0, 2) + body + body, parse_state(one).shape)
    shared = bytearray(one)
    shared[20:24] = struct.pack("<I", 2)  # two sequences
    with pytest.raises(BlobMalformed):
        parse_state(bytes(shared))


def test_numbers_beyond_any_size_cost_nothing():
    shape = parse_state(made_blob([0])).shape
    for at in range(0, len(made_blob([0])) - 4, 4):
        for huge in (0xFFFFFFFF, 0x7FFFFFFF):
            data = bytearray(made_blob([0]))
            data[at : at + 4] = struct.pack("<I", huge)
            try:
                parse_state(bytes(data), shape)
            except BlobMalformed:
                continue
            assert at in {4, 16, 24, 48, 64}  # sequence ids, the position, the numbers themselves


@BOTH
@KINDS
def test_every_shortened_or_lengthened_state_is_refused(opened, name, flash):
    context = opened(name, flash=flash)
    shape = context.shape()
    data, tokens = saved(context)
    lengths = {*range(0, len(data), 97), *range(120), len(data) - 1}
    assert all(context.write(1, data[:length], shape) is None for length in lengths)
    assert context.write(1, data + b"\0", shape) is None
    assert context.end(1) == 0
    assert context.write(1, data, shape) == tokens


@KINDS
def test_a_state_of_another_shape_is_refused_and_the_sequence_stays_as_it_was(opened, name):
    context = opened(name)
    shape = context.shape()
    data, tokens = saved(context)
    context.copy(0, 1)
    others = [opened(other) for other in KEPT if other != name]
    if name != "recurrent":  # has no values that could be transposed
        others.append(opened(name, flash=False))
    for other in others:
        assert context.write(1, saved(other)[0], shape) is None
    request = context.model.tokenise("and on")
    kept = context.decode(1, request, tokens)
    context.write(2, data, shape)
    assert np.array_equal(context.decode(2, request, tokens), kept)


def test_a_state_elsewhere_or_too_long_or_for_no_sequence_is_refused(opened):
    context, small = opened("dense"), opened("dense", n_ctx=256, sequences=2)
    shape = context.shape()
    data, _tokens = saved(context)
    assert context.write(1, data, shape, start=1) is None
    assert small.write(2, data, shape) is None
    assert small.write(-1, data, shape) is None
    (section,) = shape.sections
    row, value_type = section.keys[0].size, section.values[0].type
    beyond = made_blob(range(small.size, small.size + 2), layers=4, row=row, value_type=value_type)
    assert parse_state(beyond, shape).tokens == 2
    assert small.write(0, beyond, shape) is None


def test_a_state_for_which_there_is_no_room_leaves_the_sequence_empty(opened):
    context = opened("dense", n_ctx=256)
    shape = context.shape()
    data, tokens = saved(context)
    for sequence in (1, 2, 3):
        context.read_chunks(sequence, list(range(64)))
    assert 256 - 3 * 64 - tokens < tokens
    context.drop(5)
    assert context.write(5, data, shape) is None
    assert context.end(5) == 0
    context.drop(1)
    assert context.write(5, data, shape) == tokens


def test_a_state_is_put_back_out_of_a_mapped_file(opened, tmp_path):
    context = opened("dense")
    shape = context.shape()
    data, tokens = saved(context)
    path = tmp_path / "state"
    path.write_bytes(b"\0" * 7 + data)  # at an odd place
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)[7:]
        assert context.write(1, view, shape) == tokens
        view.release()
    assert context.read(1)[:4] == data[:4]


def test_a_sequence_of_its_own_stream_is_read_and_written_too(opened):
    context = opened("dense", unified=False, n_ctx=6 * 256)
    shape = context.shape()
    data, tokens = saved(context)
    assert shape.sections[0].streams == 6
    assert context.write(4, data, shape) == tokens
    assert opened("dense").write(1, data, opened("dense").shape()) is None


_CORRUPTING = """
import itertools
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, sys.argv[1])
from support.raw_context import raw_context, raw_model

chance, refused, tried = np.random.default_rng(7), 0, 0
for path, flash in itertools.product(sys.argv[2:], (True, False)):
    with raw_model(Path(path)) as model, raw_context(model, flash=flash) as context:
        shape, tokens = context.shape(), model.tokenise("A text of more tokens than a window has")
        context.read_chunks(0, tokens)
        data = np.frombuffer(context.read(0), dtype=np.uint8)
        for _ in range(200):
            bad = data.copy()
            places = chance.integers(0, chance.choice([64, len(bad)]), chance.integers(1, 4))
            bad[places] ^= chance.integers(1, 256, len(places)).astype(np.uint8)
            refused += context.write(1, bytes(bad), shape) is None
            tried += 1
print(tried, refused)
"""


def test_damaged_states_are_refused_or_harmless_and_never_end_the_process(tmp_path):
    paths = [str(write_tiny_model(tmp_path, name)) for name in KEPT]
    command = [sys.executable, "-c", _CORRUPTING, str(Path(__file__).parent), *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    tried, refused = map(int, done.stdout.split())
    assert tried == 400 * len(KEPT)
    assert refused > tried / 4
