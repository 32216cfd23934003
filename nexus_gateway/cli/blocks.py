"""`nexus-gateway blocks`: what the argument model has read of tools and is kept on disk."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from nexus_gateway.cli.blocks_compile import compile_command
from nexus_gateway.cli.exits import Exit, exit_with
from nexus_gateway.cli.options import ConfigOption, JsonOption, settings_from
from nexus_gateway.cli.output import err, out, print_json, print_table
from nexus_gateway.state.parts import MB
from nexus_gateway.state.service import FOLDER
from tool_registry.blocks.descriptor import as_json
from tool_registry.blocks.housekeeping import GcReport
from tool_registry.blocks.store import BlockEntry, BlockStore
from tool_registry.suspicion import visible

ResultT = TypeVar("ResultT")

MIN_KEY_CHARACTERS = 4
"""Of a key's beginning that names a block."""
_SHORT = 12
_MS_PER_MB = 1_000 * MB
"""Seconds a byte -> milliseconds a megabyte."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help=(
        "List, show, check, clean and compile the blocks: what the local argument model has read of a tool, kept in"
        " the cache folder and put back instead of read again. They are made in the background, and used only if"
        " model, runtime, tool text and tenant are exactly the same; losing them costs time, never an answer. [state]"
        " in nexus.toml says how many megabytes they may take, or switches them off."
    ),
)


app.command("compile")(compile_command)


@app.command("list")
def list_command(config: ConfigOption = None, json: JsonOption = False) -> None:
    """List the blocks: tool, tokens, size, and what one is worth (time saved a megabyte; the least go first)."""
    store = _store(config)
    entries = store.entries()
    if json:
        total = sum(entry.size_bytes for entry in entries)
        shown = {"directory": str(store.directory), "budget_bytes": store.budget_bytes, "bytes": total}
        print_json(shown | {"blocks": [_described(entry) for entry in entries]})
        return
    if not entries:
        out.print(Text("no blocks: a gateway that runs makes them in the background, `blocks compile` now"))
        return
    columns = ["tool", "tokens", "size", "worth, ms/MB", "age", "used", "model", "key"]
    print_table(columns, [_row(entry) for entry in entries])
    out.print(Text(f"{_sum_of(entries)} of {store.budget_bytes / MB:,.0f} MB, in {store.directory}"))


def _row(entry: BlockEntry) -> tuple[str, ...]:
    facts = entry.descriptor.facts
    return (
        visible(entry.label),
        f"{entry.tokens:,}",
        _megabytes(entry.size_bytes),
        f"{entry.worth * _MS_PER_MB:,.3g}",
        _ago(entry.made_at),
        _ago(entry.last_used),
        facts.model[:_SHORT],
        entry.key[:_SHORT],
    )


def _sum_of(entries: list[BlockEntry]) -> str:
    return f"{_many(len(entries), 'block')}, {_megabytes(sum(entry.size_bytes for entry in entries))}"


@app.command("show")
def show_command(
    which: Annotated[str, typer.Argument(metavar="TOOL|KEY", help="server/tool, or the beginning of a key.")],
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show what a block is the state of: all that has to be the same before it is used.

    Exit code 1 if there is no such block.
    """
    store = _store(config)
    found = [entry for entry in store.entries() if _is_meant(entry, which)]
    if not found:
        _fail(f"no block of {visible(which)}; `nexus-gateway blocks list` shows what there is")
    if json:
        print_json({"blocks": [_described(entry) for entry in found]})
        return
    for entry in found:
        print_table(["", visible(entry.label)], _in_words(entry).items())


def _is_meant(entry: BlockEntry, which: str) -> bool:
    return entry.label == which or (len(which) >= MIN_KEY_CHARACTERS and entry.key.startswith(which))


def _in_words(entry: BlockEntry) -> dict[str, str]:
    descriptor, facts = entry.descriptor, entry.descriptor.facts
    before = f"; the {descriptor.start} before them are shared" if descriptor.start else ""
    return {
        "key": entry.key,
        "file": f"{entry.path} ({_megabytes(entry.size_bytes)})",
        "state of": f"{entry.tokens:,} tokens, positions {descriptor.start} to {descriptor.end - 1}{before}",
        "took": f"{entry.compute_seconds * 1_000:,.0f} ms to compute",
        "worth": f"{entry.worth * _MS_PER_MB:,.3g} ms saved a megabyte",
        "made": f"{_ago(entry.made_at)} ago, used {_ago(entry.last_used)} ago",
        "model": f"{facts.model} ({facts.kind})",
        "runtime": f"{facts.build}, {facts.backend}, {facts.device}",
        "keys, values": f"{facts.key_type}, {facts.value_type}, {_layout(entry)}",
        "layers": facts.layers,
        "positions": f"{facts.positions}; {facts.rope}",
        "window": facts.window or "none",
        "LoRA": facts.lora or "none",
        "tokens' hash": descriptor.chain,
        "tenant's salt": descriptor.tenant,
        "format": str(descriptor.format),
    }


