"""`nexus-gateway`: the commands' names and what each is for; a command's module is imported when it runs."""

import importlib
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from nexus_gateway import __version__

_COMMANDS = {
    "demo": ("demo", "Run sixteen turns on seven small servers that come along."),
    "import": ("import_servers", "Say what your hosts' servers cost; change nothing."),
    "register": ("register", "Put the gateway into a host, its servers behind it."),
    "unregister": ("unregister", "Give a host its file back as it was."),
    "doctor": ("doctor", "Say whether all is in order, and if not, what to do."),
    "serve": ("serve", "Serve a host over stdio, or over HTTP."),
    "service": ("service", "Run the gateway as a service of your user."),
    "connect": ("connect", "Bridge stdio to a gateway that serves HTTP."),
    "turn": ("turn", "Do one request in plain words."),
    "tools": ("tools", "List, search, show and approve the connected tools."),
    "bindings": ("bindings", "Keep values that no request states, such as a projectId."),
    "blocks": ("blocks", "List and compile what the argument model has read of tools."),
    "models": ("models", "List models and download missing ones."),
    "calibrate": ("calibrate", "Fit the gate to your own servers and models."),
    "feedback": ("feedback", "Show which tools hosts chose themselves after a turn."),
    "bench": ("bench", "Measure the gateway on this machine."),
}
"""Command -> module in this package, and its line in the help.

`serve` has to answer a host in a second and completion a person at once: neither may import every command.
"""


class _LazyCommands(TyperGroup):
    """Lists and completes names by the table above; the command that was meant is imported."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=line) for name, (_, line) in _COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, listed, rest = super().resolve_command(ctx, args)
        if name is None or listed is None:
            return name, listed, rest
        command = get_command(importlib.import_module(f"nexus_gateway.cli.{_COMMANDS[name][0]}").app)
        command.name = name
        return name, command, rest


app = typer.Typer(
    cls=_LazyCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `nexus-gateway demo`, then `nexus-gateway import`: what your own servers cost.",
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"nexus-gateway {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """One MCP server in front of many: finds the tool, writes the arguments with a local model, relays the answer."""


def main() -> None:
    """Entry point of the console script."""
    app()
