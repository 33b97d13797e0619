"""Connects a caller with a person: ring-back while the person's telephone rings, then both hear each other.

```
RINGING ── answered, and taken ──► TALKING ── either hangs up ──► OVER
   ├── the carrier has the caller ────────────────────────────────┤
   └── not reached, or declined ──► REGRETTING ── words heard ────┘
```

The carrier is asked first where it may (`mediaserver.calls.transfers.carrier_referral`), and once more while
both talk: the caller then hears the person without a break, whatever the carrier answers.

There is never dead air: the words for a person who is not reached are synthesised while the telephone rings.
The agent takes no part; the call, its recording and its record go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from typing import Final

import numpy as np

from mediaserver.calls.outbound_legs import DialRefused
from mediaserver.calls.transfers.carrier_referral import AFTER_BYE_S, Attempt, CarrierReferral, Rung, Said
from pipeline.audio import Pcm, frame_samples
from pipeline.leg import Leg
from pipeline.media.bridge import Bridge, record
from pipeline.media.playout import Playout
from pipeline.media.recording import Recording
from pipeline.media.utterance import Utterance
from pipeline.media.who_hears import Role
from sip.call import Call, CallFailed
from sip.errors import SipError

log = logging.getLogger(__name__)

HANDING_OVER_S: Final = 5.0
"""Seconds after one of both has hung up in which the carrier may say that it has connected them."""

RING_HZ: Final = 425
RING_ON_S: Final = 1.0
RING_CYCLE_S: Final = 5.0
"""Ring-back as in most of the world (ITU-T E.180: 425 Hz, one second in five)."""

MAX_TALK_S: Final = 4 * 3600.0
"""The longest conversation, in seconds: after it a phone was left off the hook."""

REGRET_LIMIT_S: Final = 30.0

Dial = Callable[[], Awaitable[Call]]
"""Places the call to the person. Raises `DialRefused`, `SipError`, OSError."""

Brief = Callable[[Call], Awaitable[bool]]
"""Tells a person who has answered about the call; False: they do not take it. Never raises."""

HandOver = Callable[[Call], CarrierReferral]
"""Makes the referral by which the carrier connects the caller with this person itself."""


@dataclass(slots=True)
class Ladder:
    """The rungs of one transfer. `refer`: tried before the person is called; `hand_over`: tried while both
    talk; `bridge` False: the person is not called from here. `brief`: asks the person before the caller is
    connected. `limit_s`: how long a telephone is waited for that tells nothing. `tried`: what came of the
    carrier's rungs."""

    dial: Dial
    refer: CarrierReferral | None = None
    hand_over: HandOver | None = None
    bridge: bool = True
    brief: Brief | None = None
    limit_s: float | None = None
    tried: list[Attempt] = field(default_factory=list)


Plan = Callable[[], Awaitable[Ladder]]
"""Finds the rungs. Raises `DialRefused` where the person may not be called at all."""

Regret = Callable[[int], Awaitable[Pcm]]
"""Synthesises the apology for a person who is not reached, at a rate in Hz. Never raises."""

_leftovers: set[asyncio.Task[None]] = set()
"""Calls being cancelled after their caller has hung up, bounded by SIP's timers, and keys being passed on,
bounded by the end of the leg."""


class TransferState(Enum):
    """The state of a transfer."""

    RINGING = auto()
    TALKING = auto()
    REGRETTING = auto()
    OVER = auto()


@dataclass(frozen=True, slots=True)
class TransferResult:
    """The result of a transfer. `outcome`: "answered", "abandoned" (the caller hung up first), or why nobody
    was reached: a cause of the API such as "busy", "no_answer", "refused". `rung`: the one that served."""

    outcome: str
    ring_ms: int
    talk_ms: int = 0
    ended_by: str = ""
    reason: str = ""
    rung: str = ""


