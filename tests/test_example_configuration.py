"""The annotated configuration in deploy/ is what a user copies from."""

import re
from pathlib import Path

import pytest

from nexus_gateway.settings import Settings, diff, load_settings

EXAMPLE = Path(__file__).parents[1] / "deploy" / "nexus.toml"


def test_it_loads_and_says_nothing_but_the_defaults():
    loaded = load_settings(EXAMPLE, (), {})
    assert not loaded.problems
    assert not diff(Settings(), loaded.settings)


def test_every_commented_setting_is_a_setting(tmp_path):
    text = re.sub(r"^# (?=[\[\w]+.*(?:=|\]))", "", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    everything = tmp_path / "nexus.toml"
    everything.write_text(text.replace("mcp_config", "# mcp_config"), encoding="utf-8")
    settings = load_settings(everything, (), {"MY_TOKEN": "x"}).settings
    files = settings.servers["files"]
    assert files.spec.transport.command == "npx"
    assert files.idle_stop_seconds == 900
    assert files.tools["search_files"].read_only is True
    assert files.enabled_tools
    assert files.disabled_tools
    assert settings.routing.threshold == 0.9


@pytest.mark.parametrize(
    "section",
    [
        "models",
        "engine",
        "routing",
        "turn",
        "state",
        "http",
        "log",
        "expose",
        "results",
        "pins",
        "feedback",
    ],
)
def test_every_section_is_explained(section):
    assert f"[{section}]" in EXAMPLE.read_text(encoding="utf-8")
