"""`nexus-gateway turn`: one request from the terminal."""

import json as json_module
import sys
from typing import Annotated, Any

import typer
from rich.syntax import Syntax
from rich.text import Text

from nexus_gateway.access.caller import Caller
from nexus_gateway.app import Gateway
from nexus_gateway.cli.exits import Exit, exit_with
from nexus_gateway.cli.options import ConfigOption, JsonOption, McpConfigOption, settings_from
from nexus_gateway.cli.output import err, out, print_json
from nexus_gateway.cli.session import read_line, run_with_gateway
from nexus_gateway.server.rendering import binding_notes, render, turn_meta
from nexus_gateway.state.in_words import in_words
from nexus_gateway.telemetry.turn_line import log_turn
from nexus_gateway.turn.parts import TurnOptions
from nexus_gateway.turn.result import MissingArgument, Outcome, TurnResult
from tool_registry.question import main_type

app = typer.Typer(rich_markup_mode=None, add_completion=False)

SETTLING_SECONDS = 2.0
"""The longest that a command waits, after its turn, for the tool's block to be kept."""

_EXITS = {
    Outcome.CALLED: Exit.OK,
    Outcome.FAILED: Exit.FAILED,
    Outcome.PROPOSED: Exit.NEEDS_INPUT,
    Outcome.NEEDS_INPUT: Exit.NEEDS_INPUT,
    Outcome.AMBIGUOUS: Exit.AMBIGUOUS,
    Outcome.NO_TOOL: Exit.NO_TOOL,
}


@app.command("turn")
def turn_command(  # noqa: PLR0917 - typer reads options from parameters
    request: Annotated[str, typer.Argument(help='What to do, in quotes: "read the file notes.txt".')],
    config: ConfigOption = None,
    mcp_config: McpConfigOption = None,
    context: Annotated[
        str, typer.Option("--context", help="What the request leaves out: ids, paths, names.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show tool and arguments without calling.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Run what would otherwise be asked for first.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Say what was done about the argument model's state, and what it cost."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Do one request: find the tool, write its arguments, call it, show the answer.

    Exit codes: 0 called, 1 failed, 2 wrong configuration, 3 input or a yes is missing, 4 several tools are
    equally close, 5 no tool fits.
    """
    settings = settings_from(config, mcp_config, needs_servers=True).settings
    options = TurnOptions(dry_run=dry_run, assume_yes=yes)
    ask = sys.stdin.isatty() and not json

    async def work(gateway: Gateway) -> TurnResult:
        result = await gateway.turns.turn(request, Caller(), context=context, options=options)
        while ask and result.outcome is Outcome.NEEDS_INPUT and result.pending is not None:
            answers = await _ask(result)
            if answers is None:
                break
            result = await gateway.turns.resume(
                result.pending, answers, Caller(), confirmed=result.confirm, options=options
            )
        log_turn(result, Caller(), request=request)
        await gateway.state.settled(SETTLING_SECONDS)  # the next command finds what this one read
        return result

    result = run_with_gateway(settings, work, quiet=json)
    _show_json(result) if json else _show(result)
    if explain and not json:
        for line in in_words(result.state):
            err.print(Text(line, style="dim"), soft_wrap=True)
    exit_with(Exit.FAILED if result.is_error else _EXITS[result.outcome])


async def _ask(result: TurnResult) -> dict[str, Any] | None:
    err.print(Text(result.message))
    if result.confirm:
        err.print(Text(f"  {result.tool_id} {dict(result.arguments)}"))
        return {} if (await read_line("Run it? [y/N]: ")).lower() in ("y", "yes") else None
    return {missing.name: await _ask_value(missing) for missing in result.missing}


async def _ask_value(missing: MissingArgument) -> Any:
    label = f"{missing.name} ({missing.description})" if missing.description else missing.name
    typed = await read_line(f"{label}: ")
    if main_type(missing.schema) == "string":
        return typed
    try:
        return json_module.loads(typed)
    except ValueError:
        return typed  # the check against the schema says what is wrong with it


def _show_json(result: TurnResult) -> None:
    print_json(
        {**turn_meta(result), "message": result.message, "result": result.raw, "offer": _offer(result)}
    )


def _offer(result: TurnResult) -> Any:
    return None if result.raw is not None else render(result, explain=False)["structuredContent"]


def _show(result: TurnResult) -> None:
    if result.raw is None:
        out.print(Text(render(result, explain=False)["content"][0]["text"]))
        return
    err.print(
        Text("; ".join([f"{result.tool_id} {dict(result.arguments)}", *binding_notes(result)]), style="dim")
    )
    content = result.raw.get("content")
    for block in content if isinstance(content, list) else ():
        text = block.get("text") if isinstance(block, dict) else None
        out.print(Text(text) if isinstance(text, str) else Text(str(block)[:500]))
    if not content and (structured := result.raw.get("structuredContent")) is not None:
        out.print(Syntax(str(structured), "json"))
