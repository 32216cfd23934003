"""`nexus-gateway service` in this process, in a home of nobody that has no keyring."""

import json
from contextlib import contextmanager

import keyring
from keyring.backends.fail import Keyring
from typer.testing import CliRunner

from nexus_gateway.cli.main import app


@contextmanager
def home_of_nobody(folder, monkeypatch):
    home = folder / "home"
    home.mkdir()
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "NEXUS_GATEWAY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    before = keyring.get_keyring()
    keyring.set_keyring(Keyring())
    try:
        yield home
    finally:
        keyring.set_keyring(before)


def nexus(*arguments):
    return CliRunner().invoke(app, ["service", *map(str, arguments)])


def install(*arguments, manager="systemd"):
    result = nexus("install", "--manager", manager, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])
