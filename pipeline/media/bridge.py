"""A bridge that mixes several legs into one, so that participants of a room, phone calls and the agent hear
each other.

A single leg at the bridge's rate needs no mix: its frames pass straight to the session. With more legs the
bridge mixes 20 ms at a time on the pacer: every leg and the session hear the roles that
`pipeline.media.who_hears` lets theirs hear. People who listen to each other need a jitter buffer, so the
bridge holds back `PREFILL` frames of each leg. The bridge is itself a `pipeline.leg.Leg`: a session is the
same with one leg or many.
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
from pipeline.media.recording import Recording
from pipeline.media.who_hears import HEARD, HEARS, STAYS, Role

ACTIVE: Final = 10 ** (-35 / 20)
"""Least level of speech, as root mean square with 1 for full scale: -35 dBov, as in LiveKit."""

PREFILL: Final = 2
"""Frames of a leg that are held back before the first is mixed: 40 ms of jitter."""

MAX_HELD: Final = 6
"""Most frames of a leg that wait for the mix; a burst beyond that drops the oldest frames, since late audio
is worse than lost audio."""

_MEASURED: Final = 5  # every fifth frame's level is computed

_FADES_S: Final = 1.5
"""Time constant in seconds with which a leg's share of speech decays, for `Bridge.speaking`: the recogniser's
words come that late."""


class Seat:
    """One leg in the mix, as the leg's listener and source. `muted`: silence is heard in its place.
    `heard_s`: loop time of its last frame, 0.0 before the first. `follower` takes each of its frames."""

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
        "follower",
        "heard_s",
        "leg",
        "muted",
        "role",
        "waiting",
    )  # fmt: skip

    def __init__(self, bridge: Bridge, leg: Leg, *, role: Role) -> None:
        self._bridge = bridge
        self.leg = leg
        self.role = role
        self.muted = False
        self.heard_s = 0.0
        self.follower: Callable[[Pcm, float], None] | None = None
        self.waiting: deque[Pcm] = deque(maxlen=3)  # mixed frames that the leg has not yet read
        self._held: deque[Pcm] = deque(maxlen=MAX_HELD)
        self._ready = False
        self._frames = 0
        self._loudest = 0.0
        self._said = self._said_s = 0.0
        same = leg.rate_hz == bridge.rate_hz
        self._in = None if same else Resampler(leg.rate_hz, bridge.rate_hz)
        self._out = None if same else Resampler(bridge.rate_hz, leg.rate_hz)

    @property
    def speaks(self) -> bool:
        """Whether anybody hears a leg of this role."""
        return self.role in HEARD

    @property
    def stays(self) -> bool:
        """Whether the conversation goes on for this leg."""
        return self.role in STAYS

    def take(self) -> Pcm | None:
        """Takes the leg's next frame for the mix; None: the leg has no audio, or not yet `PREFILL` frames."""
        if not self._ready:
            if len(self._held) < PREFILL:
                return None
            self._ready = True
        if self._held:
            return self._held.popleft()
        self._ready = False
        return None

    def let_through(self, frame: Pcm) -> Pcm:
        """Gives the leg's frame, or silence for a muted leg."""
        return np.zeros_like(frame) if self.muted else frame

    def measure(self, frame: Pcm, now: float) -> None:
        """Adds the frame to the leg's level, which is computed every fifth frame."""
        self._frames += 1
        if not self._frames % _MEASURED:
            level = rms(frame)
            self._loudest = max(self._loudest, level)
            if level >= ACTIVE * 32768:
                self._said, self._said_s = self.said(now) + level, now

    def said(self, now: float) -> float:
        """The sum of the leg's levels of speech, each decayed over the time since; 0.0: no speech yet."""
        return self._said * math.exp((self._said_s - now) / _FADES_S)

    def loudness(self) -> float:
        """The highest level since the last call of this method: root mean square, 1 is full scale."""
        loudest, self._loudest = self._loudest, 0.0
        return loudest / 32768

    def give(self, frame: Pcm) -> None:
        """Queues a frame of the mix for the leg."""
        self.waiting.append(frame if self._out is None else self._out(frame).copy())

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        """Takes a frame of the leg into the mix, if the leg may speak (`LegListener`)."""
        self.heard_s = now
        if self.speaks:
            frame = self.let_through(frame)
            self.measure(frame, now)
            frame = frame.copy() if self._in is None else self._in(frame).copy()
            self._held.append(frame)
            if self.follower is not None:
                self.follower(frame, now)

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
    """The listener of a single leg: passes frames and events on without a mix."""

    __slots__ = ("_bridge", "_listener", "_seat")

    def __init__(self, bridge: Bridge, seat: Seat, listener: LegListener) -> None:
        self._bridge = bridge
        self._seat = seat
        self._listener = listener

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        frame = self._seat.let_through(frame)
        self._seat.measure(frame, now)
        self._listener.audio_received(frame, self._bridge.place(position), now, concealed=concealed)

    def digit_received(self, digit: str, now: float) -> None:
        self._bridge.keyed(self._seat.leg, digit, now)

    def leg_ended(self, reason: str, now: float) -> None:
        self._bridge.ended(self._seat, reason, now)


