"""The risk-coverage curve in a terminal: what each threshold lets through, and how much of that wrongly."""

from rich.text import Text

from nexus_gateway.cli.output import out, print_table
from tool_registry.risk_coverage import RiskCoverage, RiskPoint

_STEP = 0.1  # of coverage, between two lines of the curve
_BAR = 30


def shown_points(curve: RiskCoverage, chosen: RiskPoint | None) -> list[RiskPoint]:
    """The curve in steps, the chosen point among them, from the highest threshold down."""
    points = {point.threshold: point for point in curve.every(_STEP)}
    if chosen is not None:
        points[chosen.threshold] = chosen
    return sorted(points.values(), key=lambda point: -point.threshold)


def print_curve(curve: RiskCoverage, chosen: RiskPoint | None, *, title: str, done: str) -> None:
    """Risk against coverage: a line a step of coverage, the risk as a bar.

    Args:
        curve: the points.
        chosen: the one that is used, in bold.
        title: what it was measured on.
        done: what happens above a threshold, in a word or two.
    """
    points = shown_points(curve, chosen)
    worst = max([1 - point.precision for point in points] + [0.01])
    absent = any(point.absent is not None for point in points)
    columns = [done, "wrong", f"0 to {worst:.0%} wrong", "right at least"]
    columns += [f"{done} without its tool"] if absent else []
    rows = []
    for point in points:
        cells = _cells(point, worst, absent=absent)
        cells.append(f"{point.threshold:.3f}{' <- chosen' if point is chosen else ''}")
        rows.append([Text(cell, style="bold" if point is chosen else "") for cell in cells])
    print_table([*columns, "P from"], rows, title=title)


def _cells(point: RiskPoint, worst: float, *, absent: bool) -> list[str]:
    bar = "#" * round(_BAR * (1 - point.precision) / worst)
    cells = [f"{point.coverage:.1%}", f"{1 - point.precision:.1%}", bar, f"{point.wilson_low:.1%}"]
    if absent:
        cells.append("" if point.absent is None else f"{point.absent:.1%}")
    return cells


def print_choice(point: RiskPoint, *, done: str, rightly: str) -> None:
    """A chosen threshold in sentences.

    Args:
        point: the chosen one.
        done: "of the requests ..." what.
        rightly: "... of them ..." how.
    """
    out.print(
        f"From P = {point.threshold:.3f}: {point.coverage:.0%} of the requests {done}, {point.precision:.1%} of "
        f"them {rightly} (at least {point.wilson_low:.1%}, with 95 % confidence)."
    )
    if point.absent is not None:
        out.print(
            f"With the right tool and its server taken away, {point.absent:.1%} are routed all the same."
        )
