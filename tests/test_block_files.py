"""A block's file: what was written comes back, and nothing else is ever taken for it."""

import os
import random
import stat
from contextlib import suppress
from dataclasses import replace

import pytest
from support.blocks import block, descriptor, payload

from tool_registry.blocks.block_file import (
    MAX_HEADER_BYTES,
    PAGE_BYTES,
    BlockDamaged,
    file_bytes,
    read_block,
    read_header,
    write_block,
)
from tool_registry.blocks.descriptor import block_key, chain_of, from_json, mismatch, tenant_salt

SECRET, OTHER_SECRET = b"s" * 32, b"t" * 32
CORRUPTIONS = 10_000 if os.environ.get("NEXUS_FULL_TESTS") else 1_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "one.block"


@pytest.fixture
def written(path):
    write_block(path, block(7), SECRET)
    return path.read_bytes()


def refusal(path, data=None, secret=SECRET):
    """Why a file is refused."""
    if data is not None:
        path.unlink()  # a file system may wait for the disk where a file is written over
        path.write_bytes(data)
    with pytest.raises(BlockDamaged) as caught:
        read_block(path, secret)
    return str(caught.value)


def test_a_block_comes_back_as_it_was_written(path):
    made = block(7, label="s/\u515a \ud800", seconds=1.25)
    write_block(path, made, SECRET)
    read = read_block(path, SECRET)
    assert (read.descriptor, read.label, read.compute_seconds) == (made.descriptor, made.label, 1.25)
    assert bytes(read.payload) == payload(7)
    assert read.payload.readonly
    assert path.stat().st_size == file_bytes(made)


@pytest.mark.parametrize("size", [0, 1, PAGE_BYTES, PAGE_BYTES + 1])
def test_a_payload_of_any_size_lies_on_whole_pages_at_the_end_of_the_file(path, size):
    write_block(path, block(size=size), SECRET)
    assert bytes(read_block(path, SECRET).payload) == payload(size=size)
    assert (path.stat().st_size - size) % PAGE_BYTES == 0
    assert path.read_bytes().endswith(payload(size=size))


def test_a_file_is_its_users_alone_and_nothing_else_is_left(path):
    write_block(path, block(), SECRET)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_what_was_there(path, written, monkeypatch):
    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_block(path, block(8), SECRET)
    assert path.read_bytes() == written
    assert list(path.parent.iterdir()) == [path]


def test_the_header_can_be_read_alone(path, written):
    header = read_header(path)
    assert (header.label, header.descriptor, header.payload_bytes) == (
        "server/tool_7",
        descriptor(7),
        4_000,
    )


def test_a_block_made_without_the_secret_is_refused(path, written):
    assert "checksum" in refusal(path, secret=OTHER_SECRET)


def test_another_format_is_refused_by_name(path, written):
    assert "is of format 9; this version reads format 1" in refusal(path, written[:8] + b"\x09" + written[9:])
    with pytest.raises(BlockDamaged, match="format 9"):
        read_header(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"", "no block"),
        (lambda data: data[:50], "no block"),
        (lambda data: b"GGUF" + data[4:], "no block"),
        (lambda data: data[:-1], "cut"),
        (lambda data: data + b"\0", "cut"),
        (lambda data: data[:12] + (MAX_HEADER_BYTES + 1).to_bytes(4, "little") + data[16:], "cut"),
        (lambda data: data[:16] + (2**63).to_bytes(8, "little") + data[24:], "cut"),
        (lambda data: data[:24] + (2**64 - 1).to_bytes(8, "little") + data[32:], "cut"),
        (lambda data: data.replace(b'"tenant": "salt"', b'"tenant": "sulk"'), "checksum"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "checksum"),
    ],
)
def test_a_changed_file_is_refused_with_the_reason(path, written, change, reason):
    assert change(written) != written
    assert reason in refusal(path, change(written))


def test_what_is_no_file_is_refused(path):
    path.mkdir()
    assert "no regular file" in refusal(path)
    with pytest.raises(BlockDamaged, match="no regular file"):
        read_header(path)


