"""What a participant says: Opus, received on a row of the media plane (`pipeline.plane`).

aiortc's receiver holds every packet for 80 ms and after one loss stays up to 280 ms behind, without
concealment: it feeds a loudspeaker. This one feeds a recogniser, which needs order and not smoothness. A
packet in order is decoded as it arrives, a gap is waited for 40 ms at the most, and a lost packet is
recovered from the next one's in-band FEC."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from pipeline.audio.opus import CLOCK_HZ, RATE_HZ
from pipeline.leg import LegListener
from pipeline.plane.atomic import held
from pipeline.plane.rows import Kind
from pipeline.plane.setup import PayloadFormat, Receiving, configure, prepare, snapshot
from sip.rtp.heard import Heard
from sip.rtp.reception_stats import Reception

PATIENCE_MS: Final = 40
TAKEOVER_MS: Final = 200
"""Milliseconds of silence after which a new source replaces the present one. A client that publishes its
microphone again begins a new source; one with two microphones must not be heard as both at once."""

OPUS: Final = PayloadFormat(Kind.OPUS, CLOCK_HZ, RATE_HZ)


class OpusReceiver:
    """Receives one participant's microphone on the row `line`, of the stream `number`, which nobody uses
    yet."""

    __slots__ = ("_heard", "_line", "_reception")

    def __init__(self, line: Any, number: int) -> None:
        prepare(line, number, rate_hz=RATE_HZ, patience_ms=PATIENCE_MS)
        line["takeover_ns"] = TAKEOVER_MS * 1_000_000
        self._line = line
        self._heard = Heard(self._line)
        self._reception = Reception(self._line)

    @property
    def listener(self) -> LegListener | None:
        """The listener that gets the frames; None: frames are dropped."""
        return self._heard.listener

    @listener.setter
    def listener(self, listener: LegListener | None) -> None:
        self._heard.listener = listener

    @property
    def packets(self) -> int:
        """The number of RTP packets of the participant."""
        return int(self._line["packets"])

    @property
    def bad_packets(self) -> int:
        """The number of those that were dropped: malformed, of another payload type, or of a second
        source."""
        return int(self._line["bad"])

    @property
    def lost(self) -> int:
        """The number of packets given up as lost."""
        return int(self._line["lost"])

    @property
    def concealed(self) -> int:
        """The number of frames that were made up."""
        return int(self._line["concealed"])

    @property
    def recovered(self) -> int:
        """The number of gaps that the decoder filled, from the FEC of the packet behind where it has any."""
        return int(self._line["recovered"])

    @property
    def reception(self) -> Reception | None:
        """What RTCP reports of the source; None before its first packet."""
        return self._reception if self._line["ssrc"] >= 0 else None

    def receive(self, payload_types: Collection[int]) -> None:
        """Sets the payload types of Opus in the agreed description."""
        formats = dict.fromkeys(payload_types, OPUS)
        receiving = Receiving(formats=formats, events_type=-1, events_hz=CLOCK_HZ, receives=True)
        with held(self._line["owner"]):
            configure(self._line, receiving)

    def passed(self, frames: int, now: float) -> None:
        """Passes on what was heard, up to frame number `frames`."""
        self._heard.pass_on(frames, 0, now)

    def close(self) -> None:
        """Lets go of the row: another stream's it may be. The counters stay."""
        self._heard.listener = None
        self._line = snapshot(self._line)
        self._reception = Reception(self._line)
