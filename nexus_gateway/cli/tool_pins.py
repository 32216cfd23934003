"""`nexus-gateway tools diff` and `tools approve`: definitions that changed since they were approved."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from nexus_gateway.cli.completion import complete_tool
from nexus_gateway.cli.exits import Exit, exit_with
from nexus_gateway.cli.options import ConfigOption, JsonOption, McpConfigOption, settings_from
from nexus_gateway.cli.output import err, out, print_json
from nexus_gateway.cli.session import run_with_gateway
from nexus_gateway.fleet.quarantine import ChangedTool
from nexus_gateway.settings import Settings
from tool_registry.pins import PinsError
from tool_registry.suspicion import visible

if TYPE_CHECKING:
    from nexus_gateway.app import Gateway

app = typer.Typer()

_STYLES = {"+": "green", "-": "red"}


@app.command("diff")
def diff_command(
    tool: Annotated[
        str | None,
        typer.Argument(
            help="server/name, or a name that only one server has; all where left out.",
            autocompletion=complete_tool,
        ),
    ] = None,
    config: ConfigOption = None,
    mcp_config: McpConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show which tools changed since they were approved, and how.

    Exit code 0 whether there are changes or none, 1 if the tool or the approvals can't be found or read.
    """
    changes = _changes(settings_from(config, mcp_config, needs_servers=True).settings, tool, approve=False)
    if json:
        print_json({"changed": [_described(change) for change in changes]})
        return
    for change in changes:
        _print(change)
    if changes:
        out.print(Text(f"{len(changes)} changed; approve with: nexus-gateway tools approve TOOL|--all"))
    else:
        out.print("no tool changed since it was approved")


@app.command("approve")
def approve_command(
    tool: Annotated[
        str | None,
        typer.Argument(help="server/name, or a name that only one server has.", autocompletion=complete_tool),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Approve every changed tool.")] = False,
    config: ConfigOption = None,
    mcp_config: McpConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Approve the present definition of a changed tool, or of all of them.

    Running gateways that share the cache directory use it within seconds.
    """
    if (tool is None) == (not every):
        err.print(Text("name one tool, or give --all", style="red"))
        exit_with(Exit.USAGE)
    changes = _changes(settings_from(config, mcp_config, needs_servers=True).settings, tool, approve=True)
    if json:
        print_json({"approved": [_described(change) for change in changes]})
        return
    for change in changes:
        out.print(Text(f"approved {visible(str(change.id))}"))
    if not changes:
        out.print("nothing to approve: no tool changed since it was approved")


def _changes(settings: Settings, reference: str | None, *, approve: bool) -> list[ChangedTool]:
    """The changed tools that are meant; what is wrong ends the command."""

    async def work(gateway: "Gateway") -> list[ChangedTool] | str:
        for status in await gateway.fleet.first_sync():
            if status.cause:
                err.print(Text(f"down: {status.server}: {status.cause}", style="yellow"))
        try:
            changes = _meant(gateway, reference)
            if approve and not isinstance(changes, str):
                gateway.quarantine.approve(change.tool for change in changes)
        except PinsError as error:
            return str(error)
        return changes

    changes = run_with_gateway(settings, work, quiet=True, models=False)
    if isinstance(changes, str):
        err.print(Text(changes, style="red"))
        exit_with(Exit.FAILED)
    return changes


def _meant(gateway: "Gateway", reference: str | None) -> list[ChangedTool] | str:
    changes = gateway.quarantine.changes()
    if reference is None:
        return changes
    meant = [change for change in changes if reference in (str(change.id), change.id.name)]
    if len(meant) > 1:
        return f"{reference!r} is a tool of several servers: {', '.join(str(change.id) for change in meant)}"
    listed = [tool for tool in gateway.fleet.catalog if reference in (str(tool.id), tool.id.name)]
    if not meant and not listed:
        return f"no tool {reference!r} is listed by a server that is up"
    return meant


def _described(change: ChangedTool) -> dict[str, Any]:
    return {
        "tool": str(change.id),
        "server": change.id.server,
        "name": change.id.name,
        "content_hash": change.tool.content_hash,
        "lines": list(change.lines),
        "suspicious": [
            {"rule": found.rule, "where": found.where, "excerpt": found.excerpt}
            for found in change.suspicious
        ],
        "definition": dict(change.tool.definition),
    }


def _print(change: ChangedTool) -> None:
    out.print(Text(visible(str(change.id)), style="bold"))
    for line in change.lines:
        out.print(Text(f"  {line}", style=_STYLES.get(line[:1], "")))
    for found in change.suspicious:
        out.print(Text(f"  suspicious: {found}", style="yellow"))
