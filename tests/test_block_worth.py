"""Which states are worth their bytes: seconds gained a byte, and counts of uses that fade and are shared."""

import json
import math
import random
import subprocess
import sys

import pytest

from tool_registry.blocks.usage import HALF_LIFE_DAYS, MAX_LABELS, PRIOR_USES, Usage
from tool_registry.blocks.worth import IDLE_HALF_LIFE_DAYS, Candidate, choose, faded, make_room, worth

DAY = 86_400.0


class Clock:
    now = 1_800_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def open_usage(tmp_path, clock):
    """Opens the one file, as another process would."""

    def opened():
        usage = Usage(tmp_path / "new" / "usage.json", clock=clock)
        usage.load()
        return usage

    return opened


def names(candidates):
    return None if candidates is None else "".join(one.name for one in candidates)


def test_worth_is_seconds_gained_a_byte():
    assert worth(4.0, 0.5, 1_000) == 0.002
    assert worth(4.0, -0.5, 1_000) == 0.0
    assert worth(0.0, 1.0, 0) == 0.0
    assert worth(math.inf, 1.0, 1) == worth(math.nan, 1.0, 1) == 0.0


def test_worth_halves_with_idle_days_and_not_within_one():
    assert faded(1.0, 0.9 * DAY) == 1.0
    assert faded(1.0, -DAY) == 1.0
    assert faded(1.0, IDLE_HALF_LIFE_DAYS * DAY) == 0.5


def test_the_best_a_byte_are_chosen_and_smaller_ones_fill_what_is_left():
    all_of_them = [
        Candidate("a", 50, 1.0),
        Candidate("b", 60, 3.0),
        Candidate("c", 40, 2.0),
        Candidate("d", 10, 0.5),
    ]
    assert names(choose(all_of_them, 160)) == "bcad"
    assert names(choose(all_of_them, 110)) == "bcd"
    assert names(choose(all_of_them, 9)) == ""


def test_of_equal_ones_the_first_are_chosen_and_the_last_make_room():
    equal = [Candidate(name, 10, 1.0) for name in "abc"]
    assert names(choose(equal, 20)) == "ab"
    assert names(make_room(Candidate("n", 10, 2.0), equal, 30)) == "c"


def test_room_is_made_by_the_least_worth_and_by_no_more_than_it_takes():
    kept = [Candidate("a", 50, 3.0), Candidate("b", 30, 2.0), Candidate("c", 20, 1.0)]
    assert names(make_room(Candidate("n", 20, 5.0), kept, 120)) == ""
    assert names(make_room(Candidate("n", 20, 5.0), kept, 100)) == "c"
    assert (
        names(make_room(Candidate("n", 25, 5.0), kept, 100)) == "b"
    )  # c alone is too small, and b is enough
    assert names(make_room(Candidate("n", 50, 5.0), kept, 100)) == "cb"


def test_nothing_of_equal_or_greater_worth_makes_room():
    kept = [Candidate("a", 50, 3.0), Candidate("b", 50, 2.0)]
    assert make_room(Candidate("n", 10, 2.0), kept, 100) is None
    assert make_room(Candidate("n", 60, 2.5), kept, 100) is None
    assert make_room(Candidate("n", 101, 9.0), kept, 100) is None


def test_making_room_never_loses_gain_and_always_keeps_the_budget():
    rng = random.Random(4)
    for _ in range(2_000):
        kept = choose([Candidate(str(i), rng.randrange(1, 60), rng.random()) for i in range(8)], 150)
        newcomer = Candidate("n", rng.randrange(1, 160), rng.random())
        victims = make_room(newcomer, kept, 150)
        if victims is None:
            continue
        left = [one for one in kept if one not in victims]
        assert newcomer.size_bytes + sum(one.size_bytes for one in left) <= 150
        assert not victims or sum(one.gain for one in victims) < newcomer.gain
        assert all(one.worth < newcomer.worth for one in victims)


