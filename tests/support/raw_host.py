"""A host without an SDK: a gateway process and the JSON lines that go to and come from it."""

import json
import os
import sys
from contextlib import asynccontextmanager

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from support.fake_gateway import MODERN

INFO = {"name": "raw-host", "version": "1"}
MAX_LINE = 64_000_000


class RawHost:
    """One connection, in one era."""

    def __init__(self, process, era):
        self._send_bytes = process.stdin.send
        self._lines = BufferedByteReceiveStream(process.stdout)
        self._modern = era == MODERN
        self._last = 0

    async def handshake(self):
        if self._modern:
            return await self.request("server/discover")
        parameters = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": INFO}
        answer = await self.request("initialize", parameters)
        await self._send({"method": "notifications/initialized"})
        return answer

    async def request(self, method, params=None):
        """The whole answer, `result` or `error`, as parsed."""
        self._last += 1
        await self._send({"id": self._last, "method": method, "params": self._enveloped(params or {})})
        with anyio.fail_after(100):
            while True:
                answer = json.loads(await self._lines.receive_until(b"\n", MAX_LINE))
                if answer.get("id") == self._last:
                    return answer

    async def call(self, tool, arguments, **params):
        """`tools/call` of a meta-tool."""
        return await self.request("tools/call", {"name": tool, "arguments": arguments, **params})

    async def _send(self, message):
        await self._send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _enveloped(self, params):
        if not self._modern:
            return params
        stamp = {
            PROTOCOL_VERSION_META_KEY: MODERN,
            CLIENT_INFO_META_KEY: INFO,
            CLIENT_CAPABILITIES_META_KEY: {},
        }
        return {**params, "_meta": {**params.get("_meta", {}), **stamp}}


@asynccontextmanager
async def raw_host(config, era):
    """Start `nexus-gateway serve` on a configuration and speak to it; its end is waited for."""
    command = [sys.executable, "-m", "nexus_gateway", "serve", "--config", str(config)]
    async with await anyio.open_process(command, stderr=None, env=dict(os.environ)) as process:
        try:
            host = RawHost(process, era)
            await host.handshake()
            yield host
            await process.stdin.aclose()
            with anyio.fail_after(30):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
