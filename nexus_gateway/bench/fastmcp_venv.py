"""FastMCP in a virtual environment of its own under the cache directory, made when it is first asked for."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from nexus_gateway.bench.errors import BenchError

WANTED = ("fastmcp>=4", "fastmcp")
"""Requirements in the order they are tried."""
INSTALL_SECONDS = 900
_VERSION = "import importlib.metadata as m; print(m.version('fastmcp'))"


@dataclass(frozen=True, slots=True)
class FastMcp:
    """An installed FastMCP: its environment's interpreter, and its version."""

    python: Path
    version: str


def install_fastmcp(cache_dir: Path) -> FastMcp:
    """The environment, made if need be; takes up to some minutes then.

    Raises:
        BenchError: it can't be made; the message has pip's own words.
    """
    folder = cache_dir / "bench" / "fastmcp"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    version = _installed(python)
    if version is None:
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _install(python)
        version = _installed(python)
    if version is None:
        raise BenchError(f"FastMCP is not usable in {folder}; delete that folder and try again")
    return FastMcp(python, version)


def _installed(python: Path) -> str | None:
    if not python.exists():
        return None
    found = subprocess.run([str(python), "-c", _VERSION], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def _install(python: Path) -> None:
    for requirement in WANTED[:-1]:
        try:
            return _pip(python, requirement)
        except BenchError:
            continue  # an index without that version; the plain requirement says what is wrong if all is
    return _pip(python, WANTED[-1])


def _pip(python: Path, requirement: str) -> None:
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{' '.join(command)} took over {INSTALL_SECONDS} s") from None
    if done.returncode:
        raise BenchError(f"{' '.join(command)} failed:\n{done.stderr.strip()[-2000:]}")
