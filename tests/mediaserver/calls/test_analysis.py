"""What a call comes to."""

from __future__ import annotations

import dataclasses
import json
from datetime import date
from typing import Any

from mediaserver.calls.analysis import analyse, entry_data, latency_figures, talk_ratio, turn_data
from pipeline.agent import AgentReport
from pipeline.latency import TurnLatency
from pipeline.result import EndReason, EngineFault, SessionResult, TurnRecord
from pipeline.transcript import Role, TimedWord, TranscriptEntry


def turn(number: int, voice_to_voice_ms: float | None) -> TurnRecord:
    latency = None
    if voice_to_voice_ms is not None:
        latency = TurnLatency(voice_to_voice_ms, 500, 0, 1, 2, 3)
    return TurnRecord(number, "yes", "", 0.9, "Goodbye.", False, 1000, 2000, latency)


ENTRY = TranscriptEntry(Role.AGENT, "Hello", 0, 420, interrupted=True, words=(TimedWord("Hello", 0, 420),))


def result(*turns: TurnRecord) -> SessionResult:
    return SessionResult(
        reason=EndReason.AGENT,
        disposition="completed",
        transfer_target="",
        leg_reason="",
        transcript=(ENTRY,),
        turns=turns,
        interruptions=1,
        report=AgentReport("confirmed", True, {"day": "monday"}, "Confirmed."),
        faults=(EngineFault("stt", "late", 5000),),
        duration_ms=12_000,
        caller_speech_ms=2000,
        agent_speech_ms=6000,
    )


def test_the_analysis_says_what_came_of_it_and_how_it_felt() -> None:
    analysis = analyse(result(turn(1, 600), turn(2, None), turn(3, 900), turn(4, 700)))
    assert analysis["disposition"] == "confirmed"
    assert analysis["reachedGoal"] is True
    assert analysis["answers"] == {"day": "monday"}
    assert analysis["latency"] == {"measuredTurns": 3, "p50Ms": 700, "maxMs": 900}
    assert analysis["talkRatio"] == 0.75
    assert (analysis["turns"], analysis["interruptions"], analysis["durationMs"]) == (4, 1, 12_000)
    assert analysis["faults"] == [{"role": "stt", "message": "late", "atMs": 5000}]
    assert json.loads(json.dumps(analysis)) == analysis


def test_whatever_an_agent_reports_can_be_written_down() -> None:
    deep: dict[str, Any] = {}
    deep["again"] = deep
    report = AgentReport(
        "done \ud83d",
        True,
        {"half \ud83d": "nul \0"},
        "Sum\ud83dmary.",
        {"score": float("nan"), "when": date(2026, 3, 4), "nested": deep, "kept": [1, 2.5, None, "x"]},
    )
    odd = TurnRecord(1, "said \ud83d", "", 0.9, "heard \0", False, 0, 1, None)
    call = dataclasses.replace(result(odd), report=report, faults=(EngineFault("agent", "\ud83d", 1),))
    written = [analyse(call), turn_data(odd), entry_data(dataclasses.replace(ENTRY, text="\ud83d"))]
    assert json.dumps(written, ensure_ascii=False, allow_nan=False).encode()
    assert "\\u0000" not in json.dumps(written)
    assert written[0]["disposition"] == "done \ufffd"
    assert written[0]["extracted"]["score"] is None
    assert written[0]["extracted"]["when"] == "2026-03-04"
    assert written[0]["extracted"]["kept"] == [1, 2.5, None, "x"]


def test_a_call_in_which_nobody_spoke() -> None:
    assert talk_ratio(0, 0) is None
    assert latency_figures([]) == {"measuredTurns": 0, "p50Ms": None, "maxMs": None}


def test_turns_and_lines_have_the_names_of_the_api() -> None:
    told = turn_data(turn(2, 650.5))
    assert told["latency"]["voiceToVoiceMs"] == 650.5
    assert told["latency"]["serverMs"] == 3
    assert (told["turn"], told["userText"], told["agentText"]) == (2, "yes", "Goodbye.")
    assert turn_data(turn(1, None))["latency"] is None
    line = entry_data(ENTRY)
    assert (line["role"], line["startMs"], line["endMs"]) == ("agent", 0, 420)
    assert line["interrupted"] is True
    assert line["words"] == [{"text": "Hello", "startMs": 0, "endMs": 420}]


def test_a_long_calls_turns_share_the_names_of_their_fields() -> None:
    """A live call holds each of its turns and lines: fifteen names each."""
    entry = TranscriptEntry(Role.AGENT, "Hello", 0, 400)
    one, another = entry_data(entry), entry_data(entry)
    assert all(name is again for name, again in zip(one, another, strict=True))
