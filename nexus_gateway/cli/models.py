"""`nexus-gateway models`: which models there are, and bringing missing ones here."""

from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from adapters.model_files import ModelEntry, ModelFiles, ModelName, ModelSource, parse_model_name
from adapters.ports import ModelError
from nexus_gateway.cli.completion import complete_preset
from nexus_gateway.cli.exits import Exit, exit_with
from nexus_gateway.cli.options import ConfigOption, JsonOption, settings_from
from nexus_gateway.cli.output import err, out, print_json, print_table
from nexus_gateway.opening import model_files
from nexus_gateway.settings import PRESETS, ModelPreset, Settings

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="List models and download missing ones.",
)


@app.command("list")
def list_command(config: ConfigOption = None, json: JsonOption = False) -> None:
    """List the configured models, each preset's, and every other model on this machine."""
    settings = settings_from(config, None).settings
    files = model_files(settings)
    entries = _described(settings, files)
    known = {entry.path for _, entry in entries}
    entries += [("", entry) for entry in files.cached() if entry.path not in known or entry.path is None]
    if json:
        print_json({"models": [_row(use, entry) for use, entry in entries]})
        return
    rows = [
        (use, entry.name, entry.kind, _size(entry), "here" if entry.present else "missing")
        for use, entry in entries
    ]
    print_table(["used by", "model", "kind", "size", "state"], rows)
    out.print(
        Text(
            "nexus-gateway models pull NAME brings a missing one here; a preset is set in nexus.toml: [models]"
        )
    )


def _described(settings: Settings, files: ModelFiles) -> list[tuple[str, ModelEntry]]:
    """Each model that the settings or a preset name, with its users; the ones in use come first.

    One of ours that this installation lacks can't be had, so it is listed only where it is missed.
    """
    uses: dict[str, list[str]] = {}
    for use, name in _in_use(settings):
        uses.setdefault(name, []).append(f"{use} (in use)")
    for preset, models in PRESETS.items():
        for name in (models.argument, models.embedder, models.reranker, models.reader):
            if name != "off":
                uses.setdefault(name, []).append(preset)
    entries = [(users, files.describe(parse_model_name(name))) for name, users in uses.items()]
    return [
        (", ".join(dict.fromkeys(users)), entry)
        for users, entry in entries
        if entry.present or entry.name.source is not ModelSource.SHIPPED or set(users) - set(PRESETS)
    ]


def _in_use(settings: Settings) -> list[tuple[str, str]]:
    """What each model is for that the gateway would open, and its name; an engine elsewhere has its own model."""
    models = settings.models
    wanted = [
        ("arguments", models.argument_model if settings.engine.url is None else None),
        ("embedder", models.embedder_model),
        ("reader", models.reader_model),
        ("reranker", models.reranker_model if settings.routing.rerank == "cross-encoder" else None),
    ]
    return [(use, name) for use, name in wanted if name is not None]


def _row(use: str, entry: ModelEntry) -> dict[str, object]:
    return {
        "name": str(entry.name),
        "kind": str(entry.kind),
        "bytes": entry.size_bytes,
        "path": None if entry.path is None else str(entry.path),
        "present": entry.present,
        "used_by": use,
    }


def _size(entry: ModelEntry) -> str:
    return "" if entry.size_bytes is None else f"{entry.size_bytes / 1e6:,.0f} MB"


@app.command("pull")
def pull_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="hf:owner/repo/file, hf:owner/repo, or a preset; the configured ones if none.",
            autocompletion=complete_preset,
        ),
    ] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Download models that are missing, with progress; what is here already is left alone."""
    settings = settings_from(config, None).settings
    try:
        wanted = [parse_model_name(name) for name in _expanded(names, settings)]
        paths = anyio.run(partial(_pull, model_files(settings), wanted, json))
    except ModelError as error:
        err.print(Text(str(error), style="red"))
        exit_with(Exit.FAILED)
    if json:
        print_json(
            {
                "models": [
                    {"name": str(name), "path": str(path)} for name, path in zip(wanted, paths, strict=True)
                ]
            }
        )
    else:
        for name, path in zip(wanted, paths, strict=True):
            out.print(Text(f"{name}: {path}"))


def _expanded(names: list[str] | None, settings: Settings) -> list[str]:
    if not names:
        return [name for _, name in _in_use(settings)]
    return [model for name in names for model in (_models_of(PRESETS[name]) if name in PRESETS else (name,))]


def _models_of(preset: ModelPreset) -> tuple[str, ...]:
    """A reranker of ours comes with the package, and may be missing from one built without it."""
    names = (preset.argument, preset.embedder, preset.reranker)
    return tuple(name for name in names if not name.startswith("nexus:"))


async def _pull(files: ModelFiles, names: list[ModelName], quiet: bool) -> list[Path]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal) as progress:
        return [await _pull_one(files, name, progress) for name in names]


async def _pull_one(files: ModelFiles, name: ModelName, progress: Progress) -> Path:
    task: TaskID = progress.add_task(str(name), total=1.0)

    async def show(_what: str, share: float | None) -> None:
        progress.update(task, completed=share or 0.0)

    path = await files.pull(name, show)
    progress.update(task, completed=1.0)
    return path
