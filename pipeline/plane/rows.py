"""The memory of the media plane: a row for each stream, laid out once and never moved.

Each field has one writer: what a configuration says is Python's, what was heard is the kernels'. Times are
nanoseconds of the monotonic clock, media time is samples, everything in `LINE` is int64.
"""

from __future__ import annotations

import mmap
import sys
from enum import IntEnum, IntFlag
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.audio import kernels
from pipeline.audio.dtmf import COSINES, SINES
from pipeline.audio.echo_gate import thinning_taps
from pipeline.audio.g722 import COLUMNS
from pipeline.audio.opus import DECODER_BYTES, ENCODER_BYTES
from pipeline.audio.resample import phases

_UP, _DOWN = phases(8000, 16000), phases(16000, 8000)
TAPS_8K, TAPS_16K = thinning_taps(8000), thinning_taps(16000)

FRAME_SAMPLES: Final = 320
"""Room for a frame of 20 ms at 16 kHz, the highest rate of a leg."""

PACKET_BYTES: Final = 2048
ADDRESS_BYTES: Final = 32
"""Room for a sockaddr of IPv4 (16) or IPv6 (28)."""

EVENTS: Final = 8192
ASIDE: Final = 8
"""Datagrams of one stream that Python looks at: reports on the RTP port, and what may decide where the far
end is."""

BETWEEN: Final = 256
"""Streams whose packets may leave between two ticks; those of others leave with the second."""

PORTS: Final = 64
"""Ports of one plane that many streams share: one for each address of the machine."""

OUTBOX: Final = 4
"""Packets of one stream that may be due at once."""

HELD: Final = 32
"""Packets that wait for an earlier one, at the most: a bound for a sender that bursts."""

PROBATION: Final = HELD
"""The slot of the packet after which a jump of the sequence numbers is believed."""

HEARD: Final = 64
"""Frames of the far end that are kept: `SPARE` more than any call of `receive` and `flush` makes."""

SPARE: Final = 8
"""Frames that the plane may add while Python reads those before them."""

PRESSES: Final = 64
KEYS: Final = 64
"""Digits that may wait to be sent: 13 s of them, more than any menu or card number wants."""

SAID: Final = 64
"""Frames of the agent that are kept: those that wait, and those that left and were not asked for."""

AHEAD: Final = SAID - 8
"""Frames that may wait to be said: 1.1 s, after which a Python that stands still is heard."""

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


class Note(IntFlag):
    """What the plane noticed in a frame that was heard."""

    VOICED = 1
    ACTIVE = 2
    ECHO = 4
    MASKED = 8  # the tone of a key, in which no voice is looked for
    JUDGED = 16  # it was looked at


