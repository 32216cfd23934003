"""What every service manager is asked: the file that describes a service, and the commands for each step.

Knows no manager and runs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

NAME = "nexus-gateway"
RESTART_SECONDS = 5
"""Between an end and the next start."""
STOP_SECONDS = 20
"""Beyond the drain, for upstream servers to end."""


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """A service as it shall run.

    Attributes:
        program: the command, its first member an absolute path.
        environment: variables of the process, in no `repr`.
        stop_seconds: from the stop signal until it is killed.
    """

    program: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    stop_seconds: int


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a manager.

    Attributes:
        may_fail: it undoes what may not be there.
        retry_seconds: try again for this long: what it needs may still be on its way.
    """

    command: tuple[str, ...]
    may_fail: bool = False
    retry_seconds: float = 0.0


class ServiceManager(Protocol):
    """One service manager, for one user."""

    @property
    def program(self) -> str:
        """The manager's own program."""
        ...

    @property
    def file(self) -> Path:
        """Where the service's description is."""
        ...

    @property
    def log_file(self) -> Path | None:
        """Where the service's log goes; None where the manager keeps it."""
        ...

    @property
    def note(self) -> str:
        """What a person should know about it."""
        ...

    def render(self, plan: ServicePlan) -> bytes:
        """The description of a service."""
        ...

    def command_of(self, description: bytes) -> tuple[str, ...]:
        """The program that a description starts, as it was planned. Raises ValueError for one that isn't ours."""
        ...

    def starting(self) -> tuple[Step, ...]:
        """Make the description known, have it started at each login, and start it now, anew if it runs."""
        ...

    def stopping(self) -> tuple[Step, ...]:
        """Stop it until it is started again."""
        ...

    def removing(self) -> tuple[Step, ...]:
        """Stop it for good; the file is deleted afterwards, and then `forgetting` is run."""
        ...

    def forgetting(self) -> tuple[Step, ...]:
        """After the file was deleted."""
        ...

    def asking(self) -> Step:
        """Have its state told."""
        ...

    def state_from(self, answer: str) -> tuple[str, int | None]:
        """From what `asking` printed: the state in the manager's word, and the process's number."""
        ...

    def reading_log(self, lines: int, *, follow: bool) -> Step:
        """Show the last lines of its log, and with `follow` what comes."""
        ...
