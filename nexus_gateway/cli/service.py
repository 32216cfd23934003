"""`nexus-gateway service`: the gateway as a service of its user, on HTTP behind a token."""

import shlex
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import httpx
import typer

from adapters.services.manager import ServiceManager, Step
from nexus_gateway.cli.bearer_token import (
    TokenPlace,
    TokenUnusableError,
    forget_token,
    make_token,
    planned_place,
)
from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.options import ConfigOption, JsonOption, McpConfigOption, settings_from, with_address
from nexus_gateway.cli.output import err, print_json, print_table
from nexus_gateway.cli.service_hosts import warn_of_left_hosts, warn_of_other_addresses
from nexus_gateway.cli.service_plan import (
    Installation,
    configured_token,
    entry_text,
    files_of,
    installation,
    seen_by_the_service,
    token_of,
    url_of,
)
from nexus_gateway.cli.service_steps import (
    ManagerName,
    ServiceError,
    answer_of,
    find_manager,
    run_steps,
    show,
)
from nexus_gateway.files import write_atomically
from nexus_gateway.hosts.service_settings import load_service_settings
from nexus_gateway.server.health import STOPPING

START_SECONDS = 30.0
"""For the new process to answer."""

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    help="Run the gateway as a service of your user: launchd on a Mac, systemd on Linux.",
    epilog="Start with: nexus-gateway service install, then: nexus-gateway register HOST --service",
)

ManagerOption = Annotated[
    ManagerName, typer.Option("--manager", help="The service manager.", show_default="this machine's")
]
StoreChoice = Literal["auto", "keyring", "file"]


@app.command("install")
def install_command(
    *,
    config: ConfigOption = None,
    mcp_config: McpConfigOption = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Where to serve.", show_default="as configured"),
    ] = None,
    token_store: Annotated[
        StoreChoice,
        typer.Option(help="Where the token is kept; auto is the keyring if there is one that works."),
    ] = "auto",  # noqa: S107 - where, not what
    start: Annotated[
        bool, typer.Option("--start/--no-start", help="Start it too, or only write its file.")
    ] = True,
    manager: ManagerOption = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written and run.")] = False,
    json: JsonOption = False,
) -> None:
    """Install and start the service; run it again to change it.

    It serves HTTP on loopback behind a token that is made once, starts at each login and after each end. It has the
    servers that are configured, those of FILE, and those of each host that `register HOST --service` brings to it, before
    or after. What another host has to be given is printed. Exit code 1 if the service manager refuses, with the command to run instead.
    """
    settings = settings_from(config, mcp_config).settings
    served = (with_address(settings, http) if http else settings).http
    chosen = find_manager(manager)
    place = configured_token(served) or (planned_place(token_store) if dry_run else _made_token(token_store))
    planned = installation(served, place, config, mcp_config or [])
    if chosen is None:
        _in_the_foreground(planned.plan.program, "there is no service manager that is known here")
    if dry_run:
        _show_plan(chosen, planned, json=json)
        return
    _warn_of_missing_variables(planned, config, mcp_config or [])
    warn_of_other_addresses(planned, config)
    _write(chosen, planned)
    if start:
        _start(chosen, planned.plan.program)
    _report(chosen, planned, started=start, json=json)


@app.command("uninstall")
def uninstall_command(manager: ManagerOption = "auto") -> None:
    """Stop the service and delete its file, and the token that was made for it."""
    chosen = _manager(manager)
    program = _installed(chosen)
    for steps in (chosen.removing, chosen.forgetting):
        try:
            run_steps(steps())
        except ServiceError as error:  # nothing was installed but the file, or it goes on without it
            typer.echo(f"warning: {error}; end the service yourself if it still runs", err=True)
        chosen.file.unlink(missing_ok=True)
    forget_token(token_of(program))
    warn_of_left_hosts(files_of(program)[0])
    typer.echo(f"removed {chosen.file}", err=True)


@app.command("start")
def start_command(manager: ManagerOption = "auto") -> None:
    """Start the service, anew if it runs."""
    chosen = _manager(manager)
    program = _installed(chosen)
    _start(chosen, program)
    typer.echo(f"serving {url_of(program)}", err=True)


@app.command("stop")
def stop_command(manager: ManagerOption = "auto") -> None:
    """Stop the service until it is started, or until the next login. Running calls may end."""
    chosen = _manager(manager)
    _run(chosen.stopping(), _installed(chosen))


@app.command("status")
def status_command(manager: ManagerOption = "auto", json: JsonOption = False) -> None:
    """Whether the service is installed, runs, answers and is ready. Exit code 1 if it does not answer."""
    chosen = _manager(manager)
    program = _installed(chosen)
    state, pid = _state(chosen)
    url = url_of(program) or ""
    alive, reasons = _health(url)
    told = {
        "state": state,
        "pid": pid,
        "url": url,
        "alive": alive,
        "ready": alive and not reasons,
        "reasons": reasons,
    }
    if json:
        print_json(told | {"file": str(chosen.file)})
    else:
        ready = "; ".join(reasons) or "yes"
        rows = [
            ("state", state),
            ("process", pid or "-"),
            ("address", url),
            ("answers", "yes" if alive else "no"),
        ]
        print_table(["service", ""], [*rows, ("ready", ready if alive else "-"), ("file", chosen.file)])
    raise typer.Exit(Exit.OK if alive else Exit.FAILED)


