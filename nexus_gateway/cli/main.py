"""`nexus-gateway`: the command names; a command's module is imported when it runs."""

import importlib
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from nexus_gateway import __version__

_COMMANDS = {
    "serve": "serve",
    "turn": "turn",
    "tools": "tools",
    "models": "models",
    "calibrate": "calibrate",
    "feedback": "feedback",
    "bindings": "bindings",
    "doctor": "doctor",
    "demo": "demo",
    "bench": "bench",
}
"""Command -> module in this package. `serve` has to answer a host in a second: it must not import the others."""


class _LazyCommands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = get_command(importlib.import_module(f"nexus_gateway.cli.{module}").app)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=_LazyCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `nexus-gateway demo`, then: nexus-gateway turn --mcp-config FILE 'read the file notes.txt'",
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
