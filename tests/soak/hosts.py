"""Hosts for long runs: many calls at once, every byte from the gateway checked, nothing of an SDK between.

`faults` of a host names all that a gateway must never do: lines that aren't strict JSON, answers to what was not
asked, second answers.
"""

import itertools
import json
import math
from contextlib import asynccontextmanager
from subprocess import PIPE

import anyio
import httpx
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

MODERN, LEGACY = "2026-07-28", "2025-06-18"
INFO = {"name": "soak", "version": "1"}
LINE_BYTES = 256 * 1024 * 1024
START_SECONDS = 100
NO_TLS = False
"""Loading the certificates of authorities takes longer than a whole visit over plain HTTP."""
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class UnansweredError(Exception):
    """No answer came within the deadline, or the gateway went away."""


def strict(line):
    """Parse JSON as a careful host does: no NaN, no numbers beyond a double."""
    return json.loads(line, parse_constant=refuse, parse_float=finite)


def refuse(constant):
    raise ValueError(f"{constant} is not JSON")


def finite(digits):
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is no number")
    return value


def request(call, method, params=None, *, modern=False):
    params = dict(params or {})
    if modern:
        stamp = {
            PROTOCOL_VERSION_META_KEY: MODERN,
            CLIENT_INFO_META_KEY: INFO,
            CLIENT_CAPABILITIES_META_KEY: {},
        }
        params["_meta"] = {**params.get("_meta", {}), **stamp}
    return {"jsonrpc": "2.0", "id": call, "method": method, "params": params}


class StdioHost:
    """One gateway process, spoken to by any number of tasks."""

    def __init__(self, process, *, modern):
        self.process, self._modern = process, modern
        self._ids = itertools.count(1)
        self._waiting, self._answered = {}, set()
        self.faults = []
        self.gone = anyio.Event()

    async def shake_hands(self):
        if self._modern:
            await self.ask("server/discover", seconds=START_SECONDS)
            return
        hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": INFO}
        await self.ask("initialize", hello, seconds=START_SECONDS)
        await self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    async def send(self, line):
        """A line as it is, whatever it holds."""
        await self.process.stdin.send(line + b"\n")

    async def ask(self, method, params=None, *, seconds):
        """The whole answer: it holds `result` or `error`. Raises UnansweredError."""
        call = f"host-{next(self._ids)}"
        self._waiting[call] = (arrived := anyio.Event(), holder := [])
        try:
            with anyio.fail_after(seconds):
                await self.send(json.dumps(request(call, method, params, modern=self._modern)).encode())
                await arrived.wait()
        except (TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise UnansweredError(f"{method} {call}: nothing in {seconds} s") from error
        if not holder:
            raise UnansweredError(f"{method} {call}: the gateway is gone")
        return holder[0]

    async def read(self):
        """Take answers until the gateway closes its output."""
        lines = BufferedByteReceiveStream(self.process.stdout)
        try:
            while True:
                self._take(await lines.receive_until(b"\n", LINE_BYTES))
        except (
            anyio.EndOfStream,
            anyio.IncompleteRead,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
        ):
            pass
        finally:
            self.gone.set()
            for arrived, _ in self._waiting.values():
                arrived.set()

    def _take(self, line):
        try:
            message = strict(line)
        except ValueError as error:
            self.faults.append(f"not JSON ({error}): {line[:200]!r}")
            return
        call = message.get("id")
        if "method" in message or not (isinstance(call, str) and call.startswith("host-")):
            return
        if call in self._answered:
            self.faults.append(f"a second answer: {line[:200]!r}")
        elif call not in self._waiting:
            self.faults.append(f"an answer to nothing: {line[:200]!r}")
        else:
            self._answered.add(call)
            arrived, holder = self._waiting.pop(call)
            holder.append(message)
            arrived.set()


@asynccontextmanager
async def stdio_host(command, *, stderr, env, modern=False):
    """Start a gateway and speak to it; it must end by itself, with code 0, once its stdin is closed."""
    async with await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=stderr, env=env) as process:
        host = StdioHost(process, modern=modern)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(host.read)
                await host.shake_hands()
                yield host
                await process.stdin.aclose()
                with anyio.fail_after(START_SECONDS):
                    assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()


class HttpHost:
    """One host of a gateway that serves HTTP."""

    def __init__(self, client, url, *, modern):
        self.client, self._url, self._modern = client, url, modern
        self._ids = itertools.count(1)
        self.headers = {**ACCEPT, "mcp-protocol-version": MODERN if modern else LEGACY}
        self.faults = []

    async def shake_hands(self):
        """Begin a session; a modern host needs none."""
        if self._modern:
            return
        hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": INFO}
        response = await self.client.post(
            self._url, json=request("hello", "initialize", hello), headers=self.headers
        )
        response.raise_for_status()
        self.headers["mcp-session-id"] = response.headers["mcp-session-id"]
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self.client.post(self._url, json=ready, headers=self.headers)

    async def leave(self):
        """End the session, as a polite host does."""
        if not self._modern:
            (await self.client.delete(self._url, headers=self.headers)).raise_for_status()

    async def send(self, body, **headers):
        """A body as it is; the response, read to its end."""
        return await self.client.post(self._url, content=body, headers={**self.headers, **headers})

    async def ask(self, method, params=None, *, seconds):
        """The whole answer. Raises UnansweredError."""
        call = f"host-{next(self._ids)}"
        body = request(call, method, params, modern=self._modern)
        named = {"mcp-method": method, "mcp-name": (params or {}).get("name", "")} if self._modern else {}
        named = {header: value for header, value in named.items() if value}
        try:
            with anyio.fail_after(seconds):
                response = await self.send(json.dumps(body).encode(), **named)
        except (TimeoutError, httpx.HTTPError) as error:
            raise UnansweredError(f"{method} {call}: {error!r}") from error
        return self._answer(call, response)

    def _answer(self, call, response):
        try:
            found = [strict(line) for line in payloads(response)]
        except ValueError as error:
            self.faults.append(f"not JSON ({error}): {response.text[:200]!r}")
            found = []
        answers = [message for message in found if message.get("id") == call]
        if len(answers) != 1 or any(
            "id" in message and "method" not in message and message["id"] != call for message in found
        ):
            self.faults.append(
                f"{len(answers)} answers to {call}: {response.status_code} {response.text[:200]!r}"
            )
            return {"error": {"code": response.status_code, "message": response.text}}
        return answers[0]


def payloads(response):
    """The messages of a response, JSON or events, unparsed."""
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        # Not `splitlines`, which knows more ends of a line than SSE does.
        events = response.text.replace("\r\n", "\n").split("\n")
        return [line[5:].strip() for line in events if line.startswith("data:") and line[5:].strip()]
    return [response.text] if response.content else []


@asynccontextmanager
async def http_host(url, *, modern, client=None):
    """A host with a connection pool of its own."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=START_SECONDS, limits=limits, verify=NO_TLS) as own:
        host = HttpHost(client or own, url, modern=modern)
        await host.shake_hands()
        yield host
        await host.leave()
