"""How a modern server is listened to: what is asked for, when it is asked again, and what a loss means."""

from contextlib import asynccontextmanager

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from adapters import listen_stream
from adapters.envelope import Envelope
from adapters.listen_stream import ListenStream
from adapters.ports import Era, UpstreamRefused

ALL = {"tools": {"listChanged": True}, "resources": {"listChanged": True, "subscribe": True}}
LISTS = {"toolsListChanged": True, "resourcesListChanged": True}
SECONDS = 20
pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
    monkeypatch.setattr(listen_stream, "FIRST_WAIT_SECONDS", 0)


class Server:
    """The other end: a listen request stays open until the test ends it."""

    def __init__(self):
        self.opened, self.requests = anyio.create_memory_object_stream(100)
        self.open = {}
        self.refusal = None

    async def send_raw_request(self, method, params, options):
        assert method == "subscriptions/listen"
        name, ended = options["request_id"], anyio.Event()
        self.opened.send_nowait((name, params["notifications"]))
        if self.refusal is not None:
            raise self.refusal
        self.open[name] = ended
        try:
            await ended.wait()
        finally:
            del self.open[name]
        return {}

    async def asked(self):
        with anyio.fail_after(SECONDS):
            return await self.requests.receive()


class Listener:
    def __init__(self, capabilities=ALL):
        self.server = Server()
        self.told = []
        envelope = Envelope(Era.MODERN, "2026-07-28", {}, {})
        self.stream = ListenStream(
            "web", self.server, envelope, capabilities, lambda *notice: self.told.append(notice)
        )

    def acknowledge(self, name, honored):
        meta = {"io.modelcontextprotocol/subscriptionId": name}
        self.stream.acknowledged({"notifications": honored, "_meta": meta})

    async def acknowledged(self):
        """Acknowledge the next request as asked; returns its name."""
        name, wanted = await self.server.asked()
        self.acknowledge(name, wanted)
        return name


@asynccontextmanager
async def listening(capabilities=ALL):
    listener = Listener(capabilities)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.stream.run)
        yield listener
        tasks.cancel_scope.cancel()
    listener.server.opened.close()
    listener.server.requests.close()


async def until(condition):
    with anyio.fail_after(SECONDS):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def watched(listener, uri, *, honored=None):
    """Watch a resource; the server acknowledges."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.stream.watch, uri)
        name, wanted = await listener.server.asked()
        listener.acknowledge(name, wanted if honored is None else honored)
    return name, wanted


async def test_it_asks_for_what_the_server_declares():
    async with listening() as listener:
        assert (await listener.server.asked())[1] == LISTS
    async with listening({"prompts": {"listChanged": True}, "tools": {"listChanged": False}}) as listener:
        assert (await listener.server.asked())[1] == {"promptsListChanged": True}


async def test_where_nothing_is_declared_nothing_is_asked():
    async with listening({"tools": {}}) as listener:
        await anyio.wait_all_tasks_blocked()
        assert listener.server.open == {}


async def test_a_watch_opens_the_next_stream_before_the_last_is_closed():
    async with listening() as listener:
        first = await listener.acknowledged()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.stream.watch, "note:1")
            second, wanted = await listener.server.asked()
            assert wanted == {**LISTS, "resourceSubscriptions": ["note:1"]}
            assert first in listener.server.open
            listener.acknowledge(second, wanted)
        await until(lambda: list(listener.server.open) == [second])


async def test_a_resource_that_is_not_watched_any_more_is_left_out():
    async with listening() as listener:
        await listener.acknowledged()
        await watched(listener, "note:1")
        await watched(listener, "note:2")
        listener.stream.unwatch("note:1")
        assert (await listener.server.asked())[1]["resourceSubscriptions"] == ["note:2"]


async def test_the_last_watch_of_a_server_without_list_changes_closes_the_stream():
    async with listening({"resources": {"subscribe": True}}) as listener:
        await watched(listener, "note:1")
        listener.stream.unwatch("note:1")
        await until(lambda: not listener.server.open)


async def test_a_watch_that_the_server_does_not_honour_is_refused_and_not_asked_again():
    async with listening() as listener:
        await listener.acknowledged()
        with pytest.raises(ExceptionGroup) as caught:
            await watched(listener, "note:1", honored=LISTS)
        assert caught.group_contains(UpstreamRefused, match="does not watch note:1")
        await anyio.wait_all_tasks_blocked()
        assert listener.server.requests.statistics().current_buffer_used == 0
        assert len(listener.server.open) == 1


async def test_a_refused_watch_leaves_the_rest_as_it_was():
    async with listening() as listener:
        first = await listener.acknowledged()
        listener.server.refusal = MCPError(-32602, "no such resource")
        with pytest.raises(UpstreamRefused, match="no such resource"):
            with anyio.fail_after(SECONDS):
                await listener.stream.watch("note:1")
        await anyio.wait_all_tasks_blocked()
        assert list(listener.server.open) == [first]


@pytest.mark.parametrize("how", ["ends it", "cancels it"])
async def test_after_a_loss_it_listens_again_and_tells_that_all_may_have_changed(how):
    async with listening() as listener:
        await listener.acknowledged()
        name, _ = await watched(listener, "note:1")
        if how == "ends it":
            listener.server.open[name].set()
        else:
            listener.stream.cancelled({"requestId": name})
        assert listener.told == []
        await listener.acknowledged()
        await until(lambda: len(listener.told) == 3)
    assert listener.told == [
        ("notifications/tools/list_changed", {}),
        ("notifications/resources/list_changed", {}),
        ("notifications/resources/updated", {"uri": "note:1"}),
    ]


async def test_a_passing_failure_is_tried_again():
    async with listening() as listener:
        listener.server.refusal = MCPError(-32603, "busy")
        await listener.server.asked()
        await listener.server.asked()
        listener.server.refusal = None
        while not listener.server.open:
            name, wanted = await listener.server.asked()
        listener.acknowledge(name, wanted)
        await anyio.wait_all_tasks_blocked()
        assert listener.server.requests.statistics().current_buffer_used == 0


async def test_a_server_that_can_not_listen_is_asked_once():
    async with listening() as listener:
        listener.server.refusal = MCPError(-32601, "Method not found")
        await listener.server.asked()
        await anyio.wait_all_tasks_blocked()
        assert listener.server.requests.statistics().current_buffer_used == 0


async def test_a_server_that_never_acknowledges_is_asked_again(monkeypatch):
    monkeypatch.setattr(listen_stream, "ACKNOWLEDGE_SECONDS", 0.01)
    async with listening() as listener:
        first, _ = await listener.server.asked()
        await listener.server.asked()
        await until(lambda: first not in listener.server.open)


async def test_an_acknowledgement_of_no_stream_of_ours_is_ignored():
    async with listening() as listener:
        name, wanted = await listener.server.asked()
        for params in ({}, {"_meta": 1}, {"_meta": {}, "notifications": {}}, {"notifications": wanted}):
            listener.stream.acknowledged(params)
        listener.acknowledge("listen-99", wanted)
        listener.acknowledge(name, "not a filter")
        await watched_after(listener, name, wanted)


async def watched_after(listener, name, wanted):
    """The stream was still unacknowledged: only now does the next one come."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.stream.watch, "note:1")
        await anyio.wait_all_tasks_blocked()
        assert listener.server.requests.statistics().current_buffer_used == 0
        listener.acknowledge(name, wanted)
        await listener.acknowledged()
