"""The bearer token of a service: where it is kept, who may read it, and which of several counts."""

import json
import stat
from pathlib import Path

import pytest
from support.served import free_port, write_configuration
from support.services import home_of_nobody, install, nexus
from typer.testing import CliRunner

from nexus_gateway.cli.bearer_token import (
    TokenPlace,
    TokenUnusableError,
    configured_place,
    find_token,
    make_token,
)
from nexus_gateway.cli.main import app
from nexus_gateway.settings.snapshot import HttpSettings


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    with home_of_nobody(tmp_path, monkeypatch) as home:
        yield home


def test_a_token_that_others_read_is_taken_back_and_what_is_none_is_said(home, tmp_path):
    own = write_configuration(tmp_path)
    file = home / ".config" / "nexus-gateway" / "http-token"
    file.parent.mkdir(parents=True)
    file.write_text("a-token\n")
    file.chmod(0o644)
    install("--no-start", "--config", own)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == "a-token\n"
    for rubbish in (b"two words", b"\xff\xfe"):
        file.write_bytes(rubbish)
        refused = nexus("install", "--manager", "systemd", "--no-start", "--config", own)
        assert refused.exit_code == 1
        assert str(file) in refused.stderr


def test_a_service_that_could_not_read_its_token_is_not_installed(home, tmp_path):
    own = write_configuration(tmp_path)
    own.write_text(own.read_text().replace("[http]", '[http]\ntoken_file = "gone"'))
    refused = nexus("install", "--manager", "systemd", "--config", own)
    assert refused.exit_code == 2
    assert str(tmp_path / "gone") in refused.stderr
    assert not list(home.rglob("*.service"))


def test_an_option_s_token_comes_before_the_variable_s_and_that_before_the_settings(tmp_path):
    configured = HttpSettings(token_file=str(tmp_path / "b"))
    (tmp_path / "a").write_text("option")
    (tmp_path / "b").write_text("settings")
    environ = {configured.token_env: "variable"}
    assert find_token(configured_place(configured, tmp_path / "a"), environ) == "option"
    assert find_token(configured_place(configured), environ) == "variable"
    assert find_token(configured_place(configured), {}) == "settings"


def test_a_keyring_that_can_not_be_loaded_is_none(monkeypatch):
    def broken():
        raise ModuleNotFoundError("no such backend")

    monkeypatch.setattr("adapters.keyring_entry._keyring", broken)
    assert make_token("auto").file is not None
    with pytest.raises(TokenUnusableError, match="--token-store file"):
        make_token("keyring")


def test_a_keyring_that_works_has_the_token(monkeypatch):
    kept = {}

    class Keyring:
        priority = 5
        get_password = staticmethod(lambda *entry: kept.get(entry))
        set_password = staticmethod(lambda service, user, secret: kept.update({(service, user): secret}))

    monkeypatch.setattr("adapters.keyring_entry._keyring", Keyring)
    assert make_token("auto") == TokenPlace(keyring="nexus-gateway/http")
    (first,) = kept.values()
    make_token("auto")
    assert list(kept.values()) == [first]
    monkeypatch.setattr(Keyring, "set_password", staticmethod(lambda *_: None))
    kept.clear()
    assert make_token("auto").file is not None


def test_the_token_is_made_once_and_only_its_owner_reads_it(home, tmp_path):
    own = write_configuration(tmp_path)
    told = install("--no-start", "--config", own)
    file = home / ".config" / "nexus-gateway" / "http-token"
    token = file.read_text().strip()
    assert len(token) >= 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    unit = Path(told["file"]).read_text()
    assert install("--no-start", "--config", own) == told
    assert file.read_text().strip() == token
    assert token not in unit + json.dumps(told)
    assert told["host"]["args"][-4:] == ["connect", told["url"], "--token-file", str(file)]


def test_a_token_that_can_not_be_read_ends_serve_with_what_to_do(tmp_path):
    own = write_configuration(tmp_path)
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.touch()
    for options, said in (
        (["--token-file", str(missing)], str(missing)),
        (["--token-file", str(empty)], "no usable token"),
        (["--token-keyring", "a/b"], "--token-file FILE"),
    ):
        command = ["serve", "--config", str(own), "--http", f"127.0.0.1:{free_port()}", *options]
        ended = CliRunner().invoke(app, command)
        assert ended.exit_code == 2, ended.output
        assert said in ended.stderr
