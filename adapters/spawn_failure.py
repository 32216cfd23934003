"""Why a configured command could not be started, and what to do, in one line for people.

Knows the file system and PATH; starts nothing.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from adapters.ports import StdioSpec


def spawn_failure(error: OSError | ValueError, spec: StdioSpec, env: Mapping[str, str]) -> str:
    """Explain `error`, which starting `spec` with the environment `env` raised."""
    if spec.cwd is not None and not Path(spec.cwd).is_dir():
        return f"its working directory {spec.cwd!r} is not a directory; correct `cwd`"
    if isinstance(error, FileNotFoundError):
        return _not_found(spec, env)
    if isinstance(error, PermissionError):
        return (
            f"{spec.command!r} is not executable; make it so (chmod +x), or name its interpreter as `command`"
        )
    return f"{spec.command!r} could not be started: {error}"


def _not_found(spec: StdioSpec, env: Mapping[str, str]) -> str:
    if os.sep not in spec.command:
        return (
            f"the command {spec.command!r} was not found; PATH searched: {env.get('PATH', '(none)')}. "
            f"Give its absolute path as `command` (`which {spec.command}` in a terminal prints it; "
            "applications started from the macOS desktop have a short PATH) or set PATH in `env`"
        )
    if (Path(spec.cwd or ".") / spec.command).exists():
        return (
            f"the interpreter that {spec.command!r} names in its first line was not found; correct that line"
        )
    return f"there is no file {spec.command!r}; correct `command`"
