"""Starts gateways on configurations that a test writes, in this process and as a child."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from nexus_gateway.settings import load_settings

SERVERS = Path(__file__).parent.parent / "servers"
COMMAND_SECONDS = 100


def python_server(script, *args, env=None):
    """An mcpServers entry for a script of tests/servers."""
    return {"command": sys.executable, "args": [str(SERVERS / script), *args], "env": env or {}}


def write_config(folder, servers, toml=""):
    """The command-line options that name a configuration of these servers, with a cache of its own."""
    own, host = folder / "nexus.toml", folder / "mcp.json"
    own.write_text(f"cache_dir = {json.dumps(str(folder / 'cache'))}\n{toml}")
    host.write_text(json.dumps({"mcpServers": servers}))
    return ["--config", str(own), "--mcp-config", str(host)]


def settings_of(folder, servers, toml=""):
    _, own, _, host = write_config(folder, servers, toml)
    loaded = load_settings(Path(own), [Path(host)])
    assert not loaded.problems
    return loaded.settings


def gateway_command(*args):
    return [sys.executable, "-m", "nexus_gateway", *args]


def run_command(*args):
    """A whole command, with its output."""
    return subprocess.run(
        gateway_command(*args), capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )


@contextmanager
def running_command(*args, stderr, stdin=None, env=None):
    """A command with pipes to its stdin (unless one is given) and stdout; killed on the way out, its pipes closed."""
    process = subprocess.Popen(
        gateway_command(*args),
        stdin=subprocess.PIPE if stdin is None else stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
