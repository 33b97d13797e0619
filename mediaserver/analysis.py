"""What a call comes to: the figures and facts of its `analysis`, and the JSON shapes of its content.

Everything here is arithmetic on what the conversation left behind (`pipeline.outcome.SessionResult`).
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from pipeline.outcome import SessionResult, TurnRecord
from pipeline.transcript import TranscriptEntry

Json = dict[str, Any]


def analyse(result: SessionResult) -> Json:
    """The `analysis` of a call: what it came to, what was collected, how it felt.

    `talkRatio` is the agent's share of all speech (0 to 1, None where nobody spoke); latencies are those of
    voice-to-voice over the turns that have one.
    """
    return {
        "disposition": result.report.disposition or result.disposition,
        "reachedGoal": result.report.reached_goal,
        "answers": dict(result.report.answers),
        "line": result.line,
        "summary": result.report.summary,
        "extracted": dict(result.report.extracted),
        "endReason": result.reason.value,
        "durationMs": result.duration_ms,
        "turns": len(result.turns),
        "interruptions": result.interruptions,
        "callerSpeechMs": result.caller_speech_ms,
        "agentSpeechMs": result.agent_speech_ms,
        "talkRatio": talk_ratio(result.agent_speech_ms, result.caller_speech_ms),
        "latency": latency_figures(voice_to_voice_ms(result.turns)),
        "faults": [
            {"role": fault.role, "message": fault.message, "atMs": fault.at_ms} for fault in result.faults
        ],
        "silences": camel_case(result.silences),
        "doNotCall": result.do_not_call,
    }


def talk_ratio(agent_ms: int, caller_ms: int) -> float | None:
    """The agent's share of all speech, None where there was none."""
    spoken = agent_ms + caller_ms
    return round(agent_ms / spoken, 3) if spoken else None


def latency_figures(values_ms: Sequence[float]) -> Json:
    """How many turns were measured, their median and their worst, in milliseconds (None for none)."""
    if not values_ms:
        return {"measuredTurns": 0, "p50Ms": None, "maxMs": None}
    return {
        "measuredTurns": len(values_ms),
        "p50Ms": round(statistics.median(values_ms), 1),
        "maxMs": round(max(values_ms), 1),
    }


def voice_to_voice_ms(turns: Sequence[TurnRecord]) -> list[float]:
    """The latency of every turn that has one."""
    return [turn.latency.voice_to_voice_ms for turn in turns if turn.latency is not None]


def turn_data(turn: TurnRecord) -> Json:
    """A turn as the API and `turn.completed` tell it."""
    return {
        "turn": turn.number,
        "userText": turn.user_text,
        "keyed": turn.keyed,
        "confidence": round(turn.confidence, 3),
        "agentText": turn.agent_text,
        "interrupted": turn.interrupted,
        "startMs": turn.start_ms,
        "endMs": turn.end_ms,
        "latency": None if turn.latency is None else camel_case(turn.latency),
        "silences": camel_case(turn.silences),
    }


def entry_data(entry: TranscriptEntry) -> Json:
    """A line of the transcript as the API and `transcript.completed` tell it."""
    data: Json = camel_case(entry)
    return data


def camel_case(value: Any) -> Any:
    """A dataclass (or a sequence of them) as JSON with the field names of the API."""
    if dataclasses.is_dataclass(value):
        return {
            _camel(field.name): camel_case(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple | list):
        return [camel_case(item) for item in value]
    return round(value, 3) if isinstance(value, float) else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
