"""Measures the start of `serve`: from process start to the answered first `tools/list`, over stdio.

    python tests/measure_startup.py [RUNS]

Models are cold, five demo servers live and one upstream's command does not exist. Each run is followed by one of
`python -c "import mcp, mcp.server.stdio"`, the floor of any server on the SDK, so that both meet the same noise.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nexus_gateway.demo.workspace import demo_servers, seed_workspace

LIVE = ("files", "notes", "calendar", "contacts", "database")
RUNS = 10
TARGET = 1.5
DEADLINE_SECONDS = 60
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "measure", "version": "1"},
}


def write_config(folder):
    """An mcpServers file of the live servers and the dead one, and an own file with an empty cache."""
    seed_workspace(folder / "workspace")
    specs = {
        name: spec.transport for name, spec in demo_servers(folder / "workspace").items() if name in LIVE
    }
    if len(specs) != len(LIVE):
        sys.exit(f"the demo has no such servers: {set(LIVE) - set(specs)}")
    servers = {name: {"command": spec.command, "args": list(spec.args)} for name, spec in specs.items()}
    servers["dead"] = {"command": "no-such-command-anywhere"}
    own, host = folder / "nexus.toml", folder / "mcp.json"
    own.write_text(f"cache_dir = {json.dumps(str(folder / 'cache'))}\n", encoding="utf-8")
    host.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return ["--config", str(own), "--mcp-config", str(host)]


def send(process, method, number=None, params=None):
    """One message to the server."""
    message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    line = json.dumps(message if number is None else message | {"id": number})
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()


def answer(process, number):
    """The result with this id; notifications are passed over."""
    for line in process.stdout:
        message = json.loads(line)
        if message.get("id") == number:
            return message["result"]
    sys.exit("the server closed its stdout")


def start_to_list(options):
    """Seconds to the answered first `tools/list`."""
    command = [str(Path(sys.executable).parent / "nexus-gateway"), "serve", *options]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    started = time.perf_counter()
    with subprocess.Popen(command, **pipes) as process:
        try:
            send(process, "initialize", 1, HELLO)
            answer(process, 1)
            send(process, "notifications/initialized")
            send(process, "tools/list", 2)
            tools = answer(process, 2)["tools"]
            spent = time.perf_counter() - started
        finally:
            process.stdin.close()
            process.wait(DEADLINE_SECONDS)
    if not tools:
        sys.exit("no meta-tools were listed")
    return spent


def bare_import():
    """Seconds of a process that only imports the SDK."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "import mcp, mcp.server.stdio"], check=True, timeout=DEADLINE_SECONDS
    )
    return time.perf_counter() - started


def measure(runs):
    """Both times of each run, in ms, after one run of each that warms the disk."""
    with tempfile.TemporaryDirectory() as folder:
        options = write_config(Path(folder))
        start_to_list(options)
        bare_import()
        return [(start_to_list(options) * 1000, bare_import() * 1000) for _ in range(runs)]


def percentile(values, share):
    """The value below which `share` of the sorted values lie."""
    return sorted(values)[round(share * (len(values) - 1))]


def main():
    """Print a table and one line of JSON."""
    times = measure(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
    sys.stdout.write("run  first tools/list  bare import  ratio\n")
    for number, (ours, bare) in enumerate(times, 1):
        sys.stdout.write(f"{number:>3}  {ours:>13.0f} ms  {bare:>8.0f} ms  {ours / bare:>5.2f}\n")
    ours, bare = ([pair[side] for pair in times] for side in (0, 1))
    ratios = [one / other for one, other in times]
    summary = {
        "p50_ms": round(statistics.median(ours), 1),
        "import_p50_ms": round(statistics.median(bare), 1),
        "ratio": round(statistics.median(ours) / statistics.median(bare), 3),
        "ratio_p10": round(percentile(ratios, 0.1), 3),
        "ratio_p90": round(percentile(ratios, 0.9), 3),
        "n": len(times),
    }
    verdict = "met" if summary["ratio"] <= TARGET else "not met"
    sys.stdout.write(f"target: at most {TARGET} times the bare import: {verdict}\n{json.dumps(summary)}\n")


if __name__ == "__main__":
    main()
