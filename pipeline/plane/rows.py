"""The memory of the media plane: a row for each stream, laid out once and never moved.

Each field has one writer: what a configuration says is Python's, what was heard is the kernels'. Times are
nanoseconds of the monotonic clock, media time is samples, everything in `LINE` is int64.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.audio import kernels

FRAME_SAMPLES: Final = 320
"""Room for a frame of 20 ms at 16 kHz, the highest rate of a leg."""

PACKET_BYTES: Final = 2048
ADDRESS_BYTES: Final = 32
"""Room for a sockaddr of IPv4 (16) or IPv6 (28)."""

EVENTS: Final = 8192
ASIDE: Final = 64
"""Datagrams that Python looks at: reports on the RTP port, and what may decide where the far end is."""

OUTBOX: Final = 256
HELD: Final = 32
"""Packets that wait for an earlier one, at the most: a bound for a sender that bursts."""

PROBATION: Final = HELD
"""The slot of the packet after which a jump of the sequence numbers is believed."""

HEARD: Final = 64
"""Frames of the far end that are kept: more than any call of `receive` and `flush` makes."""

PRESSES: Final = 64
SENT: Final = 64
KEYS: Final = 64
"""Digits that may wait to be sent: 13 s of them, more than any menu or card number wants."""

SAID: Final = 160
AHEAD: Final = SAID - 8
"""Frames that may wait to be said: 3 s, after which a Python that stands still is heard."""

PAYLOAD_TYPES: Final = 128
GIVEN_UP: Final = 100
"""Numbers that are remembered as given up (MAX_MISORDER of RFC 3550 A.1)."""


class Kind(IntEnum):
    """What a payload type carries."""

    UNKNOWN = 0
    NOT_AUDIO = 1
    PCMU = 2
    PCMA = 3
    G722 = 4
    OPUS = 5


# What Python sets, with the listener and the plan of the call.
_PLAN: Final = (
    "open", "fd", "symmetric", "latched", "remote_size", "rate_hz", "samples", "listening", "receives", "tones", "dtmf_type", "dtmf_hz", "patience_ns", "takeover_ns",
)  # fmt: skip
# What Python sets of what is sent: with the plan, and the counts of what it asks for.
_SENDING: Final = (
    "sends", "send_type", "send_kind", "send_step", "send_rate_hz", "events_type", "events_step", "own_ssrc",
    "keys_wanted", "fades", "resets",
)  # fmt: skip
# What the plane sends.
_SENT: Final = (
    "sequence", "timestamp", "marker", "talking", "calm", "lead", "due_ns", "slot", "ticked_ns", "said_ns",
    "packets_sent", "octets_sent", "send_errors", "keys_sent", "key_step", "key_timestamp", "key_as_tone",
    "fades_done", "resets_done", "resent",
)  # fmt: skip
# The source (RFC 3550 A.1, probation) and what it sent.
_SOURCE: Final = (
    "ssrc", "candidate", "candidate_next", "candidate_ns", "heard_ns", "packets", "octets", "bad", "strange",
)  # fmt: skip
# The order of packets.
_ORDER: Final = (
    "next", "restart", "held", "probation", "lost", "late", "given_up",
)  # fmt: skip
# What reports say of the source (RFC 3550 A.1, A.3, A.8). `jitter` is in 1/16 units of the RTP clock.
_RECEPTION: Final = (
    "clock_hz", "received", "base", "highest", "cycles", "bad_next", "jitter", "arrived_ns", "stamped",
)  # fmt: skip
# Frames of 20 ms on the far end's clock.
_FRAMES: Final = (
    "payload_type", "media_clock_hz", "media_rate_hz", "expected", "heard_at_ns", "position", "filled", "made_up",
    "concealed", "frames", "resampled",
)  # fmt: skip
_CONCEALMENT: Final = ("losses", "period", "phase")
# The event under way (RFC 4733).
_EVENT: Final = ("event", "event_start", "event_latest", "event_duration", "event_ended")

LINE: Final = np.dtype(
    [(name, "i8") for name in (*_PLAN, *_SENDING, *_SENT, *_SOURCE, *_ORDER, *_RECEPTION, *_FRAMES, *_CONCEALMENT, *_EVENT, "presses")],
    align=True,
)  # fmt: skip
SLOT: Final = np.dtype([(name, "i8") for name in ("size", "sequence", "timestamp", "arrived_ns")], align=True)
"""A packet that waits; `size` 0: none does."""

MEDIA: Final = np.dtype([(name, "i8") for name in ("kind", "clock_hz", "rate_hz")], align=True)
"""What one payload type is."""

HEARD_FRAME: Final = np.dtype([(name, "i8") for name in ("position", "arrived_ns", "made_up")], align=True)
PRESS: Final = np.dtype([(name, "i8") for name in ("key", "is_tone", "frame")], align=True)
"""A key of the far end's, before frame number `frame`: an event of RFC 4733 (0 to 15), or a tone (an index of
`pipeline.audio.dtmf.KEYS`)."""


class Rows(NamedTuple):
    """The streams of one plane; the first axis of each array is the stream's number."""

    line: npt.NDArray[Any]
    media: npt.NDArray[Any]  # (n, PAYLOAD_TYPES)
    slots: npt.NDArray[Any]  # (n, HELD + 1)
    held: npt.NDArray[np.uint8]  # (n, HELD + 1, PACKET_BYTES)
    given_up: npt.NDArray[np.int64]  # (n, GIVEN_UP)
    heard: npt.NDArray[np.int16]  # (n, HEARD, FRAME_SAMPLES); a frame is its first `samples`
    frames: npt.NDArray[Any]  # (n, HEARD)
    presses: npt.NDArray[Any]  # (n, PRESSES)
    past: npt.NDArray[np.float32]  # (n, 3 * FRAME_SAMPLES): what a lost frame is made of
    tail: npt.NDArray[np.float32]  # (n, FRAME_SAMPLES // 2): the repetition behind a concealed frame
    keys: npt.NDArray[np.float32]
    keys_state: npt.NDArray[np.float32]
    resampling: npt.NDArray[np.float32]  # (n, RESAMPLING)
    words: npt.NDArray[np.int64]  # (n,): see `pipeline.plane.said`
    said: npt.NDArray[np.int16]  # (n, SAID, FRAME_SAMPLES): what is to be said
    sent: npt.NDArray[np.int16]  # (n, SENT, FRAME_SAMPLES): what left, at the gain at which it left
    gains: npt.NDArray[np.float64]  # (n, 2): of the last frame (the plane's), wanted (Python's)
    wanted_keys: npt.NDArray[np.uint8]  # (n, KEYS): events of RFC 4733
    send_resampling: npt.NDArray[np.float32]  # (n, RESAMPLING)
    owner: npt.NDArray[np.int64]  # (n,): who is at the row, see `pipeline.plane.atomic`
    remote: npt.NDArray[np.uint8]  # (n, ADDRESS_BYTES): the far end's sockaddr


