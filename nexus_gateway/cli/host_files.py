"""What the commands about hosts' files share: which file is meant, a diff on the screen, and a question."""

import difflib
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from adapters.hosts.document import HostFileError
from adapters.hosts.known import HOSTS, Machine, Place, host_named, place_in, standard_place
from nexus_gateway.cli.completion import complete_host
from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.output import err, plain, say
from nexus_gateway.hosts.registration import Registration

HostArgument = Annotated[
    str,
    typer.Argument(
        metavar="HOST",
        help=f"One of {', '.join(host.id for host in HOSTS)}.",
        autocompletion=complete_host,
    ),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file", metavar="FILE", help="Another file in the host's format.", show_default="the host's own"
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would change and change nothing.")]

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def this_machine() -> Machine:
    """Whose files are meant: the user's, in the present folder."""
    return Machine(sys.platform, Path.home(), Path.cwd(), os.environ)


def place_of(host: str, file: Path | None) -> Place:
    """The file of a host that a command is about; an unknown host ends the command."""
    known = host_named(host)
    if known is None:
        ids = [one.id for one in HOSTS]
        near = difflib.get_close_matches(host, ids, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(ids)}"
        typer.echo(f"no host is called {host!r}; {hint}", err=True)
        raise typer.Exit(Exit.USAGE)
    machine = this_machine()
    return place_in(known, file.absolute(), machine) if file else standard_place(known, machine)


def place_registered(one: Registration) -> Place | None:
    """The place of a registration; None where its host is not known any more."""
    host = host_named(one.host)
    return None if host is None else place_in(host, one.file, this_machine())


def again(verb: str, place: Place, config: Path | None = None) -> str:
    """A command about a place, as it can be pasted into a shell."""
    own = ("--config", str(config.absolute())) if config else ()
    return shlex.join(["nexus-gateway", verb, *place.arguments, *own])


def print_diff(text: str) -> None:
    """A unified diff in colours."""
    for line in text.splitlines():
        say(line, _STYLES.get(line[:1], ""))


def fail(error: HostFileError) -> typer.Exit:
    """Say what is wrong with a file; to be raised."""
    typer.echo(plain(str(error)), err=True)
    return typer.Exit(Exit.USAGE)


def can_ask() -> bool:
    """Whether there is a person at both ends."""
    return sys.stdin.isatty() and err.is_terminal


def agrees(question: str) -> bool:
    """A yes or no from the terminal; the end of the input is a no."""
    try:
        return typer.confirm(question, default=False, err=True)
    except typer.Abort:
        return False
