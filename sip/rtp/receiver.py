"""Receives RTP: from a datagram of the right address to the listener, by direct call.

The usual packet (next in order, known source and payload type, plain header) is decoded out of the socket's
own buffer; only packets that wait for an earlier one are copied."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final

import numpy as np

from pipeline.audio import Pcm
from pipeline.media.reorder import Gap, Reorder
from sip.rtp.codecs import BadPayload, Decoder, Payload, decoder
from sip.rtp.dtmf_dedup import Way
from sip.rtp.frame_assembly import FrameAssembly
from sip.rtp.packet import COMFORT_NOISE, HEADER, HEADER_BYTES, PLAIN, payload_span
from sip.rtp.reception_stats import Reception
from sip.rtp.rtcp import PACKET_TYPES
from sip.rtp.telephone_event import EventReceiver
from sip.sdp.media_plan import Codec, MediaPlan

PATIENCE_MS: Final = 40
BUFFER_BYTES: Final = 2048
_EVENT_BYTES: Final = 4


class Verdict(Enum):
    """How a datagram on the RTP port was classified."""

    MEDIA = "media"
    REPORT = "report"  # RTCP on the RTP port (RFC 5761)
    BAD = "bad"


class RtpReceiver:
    """The inbound half of a stream. The socket reads into `buffer`."""

    __slots__ = (
        "_bytes",
        "_candidate",
        "_candidate_s",
        "_current",
        "_decode",
        "_decoders",
        "_dtmf",
        "_events",
        "_heard_s",
        "_inband_wanted",
        "_receive",
        "_receives",
        "_reorder",
        "_ssrc",
        "_view",
        "bad_packets",
        "buffer",
        "frames",
        "octets",
        "packets",
        "reception",
    )

    def __init__(self, rate_hz: int) -> None:
        self.buffer = bytearray(BUFFER_BYTES)
        self.frames = FrameAssembly(rate_hz)
        self.packets = 0
        self.octets = 0
        self.bad_packets = 0
        self.reception: Reception | None = None
        self._view = memoryview(self.buffer)
        self._bytes: Payload = np.frombuffer(self.buffer, np.uint8)
        self._reorder = Reorder(patience_ms=PATIENCE_MS)
        self._events = EventReceiver(8000)
        self._receive: dict[int, Codec | None] = {}  # None: not audio
        self._decoders: dict[int, Decoder] = {}
        self._current = -1  # the payload type that `_decode` is for
        self._decode: Callable[[Payload], Pcm] | None = None
        self._dtmf = -1
        self._inband_wanted = False
        self._receives = False
        self._heard_s = 0.0
        self._ssrc = -1
        self._candidate = (0, -1)  # a new SSRC, and the sequence number that would confirm it
        self._candidate_s = 0.0

    @property
    def lost(self) -> int:
        """Packets that never arrived, or too late."""
        return self._reorder.stats.lost

    @property
    def late(self) -> int:
        """Packets that arrived after they had been given up."""
        return self._reorder.stats.late

    @property
    def waiting(self) -> int:
        """Packets that wait for an earlier one; call `flush` while there are any."""
        return self._reorder.pending

    def configure(self, plan: MediaPlan, *, inband_dtmf: bool) -> None:
        """Sets the payload types that the far end may send from now on."""
        receive: dict[int, Codec | None] = dict(plan.receive)
        self._decoders = {
            number: old
            for number, old in self._decoders.items()
            if receive.get(number) == self._receive[number]
        }
        receive.setdefault(COMFORT_NOISE, None)
        self._dtmf = -1
        if plan.dtmf_receive is not None:
            self._dtmf = plan.dtmf_receive
            receive[self._dtmf] = None
        self._receive = receive
        self._current = -1
        self._events = EventReceiver(plan.dtmf_clock_rate_hz)
        self._inband_wanted = inband_dtmf or plan.dtmf_receive is None
        self.frames.detect_digits(wanted=self._inband_wanted)
        if plan.receives and not self._receives:
            self._reorder.reset()  # packets that came while not receiving are not lost
        self._receives = plan.receives

    def plausible(self, size: int) -> bool:
        """Whether the first `size` bytes of `buffer` can belong to this stream; for the address learning of
        symmetric RTP."""
        return self.buffer[1] & 0x7F in self._receive and payload_span(self.buffer, size) is not None

    def datagram(self, size: int, now: float) -> Verdict:
        """Takes the first `size` bytes of `buffer`, a datagram from the far end's address."""
        if size < HEADER_BYTES:
            return self._bad()
        first, second, sequence, timestamp, ssrc = HEADER.unpack_from(self.buffer)
        payload_type = second & 0x7F
        if payload_type not in self._receive:
            return Verdict.REPORT if second in PACKET_TYPES else self._bad()
        if first != PLAIN:
            size = self._made_plain(size)
            if not size:
                return self._bad()
        if ssrc != self._ssrc and not self._believed(ssrc, sequence, payload_type, now):
            return self._bad()
        self.packets += 1
        self.octets += size - HEADER_BYTES
        self._heard_s = now
        if self.reception is not None:
            self.reception.packet(sequence)
        if self._receives:
            self._take(payload_type, sequence, timestamp, size, now)
        return Verdict.MEDIA

    def flush(self, now: float) -> None:
        """Plays packets that are in order by now, and gives up those that have been waited for long
        enough."""
        lost = False
        for item in self._reorder.take(now):
            if isinstance(item, Gap):
                lost = True
                continue
            payload_type = item.payload[1] & 0x7F
            payload = np.frombuffer(item.payload, np.uint8)[HEADER_BYTES:]
            if lost:
                self._fill_gap(payload_type, payload, item.timestamp, now)
                lost = False
            self._play(payload_type, payload, item.timestamp, item.arrived)

    def _take(self, payload_type: int, sequence: int, timestamp: int, size: int, now: float) -> None:
        if payload_type == self._dtmf:
            self._event(size, timestamp, now)
        elif self.reception is not None:
            self.reception.arrival(timestamp, now)
        if self._reorder.push(sequence, timestamp, self._view[:size], now):
            self._play(payload_type, self._bytes[HEADER_BYTES:size], timestamp, now)
        if self._reorder.pending:
            self.flush(now)

    def _made_plain(self, size: int) -> int:
        """Removes CSRCs, extension and padding from the packet in `buffer`. Returns its new size; 0: not
        RTP."""
        span = payload_span(self.buffer, size)
        if span is None:
            return 0
        start, end = span
        size = HEADER_BYTES + end - start
        self.buffer[HEADER_BYTES:size] = self.buffer[start:end]
        return size

    def _fill_gap(self, payload_type: int, following: Payload, timestamp: int, now: float) -> None:
        """Conceals the packets lost before `following`, which is stamped `timestamp`."""
        recover = self._decoders[payload_type].recover if payload_type == self._current else None
        self.frames.gap(timestamp, now, None if recover is None else partial(recover, following))

    def _play(self, payload_type: int, payload: Payload, timestamp: int, now: float) -> None:
        if payload_type != self._current and not self._use(payload_type):
            if payload_type == COMFORT_NOISE:
                self.frames.comfort_noise(timestamp, now)
            return
        assert self._decode is not None
        try:
            samples = self._decode(payload)
        except BadPayload:
            self.bad_packets += 1
            return
        self.frames.audio(samples, timestamp, now)

    def _use(self, payload_type: int) -> bool:
        """Selects the decoder of `payload_type`; False where the type is not audio."""
        codec = self._receive.get(payload_type)
        if codec is None:
            return False
        if payload_type not in self._decoders:
            self._decoders[payload_type] = decoder(codec)
        self._decode = self._decoders[payload_type].decode
        self._current = payload_type
        self.frames.use(codec)
        return True

    def _event(self, size: int, timestamp: int, now: float) -> None:
        if size < HEADER_BYTES + _EVENT_BYTES:
            self.bad_packets += 1
            return
        digit = self._events.push(self._view[HEADER_BYTES:size], timestamp)
        if digit is None:
            return
        if self._inband_wanted:  # the far end signals by events after all: in-band tones would count twice
            self._inband_wanted = False
            self.frames.detect_digits(wanted=False)
        self.pressed(digit, Way.EVENT, now)

    def pressed(self, digit: str, way: Way, now: float) -> None:
        """Takes a DTMF digit that was signalled beside the audio."""
        frames = self.frames
        if frames.listener is not None and frames.presses.counts(digit, way, now):
            frames.listener.digit_received(digit, now)

    def _believed(self, ssrc: int, sequence: int, payload_type: int, now: float) -> bool:
        """Whether to accept an SSRC: the first at once; another only after two packets in a row without one
        of the current source between, so that a stray packet does not reset the stream (RFC 3550 A.1,
        MIN_SEQUENTIAL = 2)."""
        if self.reception is not None:
            if self._candidate != (ssrc, sequence) or self._heard_s > self._candidate_s:
                self._candidate = (ssrc, (sequence + 1) & 0xFFFF)
                self._candidate_s = now
                return False
            self._reorder.reset()
            self._events.reset()
            self.frames.restart()
            self._decoders.clear()
            self._current = -1
        codec = self._receive[payload_type] or next(filter(None, self._receive.values()), None)
        self.reception = Reception(ssrc, codec.clock_rate_hz if codec else 8000)
        self._ssrc = ssrc
        return True

    def _bad(self) -> Verdict:
        self.bad_packets += 1
        return Verdict.BAD
