"""`nexus-gateway blocks`: what is kept is listed, shown in words, checked and cleaned."""

import json
import os
import shutil
import time

import pytest
from support.blocks import block, descriptor
from support.gateways import write_config
from typer.testing import CliRunner

from nexus_gateway.cli.blocks import app
from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.main import app as root
from tool_registry.blocks.store import BlockStore

BUDGET = 1_000_000


@pytest.fixture
def options(tmp_path):
    return write_config(tmp_path, {}, "[state]\ndisk_mb = 1\n")[:2]


@pytest.fixture
def store(tmp_path):
    return BlockStore(tmp_path / "cache" / "blocks", BUDGET, lambda *_: None)


@pytest.fixture
def run(options):
    """The command in this process: exit code, stdout, stderr."""

    def run_command(*args):
        result = CliRunner().invoke(app, [*args, *options])
        return result.exit_code, result.stdout, result.stderr

    return run_command


def damage(entry):
    data = bytearray(entry.path.read_bytes())
    data[-1] ^= 1
    entry.path.write_bytes(data)


def test_an_empty_list_says_where_blocks_come_from_and_makes_no_folder(run, store):
    assert run("list") == (
        0,
        "no blocks: a gateway that runs makes them in the background, `blocks compile` now\n",
        "",
    )
    assert json.loads(run("list", "--json")[1]) == {
        "directory": str(store.directory), "budget_bytes": BUDGET, "bytes": 0, "blocks": [],
    }  # fmt: skip
    assert run("verify")[:2] == (0, "0 blocks checked, 0 can't be used\n")
    assert run("gc")[:2] == (0, "nothing to remove; 0 blocks kept, 0.0 MB\n")
    assert not store.directory.exists()


def test_blocks_are_listed_with_what_they_are_worth(run, store):
    store.put(block(1, size=100_000, label="files/[bold]read[/bold]\u202e"), 0.0000025)
    store.put(block(2), 0.000001)
    code, shown, said = run("list")
    assert (code, said) == (0, "")
    assert "files/[bold]read[/bold]\\u{202e}" in shown
    assert "2.5e+03" in shown
    assert "2 blocks, 0.1 MB of 1 MB" in shown
    listed = json.loads(run("list", "--json")[1])
    first = listed["blocks"][0]
    assert (first["tool"], first["tokens"], first["worth_seconds_per_byte"]) == (
        "files/[bold]read[/bold]\u202e",
        2,
        2.5e-6,
    )
    assert listed["bytes"] == sum(one["bytes"] for one in listed["blocks"])


def test_a_block_is_shown_in_words_by_tool_or_by_the_beginning_of_its_key(run, store):
    store.put(block(1), 1.0)
    store.put(block(1, tenant="other"), 1.0)
    store.put(block(2), 1.0)
    [mine, theirs, _] = store.entries()
    code, shown, _ = run("show", "server/tool_1")
    assert code == 0
    assert mine.key in shown
    assert theirs.key in shown
    code, shown, _ = run("show", mine.key[:8])
    assert theirs.key not in shown
    for words in ("2 tokens, positions 2 to 3", "500 ms to compute", "(dense)", "values by rows"):
        assert words in shown
    [found] = json.loads(run("show", mine.key, "--json")[1])["blocks"]
    assert found["descriptor"]["facts"]["key_type"] == "f16"
    assert found["path"] == str(mine.path)


def test_a_block_that_is_not_there_is_said_plainly(run, store):
    store.put(block(1), 1.0)
    code, shown, said = run("show", "server/tool_9")
    assert (code, shown) == (Exit.FAILED, "")
    assert "no block of server/tool_9; `nexus-gateway blocks list`" in said.replace("\n", " ")
    assert run("show", "")[0] == Exit.FAILED


def test_verify_names_what_is_damaged_and_gc_removes_it(run, store):
    for number in range(3):
        store.put(block(number), 1.0)
    assert run("verify")[:2] == (0, "3 blocks checked, 0 can't be used\n")
    entry = store.entries()[1]
    damage(entry)
    code, shown, _ = run("verify")
    assert code == Exit.FAILED
    assert f"{entry.path} is damaged, or another gateway's: its checksum does not match" in shown
    assert "3 blocks checked, 1 can't be used" in shown
    code, shown, _ = run("verify", "--json")
    assert (code, json.loads(shown)["damaged"][0]["path"]) == (Exit.FAILED, str(entry.path))
    code, shown, _ = run("gc")
    assert code == 0
    assert "removed 1 file: is damaged" in shown
    assert "freed 0.0 MB; 2 blocks kept" in shown
    assert run("verify")[0] == 0
    assert store.get(descriptor(0)) is not None


def test_gc_keeps_the_budget_of_the_configuration(run, tmp_path):
    large = BlockStore(tmp_path / "cache" / "blocks", 10 * BUDGET, lambda *_: None)
    for number in range(4):
        large.put(block(number, size=400_000), float(number))
    left = large.entries()[0].path.parent / ".left.tmp"
    left.write_bytes(b"1234")
    os.utime(left, (time.time() - 4_000,) * 2)
    code, shown, _ = run("gc", "--json")
    report = json.loads(shown)
    assert code == 0
    assert sorted(one["reason"] for one in report["removed"]) == [
        "left behind by a process that was killed",
        "over the budget",
        "over the budget",
    ]
    assert report["freed_bytes"] == sum(one["bytes"] for one in report["removed"])
    assert [entry.label for entry in large.entries()] == ["server/tool_2", "server/tool_3"]
    assert report["kept"] == 2


def test_blocks_whose_secret_is_lost_are_of_no_use(run, store):
    store.put(block(), 1.0)
    (store.directory / "secret").unlink()
    assert run("verify")[0] == Exit.FAILED
    assert "1 file" in run("gc")[1]


def test_a_folder_that_cannot_be_used_is_said_plainly(run, store):
    store.put(block(), 1.0)
    (store.directory / "secret").unlink()
    (store.directory / "secret").mkdir()
    code, _, said = run("gc")
    assert code == Exit.FAILED
    assert "has no secret" in said
    assert "can't be cleaned" in said
    shutil.rmtree(store.directory)
    store.directory.write_text("in the way")
    assert run("list")[0] == 0


def test_the_command_is_there_and_teaches(options):
    result = CliRunner().invoke(root, ["blocks", "list", *options])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "no blocks" in result.stdout
    shown = CliRunner().invoke(app, ["--help"]).stdout
    for command in ("list", "show", "verify", "gc"):
        assert command in shown