class Scratch(NamedTuple):
    """Tables, and room that the kernels write over in every call."""

    cosines: npt.NDArray[np.float32]
    sines: npt.NDArray[np.float32]
    up: npt.NDArray[np.float32]  # phases of 8 to 16 kHz
    down: npt.NDArray[np.float32]
    pcm: npt.NDArray[np.int16]
    resampled: npt.NDArray[np.int16]
    loop: npt.NDArray[np.float32]
    wave: npt.NDArray[np.float32]


class Happened(IntEnum):
    """What an event says. Its fields: stream, this, then two values."""

    HEARD = 0  # frames and keys that were added: number of frames heard by now, keys by now
    SENT = 1  # an agent's frame left: frames taken by now, nanoseconds
    KEYED = 2  # digits sent by now
    ASIDE = 3  # slot of the datagram, nanoseconds
    DROPPED = 4  # events that did not fit, of all streams


class Field(IntEnum):
    """Of `Shared.clock`."""

    STOP = 0
    EVENT_HEAD = 1  # the plane's
    EVENT_TAIL = 2  # Python's
    ASIDE_HEAD = 3
    ASIDE_TAIL = 4
    LINES = 5  # rows that may be open
    WAKE_FD = 6  # to Python
    POKE_FD = 7  # to the plane
    EPOLL_FD = 8
    TICKS = 9
    LATEST_NS = 10  # the latest tick
    DROPPED = 11


