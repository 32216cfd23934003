"""Running the application for one command, with a spinner while it gets ready, until done or interrupted."""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread
from rich.text import Text

from adapters.ports import AdapterError
from nexus_gateway.cli.output import err
from nexus_gateway.settings import Settings
from nexus_gateway.telemetry.logs import set_up_logs

if TYPE_CHECKING:
    from nexus_gateway.app import Gateway

ResultT = TypeVar("ResultT")

_LINE_BYTES = 65_536


def run_with_gateway(
    settings: Settings,
    work: "Callable[[Gateway], Awaitable[ResultT]]",
    *,
    quiet: bool,
    models: bool = True,
) -> ResultT:
    """Start the gateway, do `work`, stop everything. Logs show warnings alone unless configured otherwise.

    Without `models` there is the fleet alone, which takes a second instead of several.
    SIGINT and SIGTERM stop everything too, children included, and end the command with 128 + the signal.
    """
    level = "warning" if settings.log.level == "info" else settings.log.level
    set_up_logs(level, settings.log.format)
    return anyio.run(until_signal, partial(_run, settings, work, quiet=quiet, models=models))


async def until_signal(run: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """The result of `run`, which SIGINT and SIGTERM cancel; the command then ends with 128 + the signal."""
    caught: list[int] = []
    results: list[ResultT] = []
    failure: Exception | None = None

    async def watch() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                caught.append(number)
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            results.append(await run())
        except Exception as error:  # noqa: BLE001 - raised below as it is: the task group would wrap it in a group
            failure = error
        tasks.cancel_scope.cancel()
    if caught:
        raise SystemExit(128 + caught[0])
    if failure is not None:
        raise failure
    return results[0]


async def read_line(prompt: str) -> str:
    """One line from the terminal; empty at its end. Waiting for it can be cancelled, a blocking `input` not."""
    err.print(Text(prompt), end="")
    if sys.platform == "win32":  # there is no waiting for a console
        return (await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)).strip()
    await anyio.wait_readable(sys.stdin)
    line = os.read(sys.stdin.fileno(), _LINE_BYTES)  # a terminal gives whole lines
    return line.decode(errors="replace").strip()


async def _run(
    settings: Settings, work: "Callable[[Gateway], Awaitable[ResultT]]", *, quiet: bool, models: bool
) -> ResultT:
    from nexus_gateway.app import open_gateway  # noqa: PLC0415 - a second of imports, for what starts servers alone

    async with open_gateway(settings, models=models) as gateway:
        if quiet or not models or not err.is_terminal:
            return await work(gateway)
        with err.status("starting servers and models…") as status:

            async def show(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
                status.update(f"{message}…")

            try:
                await gateway.readiness.wait(show)
            except AdapterError:
                status.update("…")  # the work itself meets the error and says it
        return await work(gateway)
