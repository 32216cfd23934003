"""`nexus-gateway feedback`: what hosts corrected, and how often the routing was left as it was."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.options import ConfigOption, JsonOption, McpConfigOption, settings_from
from nexus_gateway.cli.output import clip, err, out, print_json, print_table
from nexus_gateway.routing.feedback import FILE_NAME, Feedback, FeedbackStore, Label, LabelKind
from nexus_gateway.settings import FeedbackSettings

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("feedback")
def feedback_command(
    config: ConfigOption = None,
    mcp_config: McpConfigOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Labels shown, the newest last.")] = 20,
    clear: Annotated[bool, typer.Option("--clear", help="Forget all of it.")] = False,
    json: JsonOption = False,
) -> None:
    """Show which tools hosts chose themselves after a turn, and the precision on your own traffic.

    Kept if [feedback] keep = true is in nexus.toml. A turn that offers several tools, or finds none, is followed by
    the host's own choice (chosen); a call of another tool right after a turn corrects it (corrected); a call of the
    tool that a turn proposed confirms it (confirmed). Precision is the share of routed turns that no host corrected:
    a lower bound, as the next step of a task may look like a correction.

    The requests are in the file as they were written, with whatever is in them. It stays on this machine, is readable
    by you alone, and goes into no log. `nexus-gateway calibrate --from-feedback` learns from it.
    """
    settings = settings_from(config, mcp_config).settings
    store = FeedbackStore(settings.cache_dir / FILE_NAME, max_entries=settings.feedback.max_entries)
    try:
        found = store.read()
        if clear:
            store.clear()
    except OSError as error:
        err.print(Text(f"{store.path}: {error.strerror}", style="red"))
        raise SystemExit(int(Exit.FAILED)) from None
    if found.damaged and not clear:
        err.print(
            Text(f"{len(found.damaged)} lines of {store.path} can't be read and are left out", "yellow")
        )
    if json:
        shown = {"cleared": clear, "file": str(store.path), "keep": settings.feedback.keep}
        print_json(shown | _summary(found) | {"labels": [_described(label) for label in found.labels]})
    elif clear:
        out.print(Text(f"forgot {len(found.labels)} labels and {found.routed} routed turns"))
    else:
        _print(found, settings.feedback, store.path, limit)


def _summary(found: Feedback) -> dict[str, Any]:
    return {
        "kinds": {str(kind): found.totals.get(kind, 0) for kind in LabelKind},
        "routed": found.routed,
        "precision": None if found.precision is None else round(100 * found.precision, 1),
        "damaged": len(found.damaged),
    }


def _described(label: Label) -> dict[str, Any]:
    return {
        "at": label.at.isoformat(),
        "kind": str(label.kind),
        "request": label.request,
        "tool": str(label.tool),
        "offered": [str(tool) for tool in label.offered],
    }


def _print(found: Feedback, settings: FeedbackSettings, path: Path, limit: int) -> None:
    if not settings.keep:
        out.print(Text("Nothing new is kept: set keep = true in [feedback] of nexus.toml."))
    if found.labels:
        rows = [_row(label) for label in found.labels[-limit:]]
        print_table(["when", "kind", "request", "tool", "the turn had"], rows)
        if len(found.labels) > limit:
            out.print(Text(f"the newest {limit} of {len(found.labels)}; --limit shows more"))
    kinds = ", ".join(f"{found.totals.get(kind, 0)} {kind}" for kind in LabelKind)
    out.print(Text(f"{sum(found.totals.values())} labels: {kinds}"))
    if found.precision is None:
        out.print(Text("no turn was routed yet"))
    else:
        left = f"{found.routed} routed turns, {100 * found.precision:.1f} % of them not corrected"
        out.print(Text(f"precision on your own traffic: {left}"))
    out.print(Text(f"kept in {path}, on this machine only", style="dim"))


def _row(label: Label) -> tuple[str, ...]:
    when = label.at.astimezone().strftime("%Y-%m-%d %H:%M")
    had = str(label.offered[0]) if label.offered else "no tool"
    return when, str(label.kind), clip(label.request, 60), str(label.tool), had
