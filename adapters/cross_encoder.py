"""Rerankers run by sentence-transformers: cross-encoders, which read a request and a text together.

Knows model directories and that library. Does not know where models come from, nor what the texts are. The library
is imported lazily (see `adapters.sentence_runtime`). A model is loaded from its directory alone: nothing here opens
a connection.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from anyio import to_thread
from numpy.typing import NDArray

from adapters.ports import ModelUnusable
from adapters.sentence_runtime import (
    Runner,
    RunOptions,
    add_deltas,
    check_directory,
    content_identity,
    json_object,
    limit_length,
    load_arguments,
    loading,
    max_tokens,
)

_KIND = "reranker"
_HEAD = ("classifier.weight", "classifier.bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerOptions(RunOptions):
    """How a cross-encoder is run. A request and a tool text have about 100 tokens; longer pairs lose their ends.

    Attributes:
        bfloat16: all but the head in bfloat16; None does so where the CPU multiplies it natively. Five pairs of 95
            tokens then take 0.37 times the work of float32, and scores move in the third digit.
    """

    max_tokens: int = 128
    bfloat16: bool | None = None


@dataclass(frozen=True, slots=True)
class _Loaded:
    model: Any
    identity: str
    half: bool


class CrossEncoderReranker:
    """A `Reranker` over one loaded cross-encoder; see `open_reranker`."""

    def __init__(self, loaded: _Loaded, directory: Path, options: RerankerOptions) -> None:
        self._model = loaded.model
        self._identity = loaded.identity
        self._half = loaded.half
        self._runner = Runner(directory, loaded.model, options)

    @property
    def identity(self) -> str:
        """Hash over weights, configuration, tokenizer and length limit; the same in each process."""
        return self._identity

    async def score(self, request: str, texts: Sequence[str]) -> Sequence[float]:
        """One raw score (logit) a text, higher is better; the scale is the model's. Raises ModelUnusable."""
        limit = self._runner.max_characters
        pairs = [(request[:limit], text[:limit]) for text in texts]
        scores = np.zeros(len(pairs), dtype=np.float32)
        async for indices, values in self._runner.run(
            self._predict, pairs, lengths=[len(text) for _, text in pairs]
        ):
            scores[indices] = values
        return [float(score) for score in scores]

    def _predict(self, pairs: Sequence[tuple[str, str]]) -> NDArray[Any]:
        from torch import autocast, bfloat16  # noqa: PLC0415 - see the module docstring

        with autocast("cpu", dtype=bfloat16, enabled=self._half):
            scores = self._model.predict(list(pairs), show_progress_bar=False)
        return np.asarray(scores, dtype=np.float32)


@asynccontextmanager
async def open_reranker(
    directory: Path, options: RerankerOptions | None = None, deltas: Path | None = None
) -> AsyncIterator[CrossEncoderReranker]:
    """Load the cross-encoder of a directory, or make one of an embedder's directory and trained weights.

    Args:
        directory: the model; with `deltas` the base that they belong to.
        options: how it is run.
        deltas: low-rank differences and the whole head, as `adapters.low_rank` describes them.

    Raises:
        ModelMissing: there is no file `deltas`.
        ModelUnusable: names the directory or the file and what is wrong with it.
    """
    options = options or RerankerOptions()
    # Nothing stops an import or a load half-way; a cancelled start must not wait for it.
    loaded = await to_thread.run_sync(_load, directory, options, deltas, abandon_on_cancel=True)
    yield CrossEncoderReranker(loaded, directory, options)


def _load(directory: Path, options: RerankerOptions, deltas: Path | None) -> _Loaded:
    with loading(directory, options):
        if deltas is None:
            _check_files(directory)
        from sentence_transformers import CrossEncoder  # noqa: PLC0415 - see the module docstring
        from torch.nn import Identity  # noqa: PLC0415

        # Without its own head the library gives a model one of random weights; the deltas bring the trained one.
        head = {} if deltas is None else {"num_labels": 1}
        model = CrossEncoder(str(directory), activation_fn=Identity(), **head, **load_arguments(options))
        if model.num_labels != 1:
            raise ModelUnusable(
                f"the model in {directory} gives {model.num_labels} numbers a pair: "
                "a reranker has to give one, its score"
            )
        add_deltas(model, directory, deltas, _KIND, needed=_HEAD)
        limit_length(model, options)
        # Not the number format: what a calibration was made for would then differ from machine to machine.
        identity = content_identity(directory, deltas, _KIND, str(max_tokens(model, options)))
        return _Loaded(model, identity, _in_half_precision(model.transformers_model, options))


def _in_half_precision(model: Any, options: RerankerOptions) -> bool:
    """Whether to run in bfloat16. The head stays in float32: in bfloat16 near scores would become equal."""
    import torch  # noqa: PLC0415 - see the module docstring

    head = getattr(model, "classifier", None)
    wanted = options.bfloat16
    if wanted is None:
        able = torch.cpu.get_capabilities()
        wanted = bool(able.get("avx512_bf16") or able.get("amx_bf16"))
    if not wanted or head is None or options.device != "cpu":
        return False
    forward = head.forward

    def exact(hidden: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return forward(hidden.float())

    head.forward = exact
    return True


def _check_files(directory: Path) -> None:
    """Refuse other models: the library would give them a head of random weights, and go on."""
    check_directory(directory)
    kind = json_object(directory / "config_sentence_transformers.json").get("model_type")
    architectures = json_object(directory / "config.json").get("architectures") or []
    if kind != "CrossEncoder" and not any("ForSequenceClassification" in str(name) for name in architectures):
        raise ModelUnusable(
            f"the model in {directory} is no cross-encoder: its config.json names {architectures}"
        )
