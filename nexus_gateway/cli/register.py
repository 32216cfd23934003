"""`nexus-gateway register HOST`: put the gateway into a host's file, in the place of its servers."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from adapters.hosts.document import HostFileError
from adapters.hosts.known import Dialect, Place
from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.host_files import (
    DryRunOption,
    FileOption,
    HostArgument,
    again,
    agrees,
    can_ask,
    fail,
    place_of,
    print_diff,
)
from nexus_gateway.cli.options import ConfigOption, JsonOption
from nexus_gateway.cli.output import print_json, say
from nexus_gateway.cli.service_hosts import Service, find_service, require_same_way
from nexus_gateway.hosts.programs import gateway_command
from nexus_gateway.hosts.registration import Registration, own_folder
from nexus_gateway.hosts.showing import difference
from nexus_gateway.hosts.takeover import Plan, carry_out, plan, standing

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("register")
def register_command(  # noqa: PLR0917 - typer passes them by name
    host: HostArgument,
    servers: Annotated[
        str | None,
        typer.Option("--servers", metavar="A,B", help="The servers to move.", show_default="all that can be"),
    ] = None,
    file: FileOption = None,
    config: ConfigOption = None,
    dry_run: DryRunOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    service: Annotated[
        bool,
        typer.Option(
            "--service",
            help="Have the host reach the service (`service install`), which then runs the moved servers.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Put the gateway into a host's configuration, its servers behind it; `unregister` restores the file exactly.

    Shows the difference first and asks. Comments, order and everything else in the file stay; a dated backup is
    kept beside it. The moved entries go into a file that only you can read. Commands become absolute paths, since
    GUI applications have a short PATH. With --service the host starts a bridge to the gateway that runs as a service, so
    that several hosts share one set of servers and models. Exit code 2 if the file can't be used, 3 if a yes is missing.
    """
    only = None if servers is None else [name.strip() for name in servers.split(",") if name.strip()]
    try:
        register(place_of(host, file), config, only, service=service, dry_run=dry_run, yes=yes, json=json)
    except HostFileError as error:
        raise fail(error) from None


def register(
    place: Place,
    config: Path | None,
    only: list[str] | None,
    *,
    service: bool = False,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    """Register one file: show, ask, do. Raises HostFileError."""
    folder = own_folder(config)
    if config and not config.is_file():
        raise HostFileError(f"there is no file {config}: the gateway would not start with it")
    reached = find_service(config) if service else None
    if found := standing(place, folder):
        _require_same_way(place, found, reached, config)
        _say_standing(place, found, config, json=json)
        return
    chosen = _plan(place, config, only, reached)
    diff = difference(chosen.file, chosen.before, chosen.after, place.host.dialect)
    if not json:
        _show(chosen, diff)
    if dry_run:
        if json:
            print_json(_as_json(chosen, diff, None, reached))
        return
    if not yes and (json or not can_ask()):
        typer.echo("nothing is changed: add --yes to do it", err=True)
        raise typer.Exit(Exit.NEEDS_INPUT)
    if not yes and not agrees(f"Change {chosen.file}?"):
        typer.echo("nothing is changed", err=True)
        raise typer.Exit(Exit.NEEDS_INPUT)
    done = carry_out(chosen, folder)
    said = reached.tell() if reached else ""
    if json:
        print_json(_as_json(chosen, diff, done, reached) | {"service_note": said})
    else:
        _say_done(chosen, done, config, said)


def _plan(place: Place, config: Path | None, only: list[str] | None, reached: Service | None) -> Plan:
    if reached is None:
        command = (*gateway_command(), "serve", *(("--config", str(config.absolute())) if config else ()))
        return plan(place, own_folder(config), command, os.environ, only=only)
    chosen = plan(place, own_folder(config), reached.bridge, os.environ, only=only, service=reached.servers)
    lacking = ((one.name, reached.lacks(one)) for one in chosen.moved)
    remarks = [
        f"{name}: the service has not your shell's variables: {what}" for name, what in lacking if what
    ]
    return replace(chosen, remarks=(*chosen.remarks, *remarks))


def _require_same_way(
    place: Place, found: Registration | str, reached: Service | None, config: Path | None
) -> None:
    if isinstance(found, Registration):
        anew = again("register", place, config) + (" --service" if reached else "")
        require_same_way(found, reached, again("unregister", place, config), anew)


def _say_standing(place: Place, found: Registration | str, config: Path | None, *, json: bool) -> None:
    name = found if isinstance(found, str) else found.name
    if json:
        moved = [] if isinstance(found, str) else list(found.moved)
        print_json(
            {
                "host": place.host.id,
                "file": str(place.file),
                "registered": True,
                "changed": False,
                "entry": name,
                "moved": moved,
            }
        )
    elif isinstance(found, str):
        say(f"{place.label} has the gateway already, as {name}, put there by hand: nothing to do")
    else:
        moved_names = ", ".join(found.moved) or "no servers"
        say(
            f"{place.label} is registered already, since {found.at:%Y-%m-%d}, with {moved_names} behind the gateway"
        )
        say(f"to move others: {again('unregister', place, config)}, then register")


def _show(chosen: Plan, diff: str) -> None:
    print_diff(f"{diff}\n\n{difference(chosen.servers_file, None, chosen.servers, Dialect.JSON)}\n\n")
    secret = sorted({f"{one.name}: {name}" for one in chosen.moved for name in one.secret_names})
    lines = [f"{chosen.servers_file} gets the moved entries; only you can read it (0600)"]
    if secret:
        lines.append(f"it holds values that are hidden above: {', '.join(secret)}")
    lines += [f"{name} stays: {reason}" for name, reason in chosen.staying]
    lines += chosen.remarks
    if not chosen.moved:
        whose = (
            "the service has its own"
            if chosen.bridge
            else "the gateway begins with those of nexus.toml, if any"
        )
        lines.append(f"no server is moved: {whose}")
    for line in lines:
        say(line)


def _say_done(chosen: Plan, done: Registration, config: Path | None, of_service: str) -> None:
    lines = [
        f"{chosen.place.label} has the gateway as {done.name}, behind it {', '.join(done.moved) or 'no servers'}",
        *([of_service] if of_service else []),
        f"to use it: {chosen.place.host.restart}",
        *([f"backup: {done.backup}"] if done.backup else []),
        f"undo: {again('unregister', chosen.place, config)}",
    ]
    for line in lines:
        say(line)


def _as_json(chosen: Plan, diff: str, done: Registration | None, reached: Service | None) -> dict[str, Any]:
    return {
        "host": chosen.place.host.id,
        "file": str(chosen.file),
        "registered": done is not None,
        "changed": done is not None,
        "entry": chosen.name,
        "service": reached.planned.url if reached else None,
        "moved": [one.name for one in chosen.moved],
        "staying": [{"server": name, "reason": reason} for name, reason in chosen.staying],
        "servers_file": str(chosen.servers_file),
        "backup": str(done.backup) if done and done.backup else None,
        "remarks": list(chosen.remarks),
        "diff": diff,
    }
