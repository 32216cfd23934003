"""`nexus-gateway bench turn`: how whole turns end, and what they cost, in files of tools and requests."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import anyio
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from adapters.ports import ModelError
from nexus_gateway.app import argument_vocabulary, compiled_state, open_router, open_writer
from nexus_gateway.bench.arguments_data import sampled
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.routing import Pool, actual_sizes
from nexus_gateway.bench.routing_data import read_equivalents, read_tools
from nexus_gateway.bench.routing_index import compiled_index
from nexus_gateway.bench.turn import Arms, Concatenated, Judged, measure
from nexus_gateway.bench.turn_data import TurnQuery, read_turn_queries
from nexus_gateway.bench.turn_host import HostTokens
from nexus_gateway.bench.turn_playing import Arm, Player
from nexus_gateway.bench.turn_report import COLUMNS, COST_COLUMNS, Report
from nexus_gateway.cli.bench_options import (
    AnsweredOption,
    EquivalentsOption,
    LimitOption,
    LineOption,
    SizesOption,
)
from nexus_gateway.cli.options import ConfigOption, ToolsOption, settings_from
from nexus_gateway.cli.output import err, failing_on, out, print_json, print_table
from nexus_gateway.routing.router import Router
from nexus_gateway.settings import Settings
from nexus_gateway.settings.live import LiveSettings
from nexus_gateway.state.service import StateOff, StateService
from nexus_gateway.telemetry.logs import set_up_logs
from tool_registry.catalog import ToolCatalog
from tool_registry.compiled_store import CompiledStore
from tool_registry.index import CompiledTool, compile_tool

ALL = "all"


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is to be measured. `concatenated`: requests of each size for that arm."""

    tools: ToolCatalog
    queries: Sequence[TurnQuery]
    sizes: Sequence[int]
    state: bool
    concatenated: int
    seed: int


SplitOption = Annotated[
    str, typer.Option(metavar="NAME", help=f"Only the requests whose split is this; {ALL!r} for every one.")
]
SeedOption = Annotated[int, typer.Option(help="Draws the requests, and which arm goes first.")]
StateOption = Annotated[bool, typer.Option("--state/--no-state", help="Compiled state beside none at all.")]
ConcatenatedOption = Annotated[
    bool,
    typer.Option(
        "--concatenated/--no-concatenated", help="Also an arm with all schemas in the model's prompt; slow."
    ),
]
ConcatenatedLimitOption = Annotated[
    int, typer.Option(min=1, metavar="N", help="At most so many requests of each size for that arm.")
]


def turn_command(
    *,
    tools: ToolsOption,
    queries: AnsweredOption,
    split: SplitOption = "test",
    sizes: SizesOption = "10,50,100,250",
    equivalents: EquivalentsOption = None,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    state: StateOption = True,
    concatenated: ConcatenatedOption = True,
    concatenated_limit: ConcatenatedLimitOption = 20,
    config: ConfigOption = None,
    json: LineOption = False,
) -> None:
    """Measure whole turns: how many end in exactly the right call, in a wrong one, or in a question.

    Each request is played as `nexus-gateway turn` would, in a registry of N tools drawn for it, up to the call itself,
    which is written down and not made. Where a turn asks for a yes (most tools don't say whether they change
    anything), the yes is given and counted: the worst case, in which nobody looks. Exact: the right tool was called
    with exactly the right arguments. Values that no request states are bound beforehand.

    Beside it: the same turns without compiled state (same answers, other times), the tokens that a host would carry
    (all schemas against the gateway's own tools), and an arm that puts all schemas into the local model's prompt.

    Vectors of tools are kept in the cache folder, so the first run takes minutes longer. The last line of stdout is
    one JSON object, percentages 0 to 100.
    """
    settings = settings_from(config, None).settings
    with failing_on(BenchError, ModelError):
        catalog = read_tools(tools)
        groups = read_equivalents(equivalents) if equivalents else {}
        known = read_turn_queries(queries, catalog, split=None if split == ALL else split, groups=groups)
        asked = _Asked(
            catalog,
            sampled(known, limit, seed),
            actual_sizes(_sizes(sizes), len(catalog)),
            state,
            concatenated_limit if concatenated else 0,
            seed,
        )
        report = anyio.run(_measured, settings, asked)
    if not json:
        _print(report)
    print_json(report.as_json())