class RingBack:
    """The ring-back tone that the caller hears while the called person's telephone rings (an
    `AudioSource`)."""

    def __init__(self, rate_hz: int, tap: Callable[[Pcm, float], None] | None = None) -> None:
        size = frame_samples(rate_hz)
        time_s = np.arange(int(RING_ON_S * rate_hz)) / rate_hz
        ramp = np.minimum(1.0, np.minimum(time_s, time_s[::-1]) / 0.02)
        tone = (3000 * ramp * np.sin(2 * np.pi * RING_HZ * time_s)).astype(np.int16)
        cycle = np.zeros(int(RING_CYCLE_S * rate_hz), np.int16)
        cycle[: tone.size] = tone
        self._frames = cycle.reshape(-1, size)
        self._at = 0
        self._tap = tap

    def read(self) -> Pcm | None:
        """Returns the next frame of the ring-back tone, which repeats without end."""
        frame: Pcm = self._frames[self._at]
        self._at = (self._at + 1) % len(self._frames)
        return frame

    def sent(self, now: float) -> None:
        """Passes the frame that was sent to the recording's tap."""
        if self._tap is not None:
            self._tap(self._frames[self._at - 1], now)

    def on_ready(self, wake: Callable[[], None] | None) -> None:
        """Wakes the leg at once: the tone sounds from the start."""
        if wake is not None:
            wake()


