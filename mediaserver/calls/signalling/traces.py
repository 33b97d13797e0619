"""Follows the signalling and the media statistics of live calls, and writes them when a call is over.

What is kept has a bound for each telephone: messages as in `sip.transaction.traces`, `MAX_SAMPLES` of the
statistics, whose interval doubles in long calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from mediaserver.calls.journal import Journal
from mediaserver.store.store import Store
from mediaserver.telemetry.trunk_metrics import TrunkFigures
from sip.call import Call
from sip.message.redaction import redacted
from sip.states import CallState
from sip.transaction.traces import TracedMessage

LINGER_S = 2.0
"""Seconds after the end of a call until its trace is written: the answer to a BYE comes after it."""

SAMPLE_S = 5.0
MAX_SAMPLES = 120
"""Seconds between samples of the media statistics at first, and the most samples of a call."""

Ends = tuple[tuple[str, int], tuple[str, int]]


class MediaHistory:
    """Samples of a call's media counters. When there are too many, every other one goes and the interval
    doubles."""

    def __init__(self) -> None:
        self.every_s = SAMPLE_S
        self.samples: list[dict[str, Any]] = []

    def add(self, call: Call, at_ms: int) -> None:
        """Takes a sample; nothing before the first packet."""
        counted = call.stats
        stats = asdict(counted) | {"mos": counted.mos, "remote_mos": counted.remote_mos}
        if not (stats["packets_sent"] or stats["packets_received"]):
            return
        self.samples.append({"at_ms": at_ms, **{name: _rounded(value) for name, value in stats.items()}})
        if len(self.samples) > MAX_SAMPLES:
            self.samples = self.samples[::2]
            self.every_s *= 2


class _Leg:
    """One telephone of a call while it lasts, and shortly after."""

    def __init__(self, call: Call, call_id: str, over: Callable[[_Leg], None]) -> None:
        self.call_id = call_id
        self.call = call
        self.history = MediaHistory()
        self.wall_offset_s = time.time() - asyncio.get_running_loop().time()
        self._over = over
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self.history.every_s, self._sample)
        call.on_state(self._moved)
        if call.state is CallState.ENDED:
            self._moved(call, call.state, 0.0)

    def stop(self) -> None:
        """Ends the timers."""
        self._timer.cancel()

    def _sample(self) -> None:
        self.history.add(self.call, int(time.time() * 1000))
        self._timer = self._loop.call_later(self.history.every_s, self._sample)

    def _moved(self, call: Call, state: CallState, now: float) -> None:
        if state is CallState.ENDED:
            self._timer.cancel()
            self.history.add(call, int(time.time() * 1000))
            self._timer = self._loop.call_later(LINGER_S, self._over, self)


class CallTraces:
    """The traces of the calls of this node. `figures` counts every telephone among its trunk's calls."""

    def __init__(self, store: Store, journal: Journal, figures: TrunkFigures) -> None:
        self.figures = figures
        self._store = store
        self._journal = journal
        self._legs: dict[str, list[_Leg]] = {}

    def follow(self, call: Call, call_id: str) -> None:
        """Keeps the trace of `call`, a telephone of the call `call_id`, and counts it. To be called in the
        step in which the call was made."""
        self.figures.follow(call)
        if call.trace is not None:
            self._legs.setdefault(call_id, []).append(_Leg(call, call_id, self._write))

    def live(self, call_id: str) -> list[dict[str, Any]]:
        """Returns the traces of a call's telephones that are not in the store yet."""
        return [self._document(leg) for leg in self._legs.get(call_id, ())]

    def flush(self) -> None:
        """Hands everything to the journal, because the node stops."""
        for legs in list(self._legs.values()):
            for leg in list(legs):
                self._write(leg)

    def _write(self, leg: _Leg) -> None:
        """Hands the trace of `leg` to the journal; `live` returns the trace until it is written."""
        leg.stop()
        store, call_id, sip_call_id = self._store, leg.call_id, leg.call.sip_call_id

        def write() -> Awaitable[object]:  # the document is made now: of calls that end together in turn
            return store.keep_trace(call_id, sip_call_id, self._document(leg))

        if not self._journal.note(call_id, "trace", write, done=lambda: self._forget(leg)):
            self._forget(leg)

    def _forget(self, leg: _Leg) -> None:
        legs = self._legs.get(leg.call_id, [])
        if leg in legs:
            legs.remove(leg)
        if not legs:
            self._legs.pop(leg.call_id, None)

    def _document(self, leg: _Leg) -> dict[str, Any]:
        call, trace = leg.call, leg.call.trace
        assert trace is not None
        seen: set[tuple[bool, bytes]] = set()
        messages = []
        for message in trace:
            key = message.sent, message.data
            ends = trace.ends_of(message.hop)
            messages.append(_message(message, leg.wall_offset_s, ends=ends, repeated=key in seen))
            seen.add(key)
        return {
            "sip_call_id": call.sip_call_id,
            "direction": call.direction.value,
            "trunk_id": call.trunk_id,
            "remote_number": call.remote_number,
            "left_out": trace.left_out,
            "messages": messages,
            "media": list(leg.history.samples),
        }


def _message(message: TracedMessage, wall_offset_s: float, *, ends: Ends, repeated: bool) -> dict[str, Any]:
    local, remote = ends
    return {
        "at_us": round((message.at + wall_offset_s) * 1_000_000),
        "sent": message.sent,
        "transport": message.hop.transport,
        "local": list(local),
        "remote": list(remote),
        "repeated": repeated,
        "text": redacted(message.data).decode("utf-8", "replace"),
    }


def _rounded(value: float | None) -> float | None:
    return round(value, 3) if isinstance(value, float) else value