def _sizes(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    wrong = next((part for part in parts if not (part.isascii() and part.isdigit() and int(part) > 0)), None)
    if wrong is not None:
        raise BenchError(f"--sizes {text}: {wrong!r} is no number of tools above 0")
    return [int(part) for part in parts]


async def _measured(settings: Settings, asked: _Asked) -> Report:
    set_up_logs("warning" if settings.log.level == "info" else settings.log.level, settings.log.format)
    store = CompiledStore(settings.cache_dir / "compiled", lambda *_: None)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    judged: dict[int, list[Judged]] = {}
    with (
        argument_vocabulary(settings) as vocabulary,
        TemporaryDirectory(prefix="nexus-blocks-") as folder,
        Progress(*columns, console=err) as bar,
    ):
        host = HostTokens(vocabulary.count)
        async with open_router(settings) as parts:
            compiling = bar.add_task("compiling tools", total=len(asked.tools))
            index = await compiled_index(
                asked.tools, parts.embedder, store, lambda done: bar.update(compiling, completed=done)
            )
            task = bar.add_task("turns", total=len(asked.sizes) * len(asked.queries))

            def advance(what: str) -> None:
                bar.update(task, advance=1, description=what)

            for size in asked.sizes:
                bar.update(task, description="loading the argument model")
                arms = _arms(settings, asked, parts.router(), host, Path(folder))
                async with arms as opened:
                    judged |= await measure(opened, Pool(index), asked.queries, [size], advance)
        return Report(judged, host.of_meta_tools(), asked.seed)


@asynccontextmanager
async def _arms(
    settings: Settings, asked: _Asked, router: Router, host: HostTokens, folder: Path
) -> AsyncIterator[Arms]:
    """Load a model for each arm, anew for each size: a context that has just read the same tools decides nothing."""
    off = replace(settings, state=replace(settings.state, enabled=False))
    async with AsyncExitStack() as stack:
        engine, writer = await stack.enter_async_context(open_writer(off))
        state = await stack.enter_async_context(_stateful(settings, asked, folder)) if asked.state else None
        concatenated = Concatenated(engine, settings.models.n_ctx, asked.concatenated, host.count)
        yield Arms(
            Player(router, asked.tools, LiveSettings(settings), settings.turn.deadline_seconds),
            Arm(engine, writer),
            host,
            state,
            concatenated if asked.concatenated else None,
            asked.seed,
        )


@asynccontextmanager
async def _stateful(settings: Settings, asked: _Asked, folder: Path) -> AsyncIterator[Arm | None]:
    """The gateway's own way, with the right tools' blocks compiled beforehand, as it does in the background."""
    keys = {key for query in asked.queries for key in query.routing.gold}
    tools = [compile_tool(tool) for tool in asked.tools if str(tool.id) in keys]
    enabled = replace(settings, state=replace(settings.state, enabled=True))
    state = compiled_state(enabled, folder)
    failure: Exception | None = None
    async with open_writer(enabled, state) as (engine, writer), anyio.create_task_group() as tasks:
        tasks.start_soon(state.run)
        try:
            yield Arm(engine, writer, state) if await _compiled(state, tools) else None
        except Exception as error:  # noqa: BLE001 - raised below as it is: the task group would wrap it in a group
            failure = error
        finally:
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _compiled(state: StateService, tools: Sequence[CompiledTool]) -> bool:
    """Whether there is compiled state, now of these tools."""
    try:
        await state.compile(tools, lambda *_: None)
    except StateOff as off:
        err.print(Text(f"not measured with compiled state: {off}"), soft_wrap=True)
        return False
    return True


def _print(report: Report) -> None:
    print_table(COLUMNS, report.rows(), title="How turns end, % of requests")
    print_table(COST_COLUMNS, report.cost_rows(), title="Tokens and times of a turn, p50")
    for note in report.notes():
        out.print(note)
