"""Runs the git command in one repository, without the user's or the machine's configuration.

Knows the command line of git. Knows neither MCP nor the gateway: the server and the seeding both use it.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

TIMEOUT_SECONDS = 20.0


class GitError(Exception):
    """git is missing, took too long, or said no; the message is for people."""


def git_installed() -> bool:
    """Whether the git command is on the PATH."""
    return shutil.which("git") is not None


def run_git(repository: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Run one git command in `repository` and return what it printed.

    Raises:
        GitError: git is missing, took longer than `TIMEOUT_SECONDS`, or failed.
    """
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), "--no-pager", *arguments],
            env=_environment(repository) | dict(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise GitError("the git command is not on the PATH; install git, then try again") from error
    except subprocess.TimeoutExpired as error:
        raise GitError(f"git {arguments[0]} took longer than {TIMEOUT_SECONDS:.0f} s") from error
    if done.returncode:
        raise GitError(f"git {arguments[0]} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout.rstrip()


def _environment(repository: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return inherited | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        # A missing repository is an error, not a reason to work on one further up.
        "GIT_CEILING_DIRECTORIES": str(repository.parent),
        "GIT_AUTHOR_NAME": "Nexus Demo",
        "GIT_AUTHOR_EMAIL": "demo@example.com",
        "GIT_COMMITTER_NAME": "Nexus Demo",
        "GIT_COMMITTER_EMAIL": "demo@example.com",
        "LC_ALL": "C",
    }
