"""Finds the processes that a test started, orphans included: they inherit a mark in their environment."""

import time
import uuid

import psutil

MARK = "NEXUS_TEST_MARK"
SECONDS = 30


def new_mark():
    return {MARK: uuid.uuid4().hex}


def marked(mark):
    """Living processes whose environment has the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark[MARK] and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def wait_until(condition, describe):
    """Wait for what other processes do, of which there is no event."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"still: {describe()}"
        time.sleep(0.02)


def wait_for_marked(mark, enough):
    """Wait until `enough` holds of the marked processes."""
    wait_until(lambda: enough(marked(mark)), lambda: marked(mark))


def assert_none_is_left(mark):
    wait_for_marked(mark, lambda found: not found)


def children():
    return psutil.Process().children(recursive=True)
