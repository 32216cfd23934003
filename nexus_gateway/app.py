"""The composition root: settings to adapters to services, in one task group. Only here are concrete adapters named."""

import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import psutil
import structlog

from adapters.argument_reader import open_reader
from adapters.cross_encoder import RerankerOptions, open_reranker
from adapters.llama_cpp.engine import LlamaEngine, open_engine
from adapters.llama_cpp.likelihood import LikelihoodReranker
from adapters.llama_cpp.options import EngineOptions
from adapters.llama_cpp.vocabulary import Vocabulary, open_vocabulary
from adapters.mcp_upstream import connect
from adapters.model_files import ModelFiles, parse_model_name
from adapters.openai_engine import RemoteOptions, open_openai_engine
from adapters.ports import ArgumentEngine, Embedder, ModelUnusable, ProgressCallback, Reranker
from adapters.reading_port import ArgumentReader
from adapters.sentence_models import EmbedderOptions, open_embedder
from adapters.sentence_runtime import RunOptions
from nexus_gateway.access.caller import Caller
from nexus_gateway.fleet.disabled import without_disabled
from nexus_gateway.fleet.fleet import Fleet
from nexus_gateway.fleet.member import Member
from nexus_gateway.fleet.pin_file import PinFile
from nexus_gateway.fleet.quarantine import Quarantine
from nexus_gateway.models import ModelSlot
from nexus_gateway.readiness import Readiness
from nexus_gateway.registry.indexer import Indexer
from nexus_gateway.routing.gatekeeper import Gatekeeper
from nexus_gateway.routing.parts import RouterParts
from nexus_gateway.routing.router import Router
from nexus_gateway.server.asking_calls import AskingCalls
from nexus_gateway.settings import EngineSettings, ServerSettings, Settings, diff
from nexus_gateway.settings.live import LiveSettings
from nexus_gateway.turn import binding_file, confidence
from nexus_gateway.turn.arguments import ArgumentWriter
from nexus_gateway.turn.bindings import Bindings
from nexus_gateway.turn.confirmation import Approvals
from nexus_gateway.turn.parts import TurnParts
from nexus_gateway.turn.service import TurnService
from tool_registry.compiled_store import CompiledStore
from tool_registry.index import RoutingIndex
from tool_registry.routing import Gate

ModelT = TypeVar("ModelT")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Gateway:
    """The running application."""

    live: LiveSettings
    fleet: Fleet
    quarantine: Quarantine
    indexer: Indexer
    embedder: ModelSlot[Embedder]
    engine: ModelSlot[ArgumentEngine]
    reranker: ModelSlot[Reranker] | None
    reader: ModelSlot[ArgumentReader] | None
    readiness: Readiness
    router: Router
    gatekeeper: Gatekeeper
    turns: TurnService

    @property
    def settings(self) -> Settings:
        """The snapshot in use."""
        return self.live.current

    async def reload(self, settings: Settings) -> None:
        """Go over to other settings: servers and rules of tools at once, touching only what differs.

        What else differs is logged: it counts from the next start.
        """
        changes = diff(self.live.current, settings)
        self.live.current = settings
        await self.fleet.apply(map(_member, settings.servers.values()))
        for name in changes.servers_removed:
            self.quarantine.forget(name)
        self.quarantine.review_again(self.fleet.take)
        at_the_next_start = [*(["models"] if changes.models_changed else []), *changes.other_changed]
        log.info(
            "settings.reloaded",
            added=changes.servers_added,
            changed=changes.servers_changed,
            removed=changes.servers_removed,
            at_the_next_start=at_the_next_start,
        )


