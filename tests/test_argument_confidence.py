"""How sure a draft is: its probability, whose calibration counts, and that an unsure one is proposed, not run."""

import json
import math

import pytest
from structlog.testing import capture_logs
from support.fake_turns import CALLER, FILES, call, service_of, turn
from support.making_tools import STRING, compiled

from adapters.engine_double import ScriptedEngine
from adapters.reader_double import ScriptedReader
from adapters.reading_port import Reading, ReadingAnswer
from nexus_gateway.turn import confidence
from nexus_gateway.turn.arguments import ArgumentWriter, Draft
from nexus_gateway.turn.confidence import (
    FEATURES,
    ArgumentCalibration,
    ConfidenceError,
    evidence,
    in_use,
    read,
    shipped,
    write,
)
from nexus_gateway.turn.result import Ground, GroundKind, Outcome
from tool_registry.logistic import Logistic

pytestmark = pytest.mark.anyio

READER = "scripted reader"
SUM_ALONE = Logistic(("taken", "left_out"), (1.0, 1.0), 2.0)
"""P = 1 / (1 + exp(-(2 + the sum of the log-probabilities)))"""


def calibration(threshold=0.8, reader=READER, right=SUM_ALONE):
    return ArgumentCalibration(right, threshold, reader, {"source": "a test"})


def writer_of(reader, calibrated, engine=None):
    async def reads():
        return reader

    async def writes():
        return engine or ScriptedEngine([])

    return ArgumentWriter(writes, max_tokens=64, reader=reads, calibration=calibrated)


def path_said(request, probability):
    start = request.index("/")
    return ScriptedReader(
        {"path": Reading(1 - probability, (ReadingAnswer(start, len(request), probability),))}
    )


READ = "read_file /a/b.txt"
DELETE = "delete_file /a/b.txt"
SURE, UNSURE = 0.99, 0.6  # 2 + ln 0.99 gives P = 0.88, 2 + ln 0.6 gives 0.82: a threshold of 0.85 is between


async def service(request, probability, calibrated=None, **parts):
    calibrated = calibrated or calibration(threshold=0.85)
    return await service_of(FILES, writer=writer_of(path_said(request, probability), calibrated), **parts)


def test_the_evidence_is_that_of_the_reading_and_what_the_grounds_are():
    grounds = [
        Ground(GroundKind.SPAN),
        Ground(GroundKind.DEFAULT),
        Ground(GroundKind.INFERENCE),
        Ground(GroundKind.ENUM, chosen=True),
    ]
    found = evidence({"taken": -2.5}, grounds)
    assert found["taken"] == -2.5
    assert found["values"] == pytest.approx(math.log(5))
    assert (found["inferred"], found["chosen"]) == (2.0, 1.0)


async def test_what_a_draft_shows_is_what_calibrations_read():
    for properties, request in (({"path": STRING}, READ), ({}, "")):
        tool = compiled("files", "read_file", "", properties)
        draft = await writer_of(ScriptedReader({"path": "/a/b.txt"}), None).write(tool, request)
        assert set(draft.evidence) == set(FEATURES)
        assert all(map(math.isfinite, draft.evidence.values()))


async def test_a_draft_has_the_calibrated_probability_that_all_of_it_is_right():
    tool = compiled("files", "read_file", "", {"path": STRING}, ["path"])
    draft = await writer_of(path_said(READ, UNSURE), calibration()).write(tool, READ)
    assert draft.confidence == pytest.approx(1 / (1 + math.exp(-(2 + math.log(UNSURE)))))
    assert draft.target == 0.8
    assert not draft.unsure
    assert Draft(confidence=0.79, target=0.8).unsure
    assert not Draft(confidence=0.8, target=0.8).unsure
    assert not Draft().unsure, "nothing says how sure it is"


async def test_a_calibration_for_another_reader_does_not_count():
    tool = compiled("files", "read_file", "", {"path": STRING}, ["path"])
    foreign = calibration(threshold=1.0, reader="another")
    draft = await writer_of(path_said(READ, UNSURE), foreign).write(tool, READ)
    assert draft.evidence["taken"] == pytest.approx(math.log(UNSURE))
    assert draft.confidence is None
    turns, calls = await service(READ, UNSURE, foreign)
    assert (await turn(turns, READ)).outcome is Outcome.CALLED
    assert calls.calls


