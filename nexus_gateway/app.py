"""The composition root: settings to adapters to services, in one task group. Concrete adapters are named here and in `opening`."""

import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskGroup

from adapters.mcp_upstream import connect
from adapters.ports import ArgumentEngine, Embedder, ProgressCallback, Reranker, Segment
from adapters.reading_port import ArgumentReader
from nexus_gateway.access.caller import Caller
from nexus_gateway.fleet.disabled import without_disabled
from nexus_gateway.fleet.fleet import Fleet
from nexus_gateway.fleet.member import Member
from nexus_gateway.fleet.pin_file import FILE_NAME as PINS
from nexus_gateway.fleet.pin_file import PinFile
from nexus_gateway.fleet.quarantine import Quarantine
from nexus_gateway.models import ModelSlot
from nexus_gateway.opening import (
    argument_model_as_reranker,
    argument_vocabulary,
    model_files,
    open_any_reranker,
    open_embedder,
    open_engine,
    open_reader,
    open_reranker,
)
from nexus_gateway.readiness import Readiness
from nexus_gateway.registry.indexer import Indexer
from nexus_gateway.routing.gatekeeper import Gatekeeper
from nexus_gateway.routing.parts import RouterParts
from nexus_gateway.routing.router import Router
from nexus_gateway.server.asking_calls import AskingCalls
from nexus_gateway.settings import ServerSettings, Settings, diff
from nexus_gateway.settings.live import LiveSettings
from nexus_gateway.state import service as state_service
from nexus_gateway.state.service import StateService
from nexus_gateway.turn import binding_file, confidence
from nexus_gateway.turn.arguments import ArgumentWriter
from nexus_gateway.turn.bindings import Bindings
from nexus_gateway.turn.confirmation import Approvals
from nexus_gateway.turn.parts import TurnParts
from nexus_gateway.turn.prompt import tool_prompt
from nexus_gateway.turn.service import TurnService
from tool_registry.compiled_store import CompiledStore
from tool_registry.index import CompiledTool, RoutingIndex
from tool_registry.routing import Gate

ModelT = TypeVar("ModelT")

__all__ = [
    "Gateway",
    "argument_vocabulary",
    "compiled_state",
    "model_files",
    "open_gateway",
    "open_router",
    "open_writer",
]

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
    state: StateService
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
async def open_gateway(
    settings: Settings, callers: Iterable[Caller] = (), *, models: bool = True
) -> AsyncIterator[Gateway]:
    """Start everything in the background and give the gateway at once; leaving stops all children.

    `callers` are there already: servers are told what can be asked of the first host. Without `models` there is the
    fleet alone: nothing is embedded, and no turn may be asked for.
    """
    gateway = _assemble(settings)
    for caller in callers:
        gateway.fleet.meet(caller)
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gateway.fleet.run, name="fleet")
        tasks.start_soon(gateway.quarantine.run, gateway.fleet.take, name="approved definitions")
        if models:
            _start_models(gateway, tasks)
        try:
            yield gateway
        except Exception as error:  # noqa: BLE001 - raised below as it is: the task group would wrap it in a group
            failure = error
        finally:
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _start_models(gateway: Gateway, tasks: TaskGroup) -> None:
    tasks.start_soon(gateway.indexer.run, name="indexer")
    tasks.start_soon(gateway.embedder.run, name="embedder")
    tasks.start_soon(gateway.engine.run, name="argument model")
    tasks.start_soon(gateway.state.run, name="compiled state")
    if gateway.reranker is not None:
        tasks.start_soon(gateway.reranker.run, name="reranker")
    if gateway.reader is not None:
        tasks.start_soon(gateway.reader.run, name="argument reader")


def _assemble(settings: Settings) -> Gateway:
    embedder = ModelSlot[Embedder]("embedding model", lambda: open_embedder(settings))
    state = compiled_state(settings)
    engine = ModelSlot[ArgumentEngine]("argument model", lambda: _open_planned_engine(settings, state))
    reranker = _reranker(settings, engine)
    reader = _reader(settings)
    store = CompiledStore(settings.cache_dir / "compiled", _report_corrupt)
    indexer = Indexer(store, embedder.get, on_index=lambda index: state.follow(index.tools))
    quarantine = Quarantine(
        PinFile(settings.cache_dir / PINS), set_aside_changes=settings.pins.quarantine_changes
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
            state=state,
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
        state,
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
        open_embedder(settings) as embedder,
        open_any_reranker(settings, rerank or settings.routing.rerank) as reranker,
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
async def open_writer(
    settings: Settings, state: StateService | None = None
) -> AsyncIterator[tuple[ArgumentEngine, ArgumentWriter]]:
    """Load the argument model alone, and give it with the writer that a gateway would use on it.

    With `state` it is planned for, as in a gateway; the caller runs the service.

    Raises:
        ModelError: the model is missing or can't be loaded.
    """
    named = settings.models.reader_model
    async with AsyncExitStack() as stack:
        opened = open_engine(settings) if state is None else _open_planned_engine(settings, state)
        engine = await stack.enter_async_context(opened)
        reader = await stack.enter_async_context(open_reader(settings, named)) if named else None
        yield engine, _writer(settings, _at_once(engine), None if reader is None else _at_once(reader))


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
        tool_text=settings.state.tool_text,
    )


def compiled_state(settings: Settings, directory: Path | None = None) -> StateService:
    """The layer of compiled state, with its blocks in `directory` or else where a gateway has them."""

    def prompt_of(tool: CompiledTool) -> Sequence[Segment]:
        return tool_prompt(tool, settings.state.tool_text)

    return StateService(settings.state, directory or settings.cache_dir / state_service.FOLDER, prompt_of)


def _reader(settings: Settings) -> ModelSlot[ArgumentReader] | None:
    named = settings.models.reader_model
    if named is None:
        return None
    return ModelSlot[ArgumentReader]("argument reader", lambda: open_reader(settings, named))


def _reranker(settings: Settings, engine: ModelSlot[ArgumentEngine]) -> ModelSlot[Reranker] | None:
    match settings.routing.rerank:
        case "cross-encoder":
            return ModelSlot[Reranker]("reranker", lambda: open_reranker(settings))
        case "llm":
            return ModelSlot[Reranker]("reranker", lambda: argument_model_as_reranker(engine))
        case _:
            return None


@asynccontextmanager
async def _open_planned_engine(settings: Settings, state: StateService) -> AsyncIterator[ArgumentEngine]:
    async with open_engine(settings) as engine:
        yield await state.around(engine)


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
