"""Embedders and rerankers run by sentence-transformers.

Knows model directories and that library, and no other module does. Does not know where models come from
(`adapters.model_files`), nor what the texts are.

torch and sentence_transformers take seconds to import and a host waits for our first answer, so they are
imported lazily, in `_load_embedder` and `_load_reranker`, which run in a worker thread. A model is loaded from
its directory alone: nothing here opens a connection.
"""

import hashlib
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from anyio import CapacityLimiter, to_thread
from numpy.typing import NDArray

from adapters.ports import ModelError, ModelUnusable, Vectors

_CHARACTERS_PER_TOKEN = 16
"""Longer texts are cut before they are tokenised: above what a token covers in any language (2 to 6)."""

_MULTILINGUAL_VOCABULARY = 60_000
"""English vocabularies have 30,522 (BERT) or 50,265 entries (RoBERTa); multilingual ones 100,000 and more."""

_CONTENT_SUFFIXES = {".safetensors", ".bin", ".json", ".txt", ".model"}

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class EmbedderOptions:
    """How a model is run.

    Attributes:
        request_prompt: put before each request; the model's own `query` prompt where None.
        tool_prompt: put before each tool text; the model's own `document` or `passage` prompt where None.
        max_tokens: texts are cut to this length, or to the model's where that is shorter.
        batch_size: texts a call into the library; a request waits for one such batch at most. On a CPU, larger
            ones measured no faster.
        threads: torch's threads, of the whole process; its own choice where None.
        device: as torch names it.
        trust_remote_code: run Python files that come with the model. Only for a model that needs it and that you trust.
    """

    request_prompt: str | None = None
    tool_prompt: str | None = None
    max_tokens: int = 512
    batch_size: int = 8
    threads: int | None = None
    device: str = "cpu"
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True)
class _Loaded:
    model: Any
    identity: str
    dimensions: int
    english_only: bool
    request_prompt: str
    tool_prompt: str


class SentenceEmbedder:
    """An `Embedder` over one loaded sentence-transformers model; see `open_embedder`."""

    def __init__(self, loaded: _Loaded, directory: Path, options: EmbedderOptions) -> None:
        self._loaded = loaded
        self._runner = _Runner(directory, loaded.model, options)

    @property
    def identity(self) -> str:
        """Hash over weights, configuration, tokenizer, prompts and length limit; the same in each process."""
        return self._loaded.identity

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._loaded.dimensions

    @property
    def english_only(self) -> bool:
        """Whether the model card or, where that is silent, the size of the vocabulary says so."""
        return self._loaded.english_only

    async def embed_requests(self, texts: Sequence[str]) -> Vectors:
        """Vectors of requests, shape (n, dimensions), rows of L2 norm 1. Raises ModelUnusable."""
        return await self._embed(texts, self._loaded.request_prompt)

    async def embed_tools(self, texts: Sequence[str]) -> Vectors:
        """Vectors of tool texts, shape (n, dimensions), rows of L2 norm 1. Raises ModelUnusable."""
        return await self._embed(texts, self._loaded.tool_prompt)

    async def _embed(self, texts: Sequence[str], prompt: str) -> Vectors:
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        cut = [text[: self._runner.max_characters] for text in texts]

        def encode(batch: Sequence[str]) -> NDArray[Any]:
            rows = self._loaded.model.encode(
                list(batch), prompt=prompt, normalize_embeddings=True, show_progress_bar=False
            )
            return np.asarray(rows, dtype=np.float32)

        async for indices, rows in self._runner.run(encode, cut, lengths=[len(text) for text in cut]):
            vectors[indices] = rows
        return vectors


