"""What embedders and cross-encoders share: options, loading with errors for people, running in one worker thread.

Knows model directories, torch and the settings of sentence-transformers that are the same for both. Does not know
what a model is for.

torch and sentence_transformers take seconds to import and a host waits for our first answer, so all that import
them do so inside functions that run in a worker thread.
"""

import hashlib
import json
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from numpy.typing import NDArray

from adapters.low_rank import merge, read_deltas
from adapters.ports import ModelError, ModelUnusable

_CHARACTERS_PER_TOKEN = 16
"""Longer texts are cut before they are tokenised: above what a token covers in any language (2 to 6)."""

_CONTENT_SUFFIXES = {".safetensors", ".bin", ".json", ".txt", ".model"}

_loading = (
    threading.Lock()
)  # transformers imports its parts lazily, and two threads at once see them half made

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a model is run.

    Attributes:
        max_tokens: texts are cut to this length, or to the model's where that is shorter.
        batch_size: texts a call into the library; a request waits for one such batch at most. On a CPU, larger
            ones measured no faster.
        threads: torch's threads, of the whole process; its own choice where None.
        device: as torch names it.
        trust_remote_code: run Python files that come with the model. Only for a model that needs it and that you trust.
    """

    max_tokens: int = 512
    batch_size: int = 8
    threads: int | None = None
    device: str = "cpu"
    trust_remote_code: bool = False


class Runner:
    """Runs one model batch by batch, in one worker thread at a time, shared by all callers in turn."""

    def __init__(self, directory: Path, model: Any, options: RunOptions) -> None:
        self.max_characters = max_tokens(model, options) * _CHARACTERS_PER_TOKEN
        self._directory = directory
        self._options = options
        self._limiter = CapacityLimiter(1)

    async def run(
        self, call: Callable[[Sequence[_Item]], NDArray[Any]], items: Sequence[_Item], lengths: Sequence[int]
    ) -> AsyncIterator[tuple[list[int], NDArray[Any]]]:
        """Yield the indices of a batch and the rows that `call` gives for it.

        Items of like length share a batch, since each is padded to the longest. The limiter is taken anew for
        each batch and serves in turn, so a lone request passes a long run and a cancelled run stops early.

        Raises:
            ModelUnusable: the library failed.
        """
        order = sorted(range(len(items)), key=lambda index: lengths[index])
        for start in range(0, len(order), self._options.batch_size):
            indices = order[start : start + self._options.batch_size]
            batch = [items[index] for index in indices]
            yield indices, await to_thread.run_sync(self._call, call, batch, limiter=self._limiter)

    def _call(self, call: Callable[[Sequence[_Item]], NDArray[Any]], batch: Sequence[_Item]) -> NDArray[Any]:
        try:
            return call(batch)
        except (RuntimeError, ValueError) as error:
            raise ModelUnusable(f"the model in {self._directory} failed: {first_line(error)}") from error


@contextmanager
def loading(directory: Path, options: RunOptions) -> Iterator[None]:
    """Load one model at a time, with torch as the options want it; whatever goes wrong is a ModelUnusable."""
    try:
        check_directory(directory)
        with _loading:
            _prepare_torch(options)
            yield
    except ModelError:
        raise
    except Exception as error:  # broken files make the libraries raise nearly anything
        raise ModelUnusable(f"can't load the model in {directory}: {first_line(error)}") from error


def check_directory(directory: Path) -> None:
    """Raise ModelUnusable for what is no directory."""
    if not directory.is_dir():
        what = "is a file" if directory.is_file() else "does not exist"
        raise ModelUnusable(f"{directory} {what}: expected the directory of a sentence-transformers model")


def load_arguments(options: RunOptions) -> dict[str, Any]:
    """What both constructors of sentence-transformers are given."""
    return {
        "device": options.device,
        "local_files_only": True,
        "trust_remote_code": options.trust_remote_code,
    }


def add_deltas(
    model: Any, directory: Path, deltas: Path | None, kind: str, *, needed: Sequence[str] = ()
) -> None:
    """Turn a loaded model of sentence-transformers into the trained one, if there are deltas.

    Args:
        model: of either kind; its weights are changed.
        directory: where it was loaded from.
        deltas: the file.
        kind: what the file has to be for.
        needed: tensors that the base lacks, so that the file must have them.

    Raises:
        ModelMissing: there is no such file.
        ModelUnusable: it does not fit.
    """
    if deltas is None:
        return
    read = read_deltas(deltas, kind=kind, base=directory)
    for name in needed:
        if name not in read.whole:
            raise ModelUnusable(f"the trained weights {deltas} have no {name}")
    merge(read, model.transformers_model)


def max_tokens(model: Any, options: RunOptions) -> int:
    """The length in tokens that texts are cut to."""
    return int(min(model.max_seq_length or options.max_tokens, options.max_tokens))


def limit_length(model: Any, options: RunOptions) -> None:
    """Make the model cut texts so."""
    if model.max_seq_length != math.inf:  # so it is where there is no transformer, and can't be set
        model.max_seq_length = max_tokens(model, options)


def content_identity(directory: Path, deltas: Path | None, *settings: str) -> str:
    """BLAKE2b-128 over all files that decide what a model gives, and the settings."""
    digest = hashlib.blake2b(digest_size=16)
    files = (path for path in directory.rglob("*") if path.suffix in _CONTENT_SUFFIXES and path.is_file())
    for path in sorted(files):
        digest.update(f"{path.relative_to(directory).as_posix()}\0{_file_digest(path)}\0".encode())
    if deltas is not None:
        digest.update(f"deltas\0{_file_digest(deltas)}\0".encode())
    digest.update(json.dumps(settings).encode())
    return f"sentence-transformers:{digest.hexdigest()}"


def json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is no such file, or no object in it."""
    value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return value if isinstance(value, dict) else {}


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _file_digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "blake2b").hexdigest()


def _prepare_torch(options: RunOptions) -> None:
    import torch  # noqa: PLC0415 - see the module docstring
    from transformers.utils import logging  # noqa: PLC0415

    # A bar and a table for each load would be drawn into the log.
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if options.threads is not None:
        torch.set_num_threads(options.threads)
