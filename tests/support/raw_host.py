"""A host without an SDK: a gateway process, and the JSON lines that go to it and come from it."""

import json
import os
import select
import subprocess
import sys
import time
from contextlib import contextmanager

import psutil
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

MODERN = "2026-07-28"
INFO = {"name": "raw-host", "version": "1"}
PATIENCE = 100


class RawHost:
    """One connection, in one era; answers come as parsed JSON, nothing dropped."""

    def __init__(self, process, era):
        self._process = process
        self._modern = era == MODERN
        self._last = 0
        self._buffered = b""

    def handshake(self):
        if self._modern:
            return self.request("server/discover")
        answer = self.request(
            "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": INFO}
        )
        self._send({"method": "notifications/initialized"})
        return answer

    def request(self, method, params=None):
        """The whole answer: it holds `result` or `error`."""
        self._last += 1
        self._send({"id": self._last, "method": method, "params": self._enveloped(params or {})})
        deadline = time.monotonic() + PATIENCE
        while (answer := json.loads(self._line(deadline))).get("id") != self._last:
            pass
        return answer

    def call(self, tool, arguments, **params):
        """`tools/call` of a meta-tool."""
        return self.request("tools/call", {"name": tool, "arguments": arguments, **params})

    def _send(self, message):
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def _line(self, deadline):
        chunks = [self._buffered]
        while b"\n" not in chunks[-1]:
            ready, _, _ = select.select([self._process.stdout], [], [], deadline - time.monotonic())
            if not ready:
                raise TimeoutError("the gateway did not answer")
            chunk = os.read(self._process.stdout.fileno(), 1 << 20)
            if not chunk:
                raise EOFError("the gateway is gone")
            chunks.append(chunk)
        line, self._buffered = b"".join(chunks).split(b"\n", 1)
        return line

    def _enveloped(self, params):
        if not self._modern:
            return params
        stamp = {
            PROTOCOL_VERSION_META_KEY: MODERN,
            CLIENT_INFO_META_KEY: INFO,
            CLIENT_CAPABILITIES_META_KEY: {},
        }
        return {**params, "_meta": {**params.get("_meta", {}), **stamp}}


@contextmanager
def raw_host(config, era):
    """Start `nexus-gateway serve` and speak to it. Closing its stdin must end it and all its children."""
    command = [sys.executable, "-m", "nexus_gateway", "serve", "--config", str(config)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            host = RawHost(process, era)
            host.handshake()
            yield host
            children = psutil.Process(process.pid).children(recursive=True)
            process.stdin.close()
            assert process.wait(PATIENCE) == 0
            assert not [child for child in children if child.is_running()]
        finally:
            if process.poll() is None:
                process.kill()
