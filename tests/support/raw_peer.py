"""A legacy host without an SDK, in full: it asks, answers what it is asked, and keeps all it hears, as raw JSON."""

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

LEGACY = "2025-11-25"
PATIENCE = 60


@dataclass(frozen=True)
class Exchange:
    """One request: its answer (`result` or `error`), what its host was asked meanwhile, and its progress."""

    answer: dict
    asked: list
    progress: list


class Peer:
    """One connection over a process's stdin and stdout. Requests are made one after the other."""

    def __init__(self, process, answers):
        self._process = process
        self._answers = answers
        self._last = 0
        self._waiting = {}
        self._asked = []
        self._heard = []
        self._news = anyio.Event()

    async def handshake(self, capabilities):
        info = {"name": "raw-peer", "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": info}
        exchange = await self.request("initialize", params)
        await self._send({"method": "notifications/initialized"})
        return exchange.answer["result"]

    async def request(self, method, params=None):
        self._last += 1
        answered, number = anyio.Event(), self._last
        self._waiting[number] = (answered, answer := {})
        asked, heard = len(self._asked), len(self._heard)
        await self._send({"id": number, "method": method, "params": params or {}})
        with anyio.fail_after(PATIENCE):
            await answered.wait()
        progress = [said for told, said in self._heard[heard:] if told == "notifications/progress"]
        return Exchange(answer, self._asked[asked:], progress)

    async def hear(self, method, since=0):
        """The first notification of this kind after the first `since` of all."""
        with anyio.fail_after(PATIENCE):
            while not (found := [said for told, said in self._heard[since:] if told == method]):
                await self._news.wait()
        return found[0]

    def heard_so_far(self):
        """How many notifications there were."""
        return len(self._heard)

    async def run(self):
        """Take in what comes, until the process closes its stdout."""
        buffered = b""
        async for chunk in self._process.stdout:
            *lines, buffered = (buffered + chunk).split(b"\n")
            for line in lines:
                await self._take(json.loads(line))

    async def _take(self, message):
        if "method" not in message:
            answered, answer = self._waiting.pop(message["id"])
            answer.update({key: message[key] for key in ("result", "error") if key in message})
            answered.set()
        elif "id" in message:
            self._asked.append((message["method"], message.get("params")))
            await self._send({"id": message["id"], "result": self._answers[message["method"]]})
        else:
            self._heard.append((message["method"], message.get("params")))
            self._news.set()
            self._news = anyio.Event()

    async def _send(self, message):
        await self._process.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


@asynccontextmanager
async def peer_of(command, answers, env):
    """Start a server that speaks over stdio; a closed stdin and SIGTERM must end it."""
    async with (
        await anyio.open_process(command, env=env, stderr=None) as process,
        anyio.create_task_group() as tasks,
    ):
        peer = Peer(process, answers)
        tasks.start_soon(peer.run)
        try:
            yield peer
            await process.stdin.aclose()
            process.terminate()
            with anyio.fail_after(PATIENCE):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            tasks.cancel_scope.cancel()
