"""Waiting for the first of several ends."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

ResultT = TypeVar("ResultT")


async def first_of(*waits: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """The result of the wait that ends first; the others are cancelled."""
    results: list[ResultT] = []

    async def run(wait: Callable[[], Awaitable[ResultT]]) -> None:
        results.append(await wait())
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for wait in waits:
            tasks.start_soon(run, wait)
    return results[0]