async def test_an_unsure_draft_is_proposed_even_for_a_tool_that_only_reads():
    turns, calls = await service(READ, UNSURE)
    result = await turn(turns, READ)
    assert result.outcome is Outcome.PROPOSED
    assert str(result.tool_id) == "files/read_file"
    assert dict(result.arguments) == {"path": "/a/b.txt"}
    assert result.signature
    assert "path could be something else" in result.message
    assert (await turn(turns, READ, read_only=True)).outcome is Outcome.PROPOSED
    assert not calls.calls


async def test_a_sure_draft_runs():
    turns, calls = await service(READ, SURE)
    assert (await turn(turns, READ)).outcome is Outcome.CALLED
    assert len(calls.calls) == 1


async def test_an_unsure_draft_without_an_argument_says_that_something_may_be_left_out():
    turns, calls = await service_of(
        {"files": [FILES["files"][0] | {"inputSchema": {"type": "object", "properties": {"path": STRING}}}]},
        writer=writer_of(ScriptedReader({"path": Reading(0.51, ())}), calibration(threshold=0.85)),
    )
    result = await turn(turns, "read_file")
    assert result.outcome is Outcome.PROPOSED
    assert "what is left out could be something else" in result.message
    assert not calls.calls


async def test_a_dry_run_and_a_yes_given_beforehand_are_as_before():
    turns, calls = await service(DELETE, UNSURE)
    dry = await turn(turns, DELETE, dry_run=True)
    assert dry.outcome is Outcome.PROPOSED
    assert "Dry run" in dry.message
    assert not calls.calls
    assert (await turn(turns, DELETE, assume_yes=True)).outcome is Outcome.CALLED
    assert len(calls.calls) == 1


async def test_what_a_user_answered_or_confirmed_is_not_doubted():
    turns, calls = await service_of(writer=writer_of(ScriptedReader(), calibration(threshold=0.85)))
    asked = await turn(turns, READ)
    assert asked.outcome is Outcome.NEEDS_INPUT
    answered = await turns.resume(asked.pending, {"path": "/a/c.txt"}, CALLER, confirmed=False)
    assert answered.outcome is Outcome.CALLED
    assert (await call(turns, "files/read_file", {"path": "x"})).outcome is Outcome.CALLED
    assert len(calls.calls) == 2


async def test_a_missing_argument_is_asked_for_however_unsure_the_rest_is():
    turns, _ = await service_of(
        writer=writer_of(ScriptedReader({"source": Reading(0.5, ())}), calibration(threshold=1.0))
    )
    asked = await turn(turns, "copy_file")
    assert asked.outcome is Outcome.NEEDS_INPUT


def test_a_calibration_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "cache" / "arguments.json"
    write(path, calibration())
    assert read(path) == calibration()
    assert in_use(path) == calibration()
    assert read(tmp_path / "none.json") is None


def without(name):
    whole = json.loads(calibration().to_json())
    del whole[name]
    return json.dumps(whole)


BROKEN = [
    b"",
    b"{",
    b"[]",
    b"\xff\xfe not text",
    without("threshold").encode(),
    without("reader").encode(),
    calibration().to_json().replace('"threshold": 0.8', '"threshold": "high"').encode(),
    calibration().to_json().replace('"taken",', "").encode(),
    calibration().to_json().replace('"taken"', '"of another version"').encode(),
]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_a_warning_that_names_it_and_the_shipped_calibration_counts(
    tmp_path, monkeypatch, content
):
    monkeypatch.setattr(confidence, "shipped", lambda: calibration(threshold=0.97))
    path = tmp_path / "arguments.json"
    path.write_bytes(content)
    with pytest.raises(ConfidenceError, match=r"arguments\.json is no calibration of arguments"):
        read(path)
    with capture_logs() as logs:
        assert in_use(path) == calibration(threshold=0.97)
    (warning,) = logs
    assert warning["event"] == "arguments.calibration_unusable"
    assert warning["log_level"] == "warning"
    assert str(path) in warning["cause"]
    assert warning["fix"] == "nexus-gateway calibrate"


def test_a_file_that_cannot_be_read_is_a_warning_too(tmp_path, monkeypatch):
    path = tmp_path / "arguments.json"
    write(path, calibration())

    def refused(*_args, **_more):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.read_bytes", refused)
    with capture_logs() as logs:
        assert in_use(path) == shipped()
    assert [line["event"] for line in logs] == ["arguments.calibration_unusable"]


def test_the_shipped_calibration_is_one_and_asks_for_much():
    found = shipped()
    if found is None:
        pytest.skip("none is made yet")
    assert found.right.names == FEATURES
    assert 0.5 <= found.threshold <= 1
    assert found.reader
