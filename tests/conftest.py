"""What all tests share."""

import pytest
from support.npm import install, script


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def npm_servers(tmp_path_factory):
    """The main scripts of the public Node servers by short name; NEXUS_NODE_MODULES may name where they are."""
    modules = install(lambda: tmp_path_factory.mktemp("npm"))
    return {name: script(modules, name) for name in ("everything", "filesystem", "memory")}
