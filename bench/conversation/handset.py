"""A scripted caller's telephone: encodes frames to RTP packets and decodes the agent's, in one codec, with
the script's losses and jitter of sent packets.

The same telephone runs on the virtual clock and over sockets, so that the two differ only in network,
processes and clock."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import av
import numpy as np

from bench.conversation.caller import Caller, Placed, Truth, recording
from bench.conversation.scenarios import Script
from bench.conversation.sounds import RATE_HZ
from bench.support import codecs
from pipeline.agent import AgentEvent
from pipeline.audio import Pcm
from pipeline.audio.resample import Resampler
from pipeline.plane.codecs import MAX_PAYLOAD_BYTES
from pipeline.result import SessionResult
from sip.rtp.telephone_event import event_payloads
from sip.sdp.media_plan import OPUS, Codec, MediaPlan

PTIME_S: Final = 0.02
JITTER_S: Final = 0.08
EVENTS: Final = 101
"""The payload type of telephone events (RFC 4733)."""

_HEADER: Final = struct.Struct("!BBHII")
_MARKER: Final = 0x80


@dataclass(slots=True)
class Taped:
    """One call at the caller's socket: samples at 8 kHz from the answer on, the position of each cue, and the
    system's own account. `decisions`: (second, name) for the pictures. `late_ms`: p99 of the delay of the
    caller's own frames, caused by the machine."""

    sent: Pcm
    heard: Pcm
    placed: list[Placed]
    events: list[AgentEvent] = field(default_factory=list)
    result: SessionResult | None = None
    decisions: list[tuple[float, str]] = field(default_factory=list)
    late_ms: float = 0.0


def plan_of(codec: Codec) -> MediaPlan:
    """Returns the media plan of such a telephone's far end."""
    return MediaPlan(
        "127.0.0.1",
        9,
        codec,
        codec.payload_type,
        {codec.payload_type: codec},
        dtmf_receive=EVENTS,
        dtmf_clock_rate_hz=codec.clock_rate_hz,
    )


class TelephoneOpus:
    """The Opus encoder of a caller's telephone: FFmpeg's wrapper of libopus, complexity 5, 24 kbit/s. The
    server's own, at complexity 1, suits one clean voice and degrades a voice in noise."""

    def __init__(self) -> None:
        context: Any = av.CodecContext.create("libopus", "w")  # its audio half is not in the stubs
        context.sample_rate, context.layout, context.format = OPUS.rate_hz, "mono", "s16"
        context.time_base, context.bit_rate = Fraction(1, OPUS.rate_hz), 24_000
        context.options = {
            "application": "voip",
            "frame_duration": "20",
            "fec": "1",
            "packet_loss": "10",
            "compression_level": "5",
        }
        context.open()
        self._context = context
        self._pts = 0

    def encode(self, frame: Pcm, into: codecs.Payload) -> int:
        """Encodes 20 ms into the start of `into`; returns the octets written."""
        samples: Any = av.AudioFrame.from_ndarray(frame.reshape(1, -1), format="s16", layout="mono")
        samples.sample_rate, samples.pts = OPUS.rate_hz, self._pts
        self._pts += len(frame)
        packet = b"".join(bytes(each) for each in self._context.encode(samples))
        into[: len(packet)] = np.frombuffer(packet, np.uint8)
        return len(packet)


