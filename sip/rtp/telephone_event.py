"""DTMF digits, and the payloads of RTP events (RFC 4733) as a telephone sends them; the media plane sends and
reads its own.

An event lasts `TONE_MS`; its duration grows in packets 20 ms apart that share one timestamp, and the last is
sent three times with the end bit (2.5.1.4)."""

from __future__ import annotations

import struct
from typing import Final

from pipeline.audio import FRAME_MS

DIGITS: Final = "0123456789*#ABCD"
"""The digit of event 0, 1, ... 15 (RFC 4733 table 7)."""

TONE_MS: Final = 100
END_PACKETS: Final = 3
_EVENT: Final = struct.Struct("!BBH")
_END: Final = 0x80
_VOLUME_DBM0: Final = 10  # -10 dBm0 per event, within Q.23's levels


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