class TransferBridge:
    """Connects one caller (all legs of `bridge`) with one person; `run` once. Also the `LegListener` of the
    bridge, and the `PlayoutListener` of the apology."""

    def __init__(
        self,
        bridge: Bridge,
        *,
        plan: Plan,
        regret: Regret,
        recording: Recording | None,
    ) -> None:
        self._bridge = bridge
        self._plan = plan
        self._ladder: Ladder | None = None  # once the rungs are known
        self._referral: CarrierReferral | None = None  # under way while both talk
        self._regret = regret
        self._recording = recording
        self._loop = asyncio.get_running_loop()
        self._call: Call | None = None
        self._state = TransferState.RINGING
        self._over = asyncio.Event()
        self._told = asyncio.Event()
        self._ended_by = ""
        self._left_first = ""  # who hung up while the carrier was asked to connect both
        self.on_answer: Callable[[Call], None] | None = None
        """Called when the person has answered."""

    async def run(self) -> TransferResult:
        """Runs the transfer; returns when it is over, with the callers' legs still up, unless they hung
        up."""
        bridge, began = self._bridge, self._loop.time()
        tap = self._recording.agent if self._recording is not None else None
        bridge.on_left = self._left
        bridge.attach(self, RingBack(bridge.rate_hz, tap))
        try:
            return await self._run(began)
        finally:
            self._state = TransferState.OVER
            bridge.on_left = bridge.on_key = bridge.tap = None
            bridge.attach(None, None)
            if self._call is not None:
                bridge.remove(self._call)
                await self._call.hang_up()

    def stop(self) -> None:
        """Ends the transfer for the server ("server" in its result)."""
        self._end("server")

    async def _run(self, began: float) -> TransferResult:
        words = asyncio.create_task(self._words())
        over = asyncio.create_task(self._over.wait())
        try:
            failure = await self._climb(over)
            ring_ms = round((self._loop.time() - began) * 1000)
            if failure is None:
                return await self._talk(ring_ms)
            return await self._not_talking(failure, ring_ms, words)
        finally:
            for task in (over, words):
                task.cancel()
            await asyncio.gather(over, words, return_exceptions=True)

    async def _climb(self, over: asyncio.Task[bool]) -> tuple[str, str] | None:
        """Tries the rungs in order; returns None when the person has answered here, else how it ended."""
        planning = asyncio.ensure_future(self._plan())
        await asyncio.wait((planning, over), return_when=asyncio.FIRST_COMPLETED)
        if not planning.done():
            planning.cancel()
            return Said.ABANDONED, ""
        try:
            self._ladder = ladder = planning.result()
        except DialRefused as refused:
            return Said.REFUSED, str(refused)
        if ladder.refer is not None:
            attempt = await self._referred(ladder.refer, over)
            ladder.tried.append(attempt)
            if not attempt.goes_on:
                return attempt.outcome, ""
            if attempt.never_refers:
                ladder.hand_over = None
        if self._over.is_set():
            return Said.ABANDONED, ""
        if not ladder.bridge:
            return Said.REFUSED, "the carrier does not transfer the call"
        return await self._call_person(ladder.dial, over) or await self._briefed(ladder.brief, over)

    async def _referred(self, referral: CarrierReferral, over: asyncio.Task[bool]) -> Attempt:
        asking = asyncio.create_task(referral.run())
        await asyncio.wait((asking, over), return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            referral.left(0.0 if self._ended_by == "server" else AFTER_BYE_S)
        return await asking

    async def _call_person(self, dial: Dial, over: asyncio.Task[bool]) -> tuple[str, str] | None:
        """Calls the person from here; returns None when they have answered, else the cause and the reason."""
        dialling = asyncio.create_task(self._try(dial))
        limit_s = self._ladder.limit_s if self._ladder is not None else None
        await asyncio.wait((dialling, over), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if dialling.done():
            return dialling.result()
        await self._abandon(dialling)
        return (Said.ABANDONED if self._over.is_set() else Said.UNKNOWN), ""

    async def _briefed(self, brief: Brief | None, over: asyncio.Task[bool]) -> tuple[str, str] | None:
        """Lets the person who has answered decide, while the caller hears the ring; None: the caller is
        taken."""
        if brief is None or self._call is None:
            return None
        briefing = asyncio.ensure_future(brief(self._call))
        await asyncio.wait((briefing, over), return_when=asyncio.FIRST_COMPLETED)
        if not briefing.done():
            briefing.cancel()
            await asyncio.gather(briefing, return_exceptions=True)
            return Said.ABANDONED, ""
        return None if briefing.result() else (Said.DECLINED, "")

    async def _not_talking(
        self, failure: tuple[str, str], ring_ms: int, words: asyncio.Task[Pcm]
    ) -> TransferResult:
        """Ends a transfer without a conversation over the bridge."""
        outcome, reason = failure
        tried = self._ladder.tried if self._ladder is not None else []
        if tried and tried[-1].served:
            return TransferResult(outcome, ring_ms, ended_by="carrier", rung=tried[-1].rung)
        if not self._over.is_set():
            await self._say(await words)
        return TransferResult(outcome, ring_ms, ended_by=self._ended_by or "server", reason=reason)

    async def _words(self) -> Pcm:
        return await self._regret(self._bridge.rate_hz)

    async def _try(self, dial: Dial) -> tuple[str, str] | None:
        """Calls the person; returns None when they have answered, else the cause and the reason."""
        try:
            self._call = call = await dial()
            if self._over.is_set():
                await call.hang_up()
            await call.answered()
        except DialRefused as refused:
            return "refused", str(refused)
        except CallFailed as failed:
            return failed.cause.value, str(failed)
        except (SipError, OSError) as error:
            return "unreachable", str(error)
        return None

    async def _abandon(self, dialling: asyncio.Task[tuple[str, str] | None]) -> None:
        if self._call is not None:
            await self._call.hang_up()
        else:
            dialling.cancel()  # no INVITE has left, and none may: it may wait for its signature

        async def finish() -> None:
            await asyncio.wait((dialling,))
            if not dialling.cancelled() and dialling.result() is None and self._call is not None:
                await self._call.hang_up()  # answered in the same moment

        task = asyncio.create_task(finish())
        _leftovers.add(task)
        task.add_done_callback(_leftovers.discard)

    async def _talk(self, ring_ms: int) -> TransferResult:
        call, began = self._call, self._loop.time()
        if call is None or self._over.is_set():
            return TransferResult("abandoned", ring_ms, ended_by=self._ended_by)
        self._state = TransferState.TALKING
        self._bridge.attach(self, None)
        if self._recording is not None:
            self._bridge.tap = partial(record, self._recording)
        self._bridge.on_key = self._pass_on
        self._bridge.add(call, role=Role.COLLEAGUE)
        if self.on_answer is not None:
            self.on_answer(call)
        handing = asyncio.create_task(self._hand_over(call))
        try:
            async with asyncio.timeout(MAX_TALK_S):
                await self._over.wait()
        except TimeoutError:
            self._ended_by = "server"
        finally:
            handing.cancel()
            await asyncio.gather(handing, return_exceptions=True)
        rung = Rung.REPLACES if self._ended_by == "carrier" else Rung.BRIDGE
        talk_ms = round((self._loop.time() - began) * 1000)
        return TransferResult("answered", ring_ms, talk_ms, self._ended_by, rung=rung)

    async def _hand_over(self, call: Call) -> None:
        """Lets the carrier connect caller and person itself, while both talk over the bridge."""
        ladder = self._ladder
        if ladder is None or ladder.hand_over is None:
            return
        self._referral = ladder.hand_over(call)
        attempt = await self._referral.run()
        self._referral = None
        if attempt.outcome == Said.REFERRED and self._bridge.seats:
            attempt = replace(attempt, outcome=Said.UNKNOWN)  # one hung up, the other is still here
        ladder.tried.append(attempt)
        if attempt.served:
            self._end("carrier")
        elif self._left_first:
            self._end(self._left_first)

    async def _say(self, words: Pcm) -> None:
        if self._over.is_set() or not words.size:
            return
        self._state = TransferState.REGRETTING
        playout = Playout(self._bridge.rate_hz, self)
        playout.tap = self._recording.agent if self._recording is not None else None
        self._bridge.attach(self, playout)
        playout.interject("", words)
        told, over = (asyncio.ensure_future(each.wait()) for each in (self._told, self._over))
        await asyncio.wait((told, over), timeout=REGRET_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        for task in (told, over):
            task.cancel()

    # Events -------------------------------------------------------------------------------------------------

    def _pass_on(self, leg: Leg, digit: str) -> None:
        """Passes a key on to the other legs: there may be a menu at the other end."""
        for seat in self._bridge.seats:
            if seat.leg is not leg:
                task = asyncio.create_task(_key(seat.leg, digit))
                _leftovers.add(task)
                task.add_done_callback(_leftovers.discard)

    def _left(self, leg: Leg) -> None:
        if leg is self._call:
            self._gone("callee")
        elif not any(seat.stays and seat.leg is not self._call for seat in self._bridge.seats):
            self._gone("caller")

    def _gone(self, who: str) -> None:
        """Ends the transfer; not yet while the carrier may be connecting both, since it hangs up one before
        the other, who hears the ring meanwhile."""
        if self._referral is None:
            self._end(who)
            return
        self._left_first = self._left_first or who
        self._referral.left(HANDING_OVER_S if self._bridge.seats else 0.0)
        if self._bridge.seats:
            self._bridge.attach(self, RingBack(self._bridge.rate_hz))

    def _end(self, by: str) -> None:
        self._ended_by = self._ended_by or by
        self._over.set()

    # From the bridge (`LegListener`) ------------------------------------------------------------------------

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        """Records the callers' audio until the person has answered."""
        if self._recording is not None and self._state is not TransferState.TALKING:
            self._recording.caller(frame, position, now)

    def digit_received(self, digit: str, now: float) -> None:
        """Ignores digits during ring-back; later the bridge passes them on."""

    def leg_ended(self, reason: str, now: float) -> None:
        """Ends the transfer: every caller has hung up."""
        self._gone("caller")

    # From the apology's playout (`PlayoutListener`) ---------------------------------------------------------

    def playout_filled(self) -> None:
        """Does nothing; part of `PlayoutListener`."""

    def utterance_started(self, utterance: Utterance, now: float) -> None:
        """Does nothing; part of `PlayoutListener`."""

    def utterance_finished(self, utterance: Utterance, now: float) -> None:
        """Does nothing; part of `PlayoutListener`."""

    def playout_ran_out(self, now: float) -> None:
        """Notes that the caller has heard the apology."""
        self._told.set()


async def _key(leg: Leg, digit: str) -> None:
    try:
        await leg.send_dtmf(digit)
    except SipError as error:
        log.info("key not passed on", extra={"reason": str(error)})


class Visit:
    """Adds callers (all legs of `bridge`) to a room's bridge as one more leg. Ends with the last caller, or
    with the room, which hangs them up."""

    def __init__(self, bridge: Bridge, people: Bridge) -> None:
        self._bridge = bridge
        self._people = people
        self._over = asyncio.Event()
        self._ended_by = ""

    async def run(self) -> TransferResult:
        """Joins the room; returns when the last caller or the room has left."""
        bridge, loop = self._bridge, asyncio.get_running_loop()
        began = loop.time()
        bridge.on_left = self._left
        self._left(None)
        self._people.add(bridge)
        try:
            async with asyncio.timeout(MAX_TALK_S):
                await self._over.wait()
        except TimeoutError:
            self._ended_by = "server"
        finally:
            bridge.on_left = None
            self._people.remove(bridge)
            bridge.attach(None, None)
        return TransferResult("answered", 0, round((loop.time() - began) * 1000), self._ended_by)

    def stop(self) -> None:
        """Ends the visit for the server, unless it has ended."""
        self._ended_by = self._ended_by or "server"
        self._over.set()

    def _left(self, leg: Leg | None) -> None:
        if not any(seat.stays for seat in self._bridge.seats):
            self._ended_by = self._ended_by or "caller"
            self._over.set()
