"""README.md, followed literally: every line of its sh blocks runs, in order, in an empty home.

What stands for a placeholder, which lines take long, and which end otherwise than with 0, is in the tables below.
NEXUS_FULL_TESTS=1 makes the environment with the README's own command, from a clean copy, and runs the long lines and
the demo too. Blocks marked `<!-- elsewhere: … -->` need what is not here.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.served import free_port

from adapters.hosts.known import HOSTS
from nexus_gateway.demo.workspace import demo_servers, seed_workspace
from nexus_gateway.hosts.bill import through_nexus
from nexus_gateway.opening import argument_vocabulary
from nexus_gateway.settings import Settings
from tool_registry.blocks.kind import REUSE, StateKind

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FULL = "NEXUS_FULL_TESTS" in os.environ
PATIENCE = 2_400 if FULL else 240

INSTEAD = {
    " FILE": " servers.json",
    "127.0.0.1:8765": "127.0.0.1:{port}",
    "read the file notes.txt": "read the file packing-list.txt",
    " tracker": " notes",
    "service install ": "service install --no-start ",  # no service manager runs here
    "gateway register claude-desktop": "gateway register claude-desktop --yes",
    "--yes --dry-run": "--dry-run",
}
"""What a reader puts in, and what a test has to leave out."""

LONG = ("doctor ", "calibrate ", "blocks compile", "tools search", "turn ")
"""Lines of more than a few seconds: NEXUS_FULL_TESTS=1 has them."""

ENDS_WITH = {
    "service status": {1},  # nothing runs
    "service logs": {0, 1},  # as the stand-in below has nothing
    "turn --mcp-config FILE --dry-run": {3},  # a proposal
    "calibrate": {0, 1},  # forty requests, and feedback, are more than the example has
}
UNTIL_INTERRUPTED = ("serve --http",)


def blocks(language):
    """(The comment above a block, its text) of every block in a language."""
    found = re.findall(r"(?:<!-- ([^>]*) -->\n)?```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return [(mark, text) for mark, kind, text in found if kind == language]


def marked(mark):
    """The text of the block under a mark."""
    (text,) = (text for kind in ("sh", "text", "json") for found, text in blocks(kind) if found == mark)
    return text


def table(mark):
    """The rows of the table under a mark, without its head."""
    lines = README.split(f"<!-- {mark} -->\n", 1)[1].split("\n\n", 1)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def lines_to_follow():
    return [
        line
        for mark, text in blocks("sh")
        if mark not in {"demo-command", "test-command"} and not mark.startswith("elsewhere: ")
        for line in text.splitlines()
    ]


# --- what is written


def test_each_block_of_commands_is_run_or_says_why_not():
    marks = [mark for mark, _ in blocks("sh")]
    assert marks.count("demo-command") == marks.count("test-command") == 1
    assert {mark.split(":")[0] for mark in marks} == {"", "demo-command", "test-command", "elsewhere"}
    assert len(lines_to_follow()) > 20
    for name in LONG + UNTIL_INTERRUPTED:
        assert any(name in line for line in lines_to_follow()), name


def test_the_table_of_reuse_is_that_of_the_code():
    written = {row[0].split()[0]: [cell == "yes" for cell in row[1:]] for row in table("reuse")}
    assert written == {
        str(kind): [reuse.boundary, reuse.share, reuse.trim, reuse.shift]
        for kind, reuse in REUSE.items()
        if kind is not StateKind.UNSUPPORTED
    }


def test_each_message_of_the_troubleshooting_is_one_of_the_code():
    sources = "".join(
        path.read_text(encoding="utf-8")
        for package in ("adapters", "nexus_gateway", "tool_registry")
        for path in sorted((ROOT / package).rglob("*.py"))
    )
    joined = re.sub(r'"\s*\n\s*f?"', "", sources)  # strings over several lines
    messages = [message.strip("` ") for message, _ in table("messages")]
    assert len(messages) > 12
    for message in messages[1:]:  # the first is pip's
        for part in message.split("…"):
            assert part.strip(" :;") in joined, (message, part)


def test_every_host_is_named_and_the_price_of_the_gateway_is_as_it_is():
    for host in HOSTS:
        assert f"`{host.id}`" in README, host.id
    with argument_vocabulary(Settings()) as vocabulary:
        tools, tokens = through_nexus(vocabulary.count)
    assert f"through Nexus {tools} tools, {tokens:,}\n" in marked("import-output")


def test_what_the_readme_links_to_is_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


# --- what is run


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The folder with `nexus-gateway`; with NEXUS_FULL_TESTS=1 made as the README says."""
    if not FULL:
        return Path(sys.executable).parent
    clone = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    ).stdout.split("\0")
    for name in listed:
        if name and (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, clone / name)
    ran = subprocess.run(
        ["bash", "-ec", marked("demo-command")],
        check=False,
        capture_output=True,
        text=True,
        cwd=clone,
        env={**os.environ, "COLUMNS": "200"},
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (clone / "demo.txt").write_text(ran.stdout)
    return clone / ".venv" / "bin"


@pytest.fixture
def reader(tmp_path, programs):
    """Runs a line as somebody would who has Claude Desktop with two servers, and no service manager."""
    home, stand_ins = tmp_path / "home", tmp_path / "stand-ins"
    stand_ins.mkdir()
    for name in ("systemctl", "journalctl", "launchctl"):
        (stand_ins / name).write_text("#!/bin/sh\n")
        (stand_ins / name).chmod(0o755)
    seed_workspace(home / "workspace")
    entries = {}
    for name in ("files", "notes"):
        spec = demo_servers(home / "workspace")[name].transport
        command = str(programs / "python") if spec.command == sys.executable else spec.command
        entries[name] = {"command": command, "args": list(spec.args)}
    written = json.dumps({"mcpServers": entries}, indent=2)
    own = "Library/Application Support" if sys.platform == "darwin" else ".config"
    desktop = home / own / "Claude" / "claude_desktop_config.json"
    desktop.parent.mkdir(parents=True)
    for file in (desktop, home / "servers.json"):
        file.write_text(written)
    request = {"query": "read the file packing-list.txt", "tool": "files/read_file"}
    (home / "requests.jsonl").write_text(json.dumps(request) + "\n")
    environ = {
        "HOME": str(home),
        "PATH": f"{stand_ins}:{programs}:/usr/bin:/bin",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "TERM": "dumb",
    }
    port = free_port()

    def read(line):
        for placeholder, value in INSTEAD.items():
            line = line.replace(placeholder, value)
        # The second command keeps bash there: the completion asks which shell it was started by.
        command = f"{line.replace('{port}', str(port))}\nexit $?"
        process = subprocess.Popen(
            ["bash", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=home,
            env=environ,
            start_new_session=True,
        )
        try:
            if any(name in line for name in UNTIL_INTERRUPTED):
                said = process.stdout.readline()
                os.killpg(process.pid, signal.SIGTERM)
                return said + process.communicate(timeout=PATIENCE)[0], 0
            said = process.communicate(timeout=PATIENCE)[0]
            return said, process.returncode
        finally:
            process.kill()
            process.stdout.close()

    read.desktop = desktop
    return read


@pytest.mark.timeout(PATIENCE)
def test_every_line_works(reader):
    before = reader.desktop.read_bytes()
    for line in lines_to_follow():
        if not FULL and any(name in line for name in LONG):
            continue
        said, code = reader(line)
        allowed = next((codes for name, codes in ENDS_WITH.items() if name in line), {0})
        assert code in allowed, f"{line}\n{said}"
        assert "Traceback" not in said, f"{line}\n{said}"
        if any(name in line for name in UNTIL_INTERRUPTED):
            assert "serving http://127.0.0.1:" in said, said
        if line.startswith("nexus-gateway register") and "--dry-run" not in line:
            promised = marked("register-output").split("filesystem", 1)[0]
            assert f"{promised}files, notes\n" in said
            assert reader.desktop.read_bytes() != before
    assert reader.desktop.read_bytes() == before


@pytest.mark.skipif(not FULL, reason="runs the demo: NEXUS_FULL_TESTS=1")
@pytest.mark.timeout(PATIENCE)
def test_the_demos_output_is_as_shown(programs):
    real = (programs.parents[1] / "demo.txt").read_text()
    shown = marked("demo-output").split("Where the milliseconds")[0].splitlines()[2:]
    for line in shown:
        assert line.rstrip("…") in real, line
