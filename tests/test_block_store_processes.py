"""Processes that share one store: nobody reads what was not written, nothing is left behind, nobody waits for the dead."""

import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.blocks import block, descriptor, payload

from tool_registry.blocks.block_file import file_bytes
from tool_registry.blocks.store import BlockStore

TURNS = 2_000 if os.environ.get("NEXUS_FULL_TESTS") else 150
BLOCKS, SIZES = 40, (4_000, 30_000)
BUDGET = 12 * file_bytes(block(size=SIZES[1]))
DEADLINE = 90
HERE = Path(__file__)


def size_of(number):
    return SIZES[number % 2]


def say(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def open_store(directory):
    """A store whose faults go to stdout, where the test finds them."""
    return BlockStore(Path(directory), BUDGET, lambda path, reason: say(f"fault {path} {reason}"))


def use(directory, seed):
    """Read and write by turns, and compare what is read with what it has to be."""
    rng = random.Random(int(seed))
    store = open_store(directory)
    descriptors = psutil.Process().num_fds()
    read = 0
    for _ in range(TURNS):
        number = rng.randrange(BLOCKS)
        found = store.get(descriptor(number))
        if found is None:
            store.put(block(number, size_of(number)), rng.random())
        else:
            assert bytes(found.payload) == payload(number, size_of(number)), "a wrong read"
            assert found.label == f"server/tool_{number}"
            read += 1
    assert read
    assert psutil.Process().num_fds() == descriptors, "a leak"
    say("done")


def collect(directory):
    """Collect until told to stop."""
    store = open_store(directory)
    descriptors = psutil.Process().num_fds()
    say("ready")
    while not select.select([0], [], [], 0)[0]:  # until stdin is closed
        for one in store.gc().removed:
            assert one.reason == "over the budget", one
    assert psutil.Process().num_fds() == descriptors, "a leak"
    say("done")


def hang(directory, where):
    """Stop in the middle of a put: with the file half done, or under the lock."""
    store = open_store(directory)

    def stop(*_):
        say("ready")
        signal.pause()

    if where == "writing":
        os.fsync = stop
    else:
        store._victims = lambda newcomer, ask=store._victims: stop() if locked_by(store) else ask(newcomer)
    store.put(block(1), 1.0)


def locked_by(store):
    return any(path.name.endswith(".tmp") for path in store.directory.glob("*/.*"))


def start(*args):
    path = os.pathsep.join([str(HERE.parent), str(HERE.parent.parent)])
    return subprocess.Popen(
        [sys.executable, str(HERE), *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def end(process):
    with process:
        process.kill()


def files_of(directory):
    return sorted(path for path in directory.glob("*/*") if path.suffix != ".block")


def test_two_processes_share_a_store_while_a_third_collects(tmp_path):
    directory = tmp_path / "blocks"
    directory.mkdir()
    collector = start("collect", directory)
    users = [start("use", directory, seed) for seed in (1, 2)]
    try:
        said = [user.communicate(timeout=DEADLINE) for user in users]
        said.append(collector.communicate(timeout=DEADLINE))
    finally:
        for process in (*users, collector):
            end(process)
    assert [err for _, err in said] == ["", "", ""]
    assert [out.splitlines()[-1] for out, _ in said] == ["done"] * 3
    assert not [line for out, _ in said for line in out.splitlines() if line.startswith("fault")]
    assert files_of(directory) == []
    store = open_store(directory)
    assert store.verify() == []
    assert 0 < sum(entry.size_bytes for entry in store.entries()) <= BUDGET


@pytest.mark.parametrize("where", ["writing", "locked"])
def test_a_process_killed_in_a_put_holds_nobody_up_and_its_file_is_collected(tmp_path, where):
    directory = tmp_path / "blocks"
    process = start("hang", directory, where)
    try:
        assert process.stdout.readline() == "ready\n"
    finally:
        end(process)
    faults = []
    store = BlockStore(directory, BUDGET, lambda *fault: faults.append(fault))
    [left] = files_of(directory)
    assert store.put(block(1), 1.0)
    assert bytes(store.get(descriptor(1)).payload) == payload(1)
    assert store.gc().removed == ()
    os.utime(left, (1, 1))
    assert [one.path for one in store.gc().removed] == [left]
    assert store.get(descriptor(1)) is not None
    assert not faults


if __name__ == "__main__":
    {"use": use, "collect": collect, "hang": hang}[sys.argv[1]](*sys.argv[2:])
