"""The wheel: all that runs and nothing else, built from what git knows, at work far from the checkout.

NEXUS_FULL_TESTS=1 installs it into a fresh environment with all it needs (minutes: llama.cpp may have to be built)
and runs the demo there. The short variant borrows the packages of this environment.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from nexus_gateway import __version__

ROOT = Path(__file__).parents[1]
PACKAGES = ("adapters", "nexus_gateway", "tool_registry")
NOT_SHIPPED = "nexus_gateway/training/"
FULL = "NEXUS_FULL_TESTS" in os.environ
PATIENCE = 2_400 if FULL else 100
pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE)]


def run(*command, cwd, env=None):
    ran = subprocess.run(
        [str(part) for part in command],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def sources():
    """Every file that a clone would have, relative to it."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(sources, tmp_path_factory):
    """The wheel of a clean copy; no checkout is near it."""
    clone, dist = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("dist")
    for name in sources:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, clone / name)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    run(sys.executable, "-c", build, dist, cwd=clone)
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def nexus(wheel, tmp_path_factory):
    """Runs the installed command in an empty home."""
    place = tmp_path_factory.mktemp("elsewhere")
    venv, home = place / "venv", place / "home"
    home.mkdir()
    python = venv / "bin" / "python"
    if FULL:
        run(sys.executable, "-m", "venv", venv, cwd=place)
        run(python, "-m", "pip", "install", "--quiet", f"{wheel}[offline]", cwd=place)
    else:
        run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=place)
        pip = (sys.executable, "-m", "pip", "--python", python)
        run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=place)
        packages = Path(sysconfig.get_path("purelib", vars={"base": venv, "platbase": venv}))
        # A plain line of a .pth is not searched for more of them: this checkout's own installation stays out.
        (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    environ = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
    }

    def call(*arguments):
        return run(venv / "bin" / "nexus-gateway", *arguments, cwd=home, env=environ)

    call.python = lambda code: run(python, "-c", code, cwd=home, env=environ)
    call.home, call.command = home, str(venv / "bin" / "nexus-gateway")
    return call


def test_the_wheel_has_every_module_and_data_file_and_nothing_else(wheel, sources):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {
        name
        for name in sources
        if name.startswith(tuple(f"{package}/" for package in PACKAGES)) and not name.startswith(NOT_SHIPPED)
    }
    assert names == wanted
    kinds = {Path(name).suffix for name in names}
    assert {".py", ".safetensors", ".json", ".tsv", ".typed"} <= kinds


def test_its_metadata_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        read = {Path(name).name: name for name in archive.namelist() if ".dist-info/" in name}
        metadata = Parser().parsestr(archive.read(read["METADATA"]).decode())
        scripts = archive.read(read["entry_points.txt"]).decode()
    assert (metadata["Name"], metadata["Version"]) == ("nexus-gateway", __version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert {"offline", "test"} == set(metadata.get_all("Provides-Extra"))
    assert metadata.get_payload().startswith("# Nexus gateway")
    assert "nexus-gateway = nexus_gateway.cli.main:main" in scripts
    assert "LICENSE" in read


def test_what_is_installed_is_the_wheel_and_finds_its_own_files(nexus):
    assert nexus("--version") == f"nexus-gateway {__version__}\n"
    where = nexus.python("import nexus_gateway, adapters; print(nexus_gateway.__file__, adapters.__file__)")
    assert str(ROOT) not in where
    assert where.count(str(nexus.home.parent)) == 2
    models = json.loads(nexus("models", "list", "--json"))["models"]
    present = {one["name"] for one in models if one["present"]}
    assert {"nexus:embedder", "nexus:reader"} <= present
    nexus.python(
        "from nexus_gateway.turn.places import written_place\n"
        "schema = {'description': 'The city and state, e.g. San Francisco, CA'}\n"
        "assert written_place(schema, 'Berkeley') == 'Berkeley, CA'\n"
    )


def test_a_service_is_installed_without_the_checkout(nexus):
    told = json.loads(nexus("service", "install", "--manager", "launchd", "--no-start", "--json"))
    assert told["command"][:2] == [nexus.command, "serve"]
    assert Path(told["file"]).parent == nexus.home / "Library" / "LaunchAgents"
    assert nexus.command in Path(told["file"]).read_text()


@pytest.mark.skipif(not FULL, reason="a fresh environment with everything in it: NEXUS_FULL_TESTS=1")
def test_the_demo_and_the_doctor_are_content_in_a_fresh_environment(nexus):
    assert json.loads(nexus("demo", "--json", "--keep", "workspace"))["ok"]
    nexus.python(
        "import json\n"
        "from pathlib import Path\n"
        "from nexus_gateway.demo.workspace import demo_servers\n"
        "spec = demo_servers(Path('workspace').resolve())['notes'].transport\n"
        "entry = {'command': spec.command, 'args': list(spec.args)}\n"
        "Path('servers.json').write_text(json.dumps({'mcpServers': {'notes': entry}}))\n"
    )
    assert json.loads(nexus("doctor", "--json", "--mcp-config", "servers.json"))["ok"]
