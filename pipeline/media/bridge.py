"""A bridge: several legs mixed into one, so that participants of a room, phone calls and the agent hear each
other.

With one leg of the bridge's rate there is no mix: frames pass straight between that leg and the conversation.
With more the bridge mixes, 20 ms at a time on the pacer: every leg hears all others, the conversation hears
all legs that may speak. A human who listens to humans needs a jitter buffer, so `PREFILL` frames of each are
kept back. The bridge is itself a `pipeline.leg.Leg`: a conversation is the same with one leg or many.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from pipeline.audio import Pcm, frame_samples
from pipeline.audio.kernels import rms
from pipeline.audio.resample import Resampler
from pipeline.leg import AudioSource, Leg, LegListener
from pipeline.media.pacer import Pace, Pacer

ACTIVE: Final = 10 ** (-35 / 20)
"""Root mean square, of full scale, from which somebody speaks: -35 dBov, LiveKit's own figure."""

PREFILL: Final = 2
"""Frames kept back of each leg that others listen to: 40 ms of jitter."""

MAX_HELD: Final = 6
"""Frames kept of a leg at the most; of a burst beyond that the oldest are dropped: late is worse than
lost."""

_MEASURED: Final = 5

_FADES_S: Final = 1.5
"""In which what somebody said counts for a third of what is said now, where it is asked who speaks: a
recogniser's words are that much late."""


class Seat:
    """One leg in the mix: its listener and its source. `speaks`: others hear it."""

    __slots__ = (
        "_bridge",
        "_frames",
        "_held",
        "_in",
        "_loudest",
        "_out",
        "_ready",
        "_said",
        "_said_s",
        "leg",
        "speaks",
        "waiting",
    )  # fmt: skip

    def __init__(self, bridge: Bridge, leg: Leg, *, speaks: bool) -> None:
        self._bridge = bridge
        self.leg = leg
        self.speaks = speaks
        self.waiting: deque[Pcm] = deque(maxlen=3)  # mixed, not yet pulled by the leg's clock
        self._held: deque[Pcm] = deque(maxlen=MAX_HELD)
        self._ready = False
        self._frames = 0
        self._loudest = 0.0
        self._said = self._said_s = 0.0
        same = leg.rate_hz == bridge.rate_hz
        self._in = None if same else Resampler(leg.rate_hz, bridge.rate_hz)
        self._out = None if same else Resampler(bridge.rate_hz, leg.rate_hz)

    def take(self) -> Pcm | None:
        """Takes the leg's next frame for the mix; None: the leg has no audio."""
        if not self._ready:
            if len(self._held) < PREFILL:
                return None
            self._ready = True
        if self._held:
            return self._held.popleft()
        self._ready = False
        return None

    def measure(self, frame: Pcm, now: float) -> None:
        """Adds the frame to the leg's level, which is computed every fifth frame."""
        self._frames += 1
        if not self._frames % _MEASURED:
            level = rms(frame)
            self._loudest = max(self._loudest, level)
            if level >= ACTIVE * 32768:
                self._said, self._said_s = self.said(now) + level, now

    def said(self, now: float) -> float:
        """How much this leg spoke lately, decaying with time; 0.0: not at all yet."""
        return self._said * math.exp((self._said_s - now) / _FADES_S)

    def loudness(self) -> float:
        """The loudest since this was last asked: root mean square, 1 is full scale."""
        loudest, self._loudest = self._loudest, 0.0
        return loudest / 32768

    def give(self, frame: Pcm) -> None:
        """Queues a frame of the mix for the leg."""
        self.waiting.append(frame if self._out is None else self._out(frame).copy())

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        """Takes a frame of the leg into the mix, if the leg may speak (`LegListener`)."""
        if self.speaks:
            self.measure(frame, now)
            self._held.append(frame.copy() if self._in is None else self._in(frame).copy())

    def digit_received(self, digit: str, now: float) -> None:
        """Passes a DTMF digit to the bridge (`LegListener`)."""
        self._bridge.keyed(self.leg, digit, now)

    def leg_ended(self, reason: str, now: float) -> None:
        """Passes the end of the leg to the bridge (`LegListener`)."""
        self._bridge.ended(self, reason, now)

    def read(self) -> Pcm | None:
        """Gives the next frame of the mix, None where there is none (`AudioSource`)."""
        return self.waiting.popleft() if self.waiting else None

    def sent(self, now: float) -> None:
        """Does nothing: a mix keeps no account of what was sent (`AudioSource`)."""

    def on_ready(self, wake: Callable[[], None] | None) -> None:
        """Does nothing: a mix is paced by its own clock, and the leg reads at its next tick
        (`AudioSource`)."""


class _Direct:
    """The listener of a leg that is alone: passes everything on, and knows whose end it hears of."""

    __slots__ = ("_bridge", "_listener", "_seat")

    def __init__(self, bridge: Bridge, seat: Seat, listener: LegListener) -> None:
        self._bridge = bridge
        self._seat = seat
        self._listener = listener

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        if self._seat.speaks:
            self._seat.measure(frame, now)
            self._listener.audio_received(frame, self._bridge.place(position), now, concealed=concealed)

    def digit_received(self, digit: str, now: float) -> None:
        self._bridge.keyed(self._seat.leg, digit, now)

    def leg_ended(self, reason: str, now: float) -> None:
        self._bridge.ended(self._seat, reason, now)


