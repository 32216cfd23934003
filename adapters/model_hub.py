"""The Hugging Face hub: which files a model needs, whether they are in the hub's cache, how they get there.

Knows huggingface_hub and its ordinary cache (shared with other programs). Does not know how a model is
named in the configuration, nor the event loop: all here blocks, so it runs in a worker thread. A download whose
connection is cut goes on where it stopped; one that is given up leaves no partial file behind.

huggingface_hub takes a good part of a second to import, so it is imported in the functions of this module
and nowhere else. It reads HF_HUB_OFFLINE and HF_ENDPOINT once, on import; here they are read at each call.
"""

import errno
import glob
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from adapters.ports import ModelMissing

DEFAULT_ENDPOINT = "https://huggingface.co"

_SHARD = re.compile(r"-\d{5}-of-(?P<count>\d{5})\.gguf$")
_OTHER_FORMATS = (
    "*.gguf", "*.onnx", "*.onnx_data", "onnx/*", "openvino/*", "coreml/*", "*.h5", "*.ot", "*.msgpack", "*.tflite",
)  # fmt: skip
_ATTEMPT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository, and one GGUF file in it; the whole snapshot where `file` is None."""

    repo: str
    file: str | None = None

    def __str__(self) -> str:
        return f"hf:{self.repo}/{self.file}" if self.file else f"hf:{self.repo}"


@dataclass(frozen=True, slots=True)
class CachedHubModel:
    """A model in the hub's cache, its usable path and its size in bytes."""

    model: HubModel
    path: Path
    size_bytes: int


class DownloadStopped(Exception):  # noqa: N818 - reads as a state
    """Raised inside a download after `DownloadMeter.stop`; nobody waits for it any more."""


class DownloadMeter:
    """How far a download is; written by its threads, read from any."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self._done: dict[int, float] = {}
        self._stopped = threading.Event()

    @property
    def share(self) -> float | None:
        """From 0 to 1; None while the size is unknown."""
        if not self.total_bytes:
            return None
        # The hub counts the same bytes on two bars, as received and as written.
        return min(max(self._done.copy().values(), default=0) / self.total_bytes, 1.0)

    def stop(self) -> None:
        """Make the download raise DownloadStopped at its next block."""
        self._stopped.set()

    def advance(self, bar: int, done_bytes: float) -> None:
        """Note bytes on one of the hub's bars."""
        if self._stopped.is_set():
            raise DownloadStopped
        self._done[bar] = self._done.get(bar, 0) + done_bytes


def shard_names(file: str) -> tuple[str, ...]:
    """All files of a GGUF that is split as `x-00001-of-00003.gguf`, first one first; else `file` alone."""
    match = _SHARD.search(file)
    if match is None:
        return (file,)
    stem, count = file[: match.start()], match["count"]
    return tuple(f"{stem}-{number:05d}-of-{count}.gguf" for number in range(1, int(count) + 1))


def find_in_cache(model: HubModel, cache: Path | None) -> Path | None:
    """The cached file (of a split one the first) or snapshot directory, if it is complete. No traffic."""
    from huggingface_hub.errors import LocalEntryNotFoundError  # noqa: PLC0415 - slow import

    try:
        return (
            _cached_file(model.repo, model.file, cache) if model.file else _cached_snapshot(model.repo, cache)
        )
    except (LocalEntryNotFoundError, ValueError):  # ValueError: no repository can have this name
        return None


def _cached_file(repo: str, file: str, cache: Path | None) -> Path | None:
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - slow import

    found = [try_to_load_from_cache(repo, name, cache_dir=cache) for name in shard_names(file)]
    return Path(found[0]) if all(isinstance(path, str) for path in found) else None


def _cached_snapshot(repo: str, cache: Path | None) -> Path | None:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow import

    ignored = [*_OTHER_FORMATS, "*.bin"]
    path = Path(snapshot_download(repo, cache_dir=cache, local_files_only=True, ignore_patterns=ignored))
    return path if _has_weights(item.name for item in path.rglob("*")) else None


def download(model: HubModel, cache: Path | None, meter: DownloadMeter) -> Path:
    """Bring a model into the hub's cache.

    Raises:
        ModelMissing: with the cause (no such repository or file, no access, no network, disk full) and the fix.
    """
    from huggingface_hub.errors import HFValidationError, HTTPError  # noqa: PLC0415 - slow import

    # HTTPError is the base of the HTTP library that huggingface_hub is built on, whichever that is.
    try:
        return _download(model, cache, meter)
    except HFValidationError as error:
        raise ModelMissing(f"{model.repo!r} can't be a repository on the hub: {error}") from error
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        raise ModelMissing(f"can't get {model}: {_cause(error, model)}") from error


def cached_models(cache: Path | None) -> Iterator[CachedHubModel]:
    """GGUF files and model snapshots in the hub's cache, by repository."""
    from huggingface_hub import scan_cache_dir  # noqa: PLC0415 - slow import
    from huggingface_hub.errors import CacheNotFound  # noqa: PLC0415

    try:
        repos = scan_cache_dir(cache).repos
    except CacheNotFound:
        return
    for repo in sorted((repo for repo in repos if repo.repo_type == "model"), key=lambda repo: repo.repo_id):
        for revision in repo.revisions:
            if "main" in revision.refs:
                yield from _revision_models(repo.repo_id, revision)


