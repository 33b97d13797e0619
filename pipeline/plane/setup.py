"""What Python writes into a row: a new stream, and what the far end may send from now on."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.audio import FRAME_MS, frame_samples
from pipeline.plane.frames import forget_tone
from pipeline.plane.order import forget_order
from pipeline.plane.rows import Kind, Rows
from pipeline.plane.telephone_event import forget_event


@dataclass(frozen=True, slots=True)
class PayloadFormat:
    """What one RTP payload type carries. `clock_hz` is what timestamps count, `rate_hz` what its PCM runs
    at."""

    kind: Kind
    clock_hz: int
    rate_hz: int


def prepare(rows: Rows, number: int, *, rate_hz: int, patience_ms: int) -> None:
    """Makes row `number` one of a stream with frames at `rate_hz`, of which nothing was heard yet. A gap
    holds up what is behind it for `patience_ms`."""
    line = rows.line[number]
    for name in line.dtype.names:
        line[name] = 0
    line["rate_hz"], line["samples"] = rate_hz, frame_samples(rate_hz)
    line["patience_ns"] = patience_ms * 1_000_000
    for name in ("dtmf_type", "ssrc", "candidate", "candidate_next", "payload_type", "expected"):
        line[name] = -1
    line["dtmf_hz"] = 8000
    for each in (rows.media, rows.past, rows.tail, rows.resampling):
        each[number] = 0
    forget_order(rows, number)
    forget_event(rows, number)
    forget_tone(rows, number)


def configure(
    rows: Rows, number: int, formats: Mapping[int, PayloadFormat], *, dtmf_type: int, dtmf_hz: int, receives: bool
) -> None:
    """What the far end may send from now on, by payload type; -1 for `dtmf_type`: no events."""
    line = rows.line[number]
    rows.media[number] = 0
    for payload_type, each in formats.items():
        rows.media[number, payload_type] = (each.kind, each.clock_hz, each.rate_hz)
    line["payload_type"] = -1
    line["dtmf_type"], line["dtmf_hz"] = dtmf_type, dtmf_hz
    forget_event(rows, number)
    if receives and not line["receives"]:
        forget_order(rows, number)  # what came while nobody listened is not lost
    line["receives"] = receives


def detect_tones(rows: Rows, number: int, *, wanted: bool) -> None:
    """Whether keys are looked for in the audio."""
    if wanted and not rows.line[number]["tones"]:
        forget_tone(rows, number)
    rows.line[number]["tones"] = wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What a stream sends: the payload type and format of audio, and of RTP events (-1: keys are tones)."""

    payload_type: int
    format: PayloadFormat
    events_type: int
    events_hz: int
    sends: bool


def begin_sending(rows: Rows, number: int, fd: int, *, first_due_ns: int) -> None:
    """A stream over `fd` whose packets are due from `first_due_ns` on, and then each 20 ms."""
    line = rows.line[number]
    line["fd"], line["due_ns"], line["open"] = fd, first_due_ns, True
    line["sequence"] = secrets.randbits(16)
    rows.words[number] = 0
    rows.gains[number] = 1.0
    rows.send_resampling[number] = 0
    _new_source(line)


def _new_source(line: Any) -> None:
    line["own_ssrc"], line["timestamp"], line["marker"] = secrets.randbits(32), secrets.randbits(32), 1


def configure_sending(line: Any, sending: Sending) -> None:
    """What is sent from now on. A codec with another RTP clock is a new source: timestamps of two clocks in
    one SSRC cannot be told apart by a receiver (RFC 7160)."""
    step = sending.format.clock_hz * FRAME_MS // 1000
    if line["send_step"] not in (0, step):
        _new_source(line)
    if sending.sends and not line["sends"]:
        line["marker"] = 1
    line["send_type"], line["send_kind"] = sending.payload_type, sending.format.kind
    line["send_step"], line["send_rate_hz"] = step, sending.format.rate_hz
    line["events_type"], line["events_step"] = sending.events_type, sending.events_hz * FRAME_MS // 1000
    line["sends"] = sending.sends


def timestamp_at(line: Any, now: float) -> int:
    """What the RTP clock says at `now`, for sender reports."""
    step = int(line["send_step"])
    since = round((now - int(line["ticked_ns"]) / 1e9) * step * 1000 / FRAME_MS) - step
    return (int(line["timestamp"]) + since) & 0xFFFFFFFF
