"""The far end's keys as RTP events (RFC 4733): a digit counts once, at the first packet that arrives of it.

Packets of one event share its timestamp. Two kinds of packet carry another timestamp and are still no new
key: the segments of an event longer than 65535 units (2.5.1.3), and those of senders that wrongly stamp every
packet anew, which are told from a key pressed twice by following within 60 ms.
"""

from __future__ import annotations

from typing import Any, Final

from pipeline.audio.compiled import compiled
from pipeline.plane.native import BOOL, I64, LINE, U8, VOID

_DIGITS: Final = 16
_END: Final = 0x80
_SEGMENT: Final = 0xFFFF  # the longest duration; a longer event goes on with a new timestamp
_RESTAMPED_MS: Final = 60
_STRAGGLER_S: Final = 10  # further back is another clock, not an old packet


@compiled(VOID(LINE))
def forget_event(line: Any) -> None:
    """Another source: its timestamps begin anew."""
    line.event = -1
    line.event_start = line.event_latest = line.event_duration = line.event_ended = 0


@compiled(BOOL(LINE, I64, I64, I64, I64), inner=True)
def _goes_on(line: Any, event: int, timestamp: int, duration: int, ended: int) -> bool:
    """Whether a packet with a later timestamp belongs to the event under way."""
    if event != line.event or (line.event_ended and not ended):
        return False
    since = (timestamp - line.event_latest + 0x80000000 & 0xFFFFFFFF) - 0x80000000
    slack = line.dtmf_hz * _RESTAMPED_MS // 1000
    if not line.event_ended and abs(since - _SEGMENT) <= slack:
        return True
    return bool(since <= slack and duration >= line.event_duration)


@compiled(I64(LINE, U8, I64), inner=True)
def key_of(line: Any, payload: Any, timestamp: int) -> int:
    """The event (0 to 15) where this is the first packet of it, else -1. `payload`: 4 octets or more."""
    event, ended = I64(payload[0]), I64(payload[1]) & _END
    duration = I64(payload[2]) << 8 | I64(payload[3])
    if event >= _DIGITS:
        return -1  # flash hook, modem tones, line signals
    is_new = True
    if line.event >= 0:
        since = (timestamp - line.event_start + 0x80000000 & 0xFFFFFFFF) - 0x80000000
        if -_STRAGGLER_S * line.dtmf_hz < since < 0:
            return -1  # a straggler of an event before this one
        is_new = since != 0 and not _goes_on(line, event, timestamp, duration, ended)
    line.event_ended = ended if is_new else line.event_ended | ended
    line.event, line.event_start = event, timestamp
    line.event_latest, line.event_duration = timestamp, duration
    return event if is_new else -1