def _revision_models(repo: str, revision: Any) -> Iterator[CachedHubModel]:
    sizes = {
        file.file_path.relative_to(revision.snapshot_path).as_posix(): file.size_on_disk
        for file in revision.files
    }
    for name in sorted(sizes):
        shards = shard_names(name)
        if name.endswith(".gguf") and name == shards[0] and all(shard in sizes for shard in shards):
            size = sum(sizes[shard] for shard in shards)
            yield CachedHubModel(HubModel(repo, name), revision.snapshot_path / name, size)
    if "config.json" in sizes and _has_weights(sizes):
        yield CachedHubModel(HubModel(repo), revision.snapshot_path, sum(sizes.values()))


def _download(model: HubModel, cache: Path | None, meter: DownloadMeter) -> Path:
    from huggingface_hub import HfApi, constants, snapshot_download  # noqa: PLC0415 - slow import

    if offline():
        raise ModelMissing(f"{model} is not in the cache and HF_HUB_OFFLINE is set: unset it and pull again")
    info = HfApi(endpoint=_endpoint()).model_info(model.repo, files_metadata=True, timeout=_ATTEMPT_SECONDS)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    wanted = _wanted(model, sizes)
    meter.total_bytes = sum(sizes[name] for name in wanted)
    _check_space(model, Path(cache or constants.HF_HUB_CACHE), meter.total_bytes)
    snapshot = snapshot_download(
        model.repo,
        cache_dir=cache,
        endpoint=_endpoint(),
        allow_patterns=[glob.escape(name) for name in wanted],
        tqdm_class=_bar_class(meter),
    )
    return Path(snapshot) / wanted[0] if model.file else Path(snapshot)


def _wanted(model: HubModel, sizes: Mapping[str, int]) -> tuple[str, ...]:
    if model.file is not None:
        wanted = shard_names(model.file)
        if missing := [name for name in wanted if name not in sizes]:
            raise ModelMissing(f"the repository {model.repo} has no file {missing[0]!r}{_hint(model, sizes)}")
        return wanted
    rest = [name for name in sizes if not any(fnmatch(name, pattern) for pattern in _OTHER_FORMATS)]
    if any(name.endswith(".safetensors") for name in rest):
        rest = [name for name in rest if not name.endswith(".bin")]
    if not _has_weights(rest):
        raise ModelMissing(
            f"the repository {model.repo} holds no sentence-transformers model{_hint(model, sizes)}"
        )
    return tuple(rest)


def _hint(model: HubModel, names: Iterable[str]) -> str:
    """The nearest GGUF files, as names to write instead."""
    files = [name for name in names if name.endswith(".gguf") and name == shard_names(name)[0]]
    nearest = get_close_matches(model.file or "", files, n=3, cutoff=0) if model.file else files[:5]
    return f"; name one of {', '.join(f'hf:{model.repo}/{name}' for name in nearest)}" if nearest else ""


def _has_weights(names: Iterable[str]) -> bool:
    return any(name.endswith((".safetensors", "pytorch_model.bin", ".bin.index.json")) for name in names)


def _check_space(model: HubModel, cache: Path, needed_bytes: int) -> None:
    existing = next(folder for folder in (cache, *cache.absolute().parents) if folder.exists())
    free_bytes = shutil.disk_usage(existing).free
    if needed_bytes > free_bytes:
        raise ModelMissing(
            f"{model} takes {needed_bytes / 1e9:,.1f} GB and the disk of {existing} has {free_bytes / 1e9:,.1f} GB free: "
            "free some, or set HF_HOME to a folder on a larger disk"
        )


def _bar_class(meter: DownloadMeter) -> type:
    from huggingface_hub.utils import tqdm  # noqa: PLC0415 - slow import

    class MeterBar(tqdm):  # type: ignore[misc]  # huggingface_hub is not type-checked
        """A bar of the hub's that shows nothing and tells the meter."""

        def __init__(self, *args: Any, **options: Any) -> None:
            self.counts_bytes = options.get("unit") == "B"
            super().__init__(*args, **options | {"disable": True})

        def update(self, n: float | None = 1) -> None:
            meter.advance(id(self), (n or 0) if self.counts_bytes else 0)

    return MeterBar


def offline() -> bool:
    """Whether the environment forbids the hub."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT


def _cause(error: Exception, model: HubModel) -> str:
    """What went wrong and how to mend it, for people."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return _refusal(error, status, model)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full: free some space, or set HF_HOME to a folder on a larger disk"
    if isinstance(error, PermissionError):
        return f"{error.filename} can't be written: set HF_HOME to a folder that can"
    first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"the connection to {_endpoint()} failed ({first_line}): check the network and pull again"


def _refusal(error: Exception, status: int, model: HubModel) -> str:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError  # noqa: PLC0415 - slow import

    if isinstance(error, GatedRepoError):
        return f"the repository is gated: accept its terms at {_endpoint()}/{model.repo}, then set HF_TOKEN"
    if isinstance(error, RepositoryNotFoundError) or status in {401, 403, 404}:
        return f"{_endpoint()} shows no repository {model.repo} to you: check the name; if it is private, set HF_TOKEN"
    return f"{_endpoint()} answered with HTTP {status}: try again later"