@app.command("logs")
def logs_command(
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The last so many.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="And what comes, until Ctrl-C.")] = False,
    manager: ManagerOption = "auto",
) -> None:
    """Show the service's log."""
    chosen = _manager(manager)
    program = _installed(chosen)
    try:
        code = show(chosen.reading_log(lines, follow=follow))
    except ServiceError as error:
        _in_the_foreground(program, str(error))
    raise typer.Exit(Exit.FAILED if code else Exit.OK)


def _manager(name: ManagerName) -> ServiceManager:
    found = find_manager(name)
    if found is None:
        typer.echo("there is no service manager that is known here: launchd and systemd are", err=True)
        raise typer.Exit(Exit.USAGE)
    return found


def _installed(manager: ServiceManager) -> tuple[str, ...]:
    """The command of the installed service; ends the command where there is none."""
    try:
        return manager.command_of(manager.file.read_bytes())
    except FileNotFoundError:
        typer.echo(f"no service is installed ({manager.file}): nexus-gateway service install", err=True)
    except (OSError, ValueError) as error:
        typer.echo(f"{manager.file} is not usable: {error}; install the service again", err=True)
    raise typer.Exit(Exit.FAILED)


def _made_token(store: StoreChoice) -> TokenPlace:
    try:
        return make_token(store)
    except (TokenUnusableError, OSError) as error:
        typer.echo(f"the token can't be kept: {error}", err=True)
        raise typer.Exit(Exit.FAILED) from None


def _write(manager: ServiceManager, planned: Installation) -> None:
    try:
        text = manager.render(planned.plan).decode()
        if manager.log_file is not None:
            manager.log_file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(manager.file, text, mode=0o644)
    except (OSError, ValueError) as error:
        _in_the_foreground(planned.plan.program, f"{manager.file} can't be written: {error}")


def _start(manager: ServiceManager, program: tuple[str, ...]) -> None:
    url = url_of(program) or ""
    _refuse_taken(manager, url)
    _run(manager.starting(), program)
    deadline = time.monotonic() + START_SECONDS
    with err.status("waiting for the service to answer…"):
        while not _health(url)[0]:
            if time.monotonic() > deadline:
                typer.echo(
                    f"{url} does not answer after {START_SECONDS:g} s: nexus-gateway service logs", err=True
                )
                raise typer.Exit(Exit.FAILED)
            time.sleep(0.2)


def _refuse_taken(manager: ServiceManager, url: str) -> None:
    """End the command where another gateway serves: its answers would be taken for the service's."""
    alive, reasons = _health(url)
    if alive and reasons != [STOPPING] and _state(manager)[1] is None:
        typer.echo(
            f"{url} is served already, and not by the service: stop what does, or install with another --http",
            err=True,
        )
        raise typer.Exit(Exit.FAILED)


def _state(manager: ServiceManager) -> tuple[str, int | None]:
    """The manager's word for the service's state, and the process's number."""
    try:
        return manager.state_from(answer_of(manager.asking()))
    except ServiceError as error:
        return str(error), None


def _run(steps: Iterable[Step], program: tuple[str, ...]) -> None:
    try:
        run_steps(steps)
    except ServiceError as error:
        _in_the_foreground(program, str(error))


def _in_the_foreground(program: tuple[str, ...], cause: str) -> NoReturn:
    typer.echo(f"{cause}\nThe same in the foreground:\n  {shlex.join(program)}", err=True)
    raise typer.Exit(Exit.FAILED)


def _health(url: str) -> tuple[bool, list[str]]:
    """Whether the service answers, and why it is not ready."""
    base = url.removesuffix("/mcp")
    try:
        alive = httpx.get(f"{base}/healthz", timeout=5, trust_env=False).is_success
        reasons = httpx.get(f"{base}/readyz", timeout=5, trust_env=False).json()["reasons"]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return False, []
    return alive, [str(reason) for reason in reasons]


def _warn_of_missing_variables(planned: Installation, config: Path | None, mcp_configs: list[Path]) -> None:
    """What the shell has and the service won't: `${VAR}` is replaced there, with its few variables."""
    here = set(map(str, load_service_settings(config, mcp_configs).problems))
    for problem in load_service_settings(config, mcp_configs, seen_by_the_service(planned)).problems:
        if str(problem) not in here:
            typer.echo(f"warning: the service has not your shell's variables: {problem}", err=True)


def _show_plan(manager: ServiceManager, planned: Installation, *, json: bool) -> None:
    try:
        text = manager.render(planned.plan).decode()
    except ValueError as error:
        _in_the_foreground(planned.plan.program, f"{manager.file} can't be written: {error}")
    commands = [shlex.join(step.command) for step in manager.starting()]
    if json:
        print_json(
            {"file": str(manager.file), "text": text, "commands": commands, "host": planned.host_entry}
        )
        return
    typer.echo(f"# {manager.file}\n{text}")
    typer.echo(f"# the token: {planned.token.described()}\n# then:")
    typer.echo("\n".join(commands))


def _report(manager: ServiceManager, planned: Installation, *, started: bool, json: bool) -> None:
    program = list(planned.plan.program)
    if json:
        told = {"file": str(manager.file), "command": program, "started": started, "url": planned.url}
        print_json(told | {"token": planned.token.described(), "host": planned.host_entry})
        return
    rows = [("file", manager.file), ("address", planned.url), ("token", planned.token.described())]
    print_table(["service", "started" if started else "not started"], [*rows, ("note", manager.note)])
    typer.echo(
        "\nA host that speaks HTTP takes the address and the token; one that speaks stdio alone takes:\n"
    )
    typer.echo(entry_text(planned.host_entry))
