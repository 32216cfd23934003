"""What is compared: the same upstream reached directly, through this gateway, and through FastMCP's proxy.

Knows how each is started and when it is ready. A proxy is always spoken to over stdio, as hosts start one; the
upstream behind it, or the one reached directly, is a child process or an HTTP server.
"""

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import psutil
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED

from adapters.ports import Era
from nexus_gateway.bench.client import Client, Target, end_of, open_client
from nexus_gateway.bench.echo_server import ECHO
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.fastmcp_venv import FastMcp

DIRECT, GATEWAY, FASTMCP = "direct", "gateway", "fastmcp"
READY_SECONDS = 120.0
"""For a first answer from the upstream through a proxy."""
SETTLE_SECONDS = 180.0
"""For work after the start (models that load) to end; measuring begins after that in any case."""
_FASTMCP_PROXY = Path(__file__).with_name("fastmcp_proxy.py")
_POLL_SECONDS = 0.02
_QUIET_SAMPLES = 4
_SAMPLE_SECONDS = 0.25
_QUIET_CPU_SECONDS = 0.02
_STOP_SECONDS = 10

Command = Callable[[Target, Era, Path], Target]
"""From the upstream, the era and a scratch folder to what a client of this arm starts or dials."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to the upstream."""

    name: str
    command: Command


@dataclass(frozen=True, slots=True)
class LiveArm:
    """An arm that has answered.

    Attributes:
        process: what the client started; None where it dialled.
        first_list_seconds: from the start of the process to the first answered `tools/list`.
        first_call_seconds: from the start of the process to the first call that came back from the upstream.
    """

    name: str
    client: Client
    process: psutil.Process | None
    first_list_seconds: float
    first_call_seconds: float

    async def call(self, text: str) -> None:
        """One call; its answer is checked. Raises BenchError, or MCPError for a refusal."""
        result = await self.client.request("tools/call", {"name": ECHO, "arguments": {"text": text}})
        content = result.get("content")
        if not content or content[0].get("text") != text:
            raise BenchError(f"{self.name}: asked to echo {text!r}, answered {str(result)[:500]}")

    @property
    def rss_bytes(self) -> int:
        """Resident memory of the process itself, without its children; 0 where the client dialled."""
        return 0 if self.process is None else int(self.process.memory_info().rss)


def arms(fastmcp: FastMcp | None) -> list[Arm]:
    """Every arm; FastMCP's where one is installed."""
    both = [Arm(DIRECT, lambda upstream, _era, _folder: upstream), Arm(GATEWAY, _gateway)]
    if fastmcp is None:
        return both
    return [*both, Arm(FASTMCP, lambda upstream, _era, _folder: _fastmcp(fastmcp, upstream))]


def echo_command(transport: str, tools: int) -> tuple[str, ...]:
    """The command line of the upstream."""
    return (sys.executable, "-m", "nexus_gateway.bench.echo_server", transport, str(tools))


def _gateway(upstream: Target, era: Era, folder: Path) -> Target:
    reached = (
        [f"url = {json.dumps(upstream)}"]
        if isinstance(upstream, str)
        else [f"command = {json.dumps(upstream[0])}", f"args = {json.dumps(upstream[1:])}"]
    )
    lines = [
        f"cache_dir = {json.dumps(str(folder / 'cache'))}",
        '[log]\nlevel = "error"',
        '[expose]\ntools = "all"\nprefix = "never"\nmeta_tools = false',
        f'[servers.bench]\nera = "{era}"',
        *reached,
    ]
    config = folder / "nexus.toml"
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return (sys.executable, "-m", "nexus_gateway", "serve", "--config", str(config))


def _fastmcp(fastmcp: FastMcp, upstream: Target) -> Target:
    server = (
        {"url": upstream}
        if isinstance(upstream, str)
        else {"command": upstream[0], "args": list(upstream[1:])}
    )
    config = json.dumps({"mcpServers": {"bench": server}})
    return (str(fastmcp.python), "-P", str(_FASTMCP_PROXY), config)


@contextmanager
def upstream_of(transport: str, tools: int, folder: Path) -> Iterator[Target]:
    """The upstream: a command for each arm to start, or the URL of one that runs, its log in `folder`."""
    if transport == "stdio":
        yield echo_command("stdio", tools)
        return
    log, command = folder / "upstream.log", echo_command("http", tools)
    with (
        log.open("w", encoding="utf-8") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        try:
            if process.stdout is None or not (url := process.stdout.readline().strip()):
                raise BenchError(f"the echo server did not start: {end_of(log)}")
            yield url
        finally:
            process.terminate()
            process.wait(_STOP_SECONDS)


@asynccontextmanager
async def open_arm(arm: Arm, upstream: Target, era: Era, folder: Path) -> AsyncIterator[LiveArm]:
    """Start an arm and wait until it is ready and quiet.

    Raises:
        BenchError: no answer came from the upstream; the message has the end of the process's stderr.
    """
    folder = folder / arm.name
    folder.mkdir(parents=True, exist_ok=True)
    target = arm.command(upstream, era, folder)
    before = set(psutil.Process().children())
    started = time.perf_counter()
    log = folder / "stderr.log"
    async with open_client(arm.name, target, era, stderr=log) as client:
        process = None if isinstance(target, str) else _new_child(before)
        await client.list_tools()
        first_list = time.perf_counter() - started
        await _first_answer(arm.name, client, log)
        live = LiveArm(arm.name, client, process, first_list, time.perf_counter() - started)
        await _settled(process)
        yield live


def _new_child(before: set[psutil.Process]) -> psutil.Process:
    (child,) = set(psutil.Process().children()) - before
    return child


async def _first_answer(name: str, client: Client, log: Path) -> None:
    last = "its list of tools has no echo"
    with anyio.move_on_after(READY_SECONDS):
        while True:
            try:
                if any(tool.get("name") == ECHO for tool in await client.list_tools()):
                    result = await client.request(
                        "tools/call", {"name": ECHO, "arguments": {"text": "ready"}}
                    )
                    if not result.get("isError"):
                        return
                    last = str(result)
            except MCPError as error:
                last = str(error)
                if error.error.code == CONNECTION_CLOSED:
                    break
            await anyio.sleep(_POLL_SECONDS)
    raise BenchError(f"{name}: no answer from the upstream: {last[:500]}\n{end_of(log)}".rstrip())


async def _settled(process: psutil.Process | None) -> None:
    """Wait until the process and its children use no CPU to speak of; bounded."""
    if process is None:
        return
    quiet, spent = 0, _cpu_seconds(process)
    with anyio.move_on_after(SETTLE_SECONDS):
        while quiet < _QUIET_SAMPLES:
            await anyio.sleep(_SAMPLE_SECONDS)
            now = _cpu_seconds(process)
            quiet = quiet + 1 if now - spent < _QUIET_CPU_SECONDS else 0
            spent = now


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    children = sum(child.cpu_times().user + child.cpu_times().system for child in process.children())
    return float(times.user + times.system + children)
