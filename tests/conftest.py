"""What all tests share."""

import pytest


@pytest.fixture
def anyio_backend():
    return "asyncio"
