"""`nexus-gateway bench schemas`: how many input schemas become token masks, and what is left out of the others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from adapters.ports import ModelError
from nexus_gateway.bench import schemas
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.cli.options import ConfigOption, settings_from
from nexus_gateway.cli.output import err, failing_on, print_json, print_table
from nexus_gateway.opening import argument_vocabulary
from nexus_gateway.settings import Settings

NAMED = 8
"""Tools named for a reason, in the table."""

ToolsOption = Annotated[
    list[Path],
    typer.Option(
        "--tools", metavar="FILE", help="Tools, JSON Lines: server, name, inputSchema. May be repeated."
    ),
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="At most so many schemas.", show_default="all")
]
SeedOption = Annotated[int, typer.Option(help="Draws them, with --limit.")]
LineOption = Annotated[bool, typer.Option("--json", help="Print the JSON line alone, no table.")]


def schemas_command(
    *,
    tools: ToolsOption,
    limit: LimitOption = None,
    seed: SeedOption = 7,
    config: ConfigOption = None,
    json: LineOption = False,
) -> None:
    """Measure how many input schemas the token mask can say in full, with the configured argument model's tokens.

    What it can't say is left out by name (pattern, format, oneOf, ...), and every value is checked against the schema
    as listed. "failed" counts schemas that have no mask even so. Of each mask the shortest value is written and
    checked. Takes about a minute for 10,000 schemas. The last line of stdout is one JSON object.
    """
    settings = settings_from(config, None).settings
    with failing_on(BenchError, ModelError):
        listed = [one for file in tools for one in schemas.read_schemas(file)]
        compiled = _compiled(settings, schemas.sampled(listed, limit, seed))
    if not json:
        print_table(
            ("left out", "schemas", "tools"), _rows(compiled), title="Schemas that were widened, or failed"
        )
    print_json(schemas.as_json(compiled))


def _compiled(settings: Settings, listed: Sequence[schemas.Listed]) -> list[schemas.Compiled]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with argument_vocabulary(settings) as vocabulary, Progress(*columns, console=err) as bar:
        task = bar.add_task(f"masks for {vocabulary.name}", total=len(listed))
        return schemas.compile_all(listed, vocabulary.masks(), lambda: bar.advance(task))


def _rows(compiled: Sequence[schemas.Compiled]) -> list[tuple[str, str, str]]:
    by_reason: dict[str, list[str]] = {}
    for one in compiled:
        for reason in [*one.widened_for, *([f"failed: {one.failure}"] if one.failure else [])]:
            by_reason.setdefault(reason, []).append(one.tool)
    return [(reason, str(len(names)), _named(names)) for reason, names in by_reason.items()]


def _named(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - NAMED
    return ", ".join([*distinct[:NAMED], *([f"and {more} more"] if more > 0 else [])])
