"""`nexus-gateway blocks compile`: make the blocks of tools now, instead of in the background later."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from adapters.ports import ModelError
from nexus_gateway.cli.completion import complete_tool
from nexus_gateway.cli.exits import Exit, exit_with
from nexus_gateway.cli.options import ConfigOption, JsonOption, McpConfigOption, settings_from
from nexus_gateway.cli.output import clip, err, out, print_json
from nexus_gateway.cli.session import run_with_gateway
from nexus_gateway.state.compiler import CompileReport
from nexus_gateway.state.parts import MB
from nexus_gateway.state.service import StateOff
from tool_registry.index import CompiledTool, RoutingIndex

if TYPE_CHECKING:
    from nexus_gateway.app import Gateway

_SHOWN_CHARACTERS = 48


@dataclass(frozen=True, slots=True)
class _Ran:
    """What a run did, and what went wrong beside it: the latest cause of each kind."""

    report: CompileReport
    faults: dict[str, str]

    @property
    def failed(self) -> bool:
        return bool(self.report.failed or (self.report.refused and self.faults))


@dataclass(frozen=True, slots=True)
class _Wanted:
    tools: tuple[str, ...]
    everything: bool
    quiet: bool


class _UnknownToolError(Exception):
    pass


def compile_command(
    config: ConfigOption = None,
    mcp_config: McpConfigOption = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            metavar="SERVER/NAME",
            help="This tool. May be repeated.",
            autocompletion=complete_tool,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every tool, also those that the background would leave out.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Compile tools now: have the argument model read each once, and keep what it has read.

    Without --tool and --all: those that a running gateway would compile in the background, the best first. Blocks
    that are there stay. One that saves less a megabyte than those that fill the budget is made and not kept.

    Exit codes: 0 all are there, 1 a tool could not be compiled or nothing can be kept, 2 wrong options.
    """
    settings = settings_from(config, mcp_config, needs_servers=True).settings
    # The background would do the same work a second time.
    settings = replace(settings, state=replace(settings.state, compile=False))
    wanted = _Wanted(tuple(tool or ()), everything, json)
    try:
        ran = run_with_gateway(settings, partial(_compile, wanted), quiet=json)
    except _UnknownToolError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(Exit.USAGE) from None
    except (ModelError, StateOff) as error:
        err.print(Text(str(error), style="red"))
        exit_with(Exit.FAILED)
    print_json(_as_json(ran)) if json else _print(ran)
    exit_with(Exit.FAILED if ran.failed else Exit.OK)


async def _compile(wanted: _Wanted, gateway: "Gateway") -> _Ran:
    await gateway.engine.get()
    index = await gateway.readiness.wait()
    if wanted.tools:
        tools = _named(index, wanted.tools)
    elif wanted.everything:
        tools = list(index.tools)
    else:
        tools = await gateway.state.worth_it(index.tools)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=wanted.quiet or not err.is_terminal, transient=True) as bar:
        task = bar.add_task("compiling", total=len(tools))

        def seen(done: int, _wanted: int, label: str) -> None:
            bar.update(
                task, completed=done, description=f"compiling {clip(label, _SHOWN_CHARACTERS)}".strip()
            )

        report = await gateway.state.compile(tools, seen)
    faults = (await gateway.state.report()).faults
    return _Ran(report, {kind: cause for kind, (_, cause) in faults.items()})


def _named(index: RoutingIndex, names: Sequence[str]) -> list[CompiledTool]:
    tools: list[CompiledTool] = []
    for name in names:
        found = index.find(name)
        if not found:
            raise _UnknownToolError(f"there is no tool {name}; `nexus-gateway tools list` shows their names")
        tools += found
    return tools


def _as_json(ran: _Ran) -> dict[str, Any]:
    report = ran.report
    return {
        "wanted": report.wanted,
        "compiled": report.compiled,
        "present": report.present,
        "refused": report.refused,
        "failed": report.failed,
        "bytes": report.size_bytes,
        "seconds": round(report.seconds, 3),
        "faults": ran.faults,
    }


def _print(ran: _Ran) -> None:
    report = ran.report
    for label, cause in [*report.failed.items(), *ran.faults.items()]:
        err.print(Text(f"{label}: {cause}", style="red"), soft_wrap=True)
    why = "see above" if ran.faults else "others are worth more ([state] disk_mb)"
    said = [f"{report.compiled} compiled ({report.size_bytes / MB:,.1f} MB) in {report.seconds:.1f} s"]
    said += [f"{report.present} were there"] if report.present else []
    said += [f"{report.refused} not kept: {why}"] if report.refused else []
    said += [f"{len(report.failed)} failed"] if report.failed else []
    nothing = "nothing to compile: all that is worth it is there"
    out.print(Text(", ".join(said) if report.wanted else nothing))
