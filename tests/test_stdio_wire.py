"""Messages over pipes: what reaches a host is whole messages, whatever else happens."""

import json
import os
import pty
import socket
from contextlib import contextmanager, suppress

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from nexus_gateway.server import stdio_wire
from nexus_gateway.server.stdio_wire import MessageReader, MessageWriter

pytestmark = pytest.mark.anyio

DEADLINE = 20
MORE_THAN_A_PIPE_HOLDS = "é" * 1_000_000


@contextmanager
def pipe():
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        yield read, write
    finally:
        for end in (read, write):
            with suppress(OSError):
                os.close(end)


def note(text):
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="m", params={"text": text}))


def text_of(item):
    return item.message.params["text"]


async def test_messages_of_every_size_arrive_whole_and_in_order():
    texts = ["a", MORE_THAN_A_PIPE_HOLDS, "", "line\nbreak", "z"]
    received = []
    with anyio.fail_after(DEADLINE), pipe() as (read, write):

        async def send():
            async with MessageWriter(write) as writer:
                for text in texts:
                    await writer.send(note(text))
            os.close(write)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            async with MessageReader(read) as reader:
                received = [text_of(item) async for item in reader]
    assert received == texts


async def test_many_senders_never_mix_their_lines():
    with anyio.fail_after(DEADLINE), pipe() as (read, write):
        writer, reader = MessageWriter(write), MessageReader(read)
        sizes = [1, 70_000, 10, 200_000, 5]
        async with anyio.create_task_group() as tasks:
            for size in sizes:
                tasks.start_soon(writer.send, note("x" * size))
            received = [len(text_of(await reader.receive())) for _ in sizes]
    assert sorted(received) == sorted(sizes)


async def test_a_sender_cancelled_in_the_middle_of_its_line_spoils_no_other_message():
    with anyio.fail_after(DEADLINE), pipe() as (read, write):
        writer, reader = MessageWriter(write), MessageReader(read)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.send, note(MORE_THAN_A_PIPE_HOLDS))
            await anyio.wait_readable(read)  # some of it is written, and not all can be
            tasks.cancel_scope.cancel()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.send, note("next"))
            received = [text_of(await reader.receive()) for _ in range(2)]
    assert received == [MORE_THAN_A_PIPE_HOLDS, "next"]


async def test_closing_finishes_a_line_that_was_begun():
    with anyio.fail_after(DEADLINE), pipe() as (read, write):
        writer, reader = MessageWriter(write), MessageReader(read)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.send, note(MORE_THAN_A_PIPE_HOLDS))
            await anyio.wait_readable(read)
            tasks.cancel_scope.cancel()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.aclose)
            assert text_of(await reader.receive()) == MORE_THAN_A_PIPE_HOLDS
        with pytest.raises(anyio.ClosedResourceError):
            await writer.send(note("late"))


async def test_closing_towards_a_host_that_does_not_read_ends(monkeypatch):
    monkeypatch.setattr(stdio_wire, "_LAST_FRAME_SECONDS", 0.01)
    with anyio.fail_after(DEADLINE), pipe() as (read, write):
        writer = MessageWriter(write)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.send, note(MORE_THAN_A_PIPE_HOLDS))
            await anyio.wait_readable(read)
            tasks.cancel_scope.cancel()
        await writer.aclose()


async def test_a_message_that_is_no_json_fails_for_its_sender_alone():
    with anyio.fail_after(DEADLINE), pipe() as (read, write):
        writer, reader = MessageWriter(write), MessageReader(read)
        with pytest.raises(ValueError, match="surrogate"):
            await writer.send(note("\ud800"))
        await writer.send(note("fine"))
        assert text_of(await reader.receive()) == "fine"


async def test_a_host_that_is_gone_is_told_from_a_failure_of_ours():
    with anyio.fail_after(DEADLINE), pipe() as (read, write):
        os.close(read)
        with pytest.raises(anyio.BrokenResourceError):
            await MessageWriter(write).send(note("nobody"))


async def test_lines_that_are_no_messages_come_as_exceptions_and_the_rest_is_read():
    lines = b"rubbish\n\n" + b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n' + b'caf\xe9 {"jsonrpc": 1}\n'
    last = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}).encode()  # no newline before the end
    with anyio.fail_after(DEADLINE), pipe() as (read, write):
        os.write(write, lines + last)
        os.close(write)
        received = [item async for item in MessageReader(read)]
    messages = [item.message for item in received if not isinstance(item, Exception)]
    assert [type(item) for item in messages] == [JSONRPCRequest, JSONRPCRequest]
    assert [item.id for item in messages] == [1, 2]
    assert len(received) == 5


async def test_waiting_for_a_host_can_be_cancelled_and_taken_up_again():
    with anyio.fail_after(DEADLINE), pipe() as (read, write):
        reader = MessageReader(read)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader.receive)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        os.write(write, b'{"jsonrpc":"2.0","id":7,"method":"ping"}\n')
        assert (await reader.receive()).message.id == 7


async def test_a_terminal_is_left_alone_and_pipes_and_sockets_are_not():
    leader, follower = pty.openpty()
    one, other = socket.socketpair()
    with one, other, pipe() as (read, write):
        assert not stdio_wire._is_pipe(follower)
        assert all(map(stdio_wire._is_pipe, (read, write, one.fileno())))
    os.close(leader)
    os.close(follower)
