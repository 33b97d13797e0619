"""What the calls came to: figures with their conditions, as JSON, as a table, and in one line."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, Final

from rich.table import Table

from mediaserver.benchmark.caller import CallerTurn, Fate
from mediaserver.benchmark.calls import CallPlan, Record, Run
from mediaserver.benchmark.figures import Figures, percentiles
from mediaserver.benchmark.sayings import Saying
from sip.message.message import REASONS

CLOCK: Final = (
    "the event loop's monotonic clock, as packets are handed to the socket and read from it: one that came "
    "while the loop was busy is noted late by loop_late_ms at the most"
)

_TIMES: Final = {
    "voice_to_voice_ms": "voice to voice",
    "barge_in_ms": "barge-in",
    "first_voice_ms": "answer to first voice",
    "set_up_ms": "INVITE to answer",
    "gap_ms": "gap between packets",
}
"""Figures of the table, in ms, in its order."""

_RANKS: Final = (50, 95, 99, 100)


def conditions(plan: CallPlan, sayings: Sequence[Saying], *, agent: str, speech: str) -> Figures:
    """What the figures hold for: `agent` is that of a node of one's own, "" for another's; `speech` says what
    speaks."""
    return {
        "target": str(plan.target),
        "agent": agent,
        "codec": plan.codec,
        "calls": plan.calls,
        "concurrent": min(plan.concurrent, plan.calls),
        "rate_per_s": plan.rate_per_s,
        "turns": plan.turns,
        "seconds": plan.seconds,
        "barge_every": plan.barge_every,
        "speech": speech,
        "sentences": [{"name": each.name, "voice_ms": each.voice_ms} for each in sayings],
        "clock": CLOCK,
        "version": version("openline-mediaserver"),
        "python": platform.python_version(),
    }


def figures(run: Run, about: Figures) -> Figures:
    """Everything, as it stands in the JSON."""
    return {
        "conditions": about | {"loop_late_ms": _ranks(1000 * each for each in run.late_s)},
        "stopped": run.stopped,
        "calls": _call_counts(run.records),
        **_times(run.records),
        "turns": _turn_counts(run.records),
        "packets": _packets(run.records),
        "each_call": [_call(record) for record in run.records],
    }


def _times(records: Sequence[Record]) -> Figures:
    turns = [turn for record in records for turn in record.turns]
    return {
        "voice_to_voice_ms": _ranks(turn.voice_to_voice_ms for turn in turns),
        "barge_in_ms": _ranks(turn.barge_in_ms for turn in turns),
        "first_voice_ms": _ranks(record.first_voice_ms for record in records),
        "set_up_ms": _ranks(record.set_up_ms for record in records),
        "gap_ms": _ranks(1000 * gap for record in records for gap in record.heard.gaps_s),
    }


def _ranks(values: Iterable[float | None]) -> Figures:
    return percentiles((value for value in values if value is not None), *_RANKS)


def _call_counts(records: Sequence[Record]) -> Figures:
    failed = Counter(why(record) for record in records if record.answered_s is None)
    answered = [record for record in records if record.answered_s is not None]
    return {
        "placed": len(records),
        "answered": len(answered),
        "hung_up_by_far_end": sum(record.ended_by == "remote" for record in answered),
        "failed": dict(failed),
    }


def why(record: Record) -> str:
    """What the far end said, or what became of the INVITE where it said nothing."""
    if record.ended_by != "remote":
        return record.cause
    return f"{record.status} {REASONS.get(record.status, '')}".strip()


def _turn_counts(records: Sequence[Record]) -> Figures:
    turns = [turn for record in records for turn in record.turns]
    interruptions = [turn for turn in turns if turn.interrupts and turn.fate is not Fate.CUT_SHORT]
    fates = Counter(turn.fate for turn in turns)
    return {
        "begun": len(turns),
        **{fate.value.replace(" ", "_"): fates[fate] for fate in Fate},
        "interruptions": len(interruptions),
        "gave_way": sum(turn.stopped_s is not None for turn in interruptions),
        "echo_ms": _ranks(turn.echo_ms for turn in turns),
    }


def _packets(records: Sequence[Record]) -> Figures:
    """Of all calls: sums; jitter and round trip of each call as percentiles. `reported` is what the far end
    says of our packets (RTCP)."""
    media = [record.media for record in records if record.answered_s is not None]
    return {
        "received": sum(each.packets_received for each in media),
        "lost": sum(each.lost for each in media),
        "late": sum(each.late for each in media),
        "concealed_frames": sum(each.concealed for each in media),
        "jitter_ms": percentiles((each.jitter_ms for each in media), 50, 100),
        "sent": sum(each.packets_sent for each in media),
        "send_errors": sum(each.send_errors for each in media),
        "reported": {
            "calls": sum(each.rtt_ms is not None for each in media),
            "lost": sum(each.remote_lost for each in media),
            "jitter_ms": percentiles((each.remote_jitter_ms for each in media), 50, 100),
            "round_trip_ms": percentiles((each.rtt_ms for each in media if each.rtt_ms is not None), 50, 100),
        },
    }


def _call(record: Record) -> Figures:
    return {
        "number": record.number,
        "status": record.status,
        "cause": record.cause,
        "ended_by": record.ended_by,
        "set_up_ms": _ms(record.set_up_ms),
        "first_voice_ms": _ms(record.first_voice_ms),
        "seconds": None if record.answered_s is None else round(record.ended_s - record.answered_s, 2),
        "turns": [_turn(turn, record) for turn in record.turns],
        "packets": asdict(record.media),
    }


def _turn(turn: CallerTurn, record: Record) -> Figures:
    """`at_s`: our last packet with voice, counted from the answer."""
    return {
        "said": turn.said,
        "at_s": round(turn.ended_s - (record.answered_s or 0.0), 3) if turn.ended_s else None,
        "fate": turn.fate.value,
        "interrupts": turn.interrupts,
        "voice_to_voice_ms": _ms(turn.voice_to_voice_ms),
        "barge_in_ms": _ms(turn.barge_in_ms),
        "echo_ms": _ms(turn.echo_ms),
    }


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


# For the eye ----------------------------------------------------------------------------------------------


def table(found: Figures) -> Table:
    """The figures of time on a terminal."""
    times = Table("ms")
    for heading in ("count", "p50", "p95", "p99", "max"):
        times.add_column(heading, justify="right")
    for key, words in _TIMES.items():
        of = found[key]
        times.add_row(words, str(of["count"]), *(_shown(of[f"p{rank}"]) for rank in _RANKS))
    return times


def lines(found: Figures) -> list[str]:
    """What is counted, and how punctual this process was."""
    about = found["conditions"]
    calls, turns, packets = found["calls"], found["turns"], found["packets"]
    failed = ", ".join(f"{count} × {why}" for why, count in calls["failed"].items())
    reported, jitter = packets["reported"], packets["jitter_ms"]
    late = found["conditions"]["loop_late_ms"]
    told = "the far end reports nothing of ours (no RTCP)"
    if reported["calls"]:
        told = (
            f"of ours the far end reports {reported['lost']} of {packets['sent']} lost, jitter "
            f"{_shown(reported['jitter_ms']['p50'])} ms, round trip "
            f"{_shown(reported['round_trip_ms']['p50'])} ms"
        )
    echo = turns["echo_ms"]
    return [
        f"called   {about['target']}, {about['codec']}, {about['concurrent']} at once, {about['speech']}",
        f"calls    {calls['answered']} of {calls['placed']} answered" + (f"; {failed}" if failed else ""),
        f"turns    {turns['begun']}: {turns['answered']} answered, {turns['missed']} missed, "
        f"{turns['talked_over']} talked over, {turns['cut_short']} cut short; "
        f"{turns['gave_way']} of {turns['interruptions']} interruptions made the agent stop",
        f"packets  {packets['received']} received, {packets['lost']} lost, {packets['late']} late, jitter "
        f"{_shown(jitter['p50'])} ms, at most {_shown(jitter['p100'])}; {told}",
        *([f"echo     our own voice came back in {echo['count']} turns, {_shown(echo['p50'])} ms late"]
          if echo["count"] else []),
        f"clock    packets were noted at most {_shown(late['p100'])} ms late (p99 {_shown(late['p99'])})",
    ]  # fmt: skip


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def complaint(found: Mapping[str, Any]) -> str:
    """Why the calls measured nothing, or not all of it, in one line; "" where nothing is amiss."""
    calls, turns, target = found["calls"], found["turns"], found["conditions"]["target"]
    if not calls["placed"]:
        return "stopped before the first call"
    if calls["failed"]:
        failed = ", ".join(f"{count} × {why}" for why, count in calls["failed"].items())
        return f"{target}: {sum(calls['failed'].values())} of {calls['placed']} calls not answered: {failed}"
    return "" if turns["answered"] else f"{target}: answered, but {_unanswered(found)}"


def _unanswered(found: Mapping[str, Any]) -> str:
    """What came in the place of answers."""
    turns = found["turns"]
    if not found["packets"]["received"]:
        return "no audio came: not one packet"
    if turns["echo_ms"]["count"]:
        late = _shown(turns["echo_ms"]["p50"])
        return f"what came back is our own voice, {late} ms late: no agent speaks there"
    if not found["first_voice_ms"]["count"]:
        return "only silence came"
    if turns["begun"] == turns["cut_short"]:
        return "the call ended before a turn was over"
    return "what was said was not answered"