class CrossEncoderReranker:
    """A `Reranker` over one loaded cross-encoder; see `open_reranker`."""

    def __init__(self, model: Any, directory: Path, options: EmbedderOptions) -> None:
        self._model = model
        self._runner = _Runner(directory, model, options)

    async def score(self, request: str, texts: Sequence[str]) -> Sequence[float]:
        """One score a text, higher is better; the scale is the model's. Raises ModelUnusable."""
        limit = self._runner.max_characters
        pairs = [(request[:limit], text[:limit]) for text in texts]
        scores = np.zeros(len(pairs), dtype=np.float32)

        def predict(batch: Sequence[tuple[str, str]]) -> NDArray[Any]:
            return np.asarray(self._model.predict(list(batch), show_progress_bar=False), dtype=np.float32)

        async for indices, values in self._runner.run(
            predict, pairs, lengths=[len(text) for _, text in pairs]
        ):
            scores[indices] = values
        return [float(score) for score in scores]


@asynccontextmanager
async def open_embedder(
    directory: Path, options: EmbedderOptions | None = None
) -> AsyncIterator[SentenceEmbedder]:
    """Load the model of a directory; it is dropped when the context is left.

    Raises:
        ModelUnusable: names the directory and what is wrong with it.
    """
    options = options or EmbedderOptions()
    # Nothing stops an import or a load half-way; a cancelled start must not wait for it.
    loaded = await to_thread.run_sync(_load_embedder, directory, options, abandon_on_cancel=True)
    yield SentenceEmbedder(loaded, directory, options)


@asynccontextmanager
async def open_reranker(
    directory: Path, options: EmbedderOptions | None = None
) -> AsyncIterator[CrossEncoderReranker]:
    """Load the cross-encoder of a directory; prompts of the options don't count.

    Raises:
        ModelUnusable: names the directory and what is wrong with it.
    """
    options = options or EmbedderOptions()
    model = await to_thread.run_sync(_load_reranker, directory, options, abandon_on_cancel=True)
    yield CrossEncoderReranker(model, directory, options)


