"""Ends a child process and all that it started (POSIX process groups).

Knows processes and signals; nothing of what is said over their pipes. The child must lead its own
group (`start_new_session=True`). Members that left the group (daemons) are out of reach.
"""

import signal
from contextlib import suppress

import anyio
from anyio.abc import AsyncResource, Process
from mcp.os.posix.utilities import terminate_posix_process_tree

STDIN_CLOSED_SECONDS = 2.0
"""Between closing stdin and SIGTERM, as the MCP specification's shutdown has it."""
TERMINATED_SECONDS = 2.0
"""Between SIGTERM and SIGKILL."""
_REAP_SECONDS = 2.0
_POLL_SECONDS = 0.01


async def stop_group(process: Process) -> None:
    """Close stdin, wait, SIGTERM the group, wait, SIGKILL it. Bounded by about 6 s; call it shielded.

    A process that is gone already costs no wait, but what is left of its group is ended too.
    """
    await _close(process.stdin)
    await exits_within(process, STDIN_CLOSED_SECONDS)
    await terminate_posix_process_tree(process, TERMINATED_SECONDS)
    await exits_within(process, _REAP_SECONDS)
    for stream in (process.stdout, process.stderr):
        await _close(stream)
    _close_pipes(process)


async def exits_within(process: Process, seconds: float) -> bool:
    """Whether the process is gone after at most `seconds`.

    Polls: `Process.wait` of asyncio also waits for the pipes, which a grandchild may hold open.
    """
    with anyio.move_on_after(seconds):
        while process.returncode is None:  # noqa: ASYNC110 - an exit has no event that ignores pipes
            await anyio.sleep(_POLL_SECONDS)
    return process.returncode is not None


def exit_text(returncode: int | None) -> str:
    """Say how a process ended."""
    if returncode is None:
        return "closed its output without exiting"
    if returncode >= 0:
        return f"exited with code {returncode}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-returncode).name}"
    return f"was killed by signal {-returncode}"


async def _close(stream: AsyncResource | None) -> None:
    if stream is not None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await stream.aclose()


def _close_pipes(process: Process) -> None:
    # A survivor outside the group may hold a pipe; asyncio then keeps its transport open for ever.
    # Nothing public exposes that transport, hence the attribute walk; a no-op elsewhere.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    close = getattr(transport, "close", None)
    if callable(close):
        with suppress(PermissionError):
            close()
