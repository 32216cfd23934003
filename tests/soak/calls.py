"""Soak: calls from many callers over servers that misbehave, are killed and hung, through a real gateway.

    python tests/soak/calls.py [--calls 20000] [--seconds 300] [--transport stdio|http] [--modern]

Prints a table and, last, a line of JSON; exits with 1 if anything that must never happen has happened. Over HTTP
four hosts, two of each era, share the callers. A server that answers one open call under the id of another open
one, both as its gateway wrote them, can't be found out by anybody: `chaos_server.py` guesses ids instead.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx
import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))
from soak.hosts import START_SECONDS, UnansweredError, http_host, stdio_host
from soak.watching import Watch
from support.gateways import gateway_command, python_server, write_config
from support.processes import assert_none_is_left, new_mark

CALL_SECONDS = 3.0
"""Each server's `timeout_seconds`."""
GRACE_SECONDS = 10.0
"""What a busy machine may add to it before a call counts as not answered."""
TROUBLE_SECONDS = 1.5
"""Between two blows to a server from outside."""
HANG_SECONDS = (0.5, 4.0)
FORGED = "forged"


@dataclass(frozen=True)
class Plan:
    calls: int = 20_000
    seconds: float = 300.0
    callers: int = 16
    servers: int = 10
    seed: int = 1
    transport: str = "stdio"
    modern: bool = False

    @property
    def names(self):
        return [f"chaos{number}" for number in range(self.servers)]


@dataclass
class Tally:
    """What became of the calls."""

    answered: int = 0
    failed: Counter = field(default_factory=Counter)
    blows: Counter = field(default_factory=Counter)
    faults: list = field(default_factory=list)
    seconds: list = field(default_factory=list)

    def percentile(self, share):
        ordered = sorted(self.seconds) or [0.0]
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 4)

    def take(self, server, token, answer):
        """Sort one answer; a result must hold its server and its token and nothing else's."""
        if FORGED in (text := json.dumps(answer)):
            self.faults.append(f"{server} {token}: another's result: {text[:300]}")
        elif "error" in answer:
            self.failed[cause(answer["error"].get("message", ""))] += 1
        elif answer["result"].get("isError"):
            said = answer["result"]["content"][0]["text"]
            self.failed[cause(said)] += 1
            if server not in said:
                self.faults.append(f"{server} {token}: unclear: {said[:300]}")
        elif not is_right(server, token, answer["result"]):
            self.faults.append(f"{server} {token}: another's result: {text[:300]}")
        else:
            self.answered += 1


def is_right(server, token, result):
    said = result["content"][0]["text"].split("x", 1)[0]
    return said == f"{server} {token}" and result["structuredContent"] == {"server": server, "token": token}


def cause(message):
    """The kind of a failure, without names and numbers."""
    for kind in (
        "no answer",
        "was killed",
        "exited with code",
        "closed its output",
        "not available",
        "not a valid",
    ):
        if kind in message:
            return kind
    return message[:80] or "(nothing said)"


async def call_all(plan, hosts, tally):
    """All calls, each not before its turn, so that the run lasts as long as planned."""
    chance, numbers = random.Random(plan.seed), iter(range(plan.calls))
    began = anyio.current_time()

    async def work(host):
        for number in numbers:
            await anyio.sleep_until(began + plan.seconds * number / plan.calls)
            server, token = chance.choice(plan.names), f"{number}-{chance.getrandbits(64):016n}"
            sent = time.monotonic()
            arguments = {"tool": f"{server}/echo", "arguments": {"token": token}}
            call = {"name": "call_tool", "arguments": arguments}
            try:
                answer = await host.ask("tools/call", call, seconds=CALL_SECONDS + GRACE_SECONDS)
            except UnansweredError as error:
                tally.faults.append(f"{server} {token}: {error}")
                continue
            finally:
                tally.seconds.append(time.monotonic() - sent)
            tally.take(server, token, answer)

    async with anyio.create_task_group() as callers:
        for number in range(plan.callers):
            callers.start_soon(work, hosts[number % len(hosts)])


async def make_trouble(plan, gateway_pid, tally):
    """Kill, end or hang one server after the other."""
    chance = random.Random(-plan.seed)
    while True:
        await anyio.sleep(TROUBLE_SECONDS)
        found = servers_of(gateway_pid)
        if not found:
            continue
        victim, blow = chance.choice(found), chance.choice(("kill", "terminate", "hang"))
        tally.blows[blow] += 1
        try:
            await strike(victim, blow, chance.uniform(*HANG_SECONDS))
        except psutil.NoSuchProcess:
            continue


