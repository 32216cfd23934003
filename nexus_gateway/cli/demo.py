"""`nexus-gateway demo`: the main job on a shipped fleet, with the real models, in one command."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import anyio
import typer
from rich.table import Table
from rich.text import Text

from nexus_gateway.access.caller import Caller
from nexus_gateway.app import Gateway
from nexus_gateway.cli.exits import Exit, exit_with
from nexus_gateway.cli.options import JsonOption
from nexus_gateway.cli.output import clip, err, out, print_json
from nexus_gateway.cli.session import run_with_gateway
from nexus_gateway.demo.scenario import SCENARIO, DemoTurn
from nexus_gateway.demo.workspace import demo_servers, seed_workspace
from nexus_gateway.server.rendering import render, turn_meta
from nexus_gateway.settings import LogSettings, ServerSettings, Settings
from nexus_gateway.turn.parts import TurnOptions
from nexus_gateway.turn.result import Outcome, TurnResult

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_STYLES = {
    Outcome.CALLED: "green",
    Outcome.FAILED: "red",
    Outcome.NEEDS_INPUT: "yellow",
    Outcome.AMBIGUOUS: "yellow",
}
_STAGES = ("embed", "scan", "write", "call", "total")

NEXT_STEPS = """What to do next
  See what your servers cost:  nexus-gateway import
  Run a turn on them:          nexus-gateway turn --mcp-config FILE "read the file …"
  Give them to your host:      nexus-gateway register HOST    (undo: nexus-gateway unregister HOST)
  FILE is a host's mcpServers file as it is: claude_desktop_config.json, .mcp.json"""


@app.command("demo")
def demo_command(
    json: JsonOption = False,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Use this folder for the workspace and keep it."),
    ] = None,
) -> None:
    """Start seven small servers and run sixteen turns on them with the packaged models.

    Shows for each turn the request, the tool, its arguments, the result and where the milliseconds went. The
    exit code is 1 if a turn ended otherwise than it must.
    """
    with tempfile.TemporaryDirectory(prefix="nexus-demo-") as temporary:
        workspace = (keep or Path(temporary)).resolve()
        seed_workspace(workspace)
        servers = {name: ServerSettings(spec=spec) for name, spec in demo_servers(workspace).items()}
        # A server dies on purpose: its warning would stand in the middle of the table.
        settings = Settings(servers=servers, log=LogSettings(level="error"))
        run = run_with_gateway(settings, _run_turns, quiet=json)
    wrong = [turn for turn, result in run.results if turn.problems(result)]
    if json:
        print_json({"ok": not wrong, "turns": [_row(turn, result) for turn, result in run.results]})
    else:
        _print(run)
    exit_with(Exit.FAILED if wrong else Exit.OK)


@dataclass(frozen=True, slots=True)
class _Run:
    servers: int
    tools: int
    ready_seconds: float
    results: list[tuple[DemoTurn, TurnResult]]


async def _run_turns(gateway: Gateway) -> _Run:
    started = anyio.current_time()
    index = await gateway.readiness.wait()
    ready_seconds = anyio.current_time() - started
    results = []
    for turn in SCENARIO:
        options = TurnOptions(assume_yes=turn.yes)
        results.append((turn, await gateway.turns.turn(turn.request, Caller(), options=options)))
    return _Run(len(gateway.settings.servers), len(index.tools), ready_seconds, results)


def _row(turn: DemoTurn, result: TurnResult) -> dict[str, object]:
    return {
        "request": turn.request,
        "shows": turn.shows,
        "problems": turn.problems(result),
        **turn_meta(result),
        "message": result.message,
        "result": result.raw,
    }


def _print(run: _Run) -> None:
    out.print(
        f"{run.servers} servers with {run.tools} tools, real models, ready in {run.ready_seconds:.1f} s\n"
    )
    for number, (turn, result) in enumerate(run.results, 1):
        _print_turn(number, turn, result)
    out.print(_times(run.results))
    out.print(Text(NEXT_STEPS))


def _print_turn(number: int, turn: DemoTurn, result: TurnResult) -> None:
    room = max(40, out.width - 4)
    out.print(
        Text.assemble((f"{number:>2}  {turn.request}", "bold"), (f"  {turn.shows}", "dim")),
        overflow="ellipsis",
        no_wrap=True,
    )
    outcome = (result.outcome.replace("_", " "), _STYLES.get(result.outcome, ""))
    called = f"{result.tool_id} {dict(result.arguments)}" if result.tool_id else ""
    out.print(Text.assemble("    ", outcome, "  ", clip(called, room)), overflow="ellipsis", no_wrap=True)
    out.print(Text(f"    {clip(_answer(result), room)}", style="dim"), overflow="ellipsis", no_wrap=True)
    for problem in turn.problems(result):
        err.print(Text(f"    not as it must be: {problem}", style="bold red"))


def _answer(result: TurnResult) -> str:
    if result.raw is None:
        return str(render(result, explain=False)["content"][0]["text"]).replace("\n", " | ")
    content = result.raw.get("content")
    blocks = content if isinstance(content, list) else []
    return " ".join(block.get("text", "") for block in blocks if isinstance(block, dict)).strip() or "(empty)"


def _times(results: list[tuple[DemoTurn, TurnResult]]) -> Table:
    table = Table("turn", title="Where the milliseconds went", title_justify="left", header_style="bold")
    for stage in _STAGES:
        table.add_column(stage, justify="right")
    for number, (turn, result) in enumerate(results, 1):
        spent = result.stages.milliseconds
        cells = [f"{spent[stage]:.0f}" if stage in spent else "" for stage in _STAGES]
        table.add_row(Text(f"{number:>2} {clip(turn.request, 36)}"), *cells)
    return table
