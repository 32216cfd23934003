"""`nexus-gateway bench ttfa`: how long the first argument token takes, with compiled state and without."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from adapters.ports import ModelError
from nexus_gateway.bench.decision_speed import decision_us
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.routing_data import RoutingQuery, read_queries, read_tools
from nexus_gateway.bench.state_bench import open_bench
from nexus_gateway.bench.state_cases import Drawn, case_of, draw_requests, draw_uniform
from nexus_gateway.bench.ttfa import measure
from nexus_gateway.bench.ttfa_report import COLUMNS, FIGURE_COLUMNS, Report
from nexus_gateway.cli.bench_options import DiskOption, LineOption
from nexus_gateway.cli.options import ConfigOption, SplitOption, ToolsOption, settings_from
from nexus_gateway.cli.output import err, failing_on, out, print_json, print_table
from nexus_gateway.settings import Settings
from tool_registry.catalog import ToolCatalog

QueriesOption = Annotated[
    Path | None,
    typer.Option(
        "--queries", metavar="FILE", help="Requests, JSON Lines: query, gold. Not needed with --uniform."
    ),
]
LimitOption = Annotated[int, typer.Option(min=1, metavar="N", help="So many requests or tools.")]
SeedOption = Annotated[
    int, typer.Option(help="Draws the requests, the nine other tools, and the neighbours.")
]
UniformOption = Annotated[
    bool,
    typer.Option(
        "--uniform", help="Draw tools, all equally likely, with a request made from the definition."
    ),
]
ConcatOption = Annotated[
    bool,
    typer.Option("--concat/--no-concat", help="The arm of ten full schemas too; it takes most of the time."),
]
FlashOption = Annotated[
    bool | None,
    typer.Option("--flash/--no-flash", help="Flash attention on or off.", show_default="as configured"),
]


def ttfa_command(
    *,
    tools: ToolsOption,
    queries: QueriesOption = None,
    split: SplitOption = None,
    limit: LimitOption = 30,
    seed: SeedOption = 0,
    uniform: UniformOption = False,
    concat: ConcatOption = True,
    flash: FlashOption = None,
    disk_mb: DiskOption = 1024,
    config: ConfigOption = None,
    json: LineOption = False,
) -> None:
    """Measure the time to the first argument token: a tool read in full, in short, or put back from a block.

    From having the tokens to having the logits that the first token of the arguments is chosen from. For each drawn
    request all arms take turns, in a rotated order, and ratios are taken request by request. The system prompt is in
    the context for all of them. Blocks from disk are read and checked; the file may be in the system's cache.

    Fidelity compares a restore with decoding the same batches: KL over the whole vocabulary in nats, and whether the
    most probable token is the same, in a cache of our own and among neighbours at odd offsets.

    About ten seconds a request on two cores, most of it for the ten schemas. The last line of stdout is one JSON
    object.
    """
    if queries is None and not uniform:
        raise typer.BadParameter("give a file of requests, or --uniform", param_hint="--queries")
    settings = settings_from(config, None).settings
    wanted = settings.models.flash_attention if flash is None else flash
    with failing_on(BenchError, ModelError):
        asked = None if uniform or queries is None else read_queries(queries, split=split)
        drawn = _drawn(read_tools(tools), asked, limit, seed)
        report = _measured(settings, drawn, seed=seed, concat=concat, flash_attention=wanted, disk_mb=disk_mb)
    if not json:
        _print(report)
    print_json(report.as_json())


def _drawn(
    catalog: ToolCatalog, queries: Sequence[RoutingQuery] | None, limit: int, seed: int
) -> list[Drawn]:
    if queries is None:
        return draw_uniform(catalog, limit, seed)
    return draw_requests(catalog, queries, limit, seed)


def _measured(
    settings: Settings,
    drawn: Sequence[Drawn],
    *,
    seed: int,
    concat: bool,
    flash_attention: bool,
    disk_mb: int,
) -> Report:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err) as bar:
        task = bar.add_task("loading the model", total=len(drawn))
        with open_bench(settings, flash_attention=flash_attention, disk_mb=disk_mb) as opened:
            bar.update(task, description="measuring")
            cases = [case_of(opened.encoder, one) for one in drawn]
            run = measure(opened.bench, cases, seed=seed, concat=concat, advance=lambda: bar.advance(task))
    if not run.timed:
        raise BenchError(
            f"nothing to measure: all {run.left_out} tools in full exceed the context of {settings.models.n_ctx:,} "
            "tokens; raise n_ctx in [models]"
        )
    return Report(run, flash_attention=flash_attention, decision_us=decision_us())


def _print(report: Report) -> None:
    print_table(COLUMNS, report.rows(), title="Time to the first argument token")
    print_table(FIGURE_COLUMNS, report.figure_rows())
    out.print("Ratios: the median over the requests (10th to 90th percentile).")
