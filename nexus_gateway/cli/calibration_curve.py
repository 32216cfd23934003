"""The risk-coverage curve in a terminal: what each threshold routes, and how much of that wrongly."""

from rich.text import Text

from nexus_gateway.cli.output import out, print_table
from nexus_gateway.routing.calibrating import Fit
from tool_registry.risk_coverage import RiskPoint

_STEP = 0.1  # of coverage, between two lines of the curve
_BAR = 30


def shown_points(found: Fit) -> list[RiskPoint]:
    """The curve in steps, the chosen point among them, from the highest threshold down."""
    points = {point.threshold: point for point in found.curve.every(_STEP)}
    if found.chosen is not None:
        points[found.chosen.threshold] = found.chosen
    return sorted(points.values(), key=lambda point: -point.threshold)


def print_curve(found: Fit) -> None:
    """Risk against coverage: a line a step of coverage, the risk as a bar."""
    points = shown_points(found)
    worst = max([1 - point.precision for point in points] + [0.01])
    rows = [
        [Text(cell, style="bold" if point is found.chosen else "") for cell in _cells(point, found, worst)]
        for point in points
    ]
    columns = [
        "routed",
        "wrong",
        f"0 to {worst:.0%} wrong",
        "right at least",
        "routed without its tool",
        "P from",
    ]
    title = f"{found.requests} requests for {found.tools} tools, each fit judged on requests it has not seen"
    print_table(columns, rows, title=title)


def _cells(point: RiskPoint, found: Fit, worst: float) -> list[str]:
    bar = "#" * round(_BAR * (1 - point.precision) / worst)
    absent = "" if point.absent is None else f"{point.absent:.1%}"
    mark = " <- chosen" if point is found.chosen else ""
    return [
        f"{point.coverage:.1%}",
        f"{1 - point.precision:.1%}",
        bar,
        f"{point.wilson_low:.1%}",
        absent,
        f"{point.threshold:.3f}{mark}",
    ]


def print_choice(found: Fit) -> None:
    """The chosen threshold in sentences; nothing where there is none."""
    point = found.chosen
    if point is None:
        return
    out.print(
        f"From P = {point.threshold:.3f}: {point.coverage:.0%} of the requests are routed, {point.precision:.1%} of "
        f"them rightly (at least {point.wilson_low:.1%}, with 95 % confidence)."
    )
    if point.absent is not None:
        out.print(
            f"With the right tool and its server taken away, {point.absent:.1%} are routed all the same."
        )
