"""Opens the models that the settings name: which adapter, with which options. Knows no fleet, no turn, no state."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

import anyio.to_thread
import psutil

from adapters.argument_reader import open_reader as open_argument_reader
from adapters.cross_encoder import RerankerOptions
from adapters.cross_encoder import open_reranker as open_cross_encoder
from adapters.llama_cpp.engine import LlamaEngine
from adapters.llama_cpp.engine import open_engine as open_llama_engine
from adapters.llama_cpp.likelihood import LikelihoodReranker
from adapters.llama_cpp.options import EngineOptions
from adapters.llama_cpp.vocabulary import Vocabulary, open_vocabulary
from adapters.model_files import ModelFiles, parse_model_name
from adapters.openai_engine import RemoteOptions, open_openai_engine
from adapters.ports import ArgumentEngine, Embedder, ModelUnusable, Reranker
from adapters.reading_port import ArgumentReader
from adapters.sentence_models import EmbedderOptions
from adapters.sentence_models import open_embedder as open_sentence_model
from adapters.sentence_runtime import RunOptions
from nexus_gateway.models import ModelSlot
from nexus_gateway.settings import EngineSettings, Settings
from nexus_gateway.state.planned_engine import PlannedEngine


def model_files(settings: Settings) -> ModelFiles:
    """Where the models of these settings are looked for."""
    return ModelFiles(settings.cache_dir / "models")


def argument_vocabulary(settings: Settings) -> AbstractContextManager[Vocabulary]:
    """Open the vocabulary of the argument model. Blocks. Raises ModelError, also on entering."""
    return open_vocabulary(model_files(settings).locate(parse_model_name(settings.models.argument_model)))


@asynccontextmanager
async def open_reader(settings: Settings, named: str) -> AsyncIterator[ArgumentReader]:
    """The reading model of this name. Raises ModelError."""
    path, deltas = await _locate(settings, named)
    if deltas is None:
        raise ModelUnusable(f"{named} is no reading model: [models] reader is nexus:reader or off")
    async with open_argument_reader(path, deltas, RunOptions(threads=_torch_threads(settings))) as reader:
        yield reader


@asynccontextmanager
async def open_embedder(settings: Settings) -> AsyncIterator[Embedder]:
    """The embedding model. Raises ModelError."""
    path, deltas = await _locate(settings, settings.models.embedder_model)
    options = EmbedderOptions(threads=_torch_threads(settings))
    async with open_sentence_model(path, options, deltas) as embedder:
        yield embedder


@asynccontextmanager
async def open_reranker(settings: Settings) -> AsyncIterator[Reranker]:
    """The cross-encoder. Raises ModelError."""
    path, deltas = await _locate(settings, settings.models.reranker_model)
    options = RerankerOptions(threads=_torch_threads(settings))
    async with open_cross_encoder(path, options, deltas) as reranker:
        yield reranker


@asynccontextmanager
async def open_any_reranker(settings: Settings, by: str) -> AsyncIterator[Reranker | None]:
    """A reranker outside a gateway, with an argument model of its own where that is to read."""
    match by:
        case "cross-encoder":
            async with open_reranker(settings) as reranker:
                yield reranker
        case "llm":
            async with open_engine(settings) as engine:
                yield _likelihood_reranker(engine)
        case _:
            yield None


@asynccontextmanager
async def argument_model_as_reranker(engine: ModelSlot[ArgumentEngine]) -> AsyncIterator[Reranker]:
    """A reranker on the gateway's own argument model. Raises ModelError."""
    yield _likelihood_reranker(await engine.get())


def _likelihood_reranker(engine: ArgumentEngine) -> Reranker:
    engine = engine.engine if isinstance(engine, PlannedEngine) else engine
    if isinstance(engine, LlamaEngine):
        return LikelihoodReranker(engine)
    raise ModelUnusable(
        'rerank = "llm" needs an argument model on this machine; with a server in [engine] set it to '
        '"cross-encoder" or "off" in [routing]'
    )


@asynccontextmanager
async def open_engine(settings: Settings) -> AsyncIterator[ArgumentEngine]:
    """The configured server, or the argument model of this machine. Raises ModelError."""
    if settings.engine.url is None:
        async with _open_local_engine(settings) as local:
            yield local
    else:
        async with open_openai_engine(_remote_options(settings.engine)) as remote:
            yield remote


def _remote_options(engine: EngineSettings) -> RemoteOptions:
    if engine.url is None or engine.model is None:
        raise ModelUnusable(
            f"[engine] has the url {engine.url} and no model; name the model as the server lists it"
        )
    return RemoteOptions(
        url=engine.url,
        model=engine.model,
        api_key_env=engine.api_key_env,
        api_key_keyring=engine.api_key_keyring,
        timeout_seconds=engine.timeout_seconds,
        retries=engine.retries,
        plain_http=engine.plain_http,
        extra_body=dict(engine.extra_body),
    )


@asynccontextmanager
async def _open_local_engine(settings: Settings) -> AsyncIterator[LlamaEngine]:
    models = settings.models
    path, _ = await _locate(settings, models.argument_model)
    options = EngineOptions(
        n_ctx=models.n_ctx,
        n_gpu_layers=models.n_gpu_layers,
        threads=models.threads,
        flash_attention=models.flash_attention,
        resident_bytes=settings.state.resident_mb * 1_000_000 if settings.state.enabled else 0,
    )
    async with open_llama_engine(path, options) as engine:
        yield engine


def _torch_threads(settings: Settings) -> int:
    """Half the cores unless configured: on a busy machine the threads of one small text only wait for each other."""
    return settings.models.threads or max(1, (psutil.cpu_count(logical=False) or 2) // 2)


async def _locate(settings: Settings, name: str) -> tuple[Path, Path | None]:
    """Where a model is, and the differences that make a shipped one of it."""
    files, parsed = model_files(settings), parse_model_name(name)
    return await anyio.to_thread.run_sync(lambda: (files.locate(parsed), files.deltas(parsed)))
