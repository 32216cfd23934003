"""`nexus-gateway calibrate`: fit the gates to the user's own servers and models."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio.to_thread
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from adapters.ports import ModelError
from nexus_gateway.app import Gateway
from nexus_gateway.cli.calibrate_arguments import (
    ArgumentsDone,
    arguments_json,
    calibrate_arguments,
    print_arguments,
)
from nexus_gateway.cli.calibration_curve import print_choice, print_curve, shown_points
from nexus_gateway.cli.exits import Exit, exit_with
from nexus_gateway.cli.options import ConfigOption, JsonOption, McpConfigOption, settings_from
from nexus_gateway.cli.output import clip, err, out, print_json
from nexus_gateway.cli.session import run_with_gateway
from nexus_gateway.routing import calibration_file
from nexus_gateway.routing.calibrating import Fit, Row, fit, judge, point_figures
from nexus_gateway.routing.feedback import FILE_NAME, FeedbackStore
from nexus_gateway.routing.labelled import LabelledRequest, labelled, made_from_tools, resolve
from nexus_gateway.routing.request_file import RequestFileError, WrittenRequest, read_requests
from nexus_gateway.settings import Settings
from tool_registry.calibration import CalibrationIdentity
from tool_registry.index import RoutingIndex

app = typer.Typer(rich_markup_mode=None, add_completion=False)

LEAST_REQUESTS = 40
LEAST_TOOLS = 3

_SHOWN_UNKNOWN = 10
_OPTIMISTIC = (
    "Made requests repeat the tools' own words and are easier than real ones, so these figures are optimistic; "
    "the threshold stays at least the shipped one."
)
_OWN_TRAFFIC = (
    "Precision on your own traffic: on the turns that hosts corrected, chose for or confirmed. Turns that went "
    "well without a word are not among them, so it is rather pessimistic."
)
_WITH_WHAT = "say with which requests: --requests FILE, --from-feedback, or --from-tools N for ones made from the tools"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the command line asks for. `precision` is a share."""

    written: tuple[WrittenRequest, ...]
    from_tools: int
    from_feedback: bool
    precision: float
    dry_run: bool
    quiet: bool


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of it; `fit` is None where there were too few rows, `path` where nothing was written."""

    requests: tuple[LabelledRequest, ...]
    unknown: tuple[str, ...]
    named: int
    fit: Fit | None
    cause: str = ""
    path: Path | None = None


@app.command("calibrate")
def calibrate_command(
    *,
    requests: Annotated[
        Path | None,
        typer.Option(
            "--requests",
            metavar="FILE",
            help='JSON Lines with "query", "tool" (server/name) and, where known, "args", or *.csv with these columns.',
        ),
    ] = None,
    from_feedback: Annotated[
        bool, typer.Option("--from-feedback", help="What hosts corrected (nexus-gateway feedback shows it).")
    ] = False,
    from_tools: Annotated[
        int, typer.Option("--from-tools", metavar="N", min=0, help="Make N requests from the tools, seeded.")
    ] = 0,
    precision: Annotated[
        float,
        typer.Option("--precision", min=50, max=99.9, help="Percent of routed turns that must be right."),
    ] = 95.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the curve; write nothing.")] = False,
    config: ConfigOption = None,
    mcp_config: McpConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Fit the gate to your own servers and models, for a precision that you choose.

    The gate turns a ranking into the probability that its first tool is right. A turn is routed above a threshold;
    below it the host gets a short list; where nothing fits it is told so. This command ranks requests whose right
    tool is known, with that tool there and with it taken away, fits the probabilities, shows what each threshold
    would buy, and writes the least one that is precise enough to where `serve` finds it at its next start
    (calibration.json in the cache folder, or [routing] calibration).

    At least 40 requests for 3 different tools are needed; a hundred or more, in your users' own words, are better.
    Run it again after a change of model or of many tools: `serve` and `doctor` say when it is stale.

    Rows of --requests that also have "args", an object with the right arguments, fit the gate of arguments: above its
    threshold a call runs unasked, below it the draft is proposed. At least 40 whose draft could run are needed. A
    draft is right if it equals "args" as JSON: texts letter for letter, numbers by value. What a binding gives may be
    left out of "args", and an argument left out on either side counts as its default. The result is written to
    argument_calibration.json in the cache folder.

    Exit code 0 if a threshold was found (for arguments too, if there were enough), 1 if not or if a model failed, 2
    for wrong options or files.
    """
    written = _written(requests)
    if not (written or from_feedback or from_tools):
        typer.echo(_WITH_WHAT, err=True)
        raise typer.Exit(Exit.USAGE)
    settings = settings_from(config, mcp_config, needs_servers=True).settings
    wanted = _Wanted(written, from_tools, from_feedback, precision / 100, dry_run, json)
    try:
        done, arguments = run_with_gateway(settings, partial(_calibrate, settings, wanted), quiet=json)
    except (ModelError, OSError) as error:
        err.print(Text(str(error), style="red"))
        exit_with(Exit.FAILED)
    if json:
        print_json({**_as_json(done, wanted), "arguments": arguments_json(arguments)})
    else:
        _print(done, wanted)
        if wanted.written:
            print_arguments(arguments)
    exit_with(Exit.FAILED if done.cause or arguments.failed else Exit.OK)


