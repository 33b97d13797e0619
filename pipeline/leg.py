"""The interface between a conversation and its transport: a SIP call, a room participant, a test.

A leg pushes received audio by direct call (no queue, no task, no thread) and pulls the agent's audio on its
own clock. Both directions are frames of 20 ms at the leg's `rate_hz`, which never changes during its life: a
leg whose codec changes resamples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pipeline.audio import Pcm


class LegListener(Protocol):
    """The receiver of a leg's audio and events. Every method returns at once and never raises; all run on the
    event loop's thread."""

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        """Takes one frame of the far end's audio.

        `frame`: 20 ms of int16 at the leg's rate; read-only and valid only during this method, so a listener
        that keeps the frame copies it. `position`: index of the frame's first sample on the far end's media
        clock (from RTP timestamps, 0 at the first packet), so that silence suppression and loss do not
        shorten time. `now`: loop time at which the frame's packet arrived. `concealed`: the frame stands in
        for a lost packet.
        """

    def digit_received(self, digit: str, now: float) -> None:
        """Takes one DTMF digit (0-9, *, #, A-D), whether sent by RFC 4733, in-band or by SIP INFO."""

    def leg_ended(self, reason: str, now: float) -> None:
        """Takes the end of the leg; called exactly once, and no other method is called after."""


class AudioSource(Protocol):
    """The source of a leg's outgoing audio, read every 20 ms of the leg's clock (usually
    `pipeline.media.playout.Playout`)."""

    def read(self) -> Pcm | None:
        """Gives the next frame to be sent (20 ms of int16 at the leg's rate), or None for nothing to send."""

    def sent(self, now: float) -> None:
        """Notes that the leg sent the frame last read at `now`; not called after a `read` that gave None."""

    def on_ready(self, wake: Callable[[], None] | None) -> None:
        """Sets `wake`, called when audio arrives after a `read` that gave None, so that the leg may send the
        first frame at once instead of at its next tick. None unsets `wake`."""


class Leg(Protocol):
    """The connection of one party (a SIP call, a room participant) as the session uses it."""

    @property
    def rate_hz(self) -> int:
        """The sample rate of frames in both directions, in Hz."""

    @property
    def held(self) -> bool:
        """Whether the far end has put the call on hold: received audio is then music on hold, not the
        caller."""

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Connects a session's listener and source; audio received before is not kept. None disconnects."""

    async def hang_up(self) -> None:
        """Ends the leg for good. A leg that has ended stays so, without an error."""

    async def send_dtmf(self, digits: str) -> None:
        """Sends DTMF digits and returns when the last has been sent, or when the leg has ended. Raises
        ValueError for a character outside 0-9*#A-D."""
