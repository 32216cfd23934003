"""A host is answered before anything heavy is imported."""

import json
import subprocess
import sys
import threading

from support.gateways import gateway_command, python_server, write_config

HEAVY = [
    "torch",
    "llama_cpp",
    "sentence_transformers",
    "transformers",
    "llguidance",
    "numpy",
    "huggingface_hub",
    "numkong",
]
FOR_OTHER_COMMANDS = ["structlog", "rich", "jsonschema_rs", "nexus_gateway.app", "nexus_gateway.wiring"]

SPY = """
import functools, json, sys

from nexus_gateway import boot
from nexus_gateway.server.gateway import build_server

NAMES = json.loads(sys.argv.pop(1))


def spying(call, *, on_listed, **rest):
    def listed():
        found = [name for name in NAMES if name in sys.modules]
        print(json.dumps({"imported": found}), file=sys.stderr, flush=True)
        on_listed()

    return build_server(call, on_listed=listed, **rest)


boot.build_server = spying

from nexus_gateway.cli.main import main  # the command itself, from its entry point on

main()
"""


def message(number, method, **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


HELLO = [
    message(
        1,
        "initialize",
        protocolVersion="2025-06-18",
        capabilities={},
        clientInfo={"name": "t", "version": "1"},
    ),
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    message(2, "tools/list"),
]


def imported_when_listed(folder, names):
    """Start `serve` over stdio, ask for the tools, and see what it had imported when it answered."""
    servers = {"dead": {"command": "no-such-command-anywhere"}, "live": python_server("raw_server.py")}
    serve = ["serve", *write_config(folder, servers)]
    command = [sys.executable, "-c", SPY, json.dumps(names), *serve]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as process:
        deadline = threading.Timer(60, process.kill)
        deadline.start()
        try:
            process.stdin.write("".join(f"{json.dumps(line)}\n" for line in HELLO))
            process.stdin.flush()
            answers = iter(process.stdout.readline, "")
            listed = next(answer for line in answers if (answer := json.loads(line)).get("id") == 2)
            _, errors = process.communicate()  # closes its stdin: it ends by itself
        finally:
            deadline.cancel()
    assert len(listed["result"]["tools"]) == 5
    assert process.returncode == 0, errors
    (seen,) = [json.loads(line) for line in errors.splitlines() if '"imported"' in line]
    return seen["imported"]


def test_neither_models_nor_their_libraries_are_imported_before_the_tools_are_listed(tmp_path):
    assert imported_when_listed(tmp_path, [*HEAVY, *FOR_OTHER_COMMANDS, "mcp", "nexus_gateway.boot"]) == [
        "mcp",
        "nexus_gateway.boot",
    ]


def test_the_version_needs_no_server_and_no_model():
    code = f"""
import json, sys
from nexus_gateway.cli.main import app
try:
    app(["--version"])
except SystemExit as stop:
    assert not stop.code
print(json.dumps([name for name in {HEAVY!r} + ["mcp", "structlog"] if name in sys.modules]), file=sys.stderr)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(process.stderr) == []
    assert process.stdout.startswith("nexus-gateway ")


def test_the_module_is_a_command_too():
    process = subprocess.run(
        gateway_command("--version"), capture_output=True, text=True, timeout=60, check=True
    )
    assert process.stdout.startswith("nexus-gateway ")