# What Python sets, with the listener and the plan of the call.
_PLAN: Final = (
    "number", "open", "fd", "symmetric", "remote_size", "rate_hz", "samples", "listening", "receives",
    "tones", "dtmf_type", "dtmf_hz", "patience_ns", "takeover_ns",
    "latch_ns", "asides_read",
)  # fmt: skip
# What Python sets of what is sent: with the plan, the counts of what it asks for, and the counts of what was
# sent before the present source. `discontinuous`: silence is not sent; `unwanted`: the agent's frames leave
# as ever, and nobody gets them.
_SENDING: Final = (
    "sends", "send_type", "send_kind", "send_step", "send_rate_hz", "events_type", "events_step", "own_ssrc",
    "discontinuous", "unwanted", "keys_wanted", "fades", "resets", "packets_before", "octets_before",
)  # fmt: skip
# What Python asks to be told, and when (see `pipeline.plane.reception.hearing`).
_ATTENTION: Final = ("detects", "follows", "beat", "masked_until", "mark")
# What the plane hears in the frames.
_NOTICED: Final = (
    "told",
    "stirred",
    "noted",
    "keyed_until",
    "echo_played_ns",
    "echo_next_played",
    "echo_next_heard",
)
# What the plane sends.
_SENT: Final = (
    "sequence", "timestamp", "marker", "talking", "lead_ns", "due_ns", "slot", "ticked_ns", "said_ns",
    "packets_sent", "octets_sent", "send_errors", "keys_sent", "key_step", "key_timestamp", "key_as_tone",
    "fades_done", "resets_done", "resent", "departed", "departed_told",
)  # fmt: skip
# The source (RFC 3550 A.1, probation) and what it sent.
_SOURCE: Final = (
    "ssrc", "candidate", "candidate_next", "candidate_ns", "heard_ns", "packets", "octets", "bad", "strange",
    "asides",
)  # fmt: skip
# The order of packets.
_ORDER: Final = (
    "next", "restart", "held", "probation", "lost", "late", "given_up",
)  # fmt: skip
# What reports say of the source (RFC 3550 A.1, A.3, A.8). `runs` counts those of numbers; `jitter` is in
# units of `JITTER_UNIT`.
_RECEPTION: Final = (
    "clock_hz", "received", "base", "highest", "cycles", "bad_next", "runs", "jitter", "arrived_ns",
    "stamped",
)  # fmt: skip
# Frames of 20 ms on the far end's clock.
_FRAMES: Final = (
    "payload_type", "media_clock_hz", "media_rate_hz", "expected", "heard_at_ns", "position", "filled",
    "made_up", "concealed", "recovered", "frames", "resampled", "decoders",
)  # fmt: skip
_CONCEALMENT: Final = ("losses", "period", "phase")
# The event under way (RFC 4733).
_EVENT: Final = ("event", "event_start", "event_latest", "event_duration", "event_ended")
# SRTP (`pipeline.plane.srtp`): libsrtp's sessions by their addresses, 0: none; and what was not authentic.
# `handshakes`: DTLS is expected on the port.
_SECURITY: Final = (
    "encrypted", "sealer", "opener", "opener_before", "tag_bytes", "handshakes", "forged", "replayed",
)  # fmt: skip

SLOT: Final = np.dtype([(name, "i8") for name in ("size", "sequence", "timestamp", "arrived_ns")], align=True)
"""A packet that waits; `size` 0: none does."""

MEDIA: Final = np.dtype([(name, "i8") for name in ("kind", "clock_hz", "rate_hz")], align=True)
"""What one payload type is."""

HEARD_FRAME: Final = np.dtype(
    [*((name, "i8") for name in ("position", "arrived_ns", "made_up", "note")), ("level", "f8")], align=True
)
"""A frame that was heard. `note`: bits of `Note`; `level`: dBov of a voiced frame."""

SENT_FRAME: Final = np.dtype([(name, "i8") for name in ("sent_ns", "audible")], align=True)
PRESS: Final = np.dtype([(name, "i8") for name in ("key", "is_tone", "frame")], align=True)
"""A key of the far end's, before frame number `frame`: an event of RFC 4733 (0 to 15), or a tone (an index of
`pipeline.audio.dtmf.KEYS`)."""

MOST_SAMPLES: Final = 2 * PACKET_BYTES
"""Of one packet's audio: two samples of G.722 an octet."""

HISTORY: Final = 512
"""Of samples, at the start of `resampling`: more than a filter has taps."""

RESAMPLING: Final = MOST_SAMPLES + HISTORY

ECHO_HISTORY: Final = TAPS_16K.size + 2 * FRAME_SAMPLES
"""Of the far end's audio and of ours, before both are thinned: at the highest rate."""

NUMBERS: Final = (
    *_PLAN, *_SENDING, *_ATTENTION, *_NOTICED, *_SENT, *_SOURCE, *_ORDER, *_RECEPTION, *_FRAMES,
    *_CONCEALMENT, *_EVENT, *_SECURITY, "presses",
)  # fmt: skip

