"""What Python writes into a row: a new stream, and what the far end may send from now on."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.audio import FRAME_MS, frame_samples
from pipeline.plane.codecs import begin_encoder
from pipeline.plane.reception.frames import forget_tone
from pipeline.plane.reception.order import forget_order
from pipeline.plane.reception.telephone_event import forget_event
from pipeline.plane.rows import NUMBERS, Kind


@dataclass(frozen=True, slots=True)
class PayloadFormat:
    """What one RTP payload type carries. `clock_hz` is what timestamps count, `rate_hz` what its PCM runs
    at."""

    kind: Kind
    clock_hz: int
    rate_hz: int


def prepare(line: Any, number: int, *, rate_hz: int, patience_ms: int) -> None:
    """Makes `line` the row of a stream with frames at `rate_hz`, of which nothing was heard yet. A gap holds
    up what is behind it for `patience_ms`. Who is at the row stays as it is."""
    for name in ("word", *NUMBERS, "media", "past", "tail"):
        line[name] = 0
    line["number"], line["gains"] = number, 1.0
    line["rate_hz"], line["samples"] = rate_hz, frame_samples(rate_hz)
    line["patience_ns"] = patience_ms * 1_000_000
    for name in (
        "dtmf_type",
        "events_type",
        "ssrc",
        "candidate",
        "candidate_next",
        "payload_type",
        "expected",
    ):
        line[name] = -1
    line["dtmf_hz"] = 8000
    forget_order(line)
    forget_event(line)
    forget_tone(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiving:
    """What a far end may send: formats by payload type, and the type and clock of RTP events (-1: none).
    `receives` False: it is counted and dropped."""

    formats: Mapping[int, PayloadFormat]
    events_type: int
    events_hz: int
    receives: bool


def configure(line: Any, receiving: Receiving) -> None:
    """What the far end may send from now on."""
    line["media"] = 0
    kept = 0
    for payload_type, each in receiving.formats.items():
        kept |= 1 << each.kind
        line["media"][payload_type] = (each.kind, each.clock_hz, each.rate_hz)
    line["payload_type"] = -1
    line["decoders"] &= kept
    line["dtmf_type"], line["dtmf_hz"] = receiving.events_type, receiving.events_hz
    forget_event(line)
    if receiving.receives and not line["receives"]:
        forget_order(line)  # what came while nobody listened is not lost
    line["receives"] = receiving.receives


def detect_tones(line: Any, *, wanted: bool) -> None:
    """Whether keys are looked for in the audio."""
    if wanted and not line["tones"]:
        forget_tone(line)
    line["tones"] = wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What a stream sends: the payload type and format of audio, and of RTP events (-1: keys are tones).
    `discontinuous`: nothing of silence."""

    payload_type: int
    format: PayloadFormat
    events_type: int
    events_hz: int
    sends: bool
    discontinuous: bool = False


def begin_sending(line: Any, fd: int, *, first_due_ns: int) -> None:
    """A stream over `fd` whose packets are due from `first_due_ns` on, and then each 20 ms."""
    line["fd"], line["due_ns"], line["open"] = fd, first_due_ns, True
    line["sequence"] = secrets.randbits(15)  # one that wraps soon upsets SRTP's roll-over counter
    begin_source(line, secrets.randbits(32))


def begin_source(line: Any, ssrc: int) -> None:
    """What is sent from now on is of the source `ssrc`."""
    line["own_ssrc"], line["timestamp"], line["marker"] = ssrc, secrets.randbits(32), 1
    line["packets_before"], line["octets_before"] = line["packets_sent"], line["octets_sent"]


def configure_sending(line: Any, sending: Sending) -> None:
    """What is sent from now on. A codec with another RTP clock is a new source: timestamps of two clocks in
    one SSRC cannot be told apart by a receiver (RFC 7160)."""
    step = sending.format.clock_hz * FRAME_MS // 1000
    if line["send_step"] not in (0, step):
        begin_source(line, secrets.randbits(32))
    if sending.sends and not line["sends"]:
        line["marker"] = 1
    if sending.format.kind != line["send_kind"]:
        begin_encoder(line, sending.format.kind, sending.format.rate_hz)
    line["send_type"], line["send_kind"] = sending.payload_type, sending.format.kind
    line["send_step"], line["send_rate_hz"] = step, sending.format.rate_hz
    line["events_type"], line["events_step"] = sending.events_type, sending.events_hz * FRAME_MS // 1000
    line["sends"], line["discontinuous"] = sending.sends, sending.discontinuous


def timestamp_at(line: Any, now: float) -> int:
    """What the RTP clock says at `now`, for sender reports."""
    step = int(line["send_step"])
    since = round((now - int(line["ticked_ns"]) / 1e9) * step * 1000 / FRAME_MS) - step
    return (int(line["timestamp"]) + since) & 0xFFFFFFFF


def snapshot(line: Any) -> dict[str, int]:
    """The numbers of a row whose stream has ended, for those who ask later."""
    return {name: int(line[name]) for name in NUMBERS}
