"""Reading the configuration again on SIGHUP: what is faulty leaves the old one in place, and is logged."""

import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import anyio
import anyio.to_thread
import structlog

from nexus_gateway.settings import LoadedSettings, Settings, SettingsError

log = structlog.get_logger(__name__)

ReadSettings: TypeAlias = Callable[[], LoadedSettings]
"""Reads the configuration files. Blocks; raises SettingsError."""
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)


async def reload_on_hangup(read: ReadSettings, apply: Callable[[Settings], Awaitable[None]]) -> None:
    """Read and apply the configuration at each SIGHUP, until cancelled. Windows has no such signal."""
    if _HANGUP is None:
        return
    with anyio.open_signal_receiver(_HANGUP) as signals:
        async for _ in signals:
            await reload(read, apply)


async def reload(read: ReadSettings, apply: Callable[[Settings], Awaitable[None]]) -> None:
    """Read and apply the configuration once. At the start a faulty server is left out; here it stays as it was."""
    try:
        loaded = await anyio.to_thread.run_sync(read)
        problems: Sequence[object] = loaded.problems
    except SettingsError as error:
        problems = error.problems
    except OSError as error:
        problems = [error]
    for problem in problems:
        log.error("settings.not_reloaded", problem=str(problem), fix="correct it and send SIGHUP again")
    if not problems:
        await apply(loaded.settings)
