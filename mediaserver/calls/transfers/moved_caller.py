"""The far end of a phone call whose REFERs are obeyed: the agent goes on with whom they name.

A REFER leads only where the agent's own transfer could, by the same rules of dialling, and nobody is called
twice in a call, whether a REFER or the agent's own transfer named the person before. Until the named person
has answered, the far end stays, if it likes; a far end that hangs up after its REFER leaves the agent
waiting."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from mediaserver.calls.detail_record import CallDetailRecord
from mediaserver.calls.outbound_legs import CALLED_BEFORE, DialRefused, OutboundLegs, Route
from mediaserver.errors import StoreError
from pipeline.errors import boundary
from pipeline.leg import AudioSource, LegListener
from pipeline.media.bridge import Bridge
from sip.call import Call, CallFailed, decline, keep_place
from sip.dialog.events import Move
from sip.errors import SipError
from sip.states import CallState

log = logging.getLogger(__name__)

EVENT: Final = "call.transferred"
RUNG: Final = "far_end"

UNAVAILABLE, DECLINED, TEMPORARILY, PENDING = 503, 603, 480, 491


class _Place:
    """A leg without sound, which keeps the conversation while nobody is there."""

    held = False

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Attaches nothing: a place neither hears nor speaks."""

    async def hang_up(self) -> None:
        """Does nothing: nobody is there."""

    async def send_dtmf(self, digits: str) -> None:
        """Drops the digits: nobody is there."""


class MovedCaller:
    """The bridge on which the agent talks with the far end of `call`, or whom its REFERs named since.
    `dialled`: the numbers that are not called again in this call, shared with the agent's own transfers."""

    def __init__(self, legs: OutboundLegs, call: Call, cdr: CallDetailRecord, dialled: set[str]) -> None:
        self.call = call
        """The telephone that the agent talks with."""
        self.bridge = Bridge(legs.pacer, rate_hz=call.rate_hz)
        self.bridge.add(call)
        self._legs = legs
        self._cdr = cdr
        self._moving: asyncio.Task[None] | None = None
        self._dialled = dialled
        self._obey(call)

    async def pause(self) -> None:
        """Obeys nothing until `resume`, and ends a call that a REFER asked for."""
        self.call.on_refer, self.call.on_replace = decline, lambda old, new: PENDING
        if self._moving is not None:
            await asyncio.sleep(0)  # one that was begun in this moment ends its own call
            self._moving.cancel()
            await asyncio.gather(self._moving, return_exceptions=True)

    def resume(self) -> None:
        """Obeys the far end again."""
        self._obey(self.call)

    async def close(self) -> None:
        """Obeys no REFER any more and ends a call that one asked for."""
        await self.pause()
        self.call.on_refer, self.call.on_replace = decline, keep_place

    def _obey(self, call: Call) -> None:
        call.on_refer, call.on_replace = self._asked, self._replaced

    @property
    def _busy(self) -> bool:
        return self._moving is not None and not self._moving.done()

    def _replaced(self, old: Call, new: Call) -> int:
        if old is not self.call or self._busy:
            return PENDING
        place = _Place(self.bridge.rate_hz)
        self.bridge.add(place)  # at once: the far end may hang up in this moment
        self._moving = asyncio.create_task(self._give_place(old, new, place))
        return 0

    async def _give_place(self, old: Call, new: Call, place: _Place) -> None:
        """Answers `new`, with which the agent goes on, and hangs `old` up (RFC 3891 3)."""
        self._legs.follow(new, self._cdr.claim.call_id)
        try:
            with boundary(log, "replacement failed", **self._cdr.fields()):
                await self._answered(new)
        finally:
            self.bridge.remove(place)
            if self.call is new:
                self.bridge.remove(old)
                await old.hang_up()
            elif old.state is CallState.ENDED:
                self.bridge.end("remote")

    async def _answered(self, new: Call) -> None:
        try:
            await new.answer()
        except SipError as error:
            log.info("replacement failed", extra={**self._cdr.fields(), "reason": str(error)})
            return
        except asyncio.CancelledError:
            await new.hang_up()
            raise
        self.call = new
        self._obey(new)
        self.bridge.add(new)
        self._cdr.tell(EVENT, {"target": new.remote_number, "outcome": "answered", "rung": RUNG})

    def _asked(self, call: Call, move: Move) -> None:
        if self._busy:
            call.tell(move, DECLINED)
            return
        place = _Place(self.bridge.rate_hz)
        self.bridge.add(place)  # at once: the far end may hang up in this moment
        self._moving = asyncio.create_task(self._move(call, move, place))

    async def _move(self, old: Call, move: Move, place: _Place) -> None:
        status = UNAVAILABLE
        try:
            with boundary(log, "referral failed", **self._cdr.fields()):
                status = await self._reached(move)
        finally:
            old.tell(move, status)
            self.bridge.remove(place)
            if status == 200:
                self.bridge.remove(old)
                await old.hang_up()
            elif old.state is CallState.ENDED:
                self.bridge.end("remote")

    async def _reached(self, move: Move) -> int:
        """Calls whom a REFER names; returns the status that the far end is told."""
        claim, legs = self._cdr.claim, self._legs
        person: Call | None = None
        try:
            route = await legs.route(claim.agent_id, legs.named_by(claim.agent_id, move.to))
            if route.number in self._dialled:
                raise DialRefused(CALLED_BEFORE)
            person = await self._dial(route)
            await person.answered()
        except DialRefused as refused:
            log.info("referral refused", extra={**self._cdr.fields(), "reason": str(refused)})
            return DECLINED
        except CallFailed as failed:
            return failed.code if failed.code >= 300 else TEMPORARILY
        except (SipError, StoreError, OSError) as error:
            log.info("referral failed", extra={**self._cdr.fields(), "reason": str(error)})
            return UNAVAILABLE
        except asyncio.CancelledError:
            if person is not None:
                await person.hang_up()
            raise
        self.call = person
        self._obey(person)
        self.bridge.add(person)
        self._cdr.tell(EVENT, {"target": route.number, "outcome": "answered", "rung": RUNG})
        return 200

    async def _dial(self, route: Route) -> Call:
        """Calls whom `route` leads to. Where no INVITE could leave the number may be named again."""
        claim = self._cdr.claim
        self._dialled.add(route.number)
        try:
            return await self._legs.dial(
                route,
                call_id=f"{claim.call_id}-referred-{len(self._dialled)}",
                leg_of=claim.call_id,
                variables=claim.variables,
            )
        except (DialRefused, SipError, OSError):
            self._dialled.discard(route.number)
            raise
