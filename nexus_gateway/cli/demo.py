"""`nexus-gateway demo`: the main job on a shipped fleet, with the real models, in one command."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from nexus_gateway.access.caller import Caller
from nexus_gateway.app import Gateway
from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.options import JsonOption
from nexus_gateway.cli.output import clip, err, out, print_json
from nexus_gateway.cli.session import exit_with, run_with_gateway
from nexus_gateway.demo.scenario import SCENARIO, DemoTurn
from nexus_gateway.demo.workspace import demo_servers, seed_workspace
from nexus_gateway.server.rendering import render, turn_meta
from nexus_gateway.settings import ServerSettings, Settings
from nexus_gateway.turn.result import Outcome, TurnResult
from nexus_gateway.turn.service import TurnOptions

app = typer.Typer(rich_markup_mode=None)

_STYLES = {
    Outcome.CALLED: "green",
    Outcome.FAILED: "red",
    Outcome.NEEDS_INPUT: "yellow",
    Outcome.AMBIGUOUS: "yellow",
}
_STAGES = ("embed", "scan", "write", "call", "total")

NEXT_STEPS = """What to do next
  Your own servers:  nexus-gateway doctor --mcp-config FILE      (claude_desktop_config.json or .mcp.json as it is)
                     nexus-gateway turn --mcp-config FILE "…"
  Your host:         let it start `nexus-gateway serve --mcp-config FILE`; the README has the entry to copy"""


@app.command("demo")
def demo_command(
    json: JsonOption = False,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Use this folder for the workspace and keep it."),
    ] = None,
) -> None:
    """Start seven small servers and run a dozen turns on them with the packaged models.

    Shows for each turn the request, the tool, its arguments, the result and where the milliseconds went. The
    exit code is 1 if a turn ended otherwise than it must.
    """
    with tempfile.TemporaryDirectory(prefix="nexus-demo-") as temporary:
        workspace = (keep or Path(temporary)).resolve()
        seed_workspace(workspace)
        settings = Settings(
            servers={name: ServerSettings(spec=spec) for name, spec in demo_servers(workspace).items()}
        )
        results = run_with_gateway(settings, _run_turns, quiet=json)
    wrong = {turn.request: turn.problems(result) for turn, result in results if turn.problems(result)}
    if json:
        print_json({"ok": not wrong, "turns": [_row(turn, result) for turn, result in results]})
    else:
        _print(results, wrong)
    exit_with(Exit.FAILED if wrong else Exit.OK)


async def _run_turns(gateway: Gateway) -> list[tuple[DemoTurn, TurnResult]]:
    results = []
    for turn in SCENARIO:
        options = TurnOptions(assume_yes=turn.yes)
        results.append((turn, await gateway.turns.turn(turn.request, Caller(), options=options)))
    return results


def _row(turn: DemoTurn, result: TurnResult) -> dict[str, object]:
    return {
        "request": turn.request,
        "shows": turn.shows,
        "problems": turn.problems(result),
        **turn_meta(result),
        "message": result.message,
        "result": result.raw,
    }


def _print(results: list[tuple[DemoTurn, TurnResult]], wrong: dict[str, list[str]]) -> None:
    for number, (turn, result) in enumerate(results, 1):
        out.print(
            Text.assemble((f"{number:>2} ", "bold"), (turn.request, "bold"), (f"   ({turn.shows})", "dim"))
        )
        style = _STYLES.get(result.outcome, "")
        called = f" {result.tool_id} {dict(result.arguments)}" if result.tool_id else ""
        out.print(Text.assemble("   ", (result.outcome.replace("_", " "), style), clip(called, 100)))
        out.print(Text(f"   {clip(_answer(result), 110)}", style="dim"))
        for problem in wrong.get(turn.request, ()):
            err.print(Text(f"   not as it must be: {problem}", style="bold red"))
    out.print(_times(results))
    out.print(Text(NEXT_STEPS))


def _answer(result: TurnResult) -> str:
    if result.raw is None:
        return str(render(result, explain=False)["content"][0]["text"]).replace("\n", " | ")
    content = result.raw.get("content")
    blocks = content if isinstance(content, list) else []
    return " ".join(block.get("text", "") for block in blocks if isinstance(block, dict)).strip() or "(empty)"


def _times(results: list[tuple[DemoTurn, TurnResult]]) -> Table:
    table = Table(
        "turn", *_STAGES, title="Where the milliseconds went", title_justify="left", header_style="bold"
    )
    for number, (turn, result) in enumerate(results, 1):
        spent = result.stages.milliseconds
        cells = [f"{spent[stage]:.0f}" if stage in spent else "" for stage in _STAGES]
        table.add_row(Text(f"{number} {clip(turn.request, 44)}"), *cells)
    return table
