"""What an upstream says arrives at the host as it was said: read on the wire, without anybody's typed models."""

import json
import sys
from pathlib import Path

import pytest
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)
from servers.relay_server import BIG_TEXT, FAILED_RESULT, FUTURE_RESULT, LISTED, REFUSAL, STRUCTURED_RESULT
from support.raw_host import MODERN, raw_host

from nexus_gateway.server.rendering import META_KEY

TESTS = Path(__file__).parent
ARGUMENTS = {
    "big": 12345678901234567890123,
    "whole": 1.0,
    "one": 1,
    "text": "höhe\u2028日本\U0001f680\x00",
    "none": None,
    "": [{}],
}


@pytest.fixture(scope="module", params=["legacy", MODERN])
def era(request):
    return request.param


@pytest.fixture(scope="module")
def host(era, tmp_path_factory):
    """One gateway process for all tests of an era."""
    folder = tmp_path_factory.mktemp("gateway")
    config = folder / "nexus.toml"
    server = [
        f"command = {json.dumps(sys.executable)}",
        'args = ["-m", "servers.relay_server"]',
        f"cwd = {json.dumps(str(TESTS))}",
        'confirm = "never"',
    ]
    whole = ["[results]", "max_tokens = 0"]
    config.write_text("\n".join([f"cache_dir = {json.dumps(str(folder))}", *whole, "[servers.odd]", *server]))
    with raw_host(config, era) as running:
        yield running


def exact(value):
    """JSON text that differs wherever two JSON values do: 1 from 1.0, true from 1."""
    return json.dumps(value, sort_keys=True)


def said_upstream(result, era):
    """The result without what the modern protocol wants from every server."""
    if era != MODERN:
        return result
    assert result["resultType"] == "complete"
    meta = {key: value for key, value in result["_meta"].items() if key != SERVER_INFO_META_KEY}
    assert result["_meta"][SERVER_INFO_META_KEY]["name"] == "nexus-gateway"
    rest = {key: value for key, value in result.items() if key not in ("resultType", "_meta")}
    return rest | ({"_meta": meta} if meta else {})


def call(host, tool, arguments=None, **params):
    return host.call("call_tool", {"tool": tool, "arguments": arguments or {}}, **params)


@pytest.mark.parametrize(
    ("tool", "expected"),
    [("future", FUTURE_RESULT), ("structured", STRUCTURED_RESULT), ("failing", FAILED_RESULT)],
)
def test_an_exact_call_relays_the_whole_result(host, era, tool, expected):
    answer = call(host, f"odd/{tool}")
    assert set(answer) == {"jsonrpc", "id", "result"}
    assert exact(said_upstream(answer["result"], era)) == exact(expected)


def test_a_json_rpc_error_of_the_upstream_is_the_hosts(host):
    answer = call(host, "odd/refusing")
    assert set(answer) == {"jsonrpc", "id", "error"}
    assert exact(answer["error"]) == exact(REFUSAL)


def test_ten_megabytes_arrive_whole(host, era):
    result = said_upstream(call(host, "odd/huge")["result"], era)
    assert result == {"content": [{"type": "text", "text": BIG_TEXT}]}


def test_arguments_reach_the_upstream_as_they_were_given(host):
    received = call(host, "odd/received", ARGUMENTS)["result"]["received"]
    assert received["name"] == "received"
    assert exact(received["arguments"]) == exact(ARGUMENTS)


def test_the_hosts_own_meta_crosses_and_what_belongs_to_its_connection_does_not(host):
    meta = {"vendor.example/trace": {"deep": [1.0]}, "traceparent": "00-2", "progressToken": "front"}
    received = call(host, "odd/received", _meta=meta)["result"]["received"]["_meta"]
    assert exact({key: received[key] for key in ("vendor.example/trace", "traceparent")}) == exact(
        {"vendor.example/trace": {"deep": [1.0]}, "traceparent": "00-2"}
    )
    assert received.get("progressToken") != "front"
    owned = {PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY}
    assert owned.isdisjoint(received)  # this upstream is a legacy one, which has none of these


def test_a_description_holds_the_definition_as_it_was_listed(host):
    described = host.call("describe_tool", {"tool": "odd/future"})["result"]["structuredContent"]
    assert exact(described["definition"]) == exact(LISTED[0])


@pytest.mark.slow
@pytest.mark.parametrize("meta_tool", ["nexus_turn", "nexus_read"])
def test_a_turn_adds_one_text_block_and_one_meta_key(host, era, meta_tool):
    relayed = said_upstream(host.call(meta_tool, {"request": "odd/future"})["result"], era)
    *content, ours = relayed["content"]
    meta = dict(relayed["_meta"])
    turn = meta.pop(META_KEY)
    assert exact({**relayed, "content": content, "_meta": meta}) == exact(FUTURE_RESULT)
    assert ours == {"type": "text", "text": "[nexus: odd/future {}]"}
    assert (turn["outcome"], turn["tool"], turn["arguments"]) == ("called", "odd/future", {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "expected"), [("structured", STRUCTURED_RESULT), ("failing", FAILED_RESULT)]
)
def test_a_turn_keeps_structured_content_and_errors(host, era, tool, expected):
    relayed = said_upstream(host.call("nexus_turn", {"request": f"odd/{tool}"})["result"], era)
    rest = {key: value for key, value in relayed.items() if key not in ("content", "_meta")}
    assert relayed["content"][:-1] == expected["content"]
    assert exact(rest) == exact({key: value for key, value in expected.items() if key != "content"})


@pytest.mark.slow
def test_a_turn_says_that_the_upstream_refused(host):
    result = host.call("nexus_turn", {"request": "odd/refusing"})["result"]
    assert result["isError"] is True
    assert REFUSAL["message"] in result["content"][0]["text"]