def flip(rng, data, other):
    for _ in range(rng.choice((1, 1, 2, 50))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def flip_near_the_start(rng, data, other):
    data[rng.randrange(700)] ^= 1 << rng.randrange(8)


def truncate(rng, data, other):
    del data[rng.randrange(len(data)) :]


def extend(rng, data, other):
    data += rng.randbytes(rng.randrange(1, 5_000))


def zero(rng, data, other):
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.randrange(1, 5_000))
    data[start:end] = bytes(end - start)


def splice(rng, data, other):
    start = rng.randrange(len(data))
    end = rng.randrange(start, len(data) + 1)
    data[start:end] = other[start:end]


def shift(rng, data, other):
    start = rng.randrange(len(data))
    del data[start : start + rng.randrange(1, 200)]
    data[start:start] = rng.randbytes(rng.randrange(200))


def edit_a_number(rng, data, other):
    field = rng.choice((slice(8, 12), slice(12, 16), slice(16, 24), slice(24, 32)))
    size = field.stop - field.start
    data[field] = rng.choice((0, 1, 2**31, 2 ** (8 * size) - 1, rng.randrange(20_000))).to_bytes(
        size, "little"
    )


def edit_the_header(rng, data, other):
    key = rng.choice((b'"model": "', b'"build": "', b'"tenant": "', b'"chain": "', b'"format": ', b'"end": '))
    if (found := data.find(key)) >= 0:
        data[found + len(key)] = rng.choice(b"0123456789abcdef")


HOW = (flip, flip_near_the_start, truncate, extend, zero, splice, shift, edit_a_number, edit_the_header)


def test_no_corruption_is_accepted_and_none_crashes(path, written, tmp_path):
    rng = random.Random(20)
    write_block(tmp_path / "other.block", block(8), SECRET)
    other = (tmp_path / "other.block").read_bytes()
    tried = 0
    while tried < CORRUPTIONS:
        data = bytearray(written)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            if len(data) >= 1_000:
                rng.choice(HOW)(rng, data, other)
        if data in (written, other):  # it is whole: what it holds is for the store to look at
            continue
        tried += 1
        refusal(path, bytes(data))
        with suppress(BlockDamaged):
            read_header(path)


def test_every_byte_of_a_file_counts(path, written):
    checked = [*range(64), *range(64, 700, 5), *range(700, len(written), 397), len(written) - 1]
    for at in checked:
        refusal(path, written[:at] + bytes([written[at] ^ 0x10]) + written[at + 1 :])


def test_a_key_says_nothing_without_the_secret_and_tells_tenants_apart():
    wanted = descriptor()
    assert block_key(SECRET, wanted) == block_key(SECRET, descriptor())
    assert len({block_key(SECRET, wanted), block_key(OTHER_SECRET, wanted)}) == 2
    assert len({tenant_salt(SECRET, "a"), tenant_salt(SECRET, "b"), tenant_salt(OTHER_SECRET, "a")}) == 3


def test_a_chain_is_of_tokens_and_cuts():
    chains = [
        chain_of(c)
        for c in ([(1, 2), (3,)], [(1,), (2, 3)], [(1, 2, 3)], [(1, 2), (4,)], [(1, 2), (3,), (4,)])
    ]
    assert len(set(chains)) == len(chains)
    assert chain_of([(), [1, 2], ()]) == chain_of([(1, 2)])


def test_the_first_difference_is_said_in_words():
    wanted = descriptor()
    assert mismatch(descriptor(), wanted) == ""
    other = replace(wanted, facts=replace(wanted.facts, key_type="q8_0"), tenant="x")
    assert mismatch(other, wanted) == "key type is 'q8_0' instead of 'f16'"
    assert mismatch(replace(wanted, tenant="x"), wanted) == "tenant is 'x' instead of 'salt'"


@pytest.mark.parametrize("value", [None, {}, [], {"facts": 1}, {"facts": {}, "chain": "", "start": True}])
def test_a_descriptor_of_other_fields_is_no_descriptor(value):
    with pytest.raises(ValueError, match="expected"):
        from_json(value)