class _Silent:
    """The session's audio as silence, at the session's pace (`AudioSource`). A frame counts as sent when it
    is read: a line reads ahead, and what it has when the silence ends never leaves."""

    __slots__ = ("_source", "_time", "on_ready")

    def __init__(self, source: AudioSource, time: Callable[[], float]) -> None:
        self._source, self._time = source, time
        self.on_ready = source.on_ready

    def read(self) -> Pcm | None:
        frame = self._source.read()
        if frame is None:
            return None
        self._source.sent(self._time())
        return np.zeros_like(frame)

    def sent(self, now: float) -> None: ...


class Bridge:
    """The legs of several participants as one leg of `rate_hz`."""

    def __init__(self, pacer: Pacer, *, rate_hz: int, position: int = 0) -> None:
        """`position`: of the first frame, for a session that was on another leg before."""
        self._pacer = pacer
        self._rate_hz = rate_hz
        self._samples = frame_samples(rate_hz)
        self._loop = asyncio.get_running_loop()
        self._seats: list[Seat] = []
        self._listener: LegListener | None = None
        self._source: AudioSource | None = None
        self._source_muted = False
        self._pace: Pace | None = None
        self._why_over = "gone"  # the last leg's reason, for a session that is attached later
        self._role = Role.AGENT
        self._next = position  # position of the session's next frame
        self._offset: int | None = None  # of a single leg's positions; None: set at the leg's next frame
        self.on_left: Callable[[Leg], None] | None = None
        """Called with every leg that has ended."""
        self.on_key: Callable[[Leg, str], None] | None = None
        """Called with the leg and the digit of every DTMF digit."""
        self.tap: Callable[[Sequence[tuple[Seat, Pcm]], int, float], None] | None = None
        """Called every 20 ms of a mix with the frames of the legs that had one and that a caller may hear,
        the mix's position and the loop time."""

    @property
    def rate_hz(self) -> int:
        """The sample rate of the mix, in Hz."""
        return self._rate_hz

    @property
    def held(self) -> bool:
        """Whether every leg that the conversation is with is on hold."""
        legs = [seat.leg for seat in self._seats if seat.stays]
        return bool(legs) and all(leg.held for leg in legs)

    @property
    def seats(self) -> tuple[Seat, ...]:
        """The legs in the bridge."""
        return tuple(self._seats)

    @property
    def role(self) -> Role:
        """The role of the session, AGENT or PAUSED_AGENT."""
        return self._role

    @role.setter
    def role(self, role: Role) -> None:
        self._role = role
        self._connect()

    def seat(self, leg: Leg) -> Seat | None:
        """The seat of `leg`; None: it is not in the bridge."""
        return next((seat for seat in self._seats if seat.leg is leg), None)

    def add(self, leg: Leg, *, role: Role = Role.CALLER) -> None:
        """Adds `leg` in a role, by which it is heard and hears."""
        self._seats.append(Seat(self, leg, role=role))
        self._connect()

    def change_role(self, leg: Leg, role: Role) -> None:
        """Gives `leg` another role; an unknown leg is ignored."""
        seat = self.seat(leg)
        if seat is not None:
            seat.role = role
            self._connect()

    def remove(self, leg: Leg) -> None:
        """Removes `leg` without hanging it up; an unknown leg is ignored. The session goes on even without a
        leg, since another is about to be added."""
        for seat in [each for each in self._seats if each.leg is leg]:
            self._seats.remove(seat)
            leg.attach(None, None)
        self._connect()

    def mute(self, leg: Leg, muted: bool) -> None:
        """Sets whether silence is heard in place of `leg`; an unknown leg is ignored."""
        seat = self.seat(leg)
        if seat is not None:
            seat.muted = muted

    def mute_source(self, muted: bool) -> None:
        """Sets whether the legs hear silence in place of the session, whose audio goes on at its pace."""
        self._source_muted = muted
        self._connect()

    def end(self, reason: str) -> None:
        """Tells the session that its leg has ended, for `reason`."""
        self._why_over = reason
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.leg_ended(reason, self._loop.time())

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Connects the session with every leg; without a leg to converse with, ends the session on the next
        turn of the loop."""
        if self._source is not None and self._source is not source:
            self._source.on_ready(None)
        self._listener, self._source = listener, source
        self._connect()
        if listener is not None and not any(seat.stays for seat in self._seats):
            self._loop.call_soon(self.end, self._why_over)

    async def hang_up(self) -> None:
        """Hangs up every leg, all at the same time."""
        await asyncio.gather(*(seat.leg.hang_up() for seat in tuple(self._seats)))

    async def send_dtmf(self, digits: str) -> None:
        """Sends the digits to every leg."""
        await asyncio.gather(*(seat.leg.send_dtmf(digits) for seat in tuple(self._seats)))

    def speaking(self, now: float) -> Leg | None:
        """The leg that speaks now or spoke last, by `Seat.said`. None: no leg has spoken."""
        seats = [seat for seat in self._seats if seat.speaks and seat.said(now)]
        return max(seats, key=lambda seat: seat.said(now)).leg if seats else None

    # From the seats -----------------------------------------------------------------------------------------

    def keyed(self, leg: Leg, digit: str, now: float) -> None:
        """Passes a leg's DTMF digit to `on_key` and the session."""
        if self.on_key is not None:
            self.on_key(leg, digit)
        if self._listener is not None:
            self._listener.digit_received(digit, now)

    def ended(self, seat: Seat, reason: str, now: float) -> None:
        """Removes the seat of a leg that has ended; without a leg to converse with, ends the session."""
        if seat not in self._seats:
            return
        self._seats.remove(seat)
        self._connect()
        if self.on_left is not None:
            self.on_left(seat.leg)
        if not any(each.stays for each in self._seats):
            self.end(reason)

    def place(self, position: int) -> int:
        """Maps a single leg's media position to the session's, which goes on where the mix before ended."""
        if self._offset is None:
            self._offset = self._next - position
        placed = position + self._offset
        self._next = placed + self._samples
        return placed

    # Connections --------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        """Attaches the legs: a single leg at the bridge's rate to the session, else all legs to the mix."""
        if len(self._seats) == 1 and self._is_straight(self._seats[0]):
            self._stop_mixing()
            self._offset = None
            (seat,) = self._seats
            listener = None if self._listener is None else _Direct(self, seat, self._listener)
            source = self._source
            if source is not None and self._source_muted:
                source = _Silent(source, self._loop.time)
            seat.leg.attach(listener or seat, source)
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

    def _is_straight(self, seat: Seat) -> bool:
        """Whether a leg alone needs no mix: it and the session hear each other, at one rate."""
        both = seat.role in HEARS[self._role] and self._role in HEARS[seat.role]
        return both and seat.leg.rate_hz == self._rate_hz and seat.follower is None

    def _stop_mixing(self) -> None:
        if self._pace is not None:
            self._pace.remove()
            self._pace = None

    def _tick(self, now: float) -> None:
        """Mixes 20 ms of all legs and the agent."""
        source = self._source
        agent = source.read() if source is not None else None
        said = [(seat, frame) for seat in self._seats if (frame := seat.take()) is not None]
        for seat in self._seats:
            hears = HEARS[seat.role]
            heard = [frame for other, frame in said if other is not seat and other.role in hears]
            if agent is not None and self._role in hears and not self._source_muted:
                heard.append(agent)
            if heard:
                seat.give(mixed(heard))
        if agent is not None and source is not None:
            source.sent(now)
        position, self._next = self._next, self._next + self._samples
        if self.tap is not None:
            aloud = HEARS[Role.CALLER]
            self.tap([each for each in said if each[0].role in aloud], position, now)
        to_session = [frame for seat, frame in said if seat.role in HEARS[self._role]]
        if self._listener is not None and to_session:
            self._listener.audio_received(mixed(to_session), position, now, concealed=False)


def record(recording: Recording, said: Sequence[tuple[Seat, Pcm]], position: int, now: float) -> None:
    """Records what a `Bridge.tap` is called with: the callers left, the company's people right."""
    callers = [frame for seat, frame in said if seat.role is Role.CALLER]
    others = [frame for seat, frame in said if seat.role is not Role.CALLER]
    if callers:
        recording.caller(mixed(callers), position, now)
    if others:
        recording.agent(mixed(others), now)


def mixed(frames: list[Pcm]) -> Pcm:
    """The sum of frames of one length, int16, limited to 16 bits. A single frame is returned as it is."""
    if len(frames) == 1:
        return frames[0]
    total = np.sum(frames, axis=0, dtype=np.int32)
    return np.clip(total, -32768, 32767).astype(np.int16)
