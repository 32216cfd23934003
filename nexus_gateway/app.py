"""The composition root: settings to adapters to services, in one task group. Only here are concrete adapters named."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import structlog

from adapters.llama_cpp.engine import open_engine
from adapters.llama_cpp.options import EngineOptions
from adapters.mcp_upstream import connect
from adapters.model_files import ModelFiles, parse_model_name
from adapters.ports import ArgumentEngine, Embedder
from adapters.sentence_models import EmbedderOptions, open_embedder
from nexus_gateway.access.caller import Caller
from nexus_gateway.fleet.fleet import Fleet
from nexus_gateway.fleet.member import Member
from nexus_gateway.fleet.pin_file import PinFile
from nexus_gateway.fleet.quarantine import Quarantine
from nexus_gateway.models import ModelSlot
from nexus_gateway.readiness import Readiness
from nexus_gateway.registry.indexer import Indexer
from nexus_gateway.routing.router import Router
from nexus_gateway.server.asking_calls import AskingCalls
from nexus_gateway.settings import ServerSettings, Settings, diff
from nexus_gateway.settings.live import LiveSettings
from nexus_gateway.turn.arguments import ArgumentWriter
from nexus_gateway.turn.confirmation import Approvals
from nexus_gateway.turn.parts import TurnParts
from nexus_gateway.turn.service import TurnService
from tool_registry.compiled_store import CompiledStore
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
    readiness: Readiness
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
    store = CompiledStore(settings.cache_dir / "compiled", _report_corrupt)
    indexer = Indexer(store, embedder.get)
    quarantine = Quarantine(
        PinFile(settings.cache_dir / "pins.json"), set_aside_changes=settings.pins.quarantine_changes
    )
    fleet = Fleet(
        map(_member, settings.servers.values()),
        connect,
        on_catalog=indexer.follow,
        review=quarantine.review,
        listings_folder=settings.cache_dir / "listings",
    )
    live = LiveSettings(settings)
    readiness = Readiness(fleet, indexer, [embedder, engine])
    turns = TurnService(
        TurnParts(
            calls=AskingCalls(fleet),
            ready=readiness.wait,
            router=Router(embedder.get, _gate(settings)),
            writer=ArgumentWriter(engine.get, max_tokens=settings.turn.max_argument_tokens),
            approvals=Approvals(settings.cache_dir / "approvals.json"),
            rules=live,
            deadline_seconds=settings.turn.deadline_seconds,
        )
    )
    return Gateway(live, fleet, quarantine, indexer, embedder, engine, readiness, turns)


def model_files(settings: Settings) -> ModelFiles:
    """Where the models of these settings are looked for."""
    return ModelFiles(settings.cache_dir / "models")


@asynccontextmanager
async def _open_embedder(settings: Settings) -> AsyncIterator[Embedder]:
    path = await _locate(settings, settings.models.embedder_model)
    async with open_embedder(path, EmbedderOptions(threads=_torch_threads(settings))) as embedder:
        yield embedder


@asynccontextmanager
async def _open_engine(settings: Settings) -> AsyncIterator[ArgumentEngine]:
    models = settings.models
    path = await _locate(settings, models.argument_model)
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


async def _locate(settings: Settings, name: str) -> Path:
    return await anyio.to_thread.run_sync(lambda: model_files(settings).locate(parse_model_name(name)))


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


def _gate(settings: Settings) -> Gate:
    default, chosen = Gate(), settings.routing
    return Gate(
        margin=default.margin if chosen.margin is None else chosen.margin,
        floor=default.floor if chosen.floor is None else chosen.floor,
        candidates=default.candidates if chosen.candidates is None else chosen.candidates,
    )


def _report_corrupt(path: Path, reason: str) -> None:
    log.warning("store.corrupt", path=str(path), reason=reason, fix="it is computed again")
