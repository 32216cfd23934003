"""What the service serves: what it was told of, and the servers of the hosts that reach it.

A host joins and leaves without another command for the service: it reads the registrations at its start, and anew with
its other files. Knows files. Does not know how a service is run.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from adapters.hosts.mcp_servers import ConfigProblem
from nexus_gateway.hosts.registration import REGISTRATIONS_FOLDER, own_folder
from nexus_gateway.settings import LoadedSettings, load_settings


def load_service_settings(
    config: Path | None = None, mcp_configs: Sequence[Path] = (), environ: Mapping[str, str] = os.environ
) -> LoadedSettings:
    """As `load_settings`, then the servers of each host that was registered with `--service`.

    A registration or a file of servers that can't be read is a problem by name, and the rest is in use.

    Raises:
        SettingsError: as `load_settings`.
    """
    folder = own_folder(config)
    registrations, faults = folder.through_service()
    problems = [ConfigProblem(folder.path / REGISTRATIONS_FOLDER, None, "", str(fault)) for fault in faults]
    files, known = list(mcp_configs), {file.resolve() for file in mcp_configs}
    for one in registrations:
        if not one.servers_file.exists():
            undo = f"unregister {one.host} gives {one.file} its servers back"
            problems.append(ConfigProblem(one.servers_file, None, "", f"there is no such file; {undo}"))
        elif one.servers_file.resolve() not in known:
            files.append(one.servers_file)
    loaded = load_settings(config, files, environ)
    return replace(loaded, problems=(*loaded.problems, *problems))
