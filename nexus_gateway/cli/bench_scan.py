"""`nexus-gateway bench scan`: how long the lookaside scan takes, beside numpy and beside reading the bytes."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from nexus_gateway.bench import scan
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.figures import Spread
from nexus_gateway.cli.output import err, failing_on, out, print_json, print_table

SIZES = "250,2500,25000,250000"
DIMENSIONS = "384,768"
MOST_TOOLS = 10_000_000
MOST_DIMENSIONS = 65_536

COLUMNS = ("dims", "tools", "scan µs", "numpy µs", "read µs", "scan / numpy", "scan / read", "scan / maximum")


def scan_command(
    sizes: Annotated[str, typer.Option(help="Numbers of tools, separated by commas.")] = SIZES,
    dims: Annotated[str, typer.Option(help="Dimensions of the vectors, separated by commas.")] = DIMENSIONS,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="Rounds of each size.")] = scan.ROUNDS,
    json: Annotated[bool, typer.Option("--json", help="Print the JSON line alone, no table.")] = False,
) -> None:
    """Measure the scan of the tool vectors: query quantising, scales, mask and top-10 included.

    Beside numpy float32 doing the same job, mask and top-10 included, and beside reading as many INT8 bytes: summed,
    by the faster of numpy and numkong, and their maximum. All arms use one thread and take turns within each round;
    ratios are taken round by round. Takes a minute or two, and 1.4 GB of memory for the largest size. The last line
    of stdout is one JSON object.
    """
    cases = [
        (dimensions, tools)
        for dimensions in _numbers("--dims", dims, MOST_DIMENSIONS)
        for tools in _numbers("--sizes", sizes, MOST_TOOLS)
    ]
    with failing_on(BenchError):
        measured = _measured(cases, rounds)
    if not json:
        print_table(COLUMNS, map(_row, measured), title="Scan of all tools for one request, one thread")
        out.print("Ratios: the median over the rounds (10th to 90th percentile).")
    print_json(as_json(measured))


def _numbers(option: str, text: str, most: int) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1 or max(numbers) > most:
        message = f"{text!r} is not a list of numbers from 1 to {most:,}, such as 250,2500"
        raise typer.BadParameter(message, param_hint=option)
    return list(dict.fromkeys(numbers))


def _measured(cases: Sequence[tuple[int, int]], rounds: int) -> list[scan.Case]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err) as bar:
        task = bar.add_task("starting", total=len(cases) * rounds)
        measured = []
        for dimensions, tools in cases:
            bar.update(task, description=f"{tools:,} tools, {dimensions} dimensions")
            measured.append(scan.measure(dimensions, tools, rounds, lambda: bar.advance(task)))
    return measured


def as_json(cases: Sequence[scan.Case]) -> dict[str, dict[str, dict[str, Any]]]:
    """By dimensions and tools: µs, ratios with their 10th and 90th percentile, all arms."""
    document: dict[str, dict[str, dict[str, Any]]] = {}
    for case in cases:
        figures: dict[str, Any] = {"us": round(case.microseconds(scan.GATEWAY), 2)}
        figures |= _keys("over_numpy", case.ratio(scan.NUMPY))
        figures |= _keys("over_read", case.ratio(case.read))
        figures |= _keys("over_numpy_with_our_top", case.ratio(scan.NUMPY_OUR_TOP))
        figures |= _keys("over_maximum", case.ratio(scan.MAXIMUM))
        figures["read"] = case.read
        figures["n"] = len(case.seconds[scan.GATEWAY])
        figures["arms_us"] = {name: round(case.microseconds(name), 2) for name in scan.ARMS}
        document.setdefault(str(case.dimensions), {})[str(case.tools)] = figures
    return document


def _keys(name: str, ratio: Spread) -> dict[str, float]:
    return {name: round(ratio.p50, 3), f"{name}_p10": round(ratio.p10, 3), f"{name}_p90": round(ratio.p90, 3)}


def _row(case: scan.Case) -> tuple[str, ...]:
    return (
        str(case.dimensions),
        f"{case.tools:,}",
        *(f"{case.microseconds(arm):,.1f}" for arm in (scan.GATEWAY, scan.NUMPY, case.read)),
        *(_shown(case.ratio(arm)) for arm in (scan.NUMPY, case.read, scan.MAXIMUM)),
    )


def _shown(ratio: Spread) -> str:
    return f"{ratio.p50:.2f} ({ratio.p10:.2f} to {ratio.p90:.2f})"
