"""Where each host keeps its servers, on each platform and with the variables that move its folders."""

import pytest
from support.host_files import machine

from adapters.hosts.known import HOSTS, host_named, standard_place


@pytest.mark.parametrize(
    ("host", "platform", "place"),
    [
        ("claude-desktop", "darwin", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "linux", ".config/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("claude-code", "darwin", ".claude.json"),
        ("cursor", "win32", ".cursor/mcp.json"),
        ("vscode", "darwin", "Library/Application Support/Code/User/mcp.json"),
        ("vscode", "linux", ".config/Code/User/mcp.json"),
        ("vscode-insiders", "win32", "AppData/Roaming/Code - Insiders/User/mcp.json"),
        ("windsurf", "darwin", ".codeium/windsurf/mcp_config.json"),
        ("zed", "darwin", ".config/zed/settings.json"),
        ("zed", "win32", "AppData/Roaming/Zed/settings.json"),
        ("codex", "linux", ".codex/config.toml"),
        ("gemini", "linux", ".gemini/settings.json"),
    ],
)
def test_each_host_has_its_file_on_each_platform(host, platform, place, tmp_path):
    assert standard_place(host_named(host), machine(tmp_path, platform)).file == tmp_path / place


def test_variables_move_the_folders_of_hosts_that_heed_them(tmp_path):
    moved = machine(tmp_path, XDG_CONFIG_HOME="/x", CODEX_HOME="/c", CLAUDE_CONFIG_DIR="/k")
    found = {host.id: str(standard_place(host, moved).file) for host in HOSTS}
    assert found["claude-desktop"] == "/x/Claude/claude_desktop_config.json"
    assert found["codex"] == "/c/config.toml"
    assert found["claude-code"] == "/k/.claude.json"
    windows = machine(tmp_path, "win32", APPDATA="/roaming")
    assert str(standard_place(host_named("vscode"), windows).file) == "/roaming/Code/User/mcp.json"
