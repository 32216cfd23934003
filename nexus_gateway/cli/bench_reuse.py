"""`nexus-gateway bench reuse`: what blocks are worth under a budget of bytes, and whether the planner knows it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from adapters.ports import ModelError
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.reuse import ToolCost, execute, measure_tools
from nexus_gateway.bench.reuse_replay import Replayed, learned, policies, replay, zipf
from nexus_gateway.bench.reuse_report import COLUMNS, FIGURE_COLUMNS, Executed, Report
from nexus_gateway.bench.routing_data import read_tools
from nexus_gateway.bench.state_bench import open_bench
from nexus_gateway.bench.state_cases import case_of, draw_uniform
from nexus_gateway.cli.bench_options import DiskOption, LineOption
from nexus_gateway.cli.options import ConfigOption, ToolsOption, settings_from
from nexus_gateway.cli.output import err, failing_on, out, print_json, print_table
from nexus_gateway.settings import Settings
from nexus_gateway.state.planner import Planner
from tool_registry.catalog import ToolCatalog

BUDGETS = (5, 20, 100)
"""Percent of the bytes of all blocks."""
EXECUTED_BUDGET = 20

PoolOption = Annotated[int, typer.Option(min=2, metavar="N", help="So many tools, drawn from the file.")]
TurnsOption = Annotated[int, typer.Option(min=1, metavar="N", help="So many turns.")]
ExecuteOption = Annotated[
    int,
    typer.Option(
        min=0, metavar="N", help="Really run so many of the turns, and tell how far off the replay is."
    ),
]
SeedOption = Annotated[int, typer.Option(help="Draws tools, requests and turns.")]


@dataclass(frozen=True, slots=True)
class _Asked:
    pool: int
    turns: int
    execute: int
    seed: int
    disk_mb: int


def reuse_command(
    *,
    tools: ToolsOption,
    pool: PoolOption = 500,
    turns: TurnsOption = 2000,
    execute: ExecuteOption = 0,
    seed: SeedOption = 0,
    disk_mb: DiskOption = 1024,
    config: ConfigOption = None,
    json: LineOption = False,
) -> None:
    """Measure how often a tool's block is found again under a budget, and how soon the first argument comes.

    Every tool is really measured once: decoding it in full, reading, checking and putting back its block, decoding a
    request. The turns, whose tools follow Zipf's law (s = 1), are then replayed with these times under budgets of
    5, 20 and 100 % of all blocks' bytes: by the gateway's worth a byte, by LRU, and without reuse. Blocks are written
    beside a turn and cost it nothing.

    The planner's predicted gain of each block is compared with the measured one; it has seen the tools before it
    alone. About ten minutes for 500 tools on two cores. The last line of stdout is one JSON object.
    """
    settings = settings_from(config, None).settings
    with failing_on(BenchError, ModelError):
        report = _measured(settings, read_tools(tools), _Asked(pool, turns, execute, seed, disk_mb))
    if not json:
        _print(report)
    print_json(report.as_json())


def _measured(settings: Settings, catalog: ToolCatalog, asked: _Asked) -> Report:
    drawn = draw_uniform(catalog, asked.pool, asked.seed)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err) as bar:
        task = bar.add_task("loading the model", total=len(drawn) + asked.execute)
        flash = settings.models.flash_attention
        with open_bench(settings, flash_attention=flash, disk_mb=asked.disk_mb) as opened:
            bar.update(task, description="measuring the tools")
            cases = [case_of(opened.encoder, one) for one in drawn]
            costs = measure_tools(opened.bench, cases, lambda: bar.advance(task))
            if not costs:
                raise BenchError(
                    "nothing to measure: every tool in full exceeds the context; raise n_ctx in [models]"
                )
            planner, predicted = learned(costs)
            turns = zipf(len(costs), asked.turns, asked.seed)
            budgets = _replayed(costs, turns, planner)
            bar.update(task, description="running a sample of the turns")
            chosen = _sample(costs, turns, budgets[EXECUTED_BUDGET]["ours"], asked)
            by_label = {case.label: case for case in cases}
            executed = []
            for cost, reused in chosen:
                measured = execute(opened.bench, by_label[cost.label], reused=reused)
                executed.append(Executed(cost.first_argument(reused=reused), measured))
                bar.advance(task)
    return Report(costs, len(cases) - len(costs), asked.turns, budgets, predicted, executed)


def _replayed(
    costs: Sequence[ToolCost], turns: Sequence[int], planner: Planner
) -> dict[int, dict[str, Replayed]]:
    """All turns under each budget and policy."""
    all_bytes = sum(cost.file_bytes for cost in costs)
    return {
        percent: {
            name: replay(costs, turns, policy, planner)
            for name, policy in policies(all_bytes * percent // 100, planner).items()
        }
        for percent in BUDGETS
    }


def _sample(
    costs: Sequence[ToolCost], turns: Sequence[int], ours: Replayed, asked: _Asked
) -> list[tuple[ToolCost, bool]]:
    """Some of the turns, in order: the tool, and whether its block was used when they were replayed."""
    rng = random.Random(asked.seed)  # noqa: S311 - no secret
    drawn = sorted(rng.sample(range(len(turns)), min(asked.execute, len(turns))))
    return [(costs[turns[turn]], ours.reused[turn]) for turn in drawn]


def _print(report: Report) -> None:
    print_table(
        COLUMNS, report.rows(), title=f"{report.turns:,} turns over {len(report.costs)} tools, replayed"
    )
    print_table(FIGURE_COLUMNS, report.figure_rows())
    out.print("Times of turns are put together from what each tool was measured to take.")
