"""Compiled tools on disk: what was written is read, and nothing else ever is."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tool_registry.compiled_store import CompiledRecord, CompiledStore, StoreError
from tool_registry.tool import content_hash

HASH = content_hash({"name": "read"})
OTHER_HASH = content_hash({"name": "write"})
MODEL = "all-MiniLM-L6-v2@abc"


def _compiled(fill=0.5, rows=2):
    vectors = np.full((rows, 8), fill, np.float32)
    return CompiledRecord(
        signature='read(path: string, mode?: "é"|"\ud800")', text="read. 读", vectors=vectors
    )


@pytest.fixture
def reports():
    return []


@pytest.fixture
def store(tmp_path, reports):
    return CompiledStore(tmp_path / "compiled", lambda path, reason: reports.append((path, reason)))


def test_what_was_written_is_read(store, reports):
    store.write(HASH, MODEL, _compiled())
    found = store.read(HASH, MODEL)
    assert (found.signature, found.text) == (_compiled().signature, _compiled().text)
    assert found.vectors.dtype == np.float32
    assert np.array_equal(found.vectors, _compiled().vectors)
    assert reports == []


def test_an_entry_without_vectors_is_kept(store):
    store.write(HASH, MODEL, _compiled(rows=0))
    assert store.read(HASH, MODEL).vectors.shape == (0, 8)


def test_a_missing_entry_is_none_and_no_report(store, reports):
    assert store.read(HASH, MODEL) is None
    store.write(HASH, MODEL, _compiled())
    assert store.read(OTHER_HASH, MODEL) is None
    assert store.read(HASH, "another model") is None
    assert reports == []


def test_entries_of_two_models_live_side_by_side(store):
    store.write(HASH, "one", _compiled(1))
    store.write(HASH, "two", _compiled(2))
    assert store.read(HASH, "one").vectors[0, 0] == 1
    assert store.read(HASH, "two").vectors[0, 0] == 2


def test_entries_are_spread_by_the_start_of_their_hash(store):
    assert store.path(HASH, MODEL).parent.name == HASH[:2]


def test_every_truncation_and_every_changed_byte_is_found_out(store, reports):
    store.write(HASH, MODEL, _compiled())
    path = store.path(HASH, MODEL)
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(len(whole))] + [whole + b"\0"]
    damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for data in damaged:
        path.write_bytes(data)
        assert store.read(HASH, MODEL) is None
    assert len(reports) == len(damaged)
    assert {reported for reported, _ in reports} == {path}


@pytest.mark.parametrize(
    ("content", "identity", "named"), [(OTHER_HASH, MODEL, "hash"), (HASH, "b", "identity")]
)
def test_an_entry_under_anothers_name_is_not_used(store, reports, content, identity, named):
    store.write(content, identity, _compiled())
    wanted = store.path(HASH, MODEL)
    wanted.parent.mkdir(parents=True, exist_ok=True)
    store.path(content, identity).rename(wanted)
    assert store.read(HASH, MODEL) is None
    assert f"holds another entry: {named}" in reports[0][1]


def test_a_foreign_file_and_a_directory_are_reported(store, reports):
    path = store.path(HASH, MODEL)
    path.parent.mkdir(parents=True)
    path.write_bytes(json.dumps({"signature": "x"}).encode() * 10)
    assert store.read(HASH, MODEL) is None
    path.unlink()
    path.mkdir()
    assert store.read(HASH, MODEL) is None
    assert [reason.split(":")[0] for _, reason in reports] == ["is not a compiled tool", "can't be read"]


def test_a_damaged_entry_is_replaced_by_the_next_write(store):
    store.write(HASH, MODEL, _compiled())
    store.path(HASH, MODEL).write_bytes(b"junk")
    store.write(HASH, MODEL, _compiled(3))
    assert store.read(HASH, MODEL).vectors[0, 0] == 3


def test_a_directory_that_can_not_be_written_is_named_with_the_cause(tmp_path, reports):
    blocked = tmp_path / "a-file"
    blocked.write_text("in the way")
    store = CompiledStore(blocked, lambda path, reason: reports.append(reason))
    with pytest.raises(StoreError, match=r"a-file.*can't be written: Not a directory"):
        store.write(HASH, MODEL, _compiled())
    assert store.read(HASH, MODEL) is None
    assert reports == []


def test_a_write_that_fails_leaves_nothing_behind(store):
    store.write(OTHER_HASH, MODEL, _compiled())
    path = store.path(HASH, MODEL)
    path.mkdir(parents=True)
    (path / "occupied").touch()
    with pytest.raises(StoreError):
        store.write(HASH, MODEL, _compiled())
    assert list(path.parent.iterdir()) == [path]


def test_concurrent_writers_and_readers_see_whole_entries(store, reports):
    start = threading.Barrier(8)

    def work(fill):
        start.wait(timeout=30)
        for _ in range(30):
            store.write(HASH, MODEL, _compiled(fill, rows=200))
            seen = store.read(HASH, MODEL).vectors
            assert (seen == seen[0, 0]).all()
        return fill

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(work, range(8))) == list(range(8))
    assert reports == []
    assert list(store.path(HASH, MODEL).parent.iterdir()) == [store.path(HASH, MODEL)]