@asynccontextmanager
async def open_gateway(settings: Settings, callers: Iterable[Caller] = ()) -> AsyncIterator[Gateway]:
    """Start everything in the background and give the gateway at once; leaving stops all children.

    `callers` are there already: servers are told what can be asked of the first host.
    """
    gateway = _assemble(settings)
    for caller in callers:
        gateway.fleet.meet(caller)
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gateway.fleet.run, name="fleet")
        tasks.start_soon(gateway.quarantine.run, gateway.fleet.take, name="approved definitions")
        tasks.start_soon(gateway.indexer.run, name="indexer")
        tasks.start_soon(gateway.embedder.run, name="embedder")
        tasks.start_soon(gateway.engine.run, name="argument model")
        if gateway.reranker is not None:
            tasks.start_soon(gateway.reranker.run, name="reranker")
        if gateway.reader is not None:
            tasks.start_soon(gateway.reader.run, name="argument reader")
        try:
            yield gateway
        except Exception as error:  # noqa: BLE001 - raised below as it is: the task group would wrap it in a group
            failure = error
        finally:
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _assemble(settings: Settings) -> Gateway:
    embedder = ModelSlot[Embedder]("embedding model", lambda: _open_embedder(settings))
    engine = ModelSlot[ArgumentEngine]("argument model", lambda: _open_engine(settings))
    reranker = _reranker(settings, engine)
    reader = _reader(settings)
    store = CompiledStore(settings.cache_dir / "compiled", _report_corrupt)
    indexer = Indexer(store, embedder.get)
    quarantine = Quarantine(
        PinFile(settings.cache_dir / "pins.json"), set_aside_changes=settings.pins.quarantine_changes
    )
    live = LiveSettings(settings)
    fleet = Fleet(
        map(_member, settings.servers.values()),
        connect,
        on_catalog=indexer.follow,
        review=lambda server, listing: without_disabled(quarantine.review(server, listing), live.in_use),
        listings_folder=settings.cache_dir / "listings",
    )
    readiness = Readiness(fleet, indexer, [embedder, engine])
    read_again = None if reranker is None else reranker.get
    router = Router(embedder.get, Gate(), reranker=read_again, prefer=settings.routing.prefer)
    gatekeeper = Gatekeeper(router, settings.calibration_file, settings.routing, embedder.get, read_again)
    turns = TurnService(
        TurnParts(
            calls=AskingCalls(fleet),
            ready=gatekeeper.after(readiness.wait),
            router=router,
            writer=_writer(settings, engine.get, None if reader is None else reader.get),
            approvals=Approvals(settings.cache_dir / "approvals.json"),
            rules=live,
            deadline_seconds=settings.turn.deadline_seconds,
            bindings=Bindings(live, settings.cache_dir / binding_file.FILE_NAME),
        )
    )
    return Gateway(
        live,
        fleet,
        quarantine,
        indexer,
        embedder,
        engine,
        reranker,
        reader,
        readiness,
        router,
        gatekeeper,
        turns,
    )


@asynccontextmanager
async def open_router(settings: Settings, *, rerank: str | None = None) -> AsyncIterator[RouterParts]:
    """Load what routing needs and choose its gate, as for a gateway whose fleet may be any.

    Args:
        settings: models, overrides of the gate and the calibration in use.
        rerank: "off", "cross-encoder" or "llm" instead of what is configured.

    Raises:
        ModelError: a model is missing or can't be loaded.
    """

    async def no_tools(_on_progress: ProgressCallback | None) -> RoutingIndex:
        return RoutingIndex()

    async with (
        _open_embedder(settings) as embedder,
        _open_any_reranker(settings, rerank or settings.routing.rerank) as reranker,
    ):
        gc.freeze()  # as ModelSlot does
        parts = RouterParts(embedder, Gate(), reranker, settings.routing.prefer)
        router = parts.router()
        read_again = None if reranker is None else parts.load_reranker
        keeper = Gatekeeper(
            router, settings.calibration_file, settings.routing, parts.load_embedder, read_again
        )
        await keeper.after(no_tools)(None)
        yield replace(parts, gate=router.gate)


@asynccontextmanager
async def open_writer(settings: Settings) -> AsyncIterator[tuple[ArgumentEngine, ArgumentWriter]]:
    """Load the argument model alone, and give it with the writer that a gateway would use on it.

    Raises:
        ModelError: the model is missing or can't be loaded.
    """
    named = settings.models.reader_model
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(_open_engine(settings))
        reader = await stack.enter_async_context(_open_reader(settings, named)) if named else None
        yield engine, _writer(settings, _at_once(engine), None if reader is None else _at_once(reader))


def argument_vocabulary(settings: Settings) -> AbstractContextManager[Vocabulary]:
    """Open the vocabulary of the argument model. Blocks. Raises ModelError, also on entering."""
    return open_vocabulary(model_files(settings).locate(parse_model_name(settings.models.argument_model)))


def model_files(settings: Settings) -> ModelFiles:
    """Where the models of these settings are looked for."""
    return ModelFiles(settings.cache_dir / "models")


def _at_once(model: ModelT) -> Callable[[], Awaitable[ModelT]]:
    """A model that is there, for those who wait for one."""

    async def loaded() -> ModelT:
        return model

    return loaded


