"""The caller's media: one RTP stream in each direction, and the script of the caller's turns.

Everything is counted in frames of 20 ms. Times are nanoseconds of the system clock; those of received packets
are the kernel's (SO_TIMESTAMPNS), so that a busy generator does not make the server look late."""

from __future__ import annotations

import random
import socket
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache
from typing import Final

import numpy as np

from bench.call.impaired_line import ImpairedLine
from bench.call.protected import Keys

FRAME_NS: Final = 20_000_000
SO_TIMESTAMPNS: Final = 35

TALK_FRAMES: Final = 60
BARGE_IN_FRAMES: Final = 12
"""The server's barge_in_ms of 240: the barge-in is due with the twelfth voiced frame."""

BARGE_IN_AFTER_NS: Final = 500_000_000
"""Nanoseconds of an answer that the caller hears before the caller interrupts it."""

WAIT_S: Final = 4.0
"""Seconds after which an answer counts as missed."""

_HEADER: Final = struct.Struct("!BBHII")
_STAMP: Final = struct.Struct("qq")
_SEQUENCE: Final = struct.Struct("!H")
_MULAW_SILENCE: Final = b"\xff" * 160


PAUSE_MS: Final = (300, 900)
PEOPLE_PAUSE_MS: Final = (1000, 2500)
"""Pause before a caller's next turn, in milliseconds; a voice pauses less between sentences."""


class Mode(Enum):
    """Whether the caller follows the script, does so on an impaired line (`bench.call.impaired_line`), never
    stops, plays recordings (`bench.call.people`), or follows the script over SRTP
    (`bench.call.protected`)."""

    SCRIPT = "script"
    IMPAIRED = "impaired"
    ALWAYS = "always"
    PEOPLE = "people"
    PROTECTED = "protected"


class Floor(Enum):
    """State of the caller's turn-taking."""

    LISTENING = auto()
    TALKING = auto()
    WAITING = auto()
    HEARING_OUT = auto()  # hears an answer that it will interrupt


@dataclass(slots=True)
class Heard:
    """The measurements of a call, in nanoseconds. `turns`: last voiced packet sent, first loud one received,
    1 if the turn began as an interruption; `barge_ins`: barge-in due, last loud packet received."""

    turns: list[tuple[int, int, int]] = field(default_factory=list)
    barge_ins: list[tuple[int, int]] = field(default_factory=list)
    missed: int = 0
    sent: int = 0
    late_sends_ns: array[int] = field(default_factory=lambda: array("q"))
    arrivals_ns: array[int] = field(default_factory=lambda: array("q"))
    sequences: array[int] = field(default_factory=lambda: array("H"))


@cache
def speech() -> list[bytes]:
    """Returns 1.2 s of a signal that an energy detector takes for speech: harmonics of 140 Hz in syllables of
    160 ms with pauses of 40. The first syllable lasts 320 ms; the last one fades in the 10 ms before the end
    of its last frame, because a wave cut off would ring on in a detector's filters."""
    time_s = np.arange(TALK_FRAMES * 160) / 8000
    voice = sum(np.sin(2 * np.pi * 140 * n * time_s) / n for n in range(1, 20))
    voice *= 9000 / np.abs(voice).max()
    voice[-80:] *= np.cos(np.linspace(0, np.pi / 2, 80)) ** 2
    frames = [mulaw(frame.astype(np.int16)) for frame in voice.reshape(TALK_FRAMES, 160)]
    for number in range(16, TALK_FRAMES - 4):
        if number % 10 in (6, 7):
            frames[number] = _MULAW_SILENCE
    return frames


def stamp_ns(control: bytes) -> int:
    """Returns when the kernel received a datagram, in nanoseconds, from its SO_TIMESTAMPNS control
    message."""
    seconds, nanoseconds = _STAMP.unpack_from(control)
    return int(seconds * 1_000_000_000 + nanoseconds)


def mulaw(pcm: np.ndarray[tuple[int], np.dtype[np.int16]]) -> bytes:
    """Encodes G.711 µ-law by its definition (ITU-T G.711, table 2a), independently of the server's
    kernels."""
    magnitude = np.minimum(np.abs(pcm.astype(np.int32)), 32635) + 132
    exponent = np.floor(np.log2(magnitude)).astype(np.int32) - 7
    mantissa = (magnitude >> (exponent + 3)) & 15
    sign = np.where(pcm < 0, 128, 0)
    return bytes((~(sign | exponent << 4 | mantissa) & 0xFF).astype(np.uint8))