class Shared(NamedTuple):
    """Of one plane: what it tells Python, and room that its thread writes over."""

    clock: npt.NDArray[np.int64]
    events: npt.NDArray[np.int64]  # (EVENTS, 4)
    aside: npt.NDArray[np.uint8]  # (ASIDE, PACKET_BYTES)
    aside_from: npt.NDArray[np.uint8]  # (ASIDE, ADDRESS_BYTES)
    aside_size: npt.NDArray[np.int64]  # (ASIDE, 2): of the datagram, of the address
    packet: npt.NDArray[np.uint8]
    sender: npt.NDArray[np.uint8]
    pair: npt.NDArray[np.int64]
    ready: npt.NDArray[np.uint8]
    outbox: npt.NDArray[np.uint8]  # (OUTBOX, PACKET_BYTES)
    outgoing: npt.NDArray[np.int64]  # (OUTBOX, 2): stream, size


def shared() -> Shared:
    """Memory for one plane."""
    return Shared(
        np.zeros(16, np.int64),
        np.zeros((EVENTS, 4), np.int64),
        np.zeros((ASIDE, PACKET_BYTES), np.uint8),
        np.zeros((ASIDE, ADDRESS_BYTES), np.uint8),
        np.zeros((ASIDE, 2), np.int64),
        np.zeros(PACKET_BYTES, np.uint8),
        np.zeros(ADDRESS_BYTES, np.uint8),
        np.zeros(4, np.int64),
        np.zeros(64 * 16, np.uint8),
        np.zeros((OUTBOX, PACKET_BYTES), np.uint8),
        np.zeros((OUTBOX, 2), np.int64),
    )


MOST_SAMPLES: Final = 2 * PACKET_BYTES
"""Of one packet's audio: two samples of G.722 an octet."""

RESAMPLING: Final = MOST_SAMPLES + 512


def rows(count: int) -> Rows:
    """Memory for `count` streams, of which a page is real once a stream has touched it."""

    def floats(*shape: int) -> npt.NDArray[np.float32]:
        return np.zeros((count, *shape), np.float32)

    return Rows(
        np.zeros(count, LINE),
        np.zeros((count, PAYLOAD_TYPES), MEDIA),
        np.zeros((count, HELD + 1), SLOT),
        np.zeros((count, HELD + 1, PACKET_BYTES), np.uint8),
        np.zeros((count, GIVEN_UP), np.int64),
        np.zeros((count, HEARD, FRAME_SAMPLES), np.int16),
        np.zeros((count, HEARD), HEARD_FRAME),
        np.zeros((count, PRESSES), PRESS),
        floats(3 * FRAME_SAMPLES),
        floats(FRAME_SAMPLES // 2),
        floats(2 * kernels.DTMF_WINDOW - kernels.DTMF_HOP),
        floats(kernels.DTMF_COLUMNS),
        floats(RESAMPLING),
        np.zeros(count, np.int64),
        np.zeros((count, SAID, FRAME_SAMPLES), np.int16),
        np.zeros((count, SENT, FRAME_SAMPLES), np.int16),
        np.ones((count, 2), np.float64),
        np.zeros((count, KEYS), np.uint8),
        floats(RESAMPLING),
        np.zeros(count, np.int64),
        np.zeros((count, ADDRESS_BYTES), np.uint8),
    )