def _written(path: Path | None) -> tuple[WrittenRequest, ...]:
    try:
        return () if path is None else tuple(read_requests(path))
    except RequestFileError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(Exit.USAGE) from None


async def _calibrate(settings: Settings, wanted: _Wanted, gateway: Gateway) -> tuple[_Done, ArgumentsDone]:
    index = await gateway.readiness.wait()
    done = await _calibrate_routing(settings, wanted, gateway, index)
    arguments = await calibrate_arguments(
        gateway,
        index,
        wanted.written,
        precision=wanted.precision,
        dry_run=wanted.dry_run,
        quiet=wanted.quiet,
    )
    return done, arguments


async def _calibrate_routing(
    settings: Settings, wanted: _Wanted, gateway: Gateway, index: RoutingIndex
) -> _Done:
    made_for = await gateway.gatekeeper.identity(compiled.tool.content_hash for compiled in index.tools)
    requests, unknown = await anyio.to_thread.run_sync(_requests, settings, wanted, index)
    tools = len({tool for request in requests for tool in request.tools})
    if len(requests) < LEAST_REQUESTS or tools < LEAST_TOOLS:
        return _Done(tuple(requests), tuple(unknown), 0, None, _too_few(len(requests), tools))
    rows = await _rows(gateway, index, requests, rerank=made_for.reranker is not None, quiet=wanted.quiet)
    present = [row.group for row in rows if not row.absent]
    named = len(requests) - len(present)
    if len(present) < LEAST_REQUESTS or len({*present}) < LEAST_TOOLS:
        cause = (
            f"{_too_few(len(present), len({*present}))}; {named} requests name their tool and need no gate"
        )
        return _Done(tuple(requests), tuple(unknown), named, None, cause)
    found = await anyio.to_thread.run_sync(partial(_fit, rows, wanted, made_for))
    done = partial(_Done, tuple(requests), tuple(unknown), named, found)
    if found.chosen is None:
        return done(_no_threshold(wanted.precision))
    if wanted.dry_run:
        return done()
    calibration = found.calibration(made_for, _figures(wanted))
    await anyio.to_thread.run_sync(calibration_file.write, settings.calibration_file, calibration)
    return done(path=settings.calibration_file)


def _requests(
    settings: Settings, wanted: _Wanted, index: RoutingIndex
) -> tuple[list[LabelledRequest], list[str]]:
    """All requests for this fleet, and what was left out, for people. Reads the feedback file."""
    resolved = resolve(index, wanted.written)
    requests = [*resolved.known, *made_from_tools(index, wanted.from_tools)]
    unknown = [f"line {row.line}: no tool {' or '.join(row.tools)} is connected" for row in resolved.unknown]
    labels = FeedbackStore(settings.cache_dir / FILE_NAME).labels() if wanted.from_feedback else []
    for label in labels:
        if index.get(label.tool) is None:
            unknown.append(f"feedback: no tool {label.tool} is connected")
        else:
            requests.append(labelled(index, label.request, frozenset([label.tool])))
    return requests, unknown


