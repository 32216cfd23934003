"""The official conformance suite, from npm, and what it found."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = "@modelcontextprotocol/conformance"
VERSION = "0.2.0-alpha.12"
NODE_AT_LEAST = 22
INSTALL_SECONDS = 200
RUN_SECONDS = 200
EXPECTED = Path(__file__).parent.parent / "conformance"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SUMMARY = "=== SUMMARY ==="
_FAILED = re.compile(r"^✗ ([^\s:]+):", re.MULTILINE)
"""Scenarios of the summary; those that the suite runs without counting them are among them."""
_LISTED = re.compile(r"^\s*- ([^\s:]+)", re.MULTILINE)
"""Scenarios of a file of expected failures."""


@dataclass(frozen=True)
class Verdict:
    """One run: whether everything passed, extensions and pending scenarios too, and the suite's own words."""

    passed: bool
    summary: str


class Suite:
    """The suite's program and a Node that can run it."""

    def __init__(self, modules):
        own = modules / "node" / "bin" / "node"
        self._node = own if own.is_file() else shutil.which("node")
        self._program = modules / PACKAGE / "dist" / "index.js"
        assert self._program.is_file(), f"the suite's package has no dist/index.js any more: {self._program}"

    def run(self, url, revision, output):
        """Every scenario that the revision requires, against the server at `url`.

        The file of expected failures is wrong as well where one of them passes.
        """
        expected = EXPECTED / f"expected_failures_{revision}.yml"
        command = [self._node, self._program, "server", "--url", url, "--requirements", revision]
        done = subprocess.run(
            [*command, "--expected-failures", expected, "--output-dir", output],
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        said = _COLOURS.sub("", done.stdout)
        summary = said[said.find(_SUMMARY) :]
        failed = set(_FAILED.findall(summary)) - set(_LISTED.findall(expected.read_text()))
        return Verdict(done.returncode == 0 and not failed, summary + done.stderr)


def install(make_folder):
    """The suite; skips the test where there can be none. NEXUS_CONFORMANCE_MODULES may name where it is."""
    if given := os.environ.get("NEXUS_CONFORMANCE_MODULES"):
        return Suite(Path(given))
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not on the PATH, and NEXUS_CONFORMANCE_MODULES names no folder with the suite")
    folder = make_folder()
    packages = [
        f"{PACKAGE}@{VERSION}",
        *([] if _node_version() >= NODE_AT_LEAST else [f"node@{NODE_AT_LEAST}"]),
    ]
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install the conformance suite within {INSTALL_SECONDS} s")
    if done.returncode:
        pytest.skip(f"npm could not install the conformance suite: {done.stderr[-500:]}")
    return Suite(folder / "node_modules")


def _node_version():
    node = shutil.which("node")
    if node is None:
        return 0
    said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    return int(said.removeprefix("v").split(".")[0])
