"""`nexus-gateway tools`: what is connected."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from adapters.ports import ModelError
from nexus_gateway.access.caller import Caller
from nexus_gateway.cli import tool_pins, tool_stats
from nexus_gateway.cli.completion import complete_tool
from nexus_gateway.cli.exits import Exit, exit_with
from nexus_gateway.cli.options import ConfigOption, JsonOption, McpConfigOption, settings_from
from nexus_gateway.cli.output import clip, err, out, print_json, print_table
from nexus_gateway.cli.session import run_with_gateway
from nexus_gateway.fleet.disabled import DISABLED_REASON
from nexus_gateway.fleet.status import ServerState, ServerStatus
from nexus_gateway.server.found_rendering import render_found
from nexus_gateway.server.rendering import render_description
from nexus_gateway.turn.naming import resolve
from nexus_gateway.turn.prompt import purpose_of
from tool_registry.catalog import ToolCatalog
from tool_registry.index import compile_tool
from tool_registry.suspicion import suspicions
from tool_registry.tool import Tool

if TYPE_CHECKING:
    from nexus_gateway.app import Gateway

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="List, search, show and approve the connected tools.",
)
app.registered_commands += tool_pins.app.registered_commands + tool_stats.app.registered_commands


@app.command("list")
def list_command(
    config: ConfigOption = None, mcp_config: McpConfigOption = None, json: JsonOption = False
) -> None:
    """List every tool of every server, what was set aside, and servers that are down."""
    settings = settings_from(config, mcp_config, needs_servers=True).settings

    async def work(gateway: "Gateway") -> tuple[ToolCatalog, list[ServerStatus]]:
        statuses = await gateway.fleet.first_sync()
        return gateway.fleet.catalog, statuses

    catalog, statuses = run_with_gateway(settings, work, quiet=True, models=False)
    if json:
        print_json(_listing(catalog, statuses))
    else:
        _print_listing(catalog, statuses)


def _listing(catalog: ToolCatalog, statuses: list[ServerStatus]) -> dict[str, Any]:
    return {
        "tools": [
            {
                "tool": str(tool.id),
                "server": tool.id.server,
                "name": tool.id.name,
                "signature": compile_tool(tool).signature,
                "kind": _kind(tool),
                "content_hash": tool.content_hash,
                "suspicious": [str(found) for found in suspicions(tool.definition)],
            }
            for tool in catalog
        ],
        "set_aside": [{"server": a.server, "name": a.name, "reason": a.reason} for a in catalog.set_aside],
        "servers": [
            {
                "server": s.server,
                "state": str(s.state),
                "cause": s.cause,
                "tools": s.tools,
                "era": s.era and str(s.era),
            }
            for s in statuses
        ],
    }


def _print_listing(catalog: ToolCatalog, statuses: list[ServerStatus]) -> None:
    rows = [(tool.id.server, tool.id.name, _kind(tool), clip(tool.description, 70)) for tool in catalog]
    print_table(["server", "tool", "kind", "description"], rows)
    out.print(f"{len(catalog)} tools on {sum(s.state is ServerState.READY for s in statuses)} servers")
    for tool in catalog:
        for found in suspicions(tool.definition):
            err.print(Text(f"suspicious: {tool.id}: {found}", style="yellow"))
    disabled = [aside for aside in catalog.set_aside if aside.reason == DISABLED_REASON]
    for aside in catalog.set_aside:
        if aside.reason != DISABLED_REASON:
            err.print(Text(f"set aside: {aside.server}/{aside.name}: {aside.reason}", style="yellow"))
    if disabled:
        err.print(Text(f"{len(disabled)} more are {DISABLED_REASON}; --json names them", style="dim"))
    for status in statuses:
        if status.cause:
            err.print(Text(f"down: {status.server}: {status.cause}", style="red"))


def _kind(tool: Tool) -> str:
    hints = tool.annotations
    if hints.read_only:
        return "reads"
    if hints.destructive is None:
        return "not said"
    return "destructive" if hints.destructive else "adds"


@app.command("search")
def search_command(
    query: Annotated[str, typer.Argument(help="What the tool should do.")],
    config: ConfigOption = None,
    mcp_config: McpConfigOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=50)] = 5,
    json: JsonOption = False,
) -> None:
    """Find the best tools for a need, with how relevant each is.

    Exit code 0 if a tool fits, 5 if none does; the nearest ones are shown even so.
    """
    settings = settings_from(config, mcp_config, needs_servers=True).settings

    async def work(gateway: "Gateway") -> dict[str, Any]:
        page = await gateway.turns.find(query, Caller(), limit=limit)
        found: dict[str, Any] = render_found(page, "signatures")["structuredContent"]
        found.pop("nextCursor", None)  # --limit is how a person sees more
        return found | {"outcome": page.outcome and str(page.outcome)}

    try:
        found = run_with_gateway(settings, work, quiet=json)
    except ModelError as error:
        err.print(Text(str(error), style="red"))
        exit_with(Exit.FAILED)
    if json:
        print_json(found)
    else:
        _print_found(found)
    exit_with(Exit.OK if found["tools"] else Exit.NO_TOOL)


def _print_found(found: dict[str, Any]) -> None:
    nearest = found.get("nearest", [])
    if not found["tools"]:
        out.print(Text(f"{found['message']}{' The nearest:' if nearest else ''}"))
    rows = [
        (
            f"{t['relevance']:.2f}" if "relevance" in t else "",
            "\n".join([t["tool"], *(f"also on: {other}" for other in t.get("also_on", []))]),
            clip(t["signature"], 60),
            clip(t["description"], 60),
        )
        for t in found["tools"] or nearest
    ]
    if rows:
        print_table(["relevance", "tool", "signature", "description"], rows)


@app.command("show")
def show_command(
    tool: Annotated[
        str,
        typer.Argument(help="server/name, or a name that only one server has.", autocompletion=complete_tool),
    ],
    signature: Annotated[
        bool, typer.Option("--signature", help="Only what a model is told: signature and purpose.")
    ] = False,
    config: ConfigOption = None,
    mcp_config: McpConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show one tool: signature, schema, annotations, content hash."""
    settings = settings_from(config, mcp_config, needs_servers=True).settings

    async def work(gateway: "Gateway") -> dict[str, Any] | str:
        await gateway.fleet.first_sync()
        catalog = gateway.fleet.catalog
        found = resolve(catalog, tool)
        return found if isinstance(found, str) else render_description(found, catalog)["structuredContent"]

    shown = run_with_gateway(settings, work, quiet=True, models=False)
    if isinstance(shown, str):
        err.print(Text(shown, style="red"))
        exit_with(Exit.FAILED)
    elif signature:
        _print_signature(shown, json=json)
    elif json:
        print_json(shown)
    else:
        out.print(Text(shown["signature"], style="bold"))
        out.print(Text(str(shown["definition"].get("description", ""))))
        out.print_json(data=shown["definition"])
        out.print(Text(f"content hash {shown['content_hash']}", style="dim"))


def _print_signature(shown: dict[str, Any], *, json: bool) -> None:
    """The signature on one line, to be copied whole, and what the tool is for."""
    purpose = purpose_of(str(shown["definition"].get("description") or ""))
    if json:
        print_json({"tool": shown["tool"], "signature": shown["signature"], "purpose": purpose})
        return
    out.print(Text(shown["signature"], style="bold"), soft_wrap=True)
    if purpose:
        out.print(Text(purpose), soft_wrap=True)
