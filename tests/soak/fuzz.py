"""Fuzz: seeded malformed JSON-RPC from an upstream and from hosts, through a real gateway.

    python tests/soak/fuzz.py [--messages 100000] [--seed 1]

Half of the messages come from an upstream, the rest from hosts over stdio and HTTP, in both eras. Prints a table
and, last, a line of JSON; exits with 1 if the gateway crashed, hung, wrote what isn't JSON, or gave one host what
belongs to another.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import httpx

sys.path.insert(0, str(Path(__file__).parent.parent))
from soak.calls import free_port, serving, show
from soak.hosts import UnansweredError, http_host, request, stdio_host
from support.fuzzing import Fuzzer
from support.gateways import gateway_command, python_server, write_config
from support.processes import assert_none_is_left, new_mark

ANSWER_SECONDS = 60.0
"""A call after a burst: the gateway works off the burst first."""
TIMEOUT_SECONDS = 5.0
UNANSWERED_SECONDS = 30.0
BURST = 250
"""Spoilt messages between two calls that must be answered."""
AT_ONCE = 8
TOML = f"[servers.fuzz]\ntimeout_seconds = {TIMEOUT_SECONDS}\n"
MARK_A, MARK_B = "mark-of-a", "mark-of-b"


def messages(mark, *, modern, user=0):
    """What a host may say, valid so far; `mark` is in all that could be kept or repeated."""
    echo = {"tool": "calm/echo", "arguments": {"token": mark}}
    asked = [
        (
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": mark, "version": "1"},
            },
        ),
        ("server/discover", {}),
        ("ping", {}),
        ("tools/list", {"cursor": mark}),
        ("tools/list", {}),
        ("tools/call", {"name": "call_tool", "arguments": echo, "_meta": {"progressToken": mark, mark: 1}}),
        ("tools/call", {"name": "call_tool", "arguments": echo, "requestState": mark, "inputResponses": {}}),
        ("tools/call", {"name": "describe_tool", "arguments": {"tool": "calm/echo"}}),
        ("tools/call", {"name": mark, "arguments": {}}),
        ("resources/list", {}),
        ("resources/read", {"uri": f"file:///{mark}"}),
        ("prompts/get", {"name": mark, "arguments": {}}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": mark}, "argument": {"name": "a", "value": "b"}},
        ),
        ("logging/setLevel", {"level": "info"}),
    ]
    told = [
        ("notifications/cancelled", {"requestId": f"f-{user}-1", "reason": mark}),
        ("notifications/progress", {"progressToken": 1, "progress": 1}),
        ("notifications/roots/list_changed", {}),
    ]
    # Ids repeat on purpose.
    requests = [request(f"f-{user}-{n % 5}", *one, modern=modern) for n, one in enumerate(asked)]
    notices = [{"jsonrpc": "2.0", "method": method, "params": params} for method, params in told]
    return [*requests, *notices, {"jsonrpc": "2.0", "id": 1, "result": {"content": mark}}]


async def echo_is_right(host, server, token, faults):
    """A plain call, answered as if nothing had been."""
    call = {"name": "call_tool", "arguments": {"tool": f"{server}/echo", "arguments": {"token": token}}}
    try:
        answer = await host.ask("tools/call", call, seconds=ANSWER_SECONDS)
    except UnansweredError as error:
        faults.append(f"no answer after a burst: {error}")
        return
    if token not in str(answer.get("result", {}).get("content")) or MARK_A in str(answer):
        faults.append(f"not {token}: {str(answer)[:300]}")


async def from_an_upstream(host, count, faults):
    """Floods from one server during calls; its own next call and another server's are right."""
    ended = Counter()

    async def flood(size):
        arguments = {"tool": "fuzz/flood", "arguments": {"count": size}}
        try:
            answer = await host.ask(
                "tools/call", {"name": "call_tool", "arguments": arguments}, seconds=ANSWER_SECONDS
            )
        except UnansweredError as error:
            faults.append(f"a call hangs: {error}")
            return
        ended["error" if "error" in answer else "result"] += 1

    for number in range(-(-count // (BURST * 2))):
        async with anyio.create_task_group() as calls:
            calls.start_soon(flood, BURST)
            calls.start_soon(flood, BURST)
            calls.start_soon(echo_is_right, host, "calm", f"calm-{number}", faults)
        await echo_is_right(host, "fuzz", f"own-{number}", faults)
    return dict(ended)


async def from_a_stdio_host(host, count, seed, faults, *, modern):
    """Bursts of spoilt lines, then a call."""
    fuzzer = Fuzzer(seed, messages(MARK_A, modern=modern))
    for number in range(-(-count // BURST)):
        for _ in range(BURST):
            if host.gone.is_set():
                faults.append(f"the gateway is gone after {number * BURST} lines")
                return
            await host.send(fuzzer.line())
        await echo_is_right(host, "calm", f"stdio-{number}", faults)


async def from_http_hosts(spoilers, others, count, seed, faults):
    """Two hosts send spoilt bodies, two more work; no content crosses over."""
    statuses, turns = Counter(), iter(range(count))
    async with anyio.create_task_group() as workers:
        for host in others:
            workers.start_soon(keep_working, host, faults)
        async with anyio.create_task_group() as tasks:
            for number in range(AT_ONCE):
                modern = bool(number % 2)
                fuzzer = Fuzzer(f"{seed} {number}", messages(MARK_A, modern=modern, user=number))
                tasks.start_soon(
                    partial(spoil, modern=modern), spoilers[modern], fuzzer, turns, statuses, faults
                )
        workers.cancel_scope.cancel()
    for host in (*spoilers, *others):
        await echo_is_right(host, "calm", "afterwards", faults)
    return {str(status): found for status, found in statuses.items()}


async def spoil(host, fuzzer, turns, statuses, faults, *, modern):
    for _ in turns:
        body = fuzzer.line()
        response = await spoilt(host, body, named(body) if modern else {}, faults)
        if response is None:
            continue
        statuses[response.status_code] += 1
        if MARK_B in response.text:
            faults.append(f"another host's content: {response.text[:300]}")
        if response.status_code >= 500:
            faults.append(f"{response.status_code}: {response.text[:100]} to {body[:400]!r}")


async def keep_working(host, faults):
    number = 0
    while True:
        number += 1
        await echo_is_right(host, "calm", f"{MARK_B}-{number}", faults)


def named(body):
    """The headers that a modern body wants, as far as it has any: what contradicts them is refused unread."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return {"mcp-method": "tools/list"}
    if not isinstance(message, dict):
        return {"mcp-method": "tools/list"}
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    found = {"mcp-method": message.get("method"), "mcp-name": params.get("name", params.get("uri"))}
    return {header: value for header, value in found.items() if is_plain(value)}


def is_plain(value):
    return isinstance(value, str) and value.isascii() and value.isprintable() and len(value) < 1_000


async def spoilt(host, body, headers, faults):
    """The response, or None where none came: which is a fault."""
    try:
        with anyio.fail_after(UNANSWERED_SECONDS):
            return await host.send(body, **headers)
    except (TimeoutError, httpx.HTTPError) as error:
        faults.append(f"no response ({error!r}) to {body[:400]!r}")
        return None


@asynccontextmanager
async def configured(folder, seed):
    """Options, environment and log of a gateway over a calm server and one that talks nonsense."""
    mark = new_mark()
    servers = {
        "fuzz": python_server("fuzz_server.py", str(seed), env=dict(mark)),
        "calm": python_server("chaos_server.py", "calm", "1", "calm", env=dict(mark)),
    }
    with (folder / "stderr").open("ab") as errors:
        yield write_config(folder, servers, TOML), {**os.environ, **mark}, errors
    await anyio.to_thread.run_sync(assert_none_is_left, mark)


async def over_stdio(folder, count, seed, faults, *, modern, upstream):
    """Spoilt messages of an upstream, or else of the host itself."""
    async with (
        configured(folder, seed) as (options, env, errors),
        stdio_host(gateway_command("serve", *options), stderr=errors, env=env, modern=modern) as host,
    ):
        ended = None
        if upstream:
            ended = await from_an_upstream(host, count, faults)
        else:
            await from_a_stdio_host(host, count, seed, faults, modern=modern)
        faults += host.faults
    return ended


async def over_http(folder, count, seed, faults):
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    async with configured(folder, seed) as (options, env, errors):
        command = gateway_command("serve", *options, "--http", f"127.0.0.1:{port}")
        async with serving(command, errors, env, url) as (_, others):
            async with http_host(url, modern=False) as legacy, http_host(url, modern=True) as modern:
                statuses = await from_http_hosts((legacy, modern), others[:2], count, seed, faults)
            for host in (*others, legacy, modern):
                faults += host.faults
    return statuses


def parts(folder, seed, faults):
    """Each part with its share of the messages."""
    return {
        "upstream": (0.5, lambda n: over_stdio(folder, n, seed, faults, modern=False, upstream=True)),
        "stdio_legacy": (0.2, lambda n: over_stdio(folder, n, seed, faults, modern=False, upstream=False)),
        "stdio_modern": (0.2, lambda n: over_stdio(folder, n, seed, faults, modern=True, upstream=False)),
        "http": (0.1, lambda n: over_http(folder, n, seed, faults)),
    }


async def fuzz(count, seed, folder, only=None):
    """All parts, or `only` one with all messages; `faults` in the report are what must never happen."""
    faults, report = [], {"messages": count, "seed": seed}
    for key, (share, run) in parts(folder, seed, faults).items():
        if only not in {None, key}:
            continue
        messages_of_part = count if only else int(count * share)
        began, known = time.monotonic(), len(faults)
        outcome = await run(messages_of_part)
        seconds = round(time.monotonic() - began, 1)
        report[key] = {"messages": messages_of_part, "seconds": seconds, "faults": len(faults) - known}
        if outcome is not None:
            report[key]["ended"] = outcome
    crashes = (folder / "stderr").read_text(errors="replace").split("Traceback")[1:]
    return report | {
        "tracebacks": len(crashes),
        "first_tracebacks": [crash[:2_000] for crash in crashes[:3]],
        "faults": len(faults),
        "first_faults": faults[:10],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("upstream", "stdio_legacy", "stdio_modern", "http"))
    parser.add_argument("--folder", type=Path, help="keep the gateway's log here")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = anyio.run(fuzz, chosen.messages, chosen.seed, chosen.folder or Path(folder), chosen.only)
    show(found)
    sys.exit(1 if found["faults"] else 0)


if __name__ == "__main__":
    main()
