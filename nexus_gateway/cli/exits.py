"""Exit codes: what a script can rely on."""

from enum import IntEnum
from typing import NoReturn


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    """Done; for `turn`: the tool was called and answered without an error."""
    FAILED = 1
    """The tool answered with an error, or an upstream or a model failed."""
    USAGE = 2
    """Wrong options or configuration."""
    NEEDS_INPUT = 3
    """An argument or a yes is missing; for `turn --dry-run` also: a proposal was made."""
    AMBIGUOUS = 4
    NO_TOOL = 5


def exit_with(code: Exit) -> NoReturn:
    """End the command with a code."""
    raise SystemExit(int(code))
