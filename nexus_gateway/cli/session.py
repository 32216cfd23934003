"""Running the application for one command, with a spinner while it gets ready."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import anyio

from adapters.ports import AdapterError
from nexus_gateway.app import Gateway, open_gateway
from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.output import err
from nexus_gateway.settings import Settings
from nexus_gateway.telemetry.logs import set_up_logs

ResultT = TypeVar("ResultT")


def run_with_gateway(
    settings: Settings, work: Callable[[Gateway], Awaitable[ResultT]], *, quiet: bool
) -> ResultT:
    """Start the gateway, do `work`, stop everything. Logs show warnings alone unless configured otherwise."""
    level = "warning" if settings.log.level == "info" else settings.log.level
    set_up_logs(level, settings.log.format)
    return anyio.run(partial(_run, settings, work, quiet))


async def _run(settings: Settings, work: Callable[[Gateway], Awaitable[ResultT]], quiet: bool) -> ResultT:
    async with open_gateway(settings) as gateway:
        if quiet or not err.is_terminal:
            return await work(gateway)
        with err.status("starting servers and models…") as status:

            async def show(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
                status.update(f"{message}…")

            try:
                await gateway.readiness.wait(show)
            except AdapterError:
                status.update("…")  # the work itself meets the error and says it
        return await work(gateway)


def exit_with(code: Exit) -> None:
    """End the command with a code."""
    raise SystemExit(int(code))
