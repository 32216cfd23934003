"""`nexus-gateway bench`: measurements a user can repeat."""

from enum import StrEnum
from typing import Annotated

import anyio
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from nexus_gateway.bench import proxy, report
from nexus_gateway.bench.arms import arms
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.fastmcp_venv import FastMcp, install_fastmcp
from nexus_gateway.bench.measure import QUICK, Plan
from nexus_gateway.cli.bench_arguments import arguments_command
from nexus_gateway.cli.bench_reuse import reuse_command
from nexus_gateway.cli.bench_routing import routing_command
from nexus_gateway.cli.bench_scan import scan_command
from nexus_gateway.cli.bench_schemas import schemas_command
from nexus_gateway.cli.bench_ttfa import ttfa_command
from nexus_gateway.cli.bench_turn import turn_command
from nexus_gateway.cli.output import err, failing_on, out, print_json, print_table
from nexus_gateway.settings import Settings

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, add_completion=False)
app.command("arguments")(arguments_command)
app.command("reuse")(reuse_command)
app.command("routing")(routing_command)
app.command("scan")(scan_command)
app.command("schemas")(schemas_command)
app.command("ttfa")(ttfa_command)
app.command("turn")(turn_command)


@app.callback()
def bench_group() -> None:
    """Measure the gateway on this machine."""


class Rival(StrEnum):
    """Another proxy to measure beside this gateway."""

    FASTMCP = "fastmcp"


@app.command("proxy")
def proxy_command(
    against: Annotated[
        Rival | None,
        typer.Option(help="Measure this proxy too; installed with pip into an environment of its own."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the JSON line alone, no tables.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few rounds only: rough figures, in some minutes.")
    ] = False,
) -> None:
    """Measure what a hop through the gateway costs against a direct connection, and against FastMCP's proxy.

    Upstreams over stdio and HTTP, both protocol eras: latency and calls per second at 1, 8 and 64 callers, the
    listing of 500 tools, memory and start time. All arms take turns within each round, and ratios are taken round
    by round, so a busy machine blurs them but does not shift them. Takes a quarter of an hour against FastMCP. The
    last line of stdout is one JSON object.
    """
    with failing_on(BenchError):
        fastmcp = None if against is None else _installed()
        run = _measured(fastmcp, QUICK if quick else Plan())
    if not json:
        _print(run)
    print_json(report.as_json(run, fastmcp_version=fastmcp.version if fastmcp else None))


def _installed() -> FastMcp:
    with err.status("FastMCP: looking for its environment, or making one (about a minute)"):
        return install_fastmcp(Settings().cache_dir)


def _measured(fastmcp: FastMcp | None, plan: Plan) -> proxy.Run:
    chosen = arms(fastmcp)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err) as bar:
        task = bar.add_task("starting", total=proxy.steps(len(chosen), plan))
        progress = proxy.Progress(
            say=lambda text: bar.update(task, description=text), advance=lambda: bar.advance(task)
        )
        return anyio.run(proxy.run, chosen, plan, progress)


def _print(run: proxy.Run) -> None:
    print_table(report.COLUMNS, report.call_rows(run), title="Calls of one tool that echoes")
    print_table(report.LIST_COLUMNS, report.list_rows(run), title=f"Listing {proxy.LISTED_TOOLS} tools")
    print_table(report.FOOTPRINT_COLUMNS, report.footprint_rows(run), title="One process, models included")
    out.print("Ratios: the median over the rounds (10th to 90th percentile).")
