"""Tables and JSON on stdout, everything else on stderr."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nexus_gateway.cli.exits import Exit

PIPED_WIDTH = 120
"""Columns of a table that no terminal limits."""

_UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

out = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH)
err = Console(stderr=True, highlight=False)


def plain(text: str) -> str:
    """A text that a terminal only shows: what would command it, turn it around or can't be written is escaped."""
    return _UNSHOWN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def say(text: str, style: str = "") -> None:
    """One line on stdout, as long as it is; never markup."""
    out.print(Text(plain(text), style=style), soft_wrap=True)


@contextmanager
def failing_on(*errors: type[Exception]) -> Iterator[None]:
    """Such an error ends the command with 1, and its message on stderr."""
    try:
        yield
    except errors as error:
        err.print(Text(str(error)), soft_wrap=True)
        raise typer.Exit(Exit.FAILED) from None


def print_json(value: Any) -> None:
    """One JSON object on one line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode() + "\n")  # half a surrogate pair
    sys.stdout.flush()


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None
) -> None:
    """A table whose cells are plain text; what an upstream says is never markup."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")  # a name that is cut off can't be copied
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(plain(str(cell))) for cell in row))
    out.print(table)


def clip(text: str, most: int) -> str:
    """One line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
