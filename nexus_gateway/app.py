"""The composition root: settings to adapters to services, in one task group. Only here are concrete adapters named."""

import gc
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import structlog

from adapters.cross_encoder import RerankerOptions, open_reranker
from adapters.llama_cpp.engine import LlamaEngine, open_engine
from adapters.llama_cpp.likelihood import LikelihoodReranker
from adapters.llama_cpp.options import EngineOptions
from adapters.mcp_upstream import connect
from adapters.model_files import ModelFiles, parse_model_name
from adapters.ports import ArgumentEngine, Embedder, ProgressCallback, Reranker
from adapters.sentence_models import EmbedderOptions, open_embedder
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
from nexus_gateway.settings import ServerSettings, Settings, diff
from nexus_gateway.settings.live import LiveSettings
from nexus_gateway.turn.arguments import ArgumentWriter
from nexus_gateway.turn.confirmation import Approvals
from nexus_gateway.turn.parts import TurnParts
from nexus_gateway.turn.service import TurnService
from tool_registry.compiled_store import CompiledStore
from tool_registry.index import RoutingIndex
from tool_registry.routing import Gate

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
    engine = ModelSlot[LlamaEngine]("argument model", lambda: _open_engine(settings))
    reranker = _reranker(settings, engine)
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
            writer=ArgumentWriter(engine.get, max_tokens=settings.turn.max_argument_tokens),
            approvals=Approvals(settings.cache_dir / "approvals.json"),
            rules=live,
            deadline_seconds=settings.turn.deadline_seconds,
        )
    )
    return Gateway(
        live, fleet, quarantine, indexer, embedder, engine, reranker, readiness, router, gatekeeper, turns
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


def model_files(settings: Settings) -> ModelFiles:
    """Where the models of these settings are looked for."""
    return ModelFiles(settings.cache_dir / "models")


@asynccontextmanager
async def _open_embedder(settings: Settings) -> AsyncIterator[Embedder]:
    path, deltas = await _locate(settings, settings.models.embedder_model)
    options = EmbedderOptions(threads=_torch_threads(settings))
    async with open_embedder(path, options, deltas) as embedder:
        yield embedder


def _reranker(settings: Settings, engine: ModelSlot[LlamaEngine]) -> ModelSlot[Reranker] | None:
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
                yield LikelihoodReranker(engine)
        case _:
            yield None


@asynccontextmanager
async def _argument_model_as_reranker(engine: ModelSlot[LlamaEngine]) -> AsyncIterator[Reranker]:
    yield LikelihoodReranker(await engine.get())


@asynccontextmanager
async def _open_engine(settings: Settings) -> AsyncIterator[LlamaEngine]:
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