class Caller:
    """The RTP of one caller. `tick` sends the packet that is due, `readable` takes a received one. `sayings`:
    the caller's utterances in frames, one per turn."""

    def __init__(
        self,
        host: str,
        mode: Mode,
        *,
        seed: int,
        sayings: Sequence[Sequence[bytes]] = (),
        patience_s: float = WAIT_S,
    ) -> None:
        self.heard = Heard()
        self.recording = False
        """Whether packets and turns are counted now."""
        self.socket = socket.socket(type=socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
        self.socket.setblocking(False)
        self.socket.bind((host, 0))
        self.due_ns = 0
        self._regular_ns = 0  # when the packet is due without jitter
        self._rng = random.Random(seed)
        self.keys = Keys() if mode is Mode.PROTECTED else None
        self._line = ImpairedLine(random.Random(seed + 1)) if mode is Mode.IMPAIRED else None
        self._mode = mode
        self._patience_ns = round(patience_s * 1e9)
        self._sayings = sayings or (speech(),)
        self._speech = self._sayings[0]
        self._floor = Floor.LISTENING
        self._frame = 0
        self._turns = 0
        self._interrupts = False
        self._pause_ns = self._next_pause()
        self._voiced_ns = self._decision_ns = self._first_loud_ns = self._last_loud_ns = 0
        self._sequence = self._rng.getrandbits(15)
        self._timestamp = self._rng.getrandbits(32)
        self._ssrc = self._rng.getrandbits(32)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the caller's RTP socket."""
        host, port = self.socket.getsockname()
        return str(host), int(port)

    def begin(self, media: tuple[str, int], now_ns: int) -> None:
        """Starts the media of an answered call; `media` is the server's address. The first packet is due
        within 20 ms, at a random time per call."""
        self.socket.connect(media)
        self.due_ns = self._regular_ns = now_ns + self._rng.randrange(FRAME_NS)

    def tick(self, now_ns: int) -> None:
        """Sends the packet that is due now."""
        talking = self._floor is Floor.TALKING or self._mode is Mode.ALWAYS
        payload = self._speech[self._frame] if talking else _MULAW_SILENCE
        if self.recording:
            self.heard.sent += 1
            self.heard.late_sends_ns.append(now_ns - self.due_ns)
        try:
            self._send(payload)
        except OSError:
            return  # the server is gone; signalling reports it
        spoken_ns = now_ns - (self.due_ns - self._regular_ns)  # without the line's jitter
        self._timestamp = (self._timestamp + 160) & 0xFFFFFFFF
        self._regular_ns += FRAME_NS
        self.due_ns = self._regular_ns if self._line is None else self._line.due_ns(self._regular_ns)
        if self._mode is Mode.ALWAYS:
            self._frame = (self._frame + 1) % TALK_FRAMES
        else:
            _STEPS[self._floor](self, spoken_ns)

    def _send(self, payload: bytes) -> None:
        """Sends a packet, or what the line makes of it. A packet that DTX leaves out takes no sequence
        number."""
        begins = 0
        if self._line is not None:
            begins = 0x80 if self._line.suppressed else 0
            carried = self._line.carry(payload)
            if carried is None:
                self._sequence = (self._sequence + (not self._line.suppressed)) & 0xFFFF
                return
            payload = carried
        packet = _HEADER.pack(0x80, begins, self._sequence, self._timestamp, self._ssrc) + payload
        self.socket.send(packet if self.keys is None else self.keys.seal(packet))
        self._sequence = (self._sequence + 1) & 0xFFFF

    def readable(self) -> None:
        """Takes one packet of the server."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(2048, 64)
        except OSError:
            return
        now_ns = stamp_ns(ancillary[0][2])
        if self.keys is not None:
            data = self.keys.open(data)
            if not data:
                return
        if self.recording:
            self.heard.arrivals_ns.append(now_ns)
            self.heard.sequences.append(_SEQUENCE.unpack_from(data, 2)[0])
        if self._line is not None:
            self._line.hear(data[12:])
        if data.count(0xFF, 12) + data.count(0x7F, 12) < 80:
            self._loud(now_ns)

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()

    def _loud(self, now_ns: int) -> None:
        self._last_loud_ns = now_ns
        if self._floor is not Floor.WAITING or now_ns <= self._voiced_ns:
            return
        self._first_loud_ns = now_ns
        if self.recording:
            self.heard.turns.append((self._voiced_ns, now_ns, int(self._interrupts)))
        self._turns += 1
        self._interrupts = self._turns % 4 == 2 and self._mode is not Mode.PEOPLE
        self._floor = Floor.HEARING_OUT if self._interrupts else Floor.LISTENING

    # Steps per frame --------------------------------------------------------------------------------------

    def _listen(self, now_ns: int) -> None:
        """Starts the caller's turn, a pause after the agent has finished."""
        if self._last_loud_ns and now_ns - self._last_loud_ns > self._pause_ns:
            self._take_floor()

    def _hear_out(self, now_ns: int) -> None:
        if now_ns - self._first_loud_ns > BARGE_IN_AFTER_NS:
            self._take_floor()

    def _take_floor(self) -> None:
        self._floor, self._frame = Floor.TALKING, 0
        self._speech = self._rng.choice(self._sayings)
        self._pause_ns = self._next_pause()

    def _talk(self, now_ns: int) -> None:
        self._frame += 1
        if self._frame == BARGE_IN_FRAMES:
            self._decision_ns = now_ns
        if self._frame < len(self._speech):
            return
        if self._interrupts and self.recording:
            self.heard.barge_ins.append((self._decision_ns, self._last_loud_ns))
        self._voiced_ns = now_ns
        self._floor = Floor.WAITING

    def _wait(self, now_ns: int) -> None:
        if now_ns - self._voiced_ns > self._patience_ns:
            self.heard.missed += int(self.recording)
            self._last_loud_ns = now_ns
            self._floor = Floor.LISTENING

    def _next_pause(self) -> int:
        low_ms, high_ms = PEOPLE_PAUSE_MS if self._mode is Mode.PEOPLE else PAUSE_MS
        return self._rng.randrange(low_ms * 1_000_000, high_ms * 1_000_000)


_STEPS: Final = {
    Floor.LISTENING: Caller._listen,
    Floor.TALKING: Caller._talk,
    Floor.WAITING: Caller._wait,
    Floor.HEARING_OUT: Caller._hear_out,
}
