"""Whatever ends a gateway, and whenever: it ends soon, and every process it caused ends with it."""

import json
import os
import pty
import signal
import socket
import subprocess
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import psutil
import pytest
from support.gateways import python_server, running_command, write_config
from support.processes import assert_none_is_left, marked, new_mark, wait_for_marked, wait_until

END_SECONDS = 30
SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
pytestmark = pytest.mark.slow


class Host:
    """A gateway under test, spoken to as an MCP host would."""

    def __init__(self, process, mark, log, terminal):
        self.process, self.mark, self._log, self._terminal = process, mark, log, terminal
        self._ids = 0

    def send(self, method, **params):
        self._ids += 1
        self.notify(method, id=self._ids, params=params)
        return self._ids

    def notify(self, method, **rest):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **rest}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method, **params):
        wanted = self.send(method, **params)
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("id") == wanted:
                return message["result"]
        raise AssertionError(self.errors())

    def call(self, tool, **arguments):
        return {"name": "call_tool", "arguments": {"tool": tool, "arguments": arguments}}

    def shake_hands(self):
        client = {"name": "test", "version": "1"}
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        self.notify("notifications/initialized")
        return self.ask("tools/list")

    def errors(self):
        return self._log.read_text(errors="replace")

    def asked(self, question):
        wait_until(lambda: question in self.errors(), self.errors)

    def type(self, text):
        os.write(self._terminal, text.encode())

    def sleepers(self, count):
        """Wait until the upstream has forked this often."""
        wait_for_marked(self.mark, lambda found: len(named(found, "sleep")) >= count)

    def assert_ends(self):
        """The gateway is gone, and so is all it started."""
        try:
            code = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running: {marked(self.mark)}\n{self.errors()}")
        assert_none_is_left(self.mark)
        assert "Traceback" not in self.errors(), self.errors()
        return code


def named(processes, name):
    found = []
    for process in processes:
        try:
            if process.name() == name:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture
def start(tmp_path):
    """Starts a command on one forking server. Whatever is left of it afterwards is killed."""
    mark, log = new_mark(), tmp_path / "stderr"
    servers = {"forking": python_server("holding_server.py", "fork", env=mark)}
    with ExitStack() as stack:

        def begin(command, *args, toml="", terminal=False):
            ours = theirs = None
            if terminal:
                ours, theirs = pty.openpty()
                stack.callback(os.close, ours)
            config = write_config(tmp_path, servers, toml)
            errors = stack.enter_context(log.open("wb"))
            running = running_command(command, *config, *args, stdin=theirs, stderr=errors, env=mark)
            process = stack.enter_context(running)
            if theirs is not None:
                os.close(theirs)
            return Host(process, mark, log, ours)

        yield begin
    for process in marked(mark):
        process.kill()


@SIGNALS
def test_a_signal_while_servers_and_models_start_ends_all(start, number):
    host = start("serve")
    host.shake_hands()
    host.sleepers(1)  # the upstream runs, and has not yet answered the gateway
    host.process.send_signal(number)
    assert host.assert_ends() == 0


def test_a_signal_to_an_idle_gateway_ends_all(start):
    host = start("serve")
    host.shake_hands()
    assert host.ask("tools/call", **host.call("forking/pause", seconds=0))["content"][0]["text"] == "paused"
    host.process.send_signal(signal.SIGTERM)
    assert host.assert_ends() == 0


@SIGNALS
def test_a_signal_during_a_call_ends_all(start, number):
    host = start("serve")
    host.shake_hands()
    host.send("tools/call", **host.call("forking/hold"))
    host.sleepers(2)
    host.process.send_signal(number)
    assert host.assert_ends() == 0


@pytest.mark.parametrize("during_a_call", [False, True])
def test_closing_stdin_ends_all(start, during_a_call):
    host = start("serve")
    host.shake_hands()
    if during_a_call:
        host.send("tools/call", **host.call("forking/hold"))
        host.sleepers(2)
    else:
        host.ask("tools/call", **host.call("forking/pause", seconds=0))
    host.process.stdin.close()
    assert host.assert_ends() == 0


def test_a_gateway_that_gets_a_signal_before_anything_else_leaves_nothing(start):
    host = start("serve")
    host.process.send_signal(signal.SIGTERM)
    host.assert_ends()


def test_ctrl_c_in_an_http_gateway_during_a_call_ends_all(start):
    port = free_port()
    host = start("serve", "--http", f"127.0.0.1:{port}", toml="http = { drain_seconds = 0.1 }")
    host.sleepers(1)
    with closing(HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("POST", "/mcp", **in_the_modern_era(host.call("forking/hold")))
        host.sleepers(2)
        host.process.send_signal(signal.SIGINT)
        assert host.assert_ends() == 0


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def in_the_modern_era(params):
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": envelope}}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": params["name"],
    }
    return {"body": json.dumps(message), "headers": headers}


def test_a_signal_to_a_turn_that_starts_up_ends_all(start):
    host = start("turn", "--json", "wait for 600 seconds")
    host.sleepers(1)
    host.process.send_signal(signal.SIGTERM)
    assert host.assert_ends() == 128 + signal.SIGTERM


@SIGNALS
def test_a_signal_to_a_turn_in_its_call_ends_all(start, number):
    host = start("turn", "--json", "use the tool forking/hold")
    host.sleepers(2)
    host.process.send_signal(number)
    assert host.assert_ends() == 128 + number
    assert host.process.stdout.read() == b""


ASKS = 'turn = { confirm = "always" }'


def test_a_question_in_the_terminal_is_answered_there(start):
    host = start("turn", "use the tool forking/pause for 0 seconds", toml=ASKS, terminal=True)
    host.asked("Run it?")
    host.type("y\n")
    assert host.process.stdout.read().split() == [b"paused"]
    assert host.assert_ends() == 0


def test_ctrl_c_at_a_question_in_the_terminal_ends_all(start):
    host = start("turn", "use the tool forking/hold", toml=ASKS, terminal=True)
    host.asked("Run it?")
    host.process.send_signal(signal.SIGINT)
    assert host.assert_ends() == 128 + signal.SIGINT
