"""The store of blocks: what is not exactly the wanted state is not given out, and no fault of it is raised."""

import errno
import os
import random
import resource
import shutil
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields, replace

import pytest
from support.blocks import FACTS, block, descriptor, payload

from tool_registry.blocks import store as store_module
from tool_registry.blocks.block_file import file_bytes
from tool_registry.blocks.descriptor import RuntimeFacts, StateDescriptor, block_key
from tool_registry.blocks.kind import StateKind
from tool_registry.blocks.locking import locked
from tool_registry.blocks.store import BlockStore
from tool_registry.blocks.worth_file import FILE_NAME as WORTH_NAME

ONE = file_bytes(block())
LONG_AGO = time.time() - 400 * 86_400


@pytest.fixture
def faults():
    return []


@pytest.fixture
def open_store(tmp_path, faults):
    """Opens the one directory, as another process would."""

    def opened(blocks=100):
        return BlockStore(
            tmp_path / "blocks", blocks * ONE, lambda path, reason: faults.append((path, reason))
        )

    return opened


@pytest.fixture
def store(open_store):
    return open_store()


def key_of(store, number=0):
    return block_key(store.secret, descriptor(number))


def path_of(store, number=0):
    key = key_of(store, number)
    return store.directory / key[:2] / f"{key}.block"


def kept(store, count=10):
    """The numbers of the blocks that are there."""
    return [number for number in range(count) if store.get(descriptor(number)) is not None]


def overwrite(path, change):
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def test_a_block_comes_back_and_is_listed(store, faults):
    assert store.get(descriptor(3)) is None
    assert store.put(block(3), 2.0)
    assert bytes(store.get(descriptor(3)).payload) == payload(3)
    key = key_of(store, 3)
    assert (store.has(key), store.size(key)) == (True, path_of(store, 3).stat().st_size)
    assert (store.has(key_of(store)), store.size(key_of(store))) == (False, 0)
    [entry] = store.entries()
    assert (entry.key, entry.path, entry.label, entry.tokens) == (key, path_of(store, 3), "server/tool_3", 4)
    assert (entry.worth, entry.compute_seconds, entry.size_bytes) == (2.0, 0.5, ONE)
    assert not faults


@pytest.mark.parametrize("name", [field.name for field in fields(RuntimeFacts)])
def test_a_state_of_another_runtime_or_model_is_never_given_out(store, faults, name):
    value = getattr(FACTS, name)
    changed = (not value) if isinstance(value, bool) else StateKind.LATENT if name == "kind" else f"{value}x"
    wanted = descriptor(facts=replace(FACTS, **{name: changed}))
    assert_refused(store, faults, wanted)


@pytest.mark.parametrize("name", [field.name for field in fields(StateDescriptor) if field.name != "facts"])
def test_a_state_of_other_tokens_tenant_or_format_is_never_given_out(store, faults, name):
    value = getattr(descriptor(), name)
    assert_refused(store, faults, descriptor(**{name: value + 1 if isinstance(value, int) else value + "x"}))


def assert_refused(store, faults, wanted):
    """Not by its key, and not even where a block lies under the wanted one's name."""
    store.put(block(), 1.0)
    assert store.get(wanted) is None
    assert not faults
    key = block_key(store.secret, wanted)
    path = store.directory / key[:2] / f"{key}.block"
    path.parent.mkdir(exist_ok=True)
    shutil.copy(path_of(store), path)
    store.refresh()
    assert store.has(key)
    assert store.get(wanted) is None
    assert [where for where, _ in faults] == [path]
    assert "holds another state" in faults[0][1]
    assert not store.has(key)
    assert store.verify() == [(path, "holds another state than its name says")]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.__setitem__(-1, data[-1] ^ 1),
        lambda data: data.__delitem__(slice(100, None)),
        lambda data: data.__setitem__(8, 7),
        lambda data: data.clear(),
        lambda data: data.extend(b"more"),
    ],
)
def test_a_damaged_block_is_not_used_and_is_mended_by_the_next_put(store, faults, open_store, change):
    store.put(block(), 1.0)
    overwrite(path_of(store), change)
    other = open_store()
    assert store.get(descriptor()) is None
    assert [path for path, _ in faults] == [path_of(store)]
    store.refresh()
    assert not store.has(key_of(store))
    assert store.put(block(), 1.0)
    assert store.has(key_of(store))
    assert bytes(store.get(descriptor()).payload) == bytes(other.get(descriptor()).payload) == payload()
    assert store.verify() == []


def test_a_damaged_block_that_another_process_mended_is_trusted_again(store, open_store):
    store.put(block(), 1.0)
    overwrite(path_of(store), lambda data: data.__setitem__(-1, data[-1] ^ 1))
    other = open_store()
    assert store.get(descriptor()) is None
    assert other.get(descriptor()) is None
    assert other.put(block(), 1.0)
    store.refresh()
    assert store.has(key_of(store))


