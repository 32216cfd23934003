"""Embedders run by sentence-transformers.

Knows model directories and that library. Does not know where models come from (`adapters.model_files`), nor what
the texts are. The library is imported lazily (see `adapters.sentence_runtime`). A model is loaded from its directory
alone: nothing here opens a connection.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from anyio import to_thread
from numpy.typing import NDArray

from adapters.ports import ModelUnusable, Vectors
from adapters.sentence_runtime import (
    Runner,
    RunOptions,
    add_deltas,
    content_identity,
    limit_length,
    load_arguments,
    loading,
    max_tokens,
)

_KIND = "embedder"

_MULTILINGUAL_VOCABULARY = 60_000
"""English vocabularies have 30,522 (BERT) or 50,265 entries (RoBERTa); multilingual ones 100,000 and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderOptions(RunOptions):
    """How an embedder is run.

    Attributes:
        request_prompt: put before each request; the model's own `query` prompt where None.
        tool_prompt: put before each tool text; the model's own `document` or `passage` prompt where None.
    """

    request_prompt: str | None = None
    tool_prompt: str | None = None


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
        self._runner = Runner(directory, loaded.model, options)

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


@asynccontextmanager
async def open_embedder(
    directory: Path, options: EmbedderOptions | None = None, deltas: Path | None = None
) -> AsyncIterator[SentenceEmbedder]:
    """Load the model of a directory; it is dropped when the context is left.

    Args:
        directory: the model; with `deltas` the base that they belong to.
        options: how it is run.
        deltas: low-rank differences, as `adapters.low_rank` describes them.

    Raises:
        ModelMissing: there is no file `deltas`.
        ModelUnusable: names the directory or the file and what is wrong with it.
    """
    options = options or EmbedderOptions()
    # Nothing stops an import or a load half-way; a cancelled start must not wait for it.
    loaded = await to_thread.run_sync(_load, directory, options, deltas, abandon_on_cancel=True)
    yield SentenceEmbedder(loaded, directory, options)


def _load(directory: Path, options: EmbedderOptions, deltas: Path | None) -> _Loaded:
    with loading(directory, options):
        if not (directory / "modules.json").is_file():
            raise ModelUnusable(f"{directory} has no modules.json: it holds no sentence-transformers model")
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - see the module docstring

        model = SentenceTransformer(str(directory), **load_arguments(options))
        add_deltas(model, directory, deltas, _KIND)
        limit_length(model, options)
        request_prompt = _prompt(model, options.request_prompt, "query")
        tool_prompt = _prompt(model, options.tool_prompt, "document", "passage")
        length = str(max_tokens(model, options))
        return _Loaded(
            model=model,
            identity=content_identity(directory, deltas, request_prompt, tool_prompt, length),
            dimensions=int(model.get_embedding_dimension()),
            english_only=_is_english_only(directory, _vocabulary(model.tokenizer)),
            request_prompt=request_prompt,
            tool_prompt=tool_prompt,
        )


def _prompt(model: Any, given: str | None, *names: str) -> str:
    if given is not None:
        return given
    return next((prompt for name in names if (prompt := model.prompts.get(name))), "")


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
