"""launchd: an agent of one user on a Mac, in `~/Library/LaunchAgents`.

Knows property lists and the words of `launchctl` (macOS 10.11 and later: bootstrap, bootout, kickstart, print).
"""

import plistlib
import re
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from adapters.services.manager import NAME, RESTART_SECONDS, STOP_SECONDS, ServicePlan, Step

LABEL = "local.nexus-gateway"
OPEN_FILES = 4096


class Launchd:
    """The agent of one user."""

    program = "launchctl"
    note = "It starts at each login. System Settings, General, Login Items lists it."

    def __init__(self, home: Path, uid: int) -> None:
        self._domain = f"gui/{uid}"
        self._target = f"{self._domain}/{LABEL}"
        self._home = home

    @property
    def file(self) -> Path:
        """The agent's property list."""
        return self._home / "Library" / "LaunchAgents" / f"{LABEL}.plist"

    @property
    def log_file(self) -> Path:
        """Where Console looks for logs."""
        return self._home / "Library" / "Logs" / NAME / "gateway.log"

    def render(self, plan: ServicePlan) -> bytes:
        """The property list; its keys are those of `launchd.plist(5)`."""
        log_file = str(self.log_file)
        return plistlib.dumps(
            {
                "Label": LABEL,
                "ProgramArguments": list(plan.program),
                "EnvironmentVariables": dict(plan.environment),
                "WorkingDirectory": str(self._home),
                "RunAtLoad": True,
                "KeepAlive": True,
                "ThrottleInterval": RESTART_SECONDS,
                "ExitTimeOut": plan.stop_seconds,
                # launchd's 256 are soon used up: three a server, one or two a running call.
                "SoftResourceLimits": {"NumberOfFiles": OPEN_FILES},
                # Interactive: its user waits for it. launchd slows background jobs down, models most of all.
                "ProcessType": "Interactive",
                "StandardOutPath": log_file,
                "StandardErrorPath": log_file,
            },
            sort_keys=False,
        )

    def command_of(self, description: bytes) -> tuple[str, ...]:
        """`ProgramArguments`. Raises ValueError."""
        arguments = _read(description).get("ProgramArguments")
        if not isinstance(arguments, list) or not arguments:
            raise ValueError("it has no ProgramArguments")
        return tuple(map(str, arguments))

    def starting(self) -> tuple[Step, ...]:
        """A list is read anew only when it is taken out and put in again."""
        return (
            Step(("launchctl", "bootout", self._target), may_fail=True),
            Step(("launchctl", "enable", self._target), may_fail=True),
            # bootout returns before the old process has ended; until then there is no putting in.
            Step(("launchctl", "bootstrap", self._domain, str(self.file)), retry_seconds=2.0 * STOP_SECONDS),
        )

    def stopping(self) -> tuple[Step, ...]:
        """A signal would not do: KeepAlive starts it again."""
        return (Step(("launchctl", "bootout", self._target)),)

    def removing(self) -> tuple[Step, ...]:
        """As stopping, whether it runs or not."""
        return (Step(("launchctl", "bootout", self._target), may_fail=True),)

    def forgetting(self) -> tuple[Step, ...]:
        """Nothing is left."""
        return ()

    def asking(self) -> Step:
        """`launchctl print`, whose text is for people and changes; two lines of it have been stable."""
        return Step(("launchctl", "print", self._target), may_fail=True)

    def state_from(self, answer: str) -> tuple[str, int | None]:
        """From its lines `state = running` and `pid = 1234`."""
        state = re.search(r"^\s*state = (.+)$", answer, re.MULTILINE)
        pid = re.search(r"^\s*pid = (\d+)$", answer, re.MULTILINE)
        return (state.group(1).strip() if state else "not loaded"), (int(pid.group(1)) if pid else None)

    def reading_log(self, lines: int, *, follow: bool) -> Step:
        """The log is a file."""
        following = ("-F",) if follow else ()
        return Step(("tail", "-n", str(lines), *following, str(self.log_file)))


def _read(description: bytes) -> dict[str, Any]:
    try:
        read = plistlib.loads(description)
    except (plistlib.InvalidFileException, ExpatError) as error:
        raise ValueError(f"it is no property list: {error}") from error
    if not isinstance(read, dict):
        raise ValueError("it is no property list of an agent")  # noqa: TRY004 - a malformed file, no wrong type
    return read
