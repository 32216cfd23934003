"""Options that several benchmarks share."""

from pathlib import Path
from typing import Annotated

import typer

AnsweredOption = Annotated[
    Path,
    typer.Option(
        "--queries", metavar="FILE", help="Requests, JSON Lines: query, gold, and args or args_alternatives."
    ),
]
SizesOption = Annotated[
    str, typer.Option(metavar="N,...", help="Tools in a registry; more than there are means all of them.")
]
EquivalentsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help='The same tool on several servers, JSON: {"groups": [["server/name", ...]]}.'
    ),
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="At most so many requests.", show_default="all")
]
DiskOption = Annotated[
    int,
    typer.Option("--disk-mb", min=1, metavar="MB", help="Most that the temporary folder of blocks may hold."),
]
LineOption = Annotated[bool, typer.Option("--json", help="Print the JSON line alone, no tables.")]
