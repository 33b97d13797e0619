"""A leg onto which others can be patched while a session talks on it."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.leg import AudioSource, Leg, LegListener
from pipeline.media.bridge import Bridge
from pipeline.media.pacer import Pacer


class PatchedLeg:
    """The leg `alone`, until `patched` puts a bridge between it and the session, which goes on and does not
    notice. Nothing lies between them before: a call that nobody listens in on costs nothing.

    `position`: where the next frame of `alone` is on its media clock."""

    def __init__(self, alone: Leg, pacer: Pacer, position: Callable[[], int]) -> None:
        self._alone = alone
        self._pacer = pacer
        self._position = position
        self._listener: LegListener | None = None
        self._source: AudioSource | None = None
        self.bridge: Bridge | None = None
        """The bridge between them; None: there is none."""

    @property
    def rate_hz(self) -> int:
        """The rate of frames in both directions, in Hz."""
        return self._through.rate_hz

    @property
    def held(self) -> bool:
        """Whether the far end has put the call on hold."""
        return self._through.held

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Connects a session; None disconnects."""
        self._listener, self._source = listener, source
        self._through.attach(listener, source)

    async def hang_up(self) -> None:
        """Ends the leg and those patched onto it."""
        await self._through.hang_up()

    async def send_dtmf(self, digits: str) -> None:
        """Sends DTMF digits to all who are on it."""
        await self._through.send_dtmf(digits)

    def patched(self) -> Bridge:
        """Gives the bridge between leg and session, which stays from now on."""
        if self.bridge is None:
            bridge = Bridge(self._pacer, rate_hz=self._alone.rate_hz, position=self._position())
            self._alone.attach(None, None)
            self.bridge = bridge
            bridge.add(self._alone)
            bridge.attach(self._listener, self._source)
        return self.bridge

    @property
    def _through(self) -> Leg:
        return self._alone if self.bridge is None else self.bridge