def test_threads_share_a_store(store, faults):
    def use(seed):
        rng = random.Random(seed)
        for _ in range(40):
            number = rng.randrange(9)
            found = store.get(descriptor(number))
            if found is None:
                assert store.put(block(number), 1.0)
            else:
                assert bytes(found.payload) == payload(number)
            if rng.random() < 0.2:
                store.remove(key_of(store, number))
            store.refresh()
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(use, range(6)))
    assert not faults
    assert store.verify() == []
    assert {path.suffix for path in store.directory.glob("*/*")} <= {".block"}


def test_a_block_of_another_directory_is_refused(store, faults, tmp_path):
    foreign = BlockStore(tmp_path / "theirs", 100 * ONE, lambda *_: None)
    foreign.put(block(), 1.0)
    store.put(block(), 1.0)
    shutil.copy(path_of(foreign), path_of(store))
    assert store.get(descriptor()) is None
    assert "another gateway's" in faults[0][1]


def test_the_secret_is_made_once_and_is_its_users_alone(store, open_store):
    other = open_store()
    assert store.secret == other.secret == open_store().secret
    assert len(store.secret) == 32
    assert stat.S_IMODE((store.directory / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    assert repr(store.secret) not in repr(store)


def test_looking_at_an_empty_store_makes_no_directory(store):
    assert (store.entries(), store.gc().removed) == ([], ())
    assert not store.directory.exists()


def test_what_another_process_does_is_seen_after_a_refresh_or_a_get(store, open_store):
    other = open_store()
    store.put(block(1), 1.0)
    store.put(block(2), 1.0)
    assert not other.has(key_of(other, 1))
    assert other.get(descriptor(1)) is not None
    assert other.has(key_of(other, 1))
    other.refresh()
    assert other.has(key_of(other, 2))
    store.remove(key_of(store, 2))
    assert other.has(key_of(other, 2))
    assert other.get(descriptor(2)) is None
    assert not other.has(key_of(other, 2))
    store.remove(key_of(store, 1))
    other.refresh()
    assert not other.has(key_of(other, 1))


def test_a_full_store_keeps_what_is_worth_most_a_byte(open_store):
    store = open_store(3)
    assert [store.put(block(number), worth) for number, worth in enumerate((2.0, 1.0, 3.0))] == [True] * 3
    assert not store.put(block(3), 0.5)
    assert kept(store) == [0, 1, 2]
    assert store.put(block(4), 1.5)
    assert kept(store) == [0, 2, 4]
    assert sum(entry.size_bytes for entry in store.entries()) <= store.budget_bytes


def test_a_block_of_equal_worth_pushes_nothing_out(open_store):
    store = open_store(2)
    assert [store.put(block(number), 1.0) for number in range(5)] == [True, True, False, False, False]


def test_a_small_block_does_not_push_out_a_large_one_that_gains_more(open_store):
    store = open_store(10)
    assert store.put(block(0, 10 * ONE - 20_000), 1.0)
    assert not store.put(block(1), 1.1)
    assert store.put(block(1), 20.0)
    assert kept(store) == [1]


def test_a_block_that_can_never_fit_is_not_written(store, faults):
    assert not store.put(block(size=101 * ONE), 1e9)
    assert not list(store.directory.glob("*/*"))
    assert not faults


def test_a_put_again_says_what_a_block_is_worth_and_writes_nothing(open_store):
    store = open_store(2)
    store.put(block(0), 1.0)
    store.put(block(1), 2.0)
    before = path_of(store).stat().st_ino
    assert store.put(block(0), 9.0)
    assert path_of(store).stat().st_ino == before
    store.put(block(2), 3.0)
    assert kept(store) == [0, 2]
    store.revalue({key_of(store, 0): 0.0})
    store.put(block(3), 1.0)
    assert kept(store) == [2, 3]


def test_saying_what_a_block_is_worth_forgets_no_other_processes_blocks(open_store):
    ours, theirs = open_store(4), open_store(4)
    ours.put(block(0), 1.0)
    theirs.put(block(1), 7.0)
    ours.revalue({key_of(ours, 0): 2.0})
    assert [entry.worth for entry in ours.entries()] == [2.0, 7.0]


def test_a_block_that_was_not_used_for_long_goes_before_a_used_one(open_store):
    store = open_store(2)
    store.put(block(0), 10.0)
    store.put(block(1), 1.0)
    (store.directory / WORTH_NAME).write_text(
        f'{{"{key_of(store, 0)}": [10.0, {LONG_AGO}], "{key_of(store, 1)}": [1.0, {LONG_AGO}]}}'
    )
    for number in (0, 1):
        os.utime(path_of(store, number), (LONG_AGO, LONG_AGO))
    assert store.get(descriptor(1)) is not None
    assert store.put(block(2), 0.5)
    assert kept(store) == [1, 2]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 3}', "\x00"])
def test_a_lost_or_damaged_file_of_worths_costs_no_block(open_store, text):
    store = open_store(3)
    store.put(block(0), 1.0)
    (store.directory / WORTH_NAME).write_text(text)
    assert store.put(block(1), 0.1)
    assert kept(store) == [0, 1]
    assert [entry.worth for entry in store.entries()] == [0.0, 0.1]


def test_a_smaller_budget_is_kept_by_the_next_put_and_by_gc(store, open_store):
    for number in range(6):
        store.put(block(number), float(number))
    small = open_store(4)
    assert small.put(block(9), 100.0)
    assert kept(small) == [3, 4, 5, 9]
    report = open_store(2).gc()
    assert (report.kept, report.kept_bytes, report.freed_bytes) == (2, 2 * ONE, 2 * ONE)
    assert {one.reason for one in report.removed} == {"over the budget"}
    assert kept(store) == [5, 9]


def test_gc_removes_what_is_damaged_or_foreign_and_nothing_else(store, faults):
    for number in range(4):
        store.put(block(number), 1.0)
    overwrite(path_of(store, 1), lambda data: data.__setitem__(8, 2))
    overwrite(path_of(store, 2), lambda data: data.__delitem__(slice(-10, None)))
    note = store.directory / "note.txt"
    note.write_text("mine")
    seen = []
    report = store.gc(lambda done, of: seen.append((done, of)))
    assert {one.path for one in report.removed} == {path_of(store, 1), path_of(store, 2)}
    assert any("format 2" in one.reason for one in report.removed)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert kept(store) == [0, 3]
    assert note.exists()
    assert store.gc().removed == ()
    assert not faults


def test_gc_removes_temporary_files_of_killed_processes_after_an_hour(store):
    store.put(block(), 1.0)
    old, young = (path_of(store).parent / f".{name}.tmp" for name in ("old", "young"))
    index = store.directory / ".index.tmp"
    for path in (old, young, index):
        path.write_bytes(b"12345")
    for path in (old, index):
        os.utime(path, (time.time() - 3_700,) * 2)
    report = store.gc()
    assert {one.path for one in report.removed} == {old, index}
    assert report.freed_bytes == 10
    assert young.exists()


def test_gc_spares_a_block_that_was_mended_while_it_looked(store, open_store):
    store.put(block(), 1.0)
    overwrite(path_of(store), lambda data: data.__setitem__(-1, data[-1] ^ 1))
    other = open_store()

    def mend(_done, _of):
        assert other.get(descriptor()) is None
        assert other.put(block(), 1.0)

    assert store.gc(mend).removed == ()
    assert kept(store) == [0]


@contextmanager
def largest_file(size):
    """A disk that fills up: no file of this process can be written beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_reported_and_leaves_nothing_behind(store, faults):
    store.put(block(0), 1.0)
    with largest_file(10_000):
        assert not store.put(block(1), 1.0)
    assert "can't keep a block" in faults[0][1]
    assert "server/tool_1" in faults[0][1]
    assert kept(store) == [0]
    assert not list(store.directory.glob("*/.*"))
    assert store.put(block(1), 1.0)


def test_a_removed_directory_is_a_miss_and_is_made_again_with_its_secret(store, faults, open_store):
    store.put(block(), 1.0)
    shutil.rmtree(store.directory)
    assert store.get(descriptor()) is None
    assert faults == [(store.directory, "is gone, and all blocks with it")]
    assert store.put(block(), 1.0)
    assert open_store().get(descriptor()) is not None


def test_a_directory_made_anew_by_somebody_else_is_not_written_to(store, faults, open_store):
    store.put(block(), 1.0)
    shutil.rmtree(store.directory)
    assert open_store().put(block(1), 1.0)
    assert not store.put(block(), 1.0)
    assert "made anew" in faults[-1][1]
    with pytest.raises(OSError, match="another one by now"):
        store.gc()
    assert kept(open_store()) == [1]


def test_a_directory_that_is_a_file_is_reported_and_never_raised(open_store, faults, tmp_path):
    (tmp_path / "blocks").write_text("in the way")
    store = open_store()
    assert store.get(descriptor()) is None
    assert not store.put(block(), 1.0)
    assert not store.has(key_of(store))
    assert faults


def test_a_file_that_may_not_be_read_is_reported_and_tried_again(store, faults, monkeypatch):
    store.put(block(), 1.0)

    def denied(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(store_module, "read_block", denied)
        assert store.get(descriptor()) is None
    assert faults == [(path_of(store), "can't be read: Permission denied")]
    assert store.get(descriptor()) is not None


def test_a_lock_that_is_held_for_too_long_costs_the_block_alone(store, faults, monkeypatch):
    store.put(block(0), 1.0)
    monkeypatch.setattr(store_module, "locked", lambda directory: locked(directory, 0.05))
    with locked(store.directory):
        assert not store.put(block(1), 1.0)
        assert store.get(descriptor(0)) is not None
    assert "can't keep a block" in faults[0][1]
    assert not list(store.directory.glob("*/.*"))
    assert store.put(block(1), 1.0)


def test_asking_whether_a_block_is_there_touches_no_file(store, monkeypatch):
    store.put(block(), 1.0)
    key, other = key_of(store), key_of(store, 1)

    def touched(*_, **__):
        raise AssertionError

    with monkeypatch.context() as patched:
        for name in ("stat", "scandir", "open", "listdir"):
            patched.setattr(os, name, touched)
        assert store.has(key)
        assert not store.has(other)
