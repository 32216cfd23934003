"""The part of `nexus-gateway calibrate` about arguments: from which probability on a draft of them runs unasked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio.to_thread
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from adapters.ports import ModelError
from nexus_gateway.access.caller import Caller
from nexus_gateway.app import Gateway
from nexus_gateway.cli.calibration_curve import print_choice, print_curve, shown_points
from nexus_gateway.cli.output import err, out
from nexus_gateway.routing.request_file import WrittenRequest
from nexus_gateway.turn import confidence
from nexus_gateway.turn.calibrating_arguments import (
    ArgumentFit,
    Drafted,
    could_run,
    fit_arguments,
    says_the_same,
)
from tool_registry.index import CompiledTool, RoutingIndex
from tool_registry.risk_coverage import RiskPoint
from tool_registry.schema import properties

LEAST_DRAFTS = 40
"""Fewer, all right, would not show that 95 % are: see `risk_coverage.choose_threshold`."""


@dataclass(frozen=True, slots=True)
class StatedArguments:
    """A row of a file whose right arguments are known, and its tool."""

    row: WrittenRequest
    tool: CompiledTool


@dataclass(frozen=True, slots=True)
class ArgumentsDone:
    """What came of it.

    Attributes:
        requests: rows with arguments for a connected tool.
        drafts: of these, those whose draft could run; None where none was written.
        skipped: rows whose arguments can't be right, for people.
        fit: None where there were too few rows.
        cause: why nothing was written; empty where it was, and for a dry run.
        failed: whether that is a failure: there were enough rows.
        path: None where nothing was written.
    """

    requests: int = 0
    drafts: int | None = None
    skipped: tuple[str, ...] = ()
    fit: ArgumentFit | None = None
    cause: str = ""
    failed: bool = False
    path: Path | None = None


async def calibrate_arguments(
    gateway: Gateway,
    index: RoutingIndex,
    rows: Iterable[WrittenRequest],
    *,
    precision: float,
    dry_run: bool,
    quiet: bool,
) -> ArgumentsDone:
    """Draft what is known, fit the gate, and write it to where a gateway finds it. Raises OSError.

    Args:
        gateway: its writer drafts as for a turn, bindings included.
        index: its tools.
        rows: of the file; those without arguments are passed over.
        precision: wanted share of right calls among those that run unasked, in (0, 1).
        dry_run: write nothing.
        quiet: show no progress.
    """
    stated, skipped = stated_arguments(index, rows)
    done = ArgumentsDone(len(stated), skipped=tuple(skipped))
    if gateway.reader is None:
        return replace(done, cause='no model reads requests ([models] reader = "off"), so there is no gate')
    if len(stated) < LEAST_DRAFTS:
        return replace(done, cause=_too_few(len(stated), 0))
    try:
        reader = (await gateway.reader.get()).identity
        drafts = await _drafts(gateway, stated, quiet=quiet)
    except ModelError as error:
        return replace(done, cause=str(error), failed=True)
    done = await anyio.to_thread.run_sync(_fitted, replace(done, drafts=len(drafts)), drafts, precision)
    if done.fit is None or done.cause or dry_run:
        return done
    path = gateway.settings.cache_dir / confidence.FILE_NAME
    calibration = done.fit.calibration(reader, _figures(precision))
    await anyio.to_thread.run_sync(confidence.write, path, calibration)
    return replace(done, path=path)


def stated_arguments(
    index: RoutingIndex, rows: Iterable[WrittenRequest]
) -> tuple[list[StatedArguments], list[str]]:
    """The rows with arguments for a connected tool, and what is wrong with others, for people."""
    stated: list[StatedArguments] = []
    skipped: list[str] = []
    for row in rows:
        found = index.find(row.tools[0]) if row.arguments is not None else []
        if row.arguments is None or not found:
            continue
        known = properties(found[0].schema)
        if strange := [name for name in row.arguments if known and name not in known]:
            skipped.append(f"line {row.line}: {found[0].id} has no argument {', '.join(strange)}")
        else:
            stated.append(StatedArguments(row, found[0]))
    return stated, skipped


async def _drafts(gateway: Gateway, stated: Sequence[StatedArguments], *, quiet: bool) -> list[Drafted]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    found: list[Drafted] = []
    with Progress(*columns, console=err, disable=quiet) as bar:
        for one in bar.track(stated, description="drafting arguments"):
            draft = await gateway.turns.draft(one.tool, one.row.request, Caller())
            if could_run(draft, one.tool):
                right = says_the_same(draft, one.row.arguments or {}, one.tool.schema)
                found.append(Drafted(draft.evidence, right))
    return found


def _fitted(done: ArgumentsDone, drafts: Sequence[Drafted], precision: float) -> ArgumentsDone:
    if len(drafts) < LEAST_DRAFTS:
        return replace(done, cause=_too_few(done.requests, done.requests - len(drafts)))
    fit = fit_arguments(drafts, requests=done.requests, precision=precision)
    if fit.chosen is None:
        return replace(done, fit=fit, cause=_no_threshold(precision), failed=True)
    return replace(done, fit=fit)


def _figures(precision: float) -> dict[str, Any]:
    return {
        "source": "a file",
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "wanted_precision": round(100 * precision, 1),
    }


def _too_few(requests: int, could_not: int) -> str:
    incomplete = f", and the drafts of {could_not} could not run," if could_not else ""
    return (
        f'{requests} requests with "args" for connected tools{incomplete} are too few to fit the gate of arguments: '
        f"at least {LEAST_DRAFTS} whose draft could run are needed"
    )


def _no_threshold(precision: float) -> str:
    return (
        f"no threshold is right in {100 * precision:g} % of the drafts above it, or there are too few to be sure: "
        "give more requests, or a lower --precision"
    )


def arguments_json(done: ArgumentsDone) -> dict[str, Any]:
    """For scripts; shares in percent."""
    fit = done.fit
    return {
        "requests": done.requests,
        "could_run": done.drafts,
        "skipped": done.skipped,
        "chosen": None if fit is None or fit.chosen is None else _point(fit.chosen),
        "curve": [] if fit is None else [_point(point) for point in shown_points(fit.curve, fit.chosen)],
        "cause": done.cause or None,
        "written": done.path and str(done.path),
    }


def _point(point: RiskPoint) -> dict[str, Any]:
    return {
        "threshold": round(point.threshold, 4),
        "runs_unasked": point.routed,
        "coverage": round(100 * point.coverage, 1),
        "precision": round(100 * point.precision, 1),
        "precision_wilson_low": round(100 * point.wilson_low, 1),
    }


def print_arguments(done: ArgumentsDone) -> None:
    """The curve and what was done, for people."""
    for line in done.skipped:
        err.print(Text(f"skipped: {line}", style="yellow"))
    if done.fit is not None:
        title = f"arguments of {done.fit.requests} requests; the drafts of {done.fit.drafts} could run"
        print_curve(done.fit.curve, done.fit.chosen, title=title, done="run unasked")
        if done.fit.chosen is not None:
            print_choice(done.fit.chosen, done="run without a question", rightly="with the right arguments")
    if done.cause:
        style = "red" if done.failed else "yellow"
        err.print(Text(f"arguments: the gate stays as it is: {done.cause}", style=style))
    elif done.path is None:
        out.print("arguments: dry run, nothing was written")
    else:
        out.print(Text(f"arguments: written to {done.path}; serve uses it from its next start"))
