"""Malformed JSON-RPC from upstreams and hosts: no crash, no hang, nothing of one host in another's answers.

Short runs of `tests/soak/fuzz.py`, and one test for each thing that it has found.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import anyio
import pytest
from soak.fuzz import MARK_A, fuzz, messages
from starlette.requests import Request
from support.fuzzing import Fuzzer

from adapters.careful_dispatcher import SMALLEST_STEP
from adapters.mcp_upstream import connect
from adapters.ports import HostSide, StdioSpec, UpstreamRefused, UpstreamSpec
from nexus_gateway.server.http import expecting_breaks
from nexus_gateway.turn.validation import problems

SEED, SECONDS, CALLS = 11, 30, 50
LESS = 1 if "NEXUS_FULL_TESTS" in os.environ else 4


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("part", "count"),
    [
        ("upstream", 20_000 // LESS),
        ("stdio_legacy", 20_000 // LESS),
        ("stdio_modern", 20_000 // LESS),
        ("http", 3_000 // LESS),
    ],
)
async def test_a_gateway_survives_malformed_messages(tmp_path, part, count, record_property):
    found = await fuzz(count, SEED, tmp_path, part)
    record_property("fuzz", found)
    assert found["faults"] == 0, found
    assert found["tracebacks"] == 0, "\n".join(found["first_tracebacks"])


def test_spoilt_messages_are_the_same_for_the_same_seed_and_mostly_spoilt():
    valid = messages(MARK_A, modern=False)
    first, second = Fuzzer(1, valid), Fuzzer(1, valid)
    lines = [first.line() for _ in range(500)]
    assert lines == [second.line() for _ in range(500)]
    kinds = Counter(kind_of(line, valid) for line in lines)
    assert kinds["valid"] < 100 < kinds["not json"]
    assert kinds["json"] > 100


def kind_of(line, valid):
    try:
        return "valid" if json.loads(line) in valid else "json"
    except (ValueError, RecursionError):
        return "not json"


ANSWERS = {
    "many digits": '{"jsonrpc":"2.0","id":%d,"result":{"n":' + "9" * 5_000 + "}}",
    "deep": '{"jsonrpc":"2.0","id":%d,"result":{"n":' + "[" * 500 + "]" * 500 + "}}",
    "very deep": '{"jsonrpc":"2.0","id":%d,"result":{"n":' + "[" * 50_000 + "]" * 50_000 + "}}",
    "no object": '{"jsonrpc":"2.0","id":%d,"result":[]}',
}
NOTICES = {
    "an id that is a flag": '{"jsonrpc":"2.0","id":false,"result":[]}',
    "an id that is no text": '{"jsonrpc":"2.0","id":"\\ud800","result":[]}',
    "progress beyond a double": '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1'
    + "0" * 400
    + "}}",
}
SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    call, method = asked.get("id"), asked.get("method")
    if call is None:
        continue
    result = {"content": [], "id": call}
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    answer = json.dumps({"jsonrpc": "2.0", "id": call, "result": result})
    if method == "server/discover":
        answer = json.dumps({"jsonrpc": "2.0", "id": call, "error": {"code": -32601, "message": "no"}})
    if method == "odd":
        odd = sys.argv[1]
        token = json.dumps(asked.get("params", {}).get("_meta", {}).get("progressToken"))
        answer = odd.replace("%d", str(call)).replace("%s", token)
        if "then-answer" in sys.argv:
            answer += "\\n" + json.dumps({"jsonrpc": "2.0", "id": call, "result": result})
    print(answer, flush=True)
"""


def server(odd, *, then_answer=False):
    """It writes `odd` when asked for it, with or without a right answer after it."""
    more = ("then-answer",) if then_answer else ()
    return UpstreamSpec("odd", StdioSpec(sys.executable, ("-c", SERVER, odd, *more)))


async def ignore_progress(_progress, _total, _message):
    return


@pytest.mark.anyio
@pytest.mark.parametrize("odd", ANSWERS.values(), ids=ANSWERS)
async def test_an_unreadable_answer_fails_its_call_at_once(odd):
    with anyio.fail_after(SECONDS):
        async with connect(server(odd), HostSide()) as upstream:
            with pytest.raises(UpstreamRefused, match="not a valid JSON-RPC response"):
                await upstream.request("odd", {}, timeout_seconds=600)
            assert "content" in await upstream.request("ping", {}, timeout_seconds=SECONDS)


@pytest.mark.anyio
@pytest.mark.parametrize("odd", NOTICES.values(), ids=NOTICES)
async def test_an_unreadable_message_costs_nobody_else_anything(odd, caplog):
    with anyio.fail_after(SECONDS):
        async with connect(server(odd, then_answer=True), HostSide()) as upstream:
            result = await upstream.request("odd", {}, timeout_seconds=SECONDS, on_progress=ignore_progress)
            assert "content" in result
            assert "content" in await upstream.request("ping", {}, timeout_seconds=SECONDS)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.anyio
async def test_an_answer_under_the_next_or_an_old_id_meets_no_open_call():
    ids = []
    with anyio.fail_after(SECONDS):
        async with connect(server(""), HostSide()) as upstream:
            while len(ids) < CALLS:
                answer = await upstream.request("ping", {}, timeout_seconds=SECONDS)
                ids.append(answer["id"])
    gaps = [later - earlier for earlier, later in pairwise(ids)]
    assert min(gaps) >= SMALLEST_STEP
    assert len(set(gaps)) > 10


def nested(levels):
    value = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [201, 255, 900])
def test_arguments_that_nest_too_deeply_are_said_to_be_wrong(levels):
    assert problems({"a": nested(levels)}, {"type": "object"}) == ["nested more than 200 levels deep"]
    assert problems({"a": nested(199)}, {"type": "object"}) == []


def test_wrong_arguments_that_are_no_unicode_are_said_to_be_wrong():
    wrong = problems({"a": "\ud800"}, {"type": "object", "properties": {"a": {"type": "integer"}}})
    assert wrong == ["some text is not valid Unicode (half of a surrogate pair)"]


@pytest.mark.anyio
async def test_a_host_that_hangs_up_while_it_sends_is_no_crash():
    async def app(scope, receive, send):
        await Request(scope, receive).body()

    async def hangs_up():
        return {"type": "http.disconnect"}

    await expecting_breaks(app)({"type": "http"}, hangs_up, None)


FAILS = """
import structlog
from nexus_gateway.telemetry.logs import set_up_logs

def fail(token):
    headers = {"authorization": token}
    raise RuntimeError("refused" if headers else "")

set_up_logs("info", "json")
try:
    fail("hunter" + str(2))
except RuntimeError:
    structlog.get_logger("test").warning("failed", exc_info=True)
"""


def test_a_traceback_in_the_log_holds_no_local_variables():
    ended = subprocess.run(
        [sys.executable, "-c", FAILS], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert "refused" in ended.stderr
    assert "hunter2" not in ended.stderr
