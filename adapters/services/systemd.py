"""systemd: a unit of one user's manager on Linux, in `~/.config/systemd/user`.

Knows unit files and the words of `systemctl --user` and `journalctl`.
"""

import re
import shlex
from pathlib import Path

from adapters.services.manager import NAME, RESTART_SECONDS, ServicePlan, Step

UNIT = f"{NAME}.service"
_EXEC = re.compile(r"^ExecStart=(.+)$", re.MULTILINE)
_PROPERTIES = "--property=ActiveState,SubState,MainPID"

_TEMPLATE = """\
# Written by `nexus-gateway service install`; run that again to change it.
[Unit]
Description=Nexus gateway: one MCP server in front of many
# It is started again for ever: a gateway that failed for an hour is still wanted.
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
{environment}
# Variables that the configuration names as ${{VAR}}, if you keep any here: NAME=value, one a line, mode 0600.
EnvironmentFile=-{variables}
WorkingDirectory=%h
Restart=always
RestartSec={restart}
# SIGTERM goes to the gateway alone: it lets running calls end and stops its servers itself. What is left then is killed.
KillMode=mixed
TimeoutStopSec={stop}
# SIGHUP has the configuration read again.
ExecReload=/bin/kill -HUP $MAINPID
# What a user's own unit can be denied. Files stay reachable: the servers behind the gateway work on them.
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
LimitCORE=0

[Install]
WantedBy=default.target
"""


class Systemd:
    """The user manager's unit."""

    program = "systemctl"
    log_file = None  # the journal has it
    note = "It runs while you are logged in; `loginctl enable-linger` has it run from boot on."

    def __init__(self, config_home: Path) -> None:
        """`config_home` is `$XDG_CONFIG_HOME`, or `~/.config`."""
        self._config_home = config_home

    @property
    def file(self) -> Path:
        """The unit."""
        return self._config_home / "systemd" / "user" / UNIT

    def render(self, plan: ServicePlan) -> bytes:
        """The unit file; its keys are those of `systemd.service(5)` and `systemd.exec(5)`."""
        environment = "\n".join(
            f"Environment={_quoted(f'{name}={value}')}" for name, value in plan.environment.items()
        )
        text = _TEMPLATE.format(
            command=_exec_line(plan.program),
            environment=environment,
            variables=str(self._config_home / NAME / "service.env").replace("%", "%%"),
            restart=RESTART_SECONDS,
            stop=plan.stop_seconds,
        )
        return text.encode()

    def command_of(self, description: bytes) -> tuple[str, ...]:
        """`ExecStart`. Raises ValueError."""
        found = _EXEC.search(description.decode("utf-8", errors="replace"))
        if found is None:
            raise ValueError("it has no ExecStart")
        program, *arguments = (part.replace("%%", "%") for part in shlex.split(found.group(1)))
        return (program, *(part.replace("$$", "$") for part in arguments))

    def starting(self) -> tuple[Step, ...]:
        """`restart` starts what is stopped, too."""
        return (_systemctl("daemon-reload"), _systemctl("enable", UNIT), _systemctl("restart", UNIT))

    def stopping(self) -> tuple[Step, ...]:
        """Until it is started, or the next login."""
        return (_systemctl("stop", UNIT),)

    def removing(self) -> tuple[Step, ...]:
        """Whether it runs or not; it fails where the manager is out of reach, and the service may go on."""
        return (_systemctl("disable", "--now", UNIT),)

    def forgetting(self) -> tuple[Step, ...]:
        """The manager still has the deleted unit in memory."""
        return (_systemctl("daemon-reload", may_fail=True),)

    def asking(self) -> Step:
        """Its properties, one a line; for a unit that isn't there too."""
        return _systemctl("show", UNIT, _PROPERTIES, may_fail=True)

    def state_from(self, answer: str) -> tuple[str, int | None]:
        """From lines such as `ActiveState=active`."""
        found = dict(line.split("=", 1) for line in answer.splitlines() if "=" in line)
        pid = found.get("MainPID", "0")
        state = found.get("ActiveState", "unknown")
        sub = found.get("SubState")
        return f"{state} ({sub})" if sub else state, int(pid) if pid.isdigit() and int(pid) else None

    def reading_log(self, lines: int, *, follow: bool) -> Step:
        """The journal's lines as the gateway wrote them."""
        command = ("journalctl", f"--user-unit={UNIT}", f"--lines={lines}", "--no-pager", "--output=cat")
        return Step((*command, "--follow") if follow else command)


def _systemctl(*words: str, may_fail: bool = False) -> Step:
    return Step(("systemctl", "--user", *words), may_fail=may_fail)


def _exec_line(program: tuple[str, ...]) -> str:
    """Variables are replaced in arguments alone; the program's own path has its `$` as it is."""
    first, *arguments = map(_quoted, program)
    return " ".join([first, *(part.replace("$", "$$") for part in arguments)])


def _quoted(value: str) -> str:
    """One word of a unit file: quotes, backslashes and specifiers taken literally (`systemd.syntax(7)`).

    Raises:
        ValueError: a line break, which no word can have.
    """
    if "\n" in value or "\r" in value:
        raise ValueError("a line break has no place in a unit file")
    literal = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{literal}"' if re.search(r"""[\s"'\\;]""", value) or not value else literal
