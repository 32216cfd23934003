"""A real `serve --http` process that can be killed, stopped and started again, with one gated server behind it."""

import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
from support.processes import wait_until

GATED = Path(__file__).parents[1] / "servers" / "gated_server.py"
TOKEN = "a-token-of-a-test"
TOOL = "gated__pass_gate"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def write_configuration(folder, *, drain_seconds=20):
    """The gateway's own file: the gated server's tool is listed as it is, and no model is there to be loaded."""
    own = folder / "nexus.toml"
    own.write_text(
        f"""
        cache_dir = "{folder.as_posix()}/cache"
        [models]
        argument = "{folder.as_posix()}/no-model.gguf"
        embedder = "{folder.as_posix()}/no-model"
        reader = "off"
        [expose]
        tools = "all"
        [http]
        drain_seconds = {drain_seconds}
        [servers.gated]
        command = {json.dumps(sys.executable)}
        args = [{json.dumps(str(GATED))}, {json.dumps(str(folder))}]
        """
    )
    return own


class Served:
    """The process of a command that serves HTTP, and its addresses."""

    def __init__(self, command, environ, folder):
        self.command = command
        self.base = f"http://{command[command.index('--http') + 1]}"
        self.url = f"{self.base}/mcp"
        self.folder = folder
        self._environ = environ
        self._log = folder / "serve.log"
        self.process = None

    def start(self):
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environ
            )
        wait_until(lambda: self.status("/healthz") == 200 or self.process.poll() is not None, self.said)
        assert self.process.poll() is None, self.said()

    def status(self, path):
        try:
            return httpx.get(self.base + path, timeout=20, trust_env=False).status_code
        except httpx.HTTPError:
            return 0

    def wait_for_calls(self, number=1):
        called = self.folder / "called"
        wait_until(lambda: called.exists() and called.stat().st_size >= number, self.said)

    def open_gate(self):
        (self.folder / "open").touch()

    def close_gate(self):
        (self.folder / "open").unlink(missing_ok=True)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def said(self):
        return self._log.read_text(errors="replace")

    def close(self):
        if self.process is None or self.process.poll() is not None:
            return
        started = psutil.Process(self.process.pid).children(recursive=True)
        self.kill()
        psutil.wait_procs(started, timeout=20)  # they end with their stdin


@contextmanager
def serving(folder, **configured):
    """A gateway that answers, behind TOKEN."""
    own = write_configuration(folder, **configured)
    command = [sys.executable, "-m", "nexus_gateway", "serve", "--config", str(own)]
    environ = {**os.environ, "NEXUS_GATEWAY_TOKEN": TOKEN}
    served = Served([*command, "--http", f"127.0.0.1:{free_port()}"], environ, folder)
    try:
        served.start()
        yield served
    finally:
        served.close()
