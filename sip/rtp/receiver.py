"""RTP in, from a datagram to frames: the owner of one stream's row on the media plane.

What is not RTP, of no agreed payload type, or of a source that is not believed yet is counted and dropped.
Nothing here raises, whatever arrives.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pipeline.audio import Pcm, frame_samples
from pipeline.audio.dtmf import KEYS
from pipeline.leg import LegListener
from pipeline.plane import receive as plane
from pipeline.plane.native import scratch
from pipeline.plane.receive import Verdict
from pipeline.plane.rows import HEARD, PACKET_BYTES, PRESSES, Kind, rows
from pipeline.plane.setup import PayloadFormat, configure, detect_tones, prepare
from sip.rtp.dtmf_dedup import DtmfDedup, Way
from sip.rtp.packet import COMFORT_NOISE, payload_span
from sip.rtp.reception_stats import Reception
from sip.rtp.telephone_event import DIGITS
from sip.sdp.media_plan import Codec, MediaPlan

PATIENCE_MS: Final = 40
BUFFER_BYTES: Final = PACKET_BYTES

_NS: Final = 1_000_000_000
_SCRATCH: Final = scratch()
_KINDS: Final = {"pcmu": Kind.PCMU, "pcma": Kind.PCMA, "g722": Kind.G722, "opus": Kind.OPUS}


class RtpReceiver:
    """One stream's inbound half. `buffer` is what the socket reads into; `listener` gets frames and keys."""

    __slots__ = ("_bytes", "_frames", "_line", "_listener", "_presses", "_reception", "_rows", "_views",
                 "buffer", "presses", "rate_hz")  # fmt: skip

    def __init__(self, rate_hz: int) -> None:
        self.buffer = bytearray(BUFFER_BYTES)
        self.rate_hz = rate_hz
        self.presses = DtmfDedup()
        self._bytes = np.frombuffer(self.buffer, np.uint8)
        self._rows = rows(1)
        prepare(self._rows, 0, rate_hz=rate_hz, patience_ms=PATIENCE_MS)
        self._line = self._rows.line[0]
        self._views: list[Pcm] = [
            self._rows.heard[0, slot, : frame_samples(rate_hz)] for slot in range(HEARD)
        ]
        self._reception = Reception(self._line)
        self._frames = self._presses = 0  # how many were passed on
        self._listener: LegListener | None = None

    @property
    def listener(self) -> LegListener | None:
        """The listener that gets the frames; None: they are dropped."""
        return self._listener

    @listener.setter
    def listener(self, listener: LegListener | None) -> None:
        self._listener = listener
        self._line["listening"] = listener is not None

    @property
    def packets(self) -> int:
        """RTP packets of the far end."""
        return int(self._line["packets"])

    @property
    def octets(self) -> int:
        """Payload octets of those."""
        return int(self._line["octets"])

    @property
    def bad_packets(self) -> int:
        """Datagrams that were dropped: no RTP, another payload type or source, or not decodable."""
        return int(self._line["bad"])

    @property
    def lost(self) -> int:
        """Packets that were given up."""
        return int(self._line["lost"])

    @property
    def late(self) -> int:
        """Packets that came after they had been given up."""
        return int(self._line["late"])

    @property
    def concealed(self) -> int:
        """Frames that were made up."""
        return int(self._line["concealed"])

    @property
    def waiting(self) -> int:
        """Packets that wait for an earlier one: `flush` must be called."""
        return int(self._line["held"])

    @property
    def reception(self) -> Reception | None:
        """What RTCP reports of the far end's source; None before its first packet."""
        return None if self._line["ssrc"] < 0 else self._reception

    def configure(self, plan: MediaPlan, *, inband_dtmf: bool) -> None:
        """What the far end may send from now on."""
        formats = {number: _format(codec) for number, codec in plan.receive.items()}
        formats.setdefault(COMFORT_NOISE, _NOT_AUDIO)
        events = plan.dtmf_receive
        if events is not None:
            formats[events] = _NOT_AUDIO
        configure(
            self._rows, 0, formats,
            dtmf_type=-1 if events is None else events, dtmf_hz=plan.dtmf_clock_rate_hz, receives=plan.receives,
        )  # fmt: skip
        detect_tones(self._rows, 0, wanted=inband_dtmf or events is None)

    def plausible(self, size: int) -> bool:
        """Could the first `size` bytes of `buffer` be of this stream? For the latch of symmetric RTP."""
        agreed = self._rows.media[0, self.buffer[1] & 0x7F]["kind"]
        return bool(agreed) and payload_span(self.buffer, size) is not None

    def datagram(self, size: int, now: float) -> Verdict:
        """The first `size` bytes of `buffer`, from the far end's address."""
        made = plane.receive(self._rows, _SCRATCH, 0, self._bytes, size, round(now * _NS))
        if made > plane.VERDICT:
            self._deliver(made, now)
        return _VERDICTS[made & plane.VERDICT]

    def flush(self, now: float) -> None:
        """Passes on what is in order by now, and gives up what was waited for long enough."""
        self._deliver(plane.flush(self._rows, _SCRATCH, 0, round(now * _NS)), now)

    def _deliver(self, made: int, now: float) -> None:
        frames = made >> plane.FRAMES_SHIFT
        keys = made >> plane.PRESSES_SHIFT & 0xFF
        listener = self._listener
        for _ in range(frames):
            if keys:
                keys -= self._keys_before(self._frames, keys, now)
            slot = self._frames % HEARD
            self._frames += 1
            position, arrived_ns, made_up = self._rows.frames[0, slot].item()
            if listener is not None:
                listener.audio_received(self._views[slot], position, arrived_ns / _NS, concealed=bool(made_up))
        if keys:
            self._keys_before(self._frames, keys, now)

    def _keys_before(self, frame: int, most: int, now: float) -> int:
        """Passes on the keys that came before frame number `frame`; how many."""
        for told in range(most):
            key, is_tone, before = self._rows.presses[0, self._presses % PRESSES].item()
            if before > frame:
                return told
            self._presses += 1
            self.pressed(KEYS[key] if is_tone else DIGITS[key], Way.TONE if is_tone else Way.EVENT, now)
        return most

    def pressed(self, digit: str, way: Way, now: float) -> None:
        """A key of the far end's, however it was signalled."""
        listener = self._listener
        if listener is not None and self.presses.counts(digit, way, now):
            listener.digit_received(digit, now)


_VERDICTS: Final = tuple(Verdict)
_NOT_AUDIO: Final = PayloadFormat(Kind.NOT_AUDIO, 0, 0)


def _format(codec: Codec) -> PayloadFormat:
    return PayloadFormat(_KINDS[codec.name.lower()], codec.clock_rate_hz, codec.rate_hz)
