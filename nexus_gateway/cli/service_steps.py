"""Carrying out what a service manager is asked: which one there is, and running its commands.

Blocks. Knows no manager's words; those are in `adapters.services`.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from adapters.services.launchd import Launchd
from adapters.services.manager import ServiceManager, Step
from adapters.services.systemd import Systemd

STEP_SECONDS: Final = 90.0
"""For one command of a manager; stopping waits for the drain."""
RETRY_WAIT_SECONDS: Final = 0.5

ManagerName: TypeAlias = Literal["auto", "launchd", "systemd"]


class ServiceError(Exception):
    """The manager is not there or refused; the message says what it said."""


def find_manager(
    name: ManagerName = "auto",
    *,
    platform: str = sys.platform,
    home: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ServiceManager | None:
    """This machine's manager for services of one user, or the one that is named; None where none is known."""
    home = home or Path.home()
    if name == "launchd" or (name == "auto" and platform == "darwin"):
        return Launchd(home, os.getuid())
    if name == "systemd" or (name == "auto" and platform.startswith("linux")):
        written = environ.get("XDG_CONFIG_HOME", "")
        return Systemd(Path(written) if os.path.isabs(written) else home / ".config")  # noqa: PTH117 - may be empty
    return None


def run_steps(steps: Iterable[Step], pause: Callable[[float], None] = time.sleep) -> None:
    """Run commands in order. Raises ServiceError at the first that fails and may not."""
    for step in steps:
        deadline = time.monotonic() + step.retry_seconds
        while (failure := _failure(step)) is not None and time.monotonic() < deadline:
            pause(RETRY_WAIT_SECONDS)
        if failure is not None and not step.may_fail:
            raise ServiceError(failure)


def answer_of(step: Step) -> str:
    """What a command prints. Raises ServiceError if it prints nothing, or there is no such program."""
    ran = _ran(step)
    if not ran.stdout.strip():
        raise ServiceError(_said(step, ran))
    return ran.stdout


def show(step: Step) -> int:
    """Run a command whose output is for the user, until it ends or is interrupted; its exit code."""
    _require(step)
    try:
        return subprocess.run(step.command, check=False).returncode
    except KeyboardInterrupt:
        return 0


def _failure(step: Step) -> str | None:
    ran = _ran(step)
    return None if ran.returncode == 0 else _said(step, ran)


def _said(step: Step, ran: subprocess.CompletedProcess[str]) -> str:
    said = (ran.stderr.strip() or ran.stdout.strip() or f"exit code {ran.returncode}").splitlines()[-1]
    return f"`{shlex.join(step.command)}` failed: {said}"


def _ran(step: Step) -> subprocess.CompletedProcess[str]:
    _require(step)
    try:
        return subprocess.run(
            step.command,
            check=False,
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"`{shlex.join(step.command)}` did not end within {STEP_SECONDS:g} s") from error


def _require(step: Step) -> None:
    if shutil.which(step.command[0]) is None:
        raise ServiceError(f"{step.command[0]} is not on this machine")