class Handset:
    """`put` is called with every packet sent. `receive` takes the agent's packets; `hang_up` says that the
    far end has hung up."""

    def __init__(self, script: Script, codec: Codec, seed: int, put: Callable[[bytes], None]) -> None:
        self._script = script
        self._codec = codec
        self._put = put
        self._loop = asyncio.get_running_loop()
        self._encoder = TelephoneOpus() if codec is OPUS else codecs.encoder(codec)
        self._decoder = codecs.decoder(codec)
        self._up, self._down = Resampler(RATE_HZ, codec.rate_hz), Resampler(codec.rate_hz, RATE_HZ)
        self._step = codec.clock_rate_hz // 50
        self._rng = np.random.default_rng(seed)
        self._payload = np.empty(MAX_PAYLOAD_BYTES, np.uint8)
        self._sequence = 0
        self._keyed: deque[bytes] = deque()
        self._keyed_at = 0
        self._caller: Caller | None = None
        self._start_s = 0.0
        self._anchor, self._anchor_s = 0, -1.0
        self._over = False

    async def talk(self, truth: Truth) -> Taped:
        """Runs the call, from its answer until the caller has nothing left to wait for, or the agent hung
        up."""
        start_s = self._start_s = self._loop.time()
        script = self._script
        caller = self._caller = Caller(script.cues, truth, origin=start_s)
        caller.background, caller.echo = script.background, script.echo
        late_s: list[float] = []
        for tick in range(round(script.limit_s / PTIME_S) + 10):
            spoken_s = tick * PTIME_S
            await asyncio.sleep(start_s + spoken_s + PTIME_S - self._loop.time())
            late_s.append(self._loop.time() - start_s - spoken_s - PTIME_S)
            if self._over:
                break
            self._send(caller.frame(spoken_s), caller.pressed(spoken_s))
            if caller.finished(spoken_s, script.ending, script.limit_s):
                break
        seconds = self._loop.time() - start_s
        taped = Taped(np.concatenate(caller.sent), recording(caller.heard, seconds), caller.placed)
        taped.late_ms = float(np.percentile(late_s, 99)) * 1000
        return taped

    def hang_up(self) -> None:
        """Ends the call, because the agent's side hung up."""
        self._over = True

    # Received audio -----------------------------------------------------------------------------------------

    def receive(self, packet: bytes) -> None:
        """Takes a packet of the agent."""
        if self._caller is None or len(packet) <= _HEADER.size:
            return
        _, second, _, timestamp, _ = _HEADER.unpack_from(packet)
        if second & ~_MARKER != self._codec.payload_type:
            return
        samples = self._decoder.decode(np.frombuffer(packet, np.uint8)[_HEADER.size :])
        now_s = self._loop.time() - self._start_s
        place_s = self._place(timestamp, now_s, anew=bool(second & _MARKER))
        self._caller.hears(self._down(samples).copy(), now_s, place_s=place_s)

    def _place(self, timestamp: int, now_s: float, *, anew: bool) -> float:
        """Returns when the packet would have arrived without jitter, never later than it did. The first
        packet after a pause counts as it arrived, since the sender may have been ahead of its clock."""
        at_s = self._anchor_s + ((timestamp - self._anchor) & 0xFFFFFFFF) / self._codec.clock_rate_hz
        if anew or self._anchor_s < 0 or not -JITTER_S < at_s - now_s <= 0:
            self._anchor, self._anchor_s, at_s = timestamp, now_s, now_s
        return at_s

    # Sent audio ---------------------------------------------------------------------------------------------

    def _send(self, frame: Pcm, key: str) -> None:
        if key:
            self._keyed.extend(event_payloads(key, self._codec.clock_rate_hz))
            self._keyed_at = self._sequence
        size = self._encoder.encode(self._up(frame), self._payload)
        number, payload, payload_type = (
            self._sequence,
            self._payload[:size].tobytes(),
            self._codec.payload_type,
        )
        timestamp = number * self._step
        if self._keyed:  # in place of the audio, as telephones do
            payload, payload_type = self._keyed.popleft(), EVENTS
            timestamp = self._keyed_at * self._step
        self._sequence += 1
        if self._rng.random() < self._script.loss:
            return
        packet = _HEADER.pack(0x80, payload_type, number, timestamp, 7) + payload
        if self._script.jitter_s:
            late_s = float(self._rng.uniform(0, self._script.jitter_s))
            self._loop.call_later(late_s, self._put, packet)
        else:
            self._put(packet)