class _Runner:
    """Runs one model batch by batch, in one worker thread at a time, shared by all callers in turn."""

    def __init__(self, directory: Path, model: Any, options: EmbedderOptions) -> None:
        self.max_characters = _max_tokens(model, options) * _CHARACTERS_PER_TOKEN
        self._directory = directory
        self._options = options
        self._limiter = CapacityLimiter(1)

    async def run(
        self, call: Callable[[Sequence[_Item]], NDArray[Any]], items: Sequence[_Item], lengths: Sequence[int]
    ) -> AsyncIterator[tuple[list[int], NDArray[Any]]]:
        """Yield the indices of a batch and the rows that `call` gives for it.

        Items of like length share a batch, since each is padded to the longest. The limiter is taken anew for
        each batch and serves in turn, so a lone request passes a long run and a cancelled run stops early.
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
            raise ModelUnusable(f"the model in {self._directory} failed: {_first_line(error)}") from error


@contextmanager
def _load_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # broken files make the libraries raise nearly anything
        raise ModelUnusable(f"can't load the model in {directory}: {_first_line(error)}") from error


def _load_embedder(directory: Path, options: EmbedderOptions) -> _Loaded:
    with _load_errors(directory):
        _check_embedder_files(directory)
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - see the module docstring

        _prepare_torch(options)
        model = SentenceTransformer(str(directory), **_load_arguments(options))
        _limit_length(model, options)
        request_prompt = _prompt(model, options.request_prompt, "query")
        tool_prompt = _prompt(model, options.tool_prompt, "document", "passage")
        return _Loaded(
            model=model,
            identity=_identity(directory, request_prompt, tool_prompt, str(_max_tokens(model, options))),
            dimensions=int(model.get_embedding_dimension()),
            english_only=_is_english_only(directory, _vocabulary(model.tokenizer)),
            request_prompt=request_prompt,
            tool_prompt=tool_prompt,
        )


def _load_reranker(directory: Path, options: EmbedderOptions) -> Any:
    with _load_errors(directory):
        _check_reranker_files(directory)
        from sentence_transformers import CrossEncoder  # noqa: PLC0415 - see the module docstring

        _prepare_torch(options)
        model = CrossEncoder(str(directory), **_load_arguments(options))
        _limit_length(model, options)
        return model


def _load_arguments(options: EmbedderOptions) -> dict[str, Any]:
    return {
        "device": options.device,
        "local_files_only": True,
        "trust_remote_code": options.trust_remote_code,
    }


def _prepare_torch(options: EmbedderOptions) -> None:
    import torch  # noqa: PLC0415 - see the module docstring
    from transformers.utils import logging  # noqa: PLC0415

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # it would draw into the log
    if options.threads is not None:
        torch.set_num_threads(options.threads)


def _max_tokens(model: Any, options: EmbedderOptions) -> int:
    return int(min(model.max_seq_length or options.max_tokens, options.max_tokens))


def _limit_length(model: Any, options: EmbedderOptions) -> None:
    if model.max_seq_length != math.inf:  # so it is where there is no transformer, and can't be set
        model.max_seq_length = _max_tokens(model, options)


def _prompt(model: Any, given: str | None, *names: str) -> str:
    if given is not None:
        return given
    return next((prompt for name in names if (prompt := model.prompts.get(name))), "")


def _check_embedder_files(directory: Path) -> None:
    _check_directory(directory)
    if not (directory / "modules.json").is_file():
        raise ModelUnusable(f"{directory} has no modules.json: it holds no sentence-transformers model")


def _check_reranker_files(directory: Path) -> None:
    """Refuse other models: the library would give them a head of random weights, and go on."""
    _check_directory(directory)
    kind = _json_object(directory / "config_sentence_transformers.json").get("model_type")
    architectures = _json_object(directory / "config.json").get("architectures") or []
    if kind != "CrossEncoder" and not any("ForSequenceClassification" in str(name) for name in architectures):
        raise ModelUnusable(
            f"the model in {directory} is no cross-encoder: its config.json names {architectures}"
        )


def _check_directory(directory: Path) -> None:
    if not directory.is_dir():
        what = "is a file" if directory.is_file() else "does not exist"
        raise ModelUnusable(f"{directory} {what}: expected the directory of a sentence-transformers model")


def _json_object(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return value if isinstance(value, dict) else {}


def _identity(directory: Path, *settings: str) -> str:
    """BLAKE2b-128 over all files that decide the vectors, and the settings."""
    digest = hashlib.blake2b(digest_size=16)
    files = (path for path in directory.rglob("*") if path.suffix in _CONTENT_SUFFIXES and path.is_file())
    for path in sorted(files):
        with path.open("rb") as content:
            file_digest = hashlib.file_digest(content, "blake2b").hexdigest()
        digest.update(f"{path.relative_to(directory).as_posix()}\0{file_digest}\0".encode())
    digest.update(json.dumps(settings).encode())
    return f"sentence-transformers:{digest.hexdigest()}"


def _is_english_only(directory: Path, vocabulary: int) -> bool:
    languages = _card_languages(directory / "README.md")
    return languages <= {"en", "eng", "english"} if languages else vocabulary < _MULTILINGUAL_VOCABULARY


def _vocabulary(tokenizer: Any) -> int:
    """Entries of a tokenizer of transformers, or of tokenizers where the model has no transformer."""
    return int(tokenizer.get_vocab_size() if hasattr(tokenizer, "get_vocab_size") else len(tokenizer))


def _card_languages(card: Path) -> set[str]:
    """What the card's metadata lists under `language`; empty where it is silent."""
    from huggingface_hub import metadata_load  # noqa: PLC0415 - see the module docstring

    try:
        metadata = metadata_load(card) if card.is_file() else None
    except Exception:  # noqa: BLE001 - any broken YAML: the vocabulary decides then
        return set()
    languages = (metadata or {}).get("language") or []
    return {str(language).lower() for language in ([languages] if isinstance(languages, str) else languages)}


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
