"""Programs by absolute path: a GUI application starts its servers with almost no PATH."""

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PROGRAM = "nexus-gateway"


def gateway_command() -> tuple[str, ...]:
    """What starts this gateway, by absolute paths, whatever the PATH."""
    name = f"{_PROGRAM}.exe" if sys.platform == "win32" else _PROGRAM
    beside = Path(sysconfig.get_path("scripts")) / name
    if beside.is_file():
        return (str(beside),)
    return (sys.executable, "-P", "-m", "nexus_gateway")  # -P: no `adapters` of the folder it is started in


def absolute(entry: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """An entry whose bare command is found on the user's PATH, and what was done, for people.

    The PATH itself goes into the entry's env, unless it has one: `npx` is found by its path, but looks for `node`.
    """
    changed = dict(entry)
    command, env = entry.get("command"), entry.get("env") or {}
    if not isinstance(command, str) or not command or any(mark in command for mark in "/\\$"):
        return changed, ""
    path = env.get("PATH") or environ.get("PATH", "")
    if "$" in path:
        return changed, f"{command} stays as it is: its own PATH has a variable"
    path = _tidy(path)  # a program of whatever folder this runs in is not the one that is meant
    found = shutil.which(command, path=path)
    if found is None:
        return changed, f"{command} is not on your PATH: install it, or write its absolute path"
    changed["command"] = os.path.abspath(found)  # noqa: PTH100 - no link is followed: it may be what is kept up to date
    if "PATH" not in env:
        changed["env"] = {**env, "PATH": path}
    return changed, f"{command} → {changed['command']}"


def _tidy(path: str) -> str:
    """The folders of a PATH that exist, each once."""
    folders = dict.fromkeys(path.split(os.pathsep))
    return os.pathsep.join(one for one in folders if os.path.isabs(one) and Path(one).is_dir())  # noqa: PTH117