async def strike(victim, blow, seconds):
    if blow != "hang":
        victim.send_signal(signal.SIGKILL if blow == "kill" else signal.SIGTERM)
        return
    victim.suspend()
    try:
        await anyio.sleep(seconds)
    finally:
        if victim.is_running():
            victim.resume()


def servers_of(pid):
    try:
        return [child for child in psutil.Process(pid).children() if child.status() != psutil.STATUS_ZOMBIE]
    except psutil.NoSuchProcess:
        return []


@asynccontextmanager
async def gateway(plan, folder, mark):
    """A running gateway: its pid and its hosts."""
    toml = "".join(f"[servers.{name}]\ntimeout_seconds = {CALL_SECONDS}\n" for name in plan.names)
    servers = {
        name: python_server("chaos_server.py", name, str(plan.seed), env=dict(mark)) for name in plan.names
    }
    options, env = write_config(folder, servers, toml), {**os.environ, **mark}
    with (folder / "stderr").open("wb") as errors:
        if plan.transport == "stdio":
            command = gateway_command("serve", *options)
            async with stdio_host(command, stderr=errors, env=env, modern=plan.modern) as host:
                yield host.process.pid, [host]
            return
        port = free_port()
        command = gateway_command("serve", *options, "--http", f"127.0.0.1:{port}")
        async with serving(command, errors, env, f"http://127.0.0.1:{port}/mcp") as (pid, hosts):
            yield pid, hosts


@asynccontextmanager
async def serving(command, errors, env, url):
    process = await anyio.open_process(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, env=env
    )
    async with process:
        try:
            await until_listening(url)
            async with AsyncExitStack() as stack:
                eras = (False, True, False, True)
                hosts = [await stack.enter_async_context(http_host(url, modern=modern)) for modern in eras]
                yield process.pid, hosts
            process.terminate()
            with anyio.fail_after(START_SECONDS):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()


async def until_listening(url):
    with anyio.fail_after(START_SECONDS):
        async with httpx.AsyncClient() as client:
            while True:
                try:
                    await client.get(url)
                except httpx.TransportError:
                    await anyio.sleep(0.1)
                else:
                    return


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


async def warm_up(host):
    """Servers listed, models loaded, tools compiled: what comes after this must not grow."""
    turn = {"name": "nexus_turn", "arguments": {"request": 'say the token "warm"', "dry_run": True}}
    await host.ask("tools/call", turn, seconds=START_SECONDS)


async def soak(plan, folder):
    """Run the plan; the report holds all that is known, `faults` what must never happen."""
    mark, tally = new_mark(), Tally()
    async with gateway(plan, folder, mark) as (pid, hosts):
        await warm_up(hosts[0])
        watch, began = Watch(pid), time.monotonic()
        async with anyio.create_task_group() as side:
            side.start_soon(watch.run)
            side.start_soon(make_trouble, plan, pid, tally)
            await call_all(plan, hosts, tally)
            side.cancel_scope.cancel()
        lasted = time.monotonic() - began
        watch.sample()
    for host in hosts:
        tally.faults += host.faults
    await anyio.to_thread.run_sync(assert_none_is_left, mark)
    return report(plan, tally, watch, lasted)


def report(plan, tally, watch, lasted):
    return {
        "transport": plan.transport,
        "calls": len(tally.seconds),
        "seconds": round(lasted, 1),
        "answered": tally.answered,
        "failed": dict(tally.failed.most_common()),
        "blows": dict(tally.blows),
        "p50_seconds": tally.percentile(0.5),
        "p99_seconds": tally.percentile(0.99),
        "longest_seconds": tally.percentile(1.0),
        "thirds": watch.thirds(),
        "growth_mb": watch.growth_mb(),
        "flat": watch.is_flat(),
        "faults": len(tally.faults),
        "first_faults": tally.faults[:10],
        "processes_left": 0,
    }


def show(found):
    """A table for people, and a last line for machines."""
    for key, value in found.items():
        sys.stdout.write(f"{key:>18}  {value}\n")
    sys.stdout.write(json.dumps(found) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=Plan.calls)
    parser.add_argument("--seconds", type=float, default=Plan.seconds)
    parser.add_argument("--callers", type=int, default=Plan.callers)
    parser.add_argument("--servers", type=int, default=Plan.servers)
    parser.add_argument("--seed", type=int, default=Plan.seed)
    parser.add_argument("--transport", choices=("stdio", "http"), default=Plan.transport)
    parser.add_argument("--modern", action="store_true", help="a stdio host of 2026-07-28")
    plan = Plan(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory() as folder:
        found = anyio.run(soak, plan, Path(folder))
    show(found)
    sys.exit(1 if found["faults"] or not found["flat"] else 0)


if __name__ == "__main__":
    main()
