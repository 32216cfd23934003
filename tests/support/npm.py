"""The public Node servers, from npm."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCOPE = "@modelcontextprotocol"
PACKAGES = tuple(f"{SCOPE}/server-{name}" for name in ("everything", "filesystem", "memory"))
INSTALL_SECONDS = 100


def install(make_folder):
    """A node_modules folder that has the servers; skips the test where there can be none."""
    if shutil.which("node") is None:
        pytest.skip("Node is not on the PATH: the public servers can't run")
    if given := os.environ.get("NEXUS_NODE_MODULES"):
        return Path(given)
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not on the PATH, and NEXUS_NODE_MODULES names no folder with the public servers")
    folder = make_folder()
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *PACKAGES]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install the public servers within {INSTALL_SECONDS} s")
    if done.returncode:
        pytest.skip(f"npm could not install the public servers: {done.stderr[-500:]}")
    return folder / "node_modules"


def script(modules, name):
    path = modules / SCOPE / f"server-{name}" / "dist" / "index.js"
    assert path.is_file(), f"the package of {name} has no dist/index.js any more: {path}"
    return path
