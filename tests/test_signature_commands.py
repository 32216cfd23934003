"""`tools show --signature` and `tools stats`: what a model is told of a tool, and how long it is."""

import json

import pytest
from support.gateways import python_server, write_config
from support.processes import children
from typer.testing import CliRunner

from nexus_gateway.cli.main import app
from nexus_gateway.cli.tool_stats import Sizes, as_json

NO_MODELS = '[models]\nargument = "/nowhere/a.gguf"\nembedder = "/nowhere/e"\n'
PACKAGED = '[models]\nembedder = "/nowhere/e"\n'
pytestmark = pytest.mark.usefixtures("logs_as_they_were")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("COLUMNS", "60")
    yield lambda *args: CliRunner().invoke(app, [str(arg) for arg in args])
    assert not children()


@pytest.fixture
def servers(tmp_path):
    days = {"type": "integer", "description": "How far ahead to look.", "minimum": 1, "maximum": 9}
    known = {"days": days, "city": {"type": "string", "description": "Where, as people call it."}}
    tool = {
        "server": "s",
        "name": "forecast",
        "description": "Tell the weather.\nFor up to nine days.",
        "inputSchema": {"type": "object", "properties": known, "required": ["city"]},
    }
    tools = tmp_path / "tools.jsonl"
    tools.write_text("\n".join(json.dumps({**tool, "name": name}) for name in ("forecast", "history")))
    return {"weather": python_server("wild_server.py", "own", str(tools))}


def test_the_signature_and_purpose_of_a_tool_are_shown_alone(run, tmp_path, servers):
    fleet = write_config(tmp_path, servers, NO_MODELS)
    shown = json.loads(run("tools", "show", "weather/forecast", "--json", *fleet).stdout)
    alone = json.loads(run("tools", "show", "weather/forecast", "--signature", "--json", *fleet).stdout)
    assert alone == {
        "tool": "weather/forecast",
        "signature": "forecast(city: string, days?: int 1..9)",
        "purpose": "Tell the weather.",
    }
    assert shown["signature"] == alone["signature"]
    lines = run("tools", "show", "weather/forecast", "--signature", *fleet).stdout.splitlines()
    assert lines == [alone["signature"], alone["purpose"]]


@pytest.mark.parametrize(("models", "unit"), [(NO_MODELS, "characters"), (PACKAGED, "tokens")])
def test_signatures_are_counted_beside_full_schemas(run, tmp_path, servers, models, unit):
    fleet = write_config(tmp_path, servers, models)
    result = run("tools", "stats", "--json", *fleet)
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    counted = json.loads(line)
    assert (counted["unit"], counted["tools"]) == (
        unit,
        len(json.loads(run("tools", "list", "--json", *fleet).stdout)["tools"]),
    )
    assert 0 < counted["signature"]["sum"] < counted["schema"]["sum"]
    assert ("counting characters" in result.stderr) == (unit == "characters")
    assert f"{unit} of {counted['tools']} tools" in run("tools", "stats", *fleet).stdout


def test_percentiles_are_those_of_the_nearest_rank():
    sizes = [Sizes(f"s/t{n}", n, 10 * n) for n in range(1, 101)]
    figures = as_json("tokens", sizes)
    assert figures["signature"] == {"p50": 50, "p90": 90, "p99": 99, "max": 100, "sum": 5050}
    assert figures["longest"][0] == {"tool": "s/t100", "signature": 100, "schema": 1000}
    assert as_json("tokens", [])["schema"] == {"p50": 0, "p90": 0, "p99": 0, "max": 0, "sum": 0}
