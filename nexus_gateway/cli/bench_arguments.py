"""`nexus-gateway bench arguments`: how often arguments are right, in files of tools and requests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import anyio
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from adapters.ports import ModelError
from nexus_gateway.app import open_writer
from nexus_gateway.bench.arguments import Arms, measure
from nexus_gateway.bench.arguments_data import ArgumentQuery, read_argument_queries, sampled
from nexus_gateway.bench.arguments_report import COLUMNS, FIGURE_COLUMNS, Report
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.routing_data import read_tools
from nexus_gateway.cli.bench_options import AnsweredOption, LimitOption, LineOption
from nexus_gateway.cli.options import ConfigOption, SplitOption, ToolsOption, settings_from
from nexus_gateway.cli.output import err, failing_on, print_json, print_table
from nexus_gateway.settings import EngineSettings, Settings
from nexus_gateway.telemetry.logs import set_up_logs


@dataclass(frozen=True, slots=True)
class _Asked:
    queries: Sequence[ArgumentQuery]
    naive: bool
    cut: bool
    seed: int


CategoryOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only requests of this category.", show_default="all")
]
SeedOption = Annotated[int, typer.Option(help="Draws the requests, and the values that are cut out.")]
EngineOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Run this argument model: a path, hf:repo/file or package:name/file. A server is configured in [engine].",
        show_default="as configured",
    ),
]
NaiveOption = Annotated[
    bool, typer.Option("--naive/--no-naive", help="The naive arm too: all of the tool's JSON in the prompt.")
]
CutOption = Annotated[
    bool, typer.Option("--cut/--no-cut", help="Write each request again without one of its required values.")
]
FailuresOption = Annotated[
    int, typer.Option(min=0, metavar="N", help="Print so many wrong answers of ours on stderr.")
]


def arguments_command(
    *,
    tools: ToolsOption,
    queries: AnsweredOption,
    category: CategoryOption = None,
    split: SplitOption = None,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    engine: EngineOption = None,
    naive: NaiveOption = True,
    cut: CutOption = True,
    failures: FailuresOption = 0,
    config: ConfigOption = None,
    json: LineOption = False,
) -> None:
    """Measure how often arguments are exactly right, what is made up, and how far "sure" can be trusted.

    The arguments of each request are written for its right tool, as `nexus-gateway turn` would, and once more by
    naive prompting with the same model under the same JSON mask. Exact means that nothing is wrong, missing or too
    much. A value is without ground where it is neither in the request nor in the schema nor right. To see whether
    missing values are noticed, each request is written again with one required value cut out.

    What of a prompt depends on the tool alone is in the model's cache before either arm is timed. The last line of
    stdout is one JSON object, percentages 0 to 100.
    """
    settings = settings_from(config, None).settings
    if engine is not None:
        models = replace(settings.models, argument=engine)
        settings = replace(settings, models=models, engine=EngineSettings())
    with failing_on(BenchError, ModelError):
        asked = sampled(
            read_argument_queries(queries, read_tools(tools), category=category, split=split), limit, seed
        )
        report = anyio.run(_measured, settings, _Asked(asked, naive, cut, seed))
    for told in report.failures(failures):
        err.print(Text(told), soft_wrap=True)
    if not json:
        _print(report)
    print_json(report.as_json())


async def _measured(settings: Settings, asked: _Asked) -> Report:
    set_up_logs("warning" if settings.log.level == "info" else settings.log.level, settings.log.format)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err) as bar:
        task = bar.add_task("loading the model", total=len(asked.queries))
        async with open_writer(settings) as (engine, writer):
            bar.update(task, description="writing arguments")
            arms = Arms(engine, writer, asked.naive, asked.cut, asked.seed)
            judged = await measure(arms, asked.queries, lambda: bar.advance(task))
            return Report(judged, resident=engine.holds_local_state)


def _print(report: Report) -> None:
    print_table(COLUMNS, report.rows(), title="Arguments that are exactly right, and valid, % of requests")
    print_table(FIGURE_COLUMNS, report.figure_rows())
