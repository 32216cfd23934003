"""`nexus-gateway unregister HOST`: a host's file as it was before `register`."""

from typing import Any

import typer

from adapters.hosts.document import HostFileError
from adapters.hosts.known import Place
from nexus_gateway.cli.host_files import (
    DryRunOption,
    FileOption,
    HostArgument,
    fail,
    place_of,
    print_diff,
)
from nexus_gateway.cli.options import ConfigOption, JsonOption
from nexus_gateway.cli.output import print_json, say
from nexus_gateway.cli.service_hosts import installed_service
from nexus_gateway.hosts.giving_back import Undo, carry_out, plan_undo
from nexus_gateway.hosts.registration import own_folder
from nexus_gateway.hosts.showing import difference

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("unregister")
def unregister_command(
    host: HostArgument,
    file: FileOption = None,
    config: ConfigOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Take the gateway out of a host's configuration and give the host its servers back.

    The file becomes what it was, to the byte. Where it was changed since, the changes stay: the gateway's entry goes
    and the moved servers come back as they were written. Exit code 2 if the file can't be used.
    """
    place, folder = place_of(host, file), own_folder(config)
    try:
        registration = folder.find(place)
        if registration is None:
            _say_nothing(place, json=json)
            return
        undo = plan_undo(place, registration)
        diff = difference(undo.file, undo.before, undo.after, place.host.dialect)
        service = installed_service(config) if registration.bridge and not dry_run else None
        if not dry_run:
            carry_out(undo, folder)
    except HostFileError as error:
        raise fail(error) from None
    if json:
        print_json(
            _as_json(undo, diff, done=not dry_run) | ({"service_note": service.tell()} if service else {})
        )
        return
    if dry_run:
        print_diff(diff)
    _say(undo, done=not dry_run)
    if service:
        say(service.tell())


def _say_nothing(place: Place, *, json: bool) -> None:
    if json:
        print_json({"host": place.host.id, "file": str(place.file), "registered": False, "changed": False})
    else:
        say(f"{place.label} is not registered, or not by this command: nothing to undo in {place.file}")


def _say(undo: Undo, *, done: bool) -> None:
    file, moved = undo.file, ", ".join(undo.restored) or "no servers"
    verb = "is" if done else "would be"
    if not undo.exact:
        lines = [
            f"{file} has been changed since: the changes stay, the gateway's entry goes; back come {moved}",
            *([undo.remark] if undo.remark else []),
        ]
    elif undo.after is None:
        lines = [f"{file} {verb} gone again: there was none before"]
    else:
        lines = [f"{file} {verb} what it was before, to the byte, with {moved}"]
    lines += [f"deleted: {one}" if done else f"would be deleted: {one}" for one in undo.superfluous]
    lines += [f"kept: {one}: {why}" for one, why in undo.kept]
    if done:
        lines.append(f"{undo.place.label}: {undo.place.host.restart}")
    for line in lines:
        say(line)


def _as_json(undo: Undo, diff: str, *, done: bool) -> dict[str, Any]:
    return {
        "host": undo.place.host.id,
        "file": str(undo.file),
        "registered": not done,
        "changed": done,
        "exact": undo.exact,
        "restored": list(undo.restored),
        "deleted": [str(one) for one in undo.superfluous] if done else [],
        "kept": [{"file": str(one), "reason": why} for one, why in undo.kept],
        "remark": undo.remark,
        "diff": diff,
    }