LINE: Final = np.dtype(
    [
        ("owner", "i8", (1,)),  # who is at the row, see `pipeline.plane.atomic`
        ("word", "i8", (1,)),  # how far the agent's frames are, see `pipeline.plane.said`
        *((name, "i8") for name in NUMBERS),
        ("gains", "f8", (2,)),  # of the last frame (the plane's), wanted (Python's)
        ("remote", "u1", (ADDRESS_BYTES,)),  # the far end's sockaddr
        ("wanted_keys", "u1", (KEYS,)),  # events of RFC 4733
        ("media", MEDIA, (PAYLOAD_TYPES,)),
        ("slots", SLOT, (HELD + 1,)),
        ("given_up_numbers", "i8", (GIVEN_UP,)),
        ("heard_frames", HEARD_FRAME, (HEARD,)),
        ("pressed", PRESS, (PRESSES,)),
        ("keys", "f4", (2 * kernels.DTMF_WINDOW - kernels.DTMF_HOP,)),
        ("keys_state", "f4", (kernels.DTMF_COLUMNS,)),
        ("alert_below", "f8"),  # dBov under which a voiced frame is told at once
        ("voice", "f4", (kernels.VAD_COLUMNS,)),  # of the voice detector
        ("voice_bands", "f4", (kernels.VAD_ROWS, kernels.VAD_BANDS)),
        ("echo", "f4", (kernels.ECHO_COLUMNS,)),  # of the echo gate
        ("echo_far", "f4", (ECHO_HISTORY,)),
        ("echo_near", "f4", (ECHO_HISTORY,)),
        ("echo_rings", "i2", (kernels.ECHO_RINGS,)),
        ("echo_sums", "f4", (2, kernels.ECHO_LAGS)),
        ("echo_weights", "f4", (2, kernels.ECHO_TAPS)),
        ("past", "f4", (3 * FRAME_SAMPLES,)),  # what a lost frame is made of
        ("tail", "f4", (FRAME_SAMPLES // 2,)),  # the repetition behind a concealed frame
        ("heard", "i2", (HEARD * FRAME_SAMPLES,)),  # frames of `samples`, one behind the other
        ("said", "i2", (SAID * FRAME_SAMPLES,)),  # frame behind frame; once it left at the gain of then
        ("sent_frames", SENT_FRAME, (SAID,)),
        ("aside_size", "i8", (ASIDE, 2)),  # of the datagram, of the address
        ("aside_from", "u1", (ASIDE, ADDRESS_BYTES)),
        ("aside", "u1", (ASIDE, PACKET_BYTES)),
        ("resampling", "f4", (RESAMPLING,)),
        ("send_resampling", "f4", (RESAMPLING,)),
        ("held_octets", "u1", (HELD + 1, PACKET_BYTES)),
        ("g722_heard", "i4", (COLUMNS,)),
        ("g722_sent", "i4", (COLUMNS,)),
        ("srtp_size", "i4", (1,)),  # of a packet that libsrtp is at
        ("srtp_copy", "u1", (PACKET_BYTES,)),
        ("opus_heard", "i8", (max(1, -(-DECODER_BYTES // 8)),)),  # states of libopus
        ("opus_sent", "i8", (max(1, -(-ENCODER_BYTES // 8)),)),
    ],
    align=True,
)
"""A stream, with all that is kept of it: a kernel is handed this one record."""

SCRATCH: Final = np.dtype(
    [
        ("cosines", "f4", COSINES.shape),
        ("sines", "f4", SINES.shape),
        ("echo_taps_8k", "f4", TAPS_8K.shape),
        ("echo_taps_16k", "f4", TAPS_16K.shape),
        ("thinned", "f4", (kernels.ECHO_THINNED + kernels.ECHO_LAGS + kernels.ECHO_COARSE,)),
        ("up", "f4", _UP.shape),  # phases of 8 to 16 kHz
        ("down", "f4", _DOWN.shape),
        ("pcm", "i2", (MOST_SAMPLES,)),
        ("resampled", "i2", (2 * MOST_SAMPLES,)),
        ("loop", "f4", (3 * FRAME_SAMPLES,)),
        ("wave", "f4", (2 * FRAME_SAMPLES,)),
    ],
    align=True,
)
"""Tables, and room that the kernels of one thread write over in every call."""


class Happened(IntEnum):
    """What an event says. Its fields: stream, this, then two values."""

    HEARD = 0  # frames and keys that were added: number of frames heard by now, keys by now
    SENT = 1  # an agent's frame left: frames taken by now, nanoseconds
    KEYED = 2  # digits sent by now
    ASIDE = 3  # slot of the datagram, nanoseconds
    DROPPED = 4  # events that did not fit, of all streams
    ON_PORT = 5  # a datagram of a shared port was put aside: the number of the port, this, how many by now


class Field(IntEnum):
    """The places of single numbers in `Shared.clock`."""

    STOP = 0
    EVENT_HEAD = 1  # the plane's
    EVENT_TAIL = 2  # Python's
    LINES = 3  # rows that may be open
    WAKE_FD = 4  # to Python
    POKE_FD = 5  # to the plane
    EPOLL_FD = 6
    TICKS = 7
    LATEST_NS = 8  # the latest tick
    DROPPED = 9
    SIZE = 10  # of the datagram in `packet`
    SENDER_LENGTH = 11  # of the address in `sender`
    BETWEEN = 12  # streams in `between`
    BETWEEN_NS = 13  # when the first packet of theirs is due
    URGENT = 14  # 1: an event of these that wait for Python is wanted at once
    PORTS = 15  # ports that many streams share
    EAGER_NS = 16  # until then what comes on these wakes the plane


SHARED: Final = np.dtype(
    [
        ("clock", "i8", (24,)),  # see `Field`
        ("ports", "i8", (PORTS,)),  # addresses of records of `pipeline.plane.port`
        ("polled", "i8", (1 + PORTS,)),  # of `struct pollfd`
        ("pair", "i8", (4,)),
        ("events", "i8", (EVENTS, 4)),
        ("outgoing", "i8", (OUTBOX,)),  # size of each packet in `outbox`
        ("between", "i8", (BETWEEN,)),  # numbers of streams with a packet that is due before the next tick
        ("ready", "u1", (64 * 16,)),
        ("sender", "u1", (ADDRESS_BYTES,)),
        ("packet", "u1", (PACKET_BYTES,)),
        ("outbox", "u1", (OUTBOX, PACKET_BYTES)),
    ],
    align=True,
)
"""Of one plane: what it tells Python, and room that its thread writes over."""


_NORESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
"""Linux counts the memory when a page becomes real: rows beyond RAM would keep the process from forking.
Python names the flag from 3.13 on; it is 0x4000 on x86-64 and ARM64 (`asm-generic/mman.h`)."""


def rows(count: int) -> npt.NDArray[Any]:
    """Memory for `count` streams. A page is real once a stream has touched it."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    memory = mmap.mmap(-1, count * LINE.itemsize, flags=flags)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, LINE)


def clear(rows: npt.NDArray[Any], number: int) -> None:
    """Gives the pages of a row that has no stream back to the system, but for those that others share. They
    are zero when they are touched again."""
    first = -(-number * LINE.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (number + 1) * LINE.itemsize // mmap.PAGESIZE * mmap.PAGESIZE
    memory: Any = rows.base
    if hasattr(mmap, "MADV_DONTNEED"):
        memory.obj.madvise(mmap.MADV_DONTNEED, first, end - first)


def scratch() -> Any:
    """A record of tables and working memory for one thread."""
    record = np.zeros(1, SCRATCH)[0]
    record["cosines"], record["sines"], record["up"], record["down"] = COSINES, SINES, _UP, _DOWN
    record["echo_taps_8k"], record["echo_taps_16k"] = TAPS_8K, TAPS_16K
    return record


def shared() -> Any:
    """A record for one plane."""
    return np.zeros(1, SHARED)[0]
