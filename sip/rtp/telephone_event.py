"""DTMF as RTP events (RFC 4733), sent and received, without a socket or a clock.

Sent: an event lasts `TONE_MS`; its duration grows in packets 20 ms apart that share one timestamp, and the
last is sent three times with the end bit (2.5.1.4). Received: a digit counts once, at the first packet that
arrives, whichever that is, since an end packet may be lost."""

from __future__ import annotations

import struct
from typing import Final

from pipeline.audio import FRAME_MS
from sip.rtp.packet import timestamp_delta

DIGITS: Final = "0123456789*#ABCD"
"""The digit of event 0, 1, ... 15 (RFC 4733 table 7)."""

TONE_MS: Final = 100
PAUSE_MS: Final = 100
"""Q.24 asks receivers to accept 40 ms and 40 ms; gateways that turn events into tones need about twice
that."""

END_PACKETS: Final = 3
_EVENT: Final = struct.Struct("!BBH")
_END: Final = 0x80
_VOLUME_DBM0: Final = 10  # -10 dBm0 per event, within Q.23's levels
_SEGMENT: Final = 0xFFFF  # the longest duration; a longer event continues with a new timestamp (2.5.1.3)
_RESTAMPED_MS: Final = 60
_STRAGGLER_S: Final = 10  # further back is a restarted clock, not an old packet


def check_digits(digits: str) -> None:
    """Raises ValueError for characters other than 0-9, *, # and A-D, and for no digits."""
    wrong = sorted(set(digits) - set(DIGITS))
    if wrong or not digits:
        raise ValueError(f"not DTMF digits: {''.join(wrong)!r}" if wrong else "no DTMF digits")


def event_payloads(digit: str, clock_rate_hz: int) -> list[bytes]:
    """Returns the payloads of one digit, to be sent 20 ms apart with one timestamp, the first with the marker
    bit."""
    event = DIGITS.index(digit)
    step = clock_rate_hz * FRAME_MS // 1000
    updates = TONE_MS // FRAME_MS
    growing = [_EVENT.pack(event, _VOLUME_DBM0, step * count) for count in range(1, updates)]
    last = _EVENT.pack(event, _END | _VOLUME_DBM0, step * updates)
    return growing + [last] * END_PACKETS


class EventReceiver:
    """Receives the DTMF events of the far end.

    Packets of one event share its timestamp. Two kinds of packet carry another timestamp and are still no new
    digit: the segments of an event longer than 65535 units (2.5.1.3), and those of senders that wrongly stamp
    every packet anew, which follow within 60 ms and so differ from a key pressed twice."""

    __slots__ = ("_clock_rate_hz", "_duration", "_ended", "_event", "_latest", "_start")

    def __init__(self, clock_rate_hz: int) -> None:
        self._clock_rate_hz = clock_rate_hz
        self.reset()

    def reset(self) -> None:
        """Forgets the current event (the timestamps of a new SSRC are unrelated)."""
        self._event = -1
        self._start = 0
        self._latest = 0
        self._duration = 0
        self._ended = False

    def push(self, payload: bytes | memoryview, timestamp: int) -> str | None:
        """Returns the digit at the first packet of its event, else None. `payload` has 4 bytes or more."""
        event, flags, duration = _EVENT.unpack_from(payload)
        ended = bool(flags & _END)
        if event >= len(DIGITS):
            return None  # flash hook, modem tones, line signals
        if self._event >= 0:
            since_start = timestamp_delta(timestamp, self._start)
            if -_STRAGGLER_S * self._clock_rate_hz < since_start < 0:
                return None  # a late packet of an earlier event
            if since_start == 0 or self._goes_on(event, timestamp, duration, ended=ended):
                self._start = timestamp
                self._follow(timestamp, duration, ended=self._ended or ended)
                return None
        self._event = event
        self._start = timestamp
        self._follow(timestamp, duration, ended=ended)
        return DIGITS[event]

    def _follow(self, timestamp: int, duration: int, *, ended: bool) -> None:
        self._latest = timestamp
        self._duration = duration
        self._ended = ended

    def _goes_on(self, event: int, timestamp: int, duration: int, *, ended: bool) -> bool:
        """Whether a packet with a later timestamp belongs to the current event."""
        if event != self._event or (self._ended and not ended):
            return False
        since = timestamp_delta(timestamp, self._latest)
        slack = self._clock_rate_hz * _RESTAMPED_MS // 1000
        if not self._ended and abs(since - _SEGMENT) <= slack:
            return True
        return since <= slack and duration >= self._duration
