"""Hosts' files made by hand, put where their hosts would have them, below a temporary home."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from adapters.hosts.known import Machine, Place, host_named, standard_place
from nexus_gateway.hosts.registration import Folder

FIXTURES = Path(__file__).parent.parent / "fixtures" / "hosts"


def empty_home(folder, monkeypatch):
    """Make a folder the home of this process, and a project in it where the process is."""
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    (folder / "project").mkdir()
    monkeypatch.chdir(folder / "project")
    return folder


@dataclass(frozen=True)
class Case:
    """A fixture and what is expected of it."""

    host: str
    fixture: str
    moved: tuple
    staying: tuple = ()

    def __str__(self):
        return self.fixture


CASES = (
    Case("claude-desktop", "claude-desktop.json", ("filesystem", "github", "sqlite")),
    Case("claude-desktop", "claude-desktop-minified.json", ("time", "fetch")),
    Case("claude-desktop", "claude-desktop-windows.json", ("notes",), ("off",)),
    Case("claude-desktop", "claude-desktop-no-servers.json", ()),
    Case("claude-desktop", "claude-desktop-empty.json", ()),
    Case("claude-code", "claude-code.json", ("linear", "sentry")),
    Case("claude-code-local", "claude-code.json", ("postgres",)),
    Case("claude-code-project", "claude-code-project.json", ("api", "local"), ("unset",)),
    Case("cursor", "cursor.json", ("playwright", "figma"), ("workspace",)),
    Case("vscode", "vscode.json", ("docs", "memory"), ("perplexity", "from-file")),
    Case("vscode-workspace", "vscode-profile.json", ("django",)),
    Case("windsurf", "windsurf.json", ("stripe",), ("paused",)),
    Case("zed", "zed.json", ("weather", "old-style"), ("mcp-server-context7",)),
    Case("codex", "codex.toml", ("docs", "figma remote")),
    Case("codex", "codex-inline.toml", ("table",), ("inline",)),
    Case("gemini", "gemini.json", ("github", "legacy", "git")),
)
ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/home/ana"}


def machine(home, platform="linux", **environ):
    return Machine(platform, home, Path("/home/ana/shop"), {**ENVIRON, **environ})


def put(case, home):
    """The fixture in the place where its host has it; project files go below the home too."""
    place = standard_place(host_named(case.host), machine(home))
    if place.host.in_project and case.host != "claude-code-local":
        place = Place(place.host, home / "project" / place.file.name, place.pointer, place.label)
    place.file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(FIXTURES / case.fixture, place.file)
    return place


def own_folder(home):
    return Folder(home / ".config" / "nexus-gateway")


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
