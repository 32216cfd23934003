"""`nexus-gateway tools stats`: how many tokens the signatures of the connected tools take, beside their full schemas."""

import json as json_module
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from adapters.ports import ModelError
from nexus_gateway.cli.options import ConfigOption, JsonOption, McpConfigOption, settings_from
from nexus_gateway.cli.output import err, out, print_json, print_table
from nexus_gateway.cli.session import run_with_gateway
from nexus_gateway.opening import argument_vocabulary
from nexus_gateway.settings import Settings
from tool_registry.catalog import ToolCatalog
from tool_registry.index import compile_tool
from tool_registry.tool import Tool

if TYPE_CHECKING:
    from nexus_gateway.app import Gateway

app = typer.Typer()

LONGEST = 5
"""Tools with the longest signatures, shown."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """One tool's signature and full input schema (compact JSON), each in tokens or, without a model, in characters."""

    tool: str
    signature: int
    schema: int


@app.command("stats")
def stats_command(
    config: ConfigOption = None, mcp_config: McpConfigOption = None, json: JsonOption = False
) -> None:
    """Count the tokens of every tool's signature and of its full input schema, as the argument model reads them.

    Counted in characters where the argument model is not on this machine.
    """
    settings = settings_from(config, mcp_config, needs_servers=True).settings

    async def work(gateway: "Gateway") -> ToolCatalog:
        await gateway.fleet.first_sync()
        return gateway.fleet.catalog

    tools = list(run_with_gateway(settings, work, quiet=True, models=False))
    unit, sizes = _counted(settings, tools)
    document = as_json(unit, sizes)
    if json:
        print_json(document)
    else:
        _print(document)


def _counted(settings: Settings, tools: Sequence[Tool]) -> tuple[str, list[Sizes]]:
    try:
        with argument_vocabulary(settings) as vocabulary:
            return "tokens", measure(tools, vocabulary.count)
    except ModelError as error:
        err.print(Text(f"counting characters, not tokens: {error}", style="yellow"))
        return "characters", measure(tools, len)


def measure(tools: Sequence[Tool], count: Callable[[str], int]) -> list[Sizes]:
    """The sizes of each tool, with a progress bar on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    found: list[Sizes] = []
    with Progress(*columns, console=err, transient=True) as bar:
        for tool in bar.track(tools, description="counting"):
            schema = json_module.dumps(tool.input_schema, ensure_ascii=False, separators=(",", ":"))
            found.append(Sizes(str(tool.id), count(compile_tool(tool).signature), count(schema)))
    return found


def as_json(unit: str, sizes: Sequence[Sizes]) -> dict[str, Any]:
    """Percentiles (nearest rank) and sums of both, and the tools with the longest signatures."""
    longest = sorted(sizes, key=lambda one: -one.signature)[:LONGEST]
    return {
        "tools": len(sizes),
        "unit": unit,
        "signature": _spread([one.signature for one in sizes]),
        "schema": _spread([one.schema for one in sizes]),
        "longest": [{"tool": o.tool, "signature": o.signature, "schema": o.schema} for o in longest],
    }


def _spread(counts: Sequence[int]) -> dict[str, int]:
    ordered = sorted(counts) or [0]
    ranks = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    spread = {name: ordered[math.ceil(share * len(ordered)) - 1] for name, share in ranks.items()}
    return {**spread, "sum": sum(counts)}


def _print(document: dict[str, Any]) -> None:
    columns = ("p50", "p90", "p99", "max", "sum")
    rows = [(kind, *(f"{document[kind][name]:,}" for name in columns)) for kind in ("signature", "schema")]
    print_table(("", *columns), rows, title=f"{document['unit']} of {document['tools']:,} tools")
    for one in document["longest"]:
        out.print(Text(f"{one['signature']:>6,} of {one['schema']:,}  {one['tool']}"))