class Bridge:
    """The legs of several participants as one leg of `rate_hz`."""

    def __init__(self, pacer: Pacer, *, rate_hz: int) -> None:
        self._pacer = pacer
        self._rate_hz = rate_hz
        self._samples = frame_samples(rate_hz)
        self._loop = asyncio.get_running_loop()
        self._seats: list[Seat] = []
        self._listener: LegListener | None = None
        self._source: AudioSource | None = None
        self._pace: Pace | None = None
        self._why_over = "gone"  # why nobody was left, for a conversation that begins after that
        self._next = 0  # the position that the conversation's next frame has
        self._offset: int | None = None  # of a lone leg's positions; None: to be found at its next frame
        self.on_left: Callable[[Leg], None] | None = None
        """Told of every leg that has ended."""
        self.on_key: Callable[[Leg, str], None] | None = None
        """Told of every key, and on which leg."""
        self.tap: Callable[[Sequence[tuple[Leg, Pcm]], int, float], None] | None = None
        """Given what each leg said in 20 ms of the mix, with its position and its moment."""

    @property
    def rate_hz(self) -> int:
        """The rate of the mix."""
        return self._rate_hz

    @property
    def held(self) -> bool:
        """Whether every leg that may speak is on hold."""
        speakers = [seat.leg for seat in self._seats if seat.speaks]
        return bool(speakers) and all(leg.held for leg in speakers)

    @property
    def seats(self) -> tuple[Seat, ...]:
        """The legs in the bridge."""
        return tuple(self._seats)

    def add(self, leg: Leg, *, speaks: bool = True) -> None:
        """Adds `leg`; with `speaks` False the leg only listens."""
        self._seats.append(Seat(self, leg, speaks=speaks))
        self._connect()

    def remove(self, leg: Leg) -> None:
        """Takes `leg` out without hanging it up; an unknown leg is ignored. The conversation goes on even
        without a leg, since another is about to be added."""
        for seat in [each for each in self._seats if each.leg is leg]:
            self._seats.remove(seat)
            leg.attach(None, None)
        self._connect()

    def end(self, reason: str) -> None:
        """Tells the conversation that its leg has ended, with `reason`."""
        self._why_over = reason
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.leg_ended(reason, self._loop.time())

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Connects the conversation with every leg; without a leg that may speak, ends it on the next turn of
        the loop."""
        if self._source is not None and self._source is not source:
            self._source.on_ready(None)
        self._listener, self._source = listener, source
        self._connect()
        if listener is not None and not any(seat.speaks for seat in self._seats):
            self._loop.call_soon(self.end, self._why_over)

    async def hang_up(self) -> None:
        """Hangs up every leg, all at the same time."""
        await asyncio.gather(*(seat.leg.hang_up() for seat in tuple(self._seats)))

    async def send_dtmf(self, digits: str) -> None:
        """Sends the digits to every leg."""
        await asyncio.gather(*(seat.leg.send_dtmf(digits) for seat in tuple(self._seats)))

    def speaking(self, now: float) -> Leg | None:
        """The leg that speaks now, or spoke last: of several the one that spoke most lately. None: none has
        spoken."""
        seats = [seat for seat in self._seats if seat.speaks and seat.said(now)]
        return max(seats, key=lambda seat: seat.said(now)).leg if seats else None

    # From the seats -----------------------------------------------------------------------------------------

    def keyed(self, leg: Leg, digit: str, now: float) -> None:
        """Takes a DTMF digit from a leg, for `on_key` and the conversation."""
        if self.on_key is not None:
            self.on_key(leg, digit)
        if self._listener is not None:
            self._listener.digit_received(digit, now)

    def ended(self, seat: Seat, reason: str, now: float) -> None:
        """A leg is gone; with the last one that may speak, the conversation's."""
        if seat not in self._seats:
            return
        self._seats.remove(seat)
        self._connect()
        if self.on_left is not None:
            self.on_left(seat.leg)
        if not any(each.speaks for each in self._seats):
            self.end(reason)

    def place(self, position: int) -> int:
        """Maps a lone leg's media position to the conversation's, which goes on where the mix before
        ended."""
        if self._offset is None:
            self._offset = self._next - position
        placed = position + self._offset
        self._next = placed + self._samples
        return placed

    # Connections --------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        """One leg of our rate: straight through. More, or another rate: through the mix."""
        if len(self._seats) == 1 and self._seats[0].leg.rate_hz == self._rate_hz:
            self._stop_mixing()
            self._offset = None
            (seat,) = self._seats
            listener = None if self._listener is None else _Direct(self, seat, self._listener)
            seat.leg.attach(listener or seat, self._source)
            return
        if not self._seats:
            self._stop_mixing()
            return
        for seat in self._seats:
            seat.leg.attach(seat, seat)
        if self._source is not None:
            self._source.on_ready(None)
        if self._pace is None:
            self._pace = self._pacer.add(self._tick, self._pacer.clock.time())

    def _stop_mixing(self) -> None:
        if self._pace is not None:
            self._pace.remove()
            self._pace = None

    def _tick(self, now: float) -> None:
        """20 ms of everybody."""
        source = self._source
        agent = source.read() if source is not None else None
        said = [(seat, frame) for seat in self._seats if (frame := seat.take()) is not None]
        for seat in self._seats:
            heard = [frame for other, frame in said if other is not seat]
            if agent is not None:
                heard.append(agent)
            if heard:
                seat.give(mixed(heard))
        if agent is not None and source is not None:
            source.sent(now)
        position, self._next = self._next, self._next + self._samples
        if self.tap is not None:
            self.tap([(seat.leg, frame) for seat, frame in said], position, now)
        if self._listener is not None and said:
            self._listener.audio_received(mixed([frame for _, frame in said]), position, now, concealed=False)


def mixed(frames: list[Pcm]) -> Pcm:
    """The sum, limited to 16 bits."""
    if len(frames) == 1:
        return frames[0]
    total = np.sum(frames, axis=0, dtype=np.int32)
    return np.clip(total, -32768, 32767).astype(np.int16)
