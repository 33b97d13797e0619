"""The `analysis` of a call: its figures and facts, and the JSON shapes of its content.

Everything here is computed from the conversation's result (`pipeline.result.SessionResult`)."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic.alias_generators import to_camel

from pipeline.agent import Conversation, Debriefing
from pipeline.errors import EngineError, contained
from pipeline.net.untrusted import clean_text
from pipeline.result import EngineFault, SessionResult, TurnRecord
from pipeline.transcript import TranscriptEntry

Json = dict[str, Any]

_PLAIN: Final = frozenset({int, bool, type(None)})
_MAPPING: Final = (dict, Mapping)  # the first is found at once
_NESTED: Final = (dict, list, tuple, Mapping)

DEEPEST: Final = 32
"""The deepest nesting kept of an agent's report."""


def analyse(result: SessionResult) -> Json:
    """Returns the `analysis` of a call: its outcome, the collected answers, latencies and faults.

    `talkRatio` is the agent's share of all speech (0 to 1, None where nobody spoke); latencies are
    voice-to-voice, over the turns that have one."""
    return recordable(
        {
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
            "faults": camel_case(result.faults),
            "silences": camel_case(result.silences),
            "doNotCall": result.do_not_call,
        }
    )


def talk_ratio(agent_ms: int, caller_ms: int) -> float | None:
    """Returns the agent's share of all speech, 0 to 1, None where there was none."""
    spoken = agent_ms + caller_ms
    return round(agent_ms / spoken, 3) if spoken else None


def latency_figures(values_ms: Sequence[float]) -> Json:
    """Returns how many turns were measured, their median and their longest latency in milliseconds (None for
    none)."""
    if not values_ms:
        return {"measuredTurns": 0, "p50Ms": None, "maxMs": None}
    return {
        "measuredTurns": len(values_ms),
        "p50Ms": round(statistics.median(values_ms), 1),
        "maxMs": round(max(values_ms), 1),
    }


def voice_to_voice_ms(turns: Sequence[TurnRecord]) -> list[float]:
    """Returns the voice-to-voice latency of every turn that has one, in milliseconds."""
    return [turn.latency.voice_to_voice_ms for turn in turns if turn.latency is not None]


def turn_data(turn: TurnRecord) -> Json:
    """Returns a turn as the API and `turn.completed` have it."""
    told = camel_case(turn)
    del told["fillers"], told["heardMs"]
    return recordable({"turn": told.pop("number")} | told)


def entry_data(entry: TranscriptEntry) -> Json:
    """Returns a line of the transcript as the API and `transcript.completed` have it."""
    return recordable(camel_case(entry))


def recordable(content: Json) -> Json:
    """Returns `content` as every database takes it, whatever an agent or an engine put into it: a call's
    record must not be lost for a NaN, half a character, or an unknown object."""
    found: Json = _recordable(content, DEEPEST)
    return found


def _recordable(value: Any, deepest: int) -> Any:
    kind = type(value)
    if kind is str or kind in _PLAIN:
        return clean_text(value) if kind is str else value
    if isinstance(value, int | float):
        return None if isinstance(value, float) and not math.isfinite(value) else value
    if isinstance(value, _NESTED) and deepest <= 0:
        return None
    if isinstance(value, _MAPPING):
        return {
            sys.intern(clean_text(str(key))): _recordable(inner, deepest - 1) for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_recordable(inner, deepest - 1) for inner in value]
    return clean_text(str(value))


def camel_case(value: Any) -> Any:
    """Returns a dataclass (or a sequence of them) as JSON with the field names of the API."""
    if type(value) is str or type(value) in _PLAIN:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {camel: camel_case(getattr(value, name)) for name, camel in _names(type(value))}
    if isinstance(value, tuple | list):
        return [camel_case(item) for item in value]
    return round(value, 3) if isinstance(value, float) else value


@functools.cache
def _names(kind: type[Any]) -> tuple[tuple[str, str], ...]:
    """Returns the fields of a dataclass, each with its name in the API."""
    return tuple((field.name, to_camel(field.name)) for field in dataclasses.fields(kind))


log = logging.getLogger(__name__)

LIMIT_S = 60.0
"""The longest that an agent's report is waited for, in seconds, whatever the agent says."""


async def debriefed(
    agent: Conversation | None, result: SessionResult | None, fields: Mapping[str, object]
) -> SessionResult | None:
    """Returns `result` with the agent's report on the call; where that fails, without a report and with a
    fault. Never raises."""
    if result is None or not isinstance(agent, Debriefing):
        return result
    try:
        with contained("the agent", **fields):
            async with asyncio.timeout(LIMIT_S):
                return replace(result, report=await agent.debrief(result.transcript))
    except EngineError as error:
        reason = str(error)
        log.warning("no debriefing", extra={**fields, "reason": reason})
    fault = EngineFault("agent", f"no debriefing: {reason}", result.duration_ms)
    return replace(result, faults=(*result.faults, fault))
