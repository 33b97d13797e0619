"""The record of a call: what its end is called, what is counted, and when everything of it is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mediaserver.calls.detail_record import MAX_TOOL_RESULT, CallDetailRecord
from mediaserver.calls.journal import Journal
from mediaserver.calls.redaction import Redactor
from mediaserver.calls.services import CallServices
from mediaserver.queue.records import CallStatus
from mediaserver.store.store import Store
from mediaserver.telemetry.metrics import Metrics
from pipeline.agent import AgentReport, ToolUse
from pipeline.media.recording import RecordingWriter
from pipeline.result import EndReason, EngineFault, SessionResult, Silence
from pipeline.transcript import Role, TranscriptEntry
from tests.support.claims import claim

CLAIM = claim()


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[CallServices]:
    async with await Store.open("", tmp_path) as store:
        yield CallServices(
            store=store,
            journal=Journal(),
            metrics=Metrics(),
            recorder=RecordingWriter(),
            recordings=tmp_path,
            lease_ms=1000,
            public_url="https://calls.example",
            wall_clock=lambda: 1_800_000_000.0,
        )


def result(reason: EndReason, *, recording: Path | None = None) -> SessionResult:
    return SessionResult(
        reason=reason,
        disposition="",
        transfer_target="",
        leg_reason="",
        transcript=(),
        turns=(),
        interruptions=0,
        report=AgentReport(),
        faults=(),
        duration_ms=0,
        caller_speech_ms=0,
        agent_speech_ms=0,
        recording=recording,
        silences=(Silence(0, 2500, "tts_late"),),
    )


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (EndReason.AGENT, "normal"),
        (EndReason.FAR_END, "normal"),
        (EndReason.SILENCE, "silence"),
        (EndReason.MAX_DURATION, "max_duration"),
        (EndReason.ENGINE_ERROR, "engine_error"),
    ],
)
async def test_the_cause_is_the_legs_unless_only_the_session_knows_it(
    services: CallServices, reason: EndReason, cause: str
) -> None:
    outcome = CallDetailRecord(CLAIM, services).answered(result(reason), cause="normal", ended_by="local")
    assert (outcome.status, outcome.cause) == (CallStatus.COMPLETED, cause)


async def test_a_call_without_a_result_failed_with_what_was_said_so_far(services: CallServices) -> None:
    cdr = CallDetailRecord(CLAIM, services)
    cdr.transcript_added(TranscriptEntry(Role.AGENT, "Hello.", 0, 400))
    outcome = cdr.answered(None, cause="normal", ended_by="remote", error="ValueError: no")
    assert (outcome.status, outcome.cause, outcome.ended_by) == (CallStatus.FAILED, "server_error", "local")
    assert (outcome.error, [line["text"] for line in outcome.transcript]) == ("ValueError: no", ["Hello."])
    assert outcome.ended_at_ms == 1_800_000_000_000


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"card": 4111111111111111}, "ok"),
        ({"cards": [{"number": "4111111111111111"}]}, "ok"),
        ({}, json.dumps({"result": "Card:\n4111111111111111"})),
        ({}, json.dumps({"result": json.dumps({"card": "of him:\t4111111111111111"})})),
        ({}, "x" * (MAX_TOOL_RESULT - 9) + " 4111111111111111"),
    ],
    ids=["an integer", "nested", "behind a line's end", "in JSON in JSON", "across the cut"],
)
async def test_no_digits_of_a_card_are_kept_of_a_tools_use(
    services: CallServices, arguments: dict[str, Any], answer: str
) -> None:
    cdr = CallDetailRecord(CLAIM, services)
    cdr.redactor = Redactor(["card"])
    cdr.tool_used(
        ToolUse(id="1", name="pay", arguments=arguments, result=answer, failed=False, began=0.0, ended=0.1)
    )
    outcome = cdr.answered(result(EndReason.AGENT), cause="normal", ended_by="local")
    [use] = outcome.analysis["toolCalls"]
    assert "4111" not in str(use)
    assert "[" in str(use["arguments"]) + use["result"]


async def test_faults_silences_recording_and_transfer_come_into_the_outcome(services: CallServices) -> None:
    cdr = CallDetailRecord(CLAIM, services)
    cdr.faults.append(EngineFault("recording", "disk full", 40))
    cdr.transfer, cdr.ended_at_ms = {"outcome": "answered"}, 5
    recorded = result(EndReason.TRANSFER, recording=Path("/r/call-1.wav"))
    outcome = cdr.answered(recorded, cause="normal", ended_by="remote")
    assert outcome.recording_url == "https://calls.example/api/v1/calls/call-1/recording"
    assert outcome.analysis["transfer"] == {"outcome": "answered"}
    assert [fault["message"] for fault in outcome.analysis["faults"]] == ["disk full"]
    assert outcome.ended_at_ms == 5
    count = services.metrics.registry.get_sample_value
    assert count("mediaserver_engine_errors_total", {"kind": "recording"}) == 1
    assert count("mediaserver_silences_total", {"cause": "tts_late"}) == 1


async def test_the_outcome_is_written_after_what_was_noted_before_it(services: CallServices) -> None:
    cdr, written = CallDetailRecord(CLAIM, services), list[str]()

    async def ringing() -> None:
        written.append("ringing")

    cdr.note("ringing", ringing)
    cdr.finish(cdr.answered(None, cause="normal", ended_by="local"), "outbound")
    assert not cdr.written.done()
    writing = asyncio.create_task(services.journal.run())
    async with asyncio.timeout(10):
        await cdr.written
    writing.cancel()
    assert written == ["ringing"]


async def test_variables_of_the_tools_are_the_calls_from_then_on(services: CallServices) -> None:
    cdr = CallDetailRecord(CLAIM, services)
    cdr.fill({"plan": "gold"})
    assert cdr.claim.variables == {"plan": "gold"}
    assert services.journal.calls() == ["call-1"]


async def test_no_integer_that_is_a_card_is_kept_of_what_the_agent_extracted(services: CallServices) -> None:
    cdr = CallDetailRecord(CLAIM, services)
    cdr.redactor = Redactor(["card"])
    report = AgentReport(extracted={"cards": [{"number": 4111111111111111}], "age": 42, "paid": True})
    outcome = cdr.answered(replace(result(EndReason.AGENT), report=report), cause="normal", ended_by="local")
    assert outcome.analysis["extracted"] == {"cards": [{"number": "[card]"}], "age": 42, "paid": True}


async def test_who_supervised_a_call_is_in_the_analysis_and_in_the_audit_log(services: CallServices) -> None:
    cdr = CallDetailRecord(CLAIM, services)
    cdr.supervised("boss", "monitor")  # while the tools before the conversation are asked
    cdr.conversation_began()
    for who, role in (("boss", "monitor"), ("boss", "barge"), ("anna", "whisper")):
        cdr.supervised(who, role)
    cdr.supervised("anna", "")
    cdr.supervised("nobody", "")
    outcome = cdr.answered(result(EndReason.AGENT), cause="normal", ended_by="local")
    assert [(each["by"], each["role"]) for each in outcome.analysis["supervisors"]] == [
        ("boss", "monitor"),
        ("boss", "barge"),
        ("anna", "whisper"),
    ]
    assert all(0 <= each["startMs"] <= each["endMs"] < 1000 for each in outcome.analysis["supervisors"])
    writing = asyncio.create_task(services.journal.run())
    async with asyncio.timeout(10):
        while len(services.journal):
            await asyncio.sleep(0.01)
    writing.cancel()
    page = await services.store.audit(CLAIM.company_id)
    assert [(each.operation, each.subject) for each in reversed(page.items)] == [
        ("supervisorJoined", "call-1 boss monitor"),
        ("supervisorChanged", "call-1 boss barge"),
        ("supervisorJoined", "call-1 anna whisper"),
        ("supervisorLeft", "call-1 anna"),
    ]
