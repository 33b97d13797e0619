"""Receives Opus: decoded in the callback of the datagram, where aiortc has a jitter buffer, a queue and a
thread.

aiortc's receiver holds every packet for 80 ms and after one loss stays up to 280 ms behind, without
concealment: it feeds a loudspeaker. This one feeds a recogniser, which needs order and not smoothness. A
packet in order is decoded as it arrives, a gap is waited for 40 ms at the most, and a lost packet is
recovered from the next one's in-band FEC. Sans-IO: decrypted packets in, frames to the listener."""

from __future__ import annotations

from functools import partial
from typing import Final

from pipeline.audio import Pcm
from pipeline.audio.opus import CLOCK_HZ, RATE_HZ, BadPacket, OpusDecoder
from pipeline.leg import LegListener
from pipeline.media.reorder import Gap, Reorder
from sip.rtp.frame_assembly import FrameAssembly
from sip.rtp.packet import HEADER, HEADER_BYTES, PLAIN, payload_span
from sip.rtp.reception_stats import Reception
from sip.sdp.media_plan import OPUS

PATIENCE_MS: Final = 40
TAKEOVER_S: Final = 0.2
"""Seconds of silence after which a new source replaces the present one. A client that publishes its
microphone again begins a new source; one with two microphones must not be heard as both at once."""


class OpusReceiver:
    """Receives one participant's microphone. `payload_types`: those of Opus in the agreed description."""

    __slots__ = (
        "_decoder",
        "_heard_s",
        "_reorder",
        "_ssrc",
        "bad_packets",
        "frames",
        "packets",
        "payload_types",
        "reception",
        "recovered",
    )

    def __init__(self) -> None:
        self.frames = FrameAssembly(RATE_HZ)
        self.frames.use(OPUS)
        self.payload_types: frozenset[int] = frozenset()
        self.reception: Reception | None = None
        self.packets = self.bad_packets = self.recovered = 0
        self._decoder = OpusDecoder()
        self._reorder = Reorder(patience_ms=PATIENCE_MS)
        self._ssrc = -1
        self._heard_s = 0.0

    @property
    def listener(self) -> LegListener | None:
        """The listener that gets the frames; None: frames are dropped."""
        return self.frames.listener

    @listener.setter
    def listener(self, listener: LegListener | None) -> None:
        self.frames.listener = listener

    @property
    def lost(self) -> int:
        """The number of packets given up as lost."""
        return self._reorder.stats.lost

    @property
    def waiting(self) -> int:
        """The number of packets that wait for an earlier one: while above 0, `flush` must be called."""
        return self._reorder.pending

    def packet(self, data: bytes, now: float) -> None:
        """Takes a decrypted RTP packet; malformed ones are counted in `bad_packets`."""
        if len(data) < HEADER_BYTES:
            self.bad_packets += 1
            return
        first, second, sequence, timestamp, ssrc = HEADER.unpack_from(data)
        span = (HEADER_BYTES, len(data)) if first == PLAIN else payload_span(data, len(data))
        if second & 0x7F not in self.payload_types or span is None:
            self.bad_packets += 1
            return
        if ssrc != self._ssrc and not self._taken_over(ssrc, now):
            return
        self._heard_s = now
        self.packets += 1
        reception = self.reception
        if reception is not None:
            reception.packet(sequence)
            reception.arrival(timestamp, now)
        payload = data[span[0] : span[1]]
        if self._reorder.push(sequence, timestamp, payload, now):
            self._play(payload, timestamp, now)
        if self._reorder.pending:
            self.flush(now)

    def flush(self, now: float) -> None:
        """Decodes the packets that have waited `PATIENCE_MS` for an earlier one."""
        lost = False
        for item in self._reorder.take(now):
            if isinstance(item, Gap):
                lost = True
                continue
            if lost:
                self.frames.gap(item.timestamp, now, partial(self._recovered, item.payload))
                lost = False
            self._play(item.payload, item.timestamp, item.arrived)

    def _taken_over(self, ssrc: int, now: float) -> bool:
        if self._ssrc >= 0:
            if now - self._heard_s < TAKEOVER_S:
                return False
            self._reorder.reset()
            self.frames.restart()
        self._ssrc = ssrc
        self.reception = Reception(ssrc, CLOCK_HZ)
        return True

    def _play(self, payload: bytes, timestamp: int, now: float) -> None:
        if not payload:  # padding only, to probe the bandwidth
            return
        try:
            samples = self._decoder.decode(payload)
        except BadPacket:
            self.bad_packets += 1
            return
        self.frames.audio(samples, timestamp, now)

    def _recovered(self, following: bytes, samples: int) -> Pcm:
        self.recovered += 1
        return self._decoder.recover(following, samples)