def test_a_tool_that_was_never_used_may_still_be(open_usage):
    assert open_usage().expected("s/never") == PRIOR_USES > 0


def test_uses_count_at_once_and_for_everybody_after_a_save(open_usage):
    usage, other = open_usage(), open_usage()
    usage.count("s/a")
    usage.count("s/a", 2)
    assert usage.expected("s/a") == pytest.approx(PRIOR_USES + 3)
    other.count("s/a")
    usage.save()
    other.save()
    assert usage.expected("s/a") == pytest.approx(PRIOR_USES + 3)
    assert other.expected("s/a") == open_usage().expected("s/a") == pytest.approx(PRIOR_USES + 4)
    usage.save()
    assert usage.expected("s/a") == pytest.approx(PRIOR_USES + 4)


def test_a_count_loses_half_of_itself_in_a_half_life_and_is_forgotten_in_the_end(open_usage, clock):
    usage = open_usage()
    usage.count("s/a", 8)
    usage.save()
    clock.now += HALF_LIFE_DAYS * DAY
    assert usage.expected("s/a") == pytest.approx(PRIOR_USES + 4)
    usage.count("s/b")
    usage.save()
    assert open_usage().expected("s/a") == pytest.approx(PRIOR_USES + 4)
    clock.now += 30 * HALF_LIFE_DAYS * DAY
    usage.save()
    assert open_usage().expected("s/a") == PRIOR_USES
    clock.now -= 100 * DAY  # a clock that was set back adds nothing
    assert usage.expected("s/a") == PRIOR_USES


def test_a_steady_rate_is_what_is_expected(open_usage, clock):
    usage = open_usage()
    for _ in range(300):
        clock.now += DAY
        usage.count("s/daily")
        usage.save()
    days = HALF_LIFE_DAYS / math.log(2)
    assert usage.expected("s/daily") == pytest.approx(PRIOR_USES + days, rel=0.05)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"labels": []}', '{"labels": {"s/a": 3}}', '{"labels": {"s/a": [NaN, "x"]}}', "\udcff"],
)
def test_a_damaged_file_is_an_empty_one(tmp_path, open_usage, text):
    path = tmp_path / "new" / "usage.json"
    path.parent.mkdir()
    path.write_bytes(text.encode(errors="surrogateescape"))
    usage = open_usage()
    assert usage.expected("s/a") == PRIOR_USES
    usage.count("s/a")
    usage.save()
    assert open_usage().expected("s/a") == pytest.approx(PRIOR_USES + 1)


def test_counts_are_kept_for_the_next_time_where_the_file_cannot_be_written(tmp_path, open_usage):
    usage = open_usage()
    usage.count("s/a", 3)
    (tmp_path / "new").write_text("in the way")
    with pytest.raises(OSError, match=r"exists|directory"):
        usage.save()
    (tmp_path / "new").unlink()
    usage.save()
    assert open_usage().expected("s/a") == pytest.approx(PRIOR_USES + 3)


def test_only_so_many_tools_are_remembered(tmp_path, open_usage):
    usage = open_usage()
    for number in range(MAX_LABELS + 10):
        usage.count(f"s/{number}", 2 if number >= 10 else 1)
    usage.save()
    assert len(json.loads((tmp_path / "new" / "usage.json").read_text())["labels"]) == MAX_LABELS
    assert usage.expected("s/3") == open_usage().expected("s/3") == PRIOR_USES


def test_the_counts_of_several_processes_add_up(tmp_path):
    code = (
        "import sys; from pathlib import Path; from tool_registry.blocks.usage import Usage\n"
        "usage = Usage(Path(sys.argv[1]))\n"
        "for _ in range(20): usage.count('s/a'); usage.save()\n"
    )
    path = tmp_path / "usage.json"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    usage = Usage(path)
    usage.load()
    assert usage.expected("s/a") == pytest.approx(PRIOR_USES + 40, rel=0.01)
