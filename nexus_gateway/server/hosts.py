"""Every host that listens now, and what it is told: list changes, updated resources, log messages.

Legacy hosts get notifications over their connection, modern ones over the `subscriptions/listen` streams they
opened. Knows nothing of servers; light, since it is there before the application is loaded.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import get_args

import anyio
import anyio.abc
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.subscriptions import event_from_wire
from mcp_types import LOG_LEVEL_META_KEY, LoggingLevel

from adapters.ports import Era, JsonObject
from nexus_gateway.access.caller import Caller
from nexus_gateway.access.host import HostKey
from nexus_gateway.server.host_connection import (
    CAPABILITY_OF,
    Context,
    HostConnection,
    HostLink,
    caller_of,
    channel_of,
    era_of,
)
from nexus_gateway.server.outbox import Outbox

LEVELS: tuple[str, ...] = get_args(LoggingLevel)
"""Least severe first."""
MESSAGE = "notifications/message"
UPDATED = "notifications/resources/updated"
FLUSH_SECONDS = 5.0
"""For a request's last log messages; its result waits for them."""


@dataclass(slots=True, eq=False)
class _RequestLog:
    server: str
    host: HostKey
    level: str
    outbox: Outbox


class Hosts:
    """The hosts of this process."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self._links: dict[HostLink, None] = {}
        self._streams = Outbox()  # to the bus, whose own queues are behind it
        self._request_logs: dict[_RequestLog, None] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._joined: Callable[[Caller], None] = lambda _caller: None
        self._modern: Caller | None = None
        self._left: Callable[[HostKey], None] = lambda _key: None

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                for link in self._links:
                    tasks.start_soon(_deliver, link)
                await self._streams.run(self._publish)
            finally:
                self._tasks = None

    def join(self, link: HostLink) -> None:
        """A legacy host is initialised: it is told things until its connection closes."""
        if link in self._links:
            return
        self._links[link] = None
        link.connection.exit_stack.callback(self._leave, link)
        self._joined(Caller(host=HostConnection(link)))
        if self._tasks is not None:
            self._tasks.start_soon(_deliver, link)

    def meet(self, ctx: Context) -> None:
        """A modern host sends a request. Its connection may be no longer, so it is the first that counts for all."""
        if self._modern is None:
            caller = caller_of(ctx)
            if caller.host and not caller.host.capabilities.keys().isdisjoint(CAPABILITY_OF.values()):
                self._modern = caller
                self._joined(caller)

    def present(self) -> list[Caller]:
        """The legacy hosts that are there, in the order in which they came, and the first modern one."""
        legacy = [Caller(host=HostConnection(link)) for link in self._links]
        return legacy + ([self._modern] if self._modern else [])

    def follow(self, joined: Callable[[Caller], None], left: Callable[[HostKey], None]) -> None:
        """Have these told, without blocking, of each that is or gets present, and of each legacy host that goes."""
        self._joined, self._left = joined, left
        for caller in self.present():
            joined(caller)

    def least_level(self) -> str | None:
        """The least log level that any legacy host wants; None where none said."""
        wanted = [link.level for link in self._links if link.level in LEVELS]
        return min(wanted, key=LEVELS.index) if wanted else None

    def list_changed(self, kind: str) -> None:
        """Tell everybody that the list of tools, resources or prompts is another one."""
        method = f"notifications/{kind}/list_changed"
        for link in self._links:
            link.outbox.put(method, {}, about=method)
        self._streams.put(method, {}, about=method)

    def resource_updated(self, server: str, params: JsonObject) -> None:
        """Tell the subscribers of a resource."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            return
        for link in self._links:
            if link.watched.get(uri) == server:
                link.outbox.put(UPDATED, params, about=uri)
        self._streams.put(UPDATED, params, about=uri)

    def log(self, server: str, params: JsonObject, only: HostKey | None = None) -> None:
        """Pass on a server's log message to the hosts that want its level; to the one it is for, where that is known."""
        level = params.get("level")
        if level not in LEVELS:
            return
        for link in self._links:
            if only in (None, link.key) and _reaches(level, link.level):
                link.outbox.put(MESSAGE, params)
        for one in self._request_logs:
            if one.server == server and only in (None, one.host) and _reaches(level, one.level):
                one.outbox.put(MESSAGE, params)

    @asynccontextmanager
    async def request_log(self, ctx: Context, server: str, host: HostKey) -> AsyncIterator[None]:
        """While it is open, the server's messages go to a modern request that opted in (legacy hosts have `log`).

        `host` is whom the upstream's connection serves: the request itself, or the parked call that it became.
        """
        level = _opted_in(ctx)
        if level is None:
            yield
            return
        one = _RequestLog(server, host, level, Outbox())
        self._request_logs[one] = None
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.outbox.run, channel_of(ctx).notify)
            try:
                yield
            except Exception as error:  # noqa: BLE001 - raised below as it is: the task group would wrap it
                failure = error
            finally:
                del self._request_logs[one]
                one.outbox.close()
                tasks.cancel_scope.deadline = anyio.current_time() + FLUSH_SECONDS
        if failure is not None:
            raise failure

    def _leave(self, link: HostLink) -> None:
        self._links.pop(link, None)
        link.closing.cancel()
        self._left(link.key)

    async def _publish(self, method: str, params: JsonObject) -> None:
        event = event_from_wire(method, params)
        if event is not None:
            await self.bus.publish(event)


def _reaches(level: str, least: str | None) -> bool:
    return least is None or LEVELS.index(level) >= LEVELS.index(least)


async def _deliver(link: HostLink) -> None:
    with link.closing:
        await link.outbox.run(link.connection.notify)


def _opted_in(ctx: Context) -> str | None:
    level = (ctx.meta or {}).get(LOG_LEVEL_META_KEY)
    return level if era_of(ctx) is Era.MODERN and level in LEVELS else None