async def _rows(
    gateway: Gateway, index: RoutingIndex, requests: Sequence[LabelledRequest], *, rerank: bool, quiet: bool
) -> list[Row]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    rows: list[Row] = []
    with Progress(*columns, console=err, disable=quiet) as bar:
        for request in bar.track(requests, description="ranking requests"):
            rows += await judge(gateway.router, index, request, rerank=rerank)
    return rows


def _fit(rows: Sequence[Row], wanted: _Wanted, made_for: CalibrationIdentity) -> Fit:
    shipped = calibration_file.shipped_for(made_for) if wanted.from_tools else None
    return fit(
        rows, precision=wanted.precision, least_threshold=0.0 if shipped is None else shipped.threshold
    )


def _figures(wanted: _Wanted) -> dict[str, Any]:
    return {
        "source": _source(wanted),
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "wanted_precision": round(100 * wanted.precision, 1),
    }


def _source(wanted: _Wanted) -> str:
    parts = {
        "a file": wanted.written,
        "feedback": wanted.from_feedback,
        "made from the tools": wanted.from_tools,
    }
    return ", ".join(name for name, used in parts.items() if used)


def _too_few(requests: int, tools: int) -> str:
    return (
        f"{requests} requests for {tools} connected tools are too few: at least {LEAST_REQUESTS} requests for "
        f"{LEAST_TOOLS} tools are needed"
    )


def _no_threshold(precision: float) -> str:
    return (
        f"no threshold is right in {100 * precision:g} % of what it routes on these requests, or there are too few "
        "to be sure: give more requests, or a lower --precision"
    )


def _as_json(done: _Done, wanted: _Wanted) -> dict[str, Any]:
    found: dict[str, Any] = {
        "source": _source(wanted),
        "requests": {
            "known": len(done.requests),
            "unknown": len(done.unknown),
            "naming_their_tool": done.named,
        },
        "unknown": done.unknown,
        "wanted_precision": round(100 * wanted.precision, 1),
        "optimistic": bool(wanted.from_tools),
        "chosen": None,
        "curve": [],
        "cause": done.cause or None,
        "written": done.path and str(done.path),
    }
    if done.fit is not None:
        found["curve"] = [point_figures(point) for point in shown_points(done.fit.curve, done.fit.chosen)]
        found["floor"] = round(done.fit.floor, 4)
        if done.fit.chosen is not None:
            found["chosen"] = point_figures(done.fit.chosen)
    return found


def _print(done: _Done, wanted: _Wanted) -> None:
    for line in done.unknown[:_SHOWN_UNKNOWN]:
        err.print(Text(f"skipped: {clip(line, 100)}", style="yellow"))
    if (more := len(done.unknown) - _SHOWN_UNKNOWN) > 0:
        err.print(Text(f"skipped: {more} more", style="yellow"))
    if done.fit is not None:
        _print_fit(done.fit)
    if wanted.from_tools:
        out.print(Text(_OPTIMISTIC, style="yellow"))
    if wanted.from_feedback:
        out.print(Text(_OWN_TRAFFIC))
    if done.cause:
        err.print(Text(f"nothing was written: {done.cause}", style="red"))
    elif done.path is None:
        out.print("dry run: nothing was written")
    else:
        out.print(Text(f"written to {done.path}; serve uses it from its next start"))


def _print_fit(found: Fit) -> None:
    title = f"{found.requests} requests for {found.tools} tools, each fit judged on requests it has not seen"
    print_curve(found.curve, found.chosen, title=title, done="routed")
    if found.chosen is not None:
        print_choice(found.chosen, done="are routed", rightly="rightly")
