"""The spans of a call: call > turn > endpoint, stt, agent, tts, first packet, and the tools.

The trace id is the call's id and the root's span id the last half of it, so that a trace is found by its call
and a receiver of webhooks can name its parent without asking. Names follow OpenTelemetry's conventions for
generative AI where there is one. Words, numbers and the arguments of tools are in no span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final, Protocol

from mediaserver.queue.records import CallStatus, Claim, Outcome
from pipeline.agent import ToolUse
from pipeline.net.trace_context import span_id_of
from pipeline.result import TurnRecord

Attributes = Mapping[str, str | int | float | bool]

_PARTS: Final = ("endpoint", "stt", "agent", "tts", "first packet")
"""The parts of `TurnLatency` as spans, in order."""


@dataclass(frozen=True, slots=True)
class Span:
    """One span; `span_id` and `parent_id` as 16 hex digits, "" for any and for none. Times in milliseconds
    since 1970."""

    name: str
    start_ms: float
    end_ms: float
    attributes: Attributes = field(default_factory=dict)
    span_id: str = ""
    parent: Span | None = None
    failed: bool = False
    faults: tuple[tuple[float, Attributes], ...] = ()
    """Moments with their attributes: faults of engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedCall:
    """A call that is over. `answered_at_ms`, `began_at_ms` (its conversation began) and `ended_at_ms` in
    milliseconds since 1970, 0 where that never was; times in `turns` and `tools` count from the beginning of
    the conversation, of `tools` in seconds of the loop's clock that was `began` then."""

    claim: Claim
    direction: str
    outcome: Outcome
    placed_at_ms: int
    answered_at_ms: int
    began_at_ms: int
    ended_at_ms: int
    began: float
    turns: Sequence[TurnRecord]
    tools: Sequence[ToolUse]


class CallTracer(Protocol):
    """Whoever takes the spans of calls (`mediaserver.tracing.otlp`)."""

    def add(self, call: TracedCall) -> None:
        """Takes a call that is over; returns at once."""

    async def close(self) -> None:
        """Passes on what was taken."""


def call_spans(call: TracedCall) -> Iterator[Span]:
    """Returns the spans of a call, each after its parent."""
    root = _root(call)
    yield root
    if call.placed_at_ms:
        until = call.answered_at_ms or root.end_ms
        yield Span("INVITE" if call.direction != "web" else "join", call.placed_at_ms, until, parent=root)
    turns = [_turn(call, turn, root) for turn in call.turns]
    for turn, span in zip(call.turns, turns, strict=True):
        yield span
        yield from _parts(call, turn, span)
    yield from (_tool(call, use, root, turns) for use in call.tools)


def _root(call: TracedCall) -> Span:
    claim, outcome = call.claim, call.outcome
    return Span(
        "call",
        call.placed_at_ms or call.ended_at_ms,
        call.ended_at_ms,
        {
            "gen_ai.conversation.id": claim.call_id,
            "gen_ai.agent.id": claim.agent_id,
            "call.company": claim.company_id,
            "call.direction": call.direction,
            "call.trunk": claim.trunk_id,
            "call.status": outcome.status.value,
            "call.hangup_cause": str(outcome.cause),
            "call.ended_by": outcome.ended_by,
            "call.disposition": str(outcome.analysis.get("disposition") or ""),
            "sip.status": outcome.sip_status,
        },
        span_id_of(claim.call_id),
        failed=outcome.status is CallStatus.FAILED,
        faults=tuple(
            (call.began_at_ms + each["atMs"], {"role": each["role"]})
            for each in outcome.analysis.get("faults", ())
        ),
    )


def _turn(call: TracedCall, turn: TurnRecord, root: Span) -> Span:
    attributes: dict[str, str | int | float | bool] = {
        "turn.number": turn.number,
        "turn.interrupted": turn.interrupted,
        "turn.fillers": turn.fillers,
    }
    if turn.latency is not None:
        attributes["turn.voice_to_voice_ms"] = turn.latency.voice_to_voice_ms
    start_ms, end_ms = call.began_at_ms + turn.start_ms, call.began_at_ms + turn.end_ms
    return Span("turn", start_ms, end_ms, attributes, parent=root)


def _parts(call: TracedCall, turn: TurnRecord, span: Span) -> Iterator[Span]:
    """Returns the parts of the time from the caller's last sound to the agent's first, one after another."""
    latency = turn.latency
    if latency is None or turn.heard_ms is None:
        return
    parts = (latency.endpoint_ms, latency.stt_ms, latency.agent_ms, latency.tts_ms, latency.server_ms)
    first = call.began_at_ms + turn.heard_ms - latency.voice_to_voice_ms
    for name, (start_ms, end_ms) in zip(_PARTS, pairwise(accumulate(parts, initial=first)), strict=True):
        asked = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.id": call.claim.agent_id}
        yield Span(name, start_ms, end_ms, asked if name == "agent" else {}, parent=span)


def _tool(call: TracedCall, use: ToolUse, root: Span, turns: Sequence[Span]) -> Span:
    start_ms, end_ms = (call.began_at_ms + (at - call.began) * 1000 for at in (use.began, use.ended))
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": use.name}
    parent = next((turn for turn in turns if turn.start_ms <= start_ms <= turn.end_ms), root)
    return Span(
        f"execute_tool {use.name}",
        start_ms,
        end_ms,
        attributes,
        span_id_of(use.id),
        parent=parent,
        failed=use.failed,
    )