def _writer(
    settings: Settings,
    engine: Callable[[], Awaitable[ArgumentEngine]],
    reader: Callable[[], Awaitable[ArgumentReader]] | None,
) -> ArgumentWriter:
    return ArgumentWriter(
        engine,
        max_tokens=settings.turn.max_argument_tokens,
        reader=reader,
        calibration=confidence.in_use(settings.cache_dir / confidence.FILE_NAME),
    )


def _reader(settings: Settings) -> ModelSlot[ArgumentReader] | None:
    named = settings.models.reader_model
    if named is None:
        return None
    return ModelSlot[ArgumentReader]("argument reader", lambda: _open_reader(settings, named))


@asynccontextmanager
async def _open_reader(settings: Settings, named: str) -> AsyncIterator[ArgumentReader]:
    path, deltas = await _locate(settings, named)
    if deltas is None:
        raise ModelUnusable(f"{named} is no reading model: [models] reader is nexus:reader or off")
    async with open_reader(path, deltas, RunOptions(threads=_torch_threads(settings))) as reader:
        yield reader


@asynccontextmanager
async def _open_embedder(settings: Settings) -> AsyncIterator[Embedder]:
    path, deltas = await _locate(settings, settings.models.embedder_model)
    options = EmbedderOptions(threads=_torch_threads(settings))
    async with open_embedder(path, options, deltas) as embedder:
        yield embedder


def _reranker(settings: Settings, engine: ModelSlot[ArgumentEngine]) -> ModelSlot[Reranker] | None:
    match settings.routing.rerank:
        case "cross-encoder":
            return ModelSlot[Reranker]("reranker", lambda: _open_reranker(settings))
        case "llm":
            return ModelSlot[Reranker]("reranker", lambda: _argument_model_as_reranker(engine))
        case _:
            return None


@asynccontextmanager
async def _open_reranker(settings: Settings) -> AsyncIterator[Reranker]:
    path, deltas = await _locate(settings, settings.models.reranker_model)
    options = RerankerOptions(threads=_torch_threads(settings))
    async with open_reranker(path, options, deltas) as reranker:
        yield reranker


@asynccontextmanager
async def _open_any_reranker(settings: Settings, by: str) -> AsyncIterator[Reranker | None]:
    """A reranker outside a gateway, with an argument model of its own where that is to read."""
    match by:
        case "cross-encoder":
            async with _open_reranker(settings) as reranker:
                yield reranker
        case "llm":
            async with _open_engine(settings) as engine:
                yield _likelihood_reranker(engine)
        case _:
            yield None


@asynccontextmanager
async def _argument_model_as_reranker(engine: ModelSlot[ArgumentEngine]) -> AsyncIterator[Reranker]:
    yield _likelihood_reranker(await engine.get())


def _likelihood_reranker(engine: ArgumentEngine) -> Reranker:
    if isinstance(engine, LlamaEngine):
        return LikelihoodReranker(engine)
    raise ModelUnusable(
        'rerank = "llm" needs an argument model on this machine; with a server in [engine] set it to '
        '"cross-encoder" or "off" in [routing]'
    )


@asynccontextmanager
async def _open_engine(settings: Settings) -> AsyncIterator[ArgumentEngine]:
    """The configured server, or the argument model of this machine."""
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
    )
    async with open_engine(path, options) as engine:
        yield engine


def _torch_threads(settings: Settings) -> int:
    """Half the cores unless configured: on a busy machine the threads of one small text only wait for each other."""
    return settings.models.threads or max(1, (psutil.cpu_count(logical=False) or 2) // 2)


async def _locate(settings: Settings, name: str) -> tuple[Path, Path | None]:
    """Where a model is, and the differences that make a shipped one of it."""
    files, parsed = model_files(settings), parse_model_name(name)
    return await anyio.to_thread.run_sync(lambda: (files.locate(parsed), files.deltas(parsed)))


def _member(server: ServerSettings) -> Member:
    return Member(
        server.spec,
        timeout_seconds=server.timeout_seconds,
        connect_timeout_seconds=server.connect_timeout_seconds,
        tool_timeout_seconds={
            n: tool.timeout_seconds for n, tool in server.tools.items() if tool.timeout_seconds
        },
        lazy=server.lazy,
        idle_stop_seconds=server.idle_stop_seconds,
        poll_seconds=server.poll_seconds,
    )


def _report_corrupt(path: Path, reason: str) -> None:
    log.warning("store.corrupt", path=str(path), reason=reason, fix="it is computed again")