def _layout(entry: BlockEntry) -> str:
    facts = entry.descriptor.facts
    values = "values by columns (flash attention off)" if facts.transposed_values else "values by rows"
    return f"{values}, {'one stream of cells' if facts.unified else 'a stream a sequence'}"


@app.command("verify")
def verify_command(config: ConfigOption = None, json: JsonOption = False) -> None:
    """Read every block whole and check it.

    Exit code 1 if one can't be used: damaged, of another format, or not made here. `gc` removes those.
    """
    store = _store(config)
    checked, damaged = _with_progress("checking", store.verify, quiet=json)
    if json:
        rows = [{"path": str(path), "reason": reason} for path, reason in damaged]
        print_json({"checked": checked, "damaged": rows})
    else:
        for path, reason in damaged:
            out.print(Text(f"{path} {reason}", style="red"), soft_wrap=True)
        out.print(Text(f"{_many(checked, 'block')} checked, {len(damaged)} can't be used"))
    if damaged:
        exit_with(Exit.FAILED)


@app.command("gc")
def gc_command(config: ConfigOption = None, json: JsonOption = False) -> None:
    """Remove blocks that can't be used, leftovers of killed processes, and what is over the budget."""
    store = _store(config)
    try:
        _, report = _with_progress("checking", store.gc, quiet=json)
    except OSError as error:
        _fail(f"{store.directory} can't be cleaned: {error.strerror or error}")
    if json:
        rows = [
            {"path": str(one.path), "reason": one.reason, "bytes": one.size_bytes} for one in report.removed
        ]
        kept = {"kept": report.kept, "kept_bytes": report.kept_bytes}
        print_json({"removed": rows, "freed_bytes": report.freed_bytes} | kept)
    else:
        _print_report(report)


def _print_report(report: GcReport) -> None:
    for reason, count in Counter(one.reason for one in report.removed).most_common():
        out.print(Text(f"removed {_many(count, 'file')}: {reason}"))
    freed = f"freed {_megabytes(report.freed_bytes)}" if report.removed else "nothing to remove"
    out.print(Text(f"{freed}; {_many(report.kept, 'block')} kept, {_megabytes(report.kept_bytes)}"))


def _with_progress(
    what: str, work: Callable[[Callable[[int, int], None]], ResultT], *, quiet: bool
) -> tuple[int, ResultT]:
    """Do work that says how far it is, with a bar on stderr; how many it saw, and what it returns."""
    seen = 0
    with _bar(quiet=quiet) as bar:
        task = bar.add_task(what, total=None)

        def show(done: int, of: int) -> None:
            nonlocal seen
            seen = of
            bar.update(task, completed=done, total=of)

        result = work(show)
    return seen, result


@contextmanager
def _bar(*, quiet: bool) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=quiet or not err.is_terminal) as bar:
        yield bar


def _store(config: Path | None) -> BlockStore:
    settings = settings_from(config, None).settings
    return BlockStore(settings.cache_dir / FOLDER, settings.state.disk_mb * MB, _tell)


def _tell(path: Path, reason: str) -> None:
    err.print(Text(f"{path} {reason}", style="yellow"), soft_wrap=True)


def _described(entry: BlockEntry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "tool": entry.label,
        "path": str(entry.path),
        "bytes": entry.size_bytes,
        "tokens": entry.tokens,
        "worth_seconds_per_byte": entry.worth,
        "compute_seconds": entry.compute_seconds,
        "made_at": _at(entry.made_at),
        "last_used": _at(entry.last_used),
        "descriptor": as_json(entry.descriptor),
    }


def _at(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # a damaged header's
        return "unknown"


def _ago(seconds: float) -> str:
    """Since then, in the largest unit that it fills."""
    passed = max(0.0, time.time() - seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if passed >= length:
            return f"{passed / length:,.0f} {unit}"
    return f"{passed:.0f} s"


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / MB:,.1f} MB"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _fail(message: str) -> NoReturn:
    err.print(Text(message, style="red"))
    exit_with(Exit.FAILED)
