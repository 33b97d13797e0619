"""The seam between a conversation and whatever carries it: a SIP call, a room participant, a test.

A leg pushes what it hears by direct call (no queue, no task, no thread) and pulls what is to be said on its
own clock. Both directions are frames of 20 ms at the leg's `rate_hz`, which never changes during its life:
a leg whose codec changes resamples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pipeline.audio import Pcm


class LegListener(Protocol):
    """What a leg calls. Every method returns at once and never raises; all run on the event loop's thread."""

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        """One frame of the far end.

        `frame`: 20 ms of int16 at the leg's rate; read-only, valid only during the call: copy what you keep.
        `position`: index of its first sample on the far end's media clock (from RTP timestamps, 0 at the
        first packet), so that silence suppression and loss do not shorten time.
        `now`: the loop's time at which the frame's packet arrived. `concealed`: made up for a lost packet.
        """

    def digit_received(self, digit: str, now: float) -> None:
        """One DTMF digit (0-9, *, #, A-D), however it was sent (RFC 4733, in-band, SIP INFO)."""

    def leg_ended(self, reason: str, now: float) -> None:
        """The leg is gone; called exactly once, nothing follows it."""


class AudioSource(Protocol):
    """What a leg pulls from, every 20 ms of its own clock (`pipeline.media.playout.Playout` is the usual
    one)."""

    def read(self) -> Pcm | None:
        """The next frame to be heard (20 ms at the leg's rate), or None: nothing to say now."""

    def sent(self, now: float) -> None:
        """The frame last read was handed to the wire at `now`; not called after a `read` that gave None."""

    def on_ready(self, wake: Callable[[], None] | None) -> None:
        """`wake` is called when audio arrives after a `read` that gave None, so that the leg may send the
        first frame at once instead of at its next tick."""


class Leg(Protocol):
    """One party's connection, seen from the conversation."""

    @property
    def rate_hz(self) -> int:
        """The rate of frames in both directions."""

    @property
    def held(self) -> bool:
        """The far end does not listen for now: what comes from it is music on hold, not the caller."""

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Connects a conversation; audio that arrived before is not kept. None disconnects."""

    async def hang_up(self) -> None:
        """Ends the leg for good. Calling it again, or after the far end ended it, does nothing."""

    async def send_dtmf(self, digits: str) -> None:
        """Sends digits, returns when the last has been sent. Raises ValueError for anything but 0-9*#A-D."""
