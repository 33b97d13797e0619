"""One live phone call: from the claim of the ledger (or the caller's INVITE) to its outcome in the store.

```
outbound:  claim → tools asked → arm (committed) → trunk.call → answered → Session → outcome
inbound:   Call offered → recorded → answer → Session → outcome
```

The journal writes events of the call to the store, in order and off the media path. Only `arm`, which decides
whether the call may be dialled, is awaited, since no INVITE may be sent before `arm` is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Any
from uuid import uuid4

from mediaserver.calls.detail_record import CallDetailRecord
from mediaserver.calls.live_conversation import LiveConversation
from mediaserver.calls.pre_call_tools import OBJECTED
from mediaserver.calls.services import CallProfile, CallServices
from mediaserver.calls.signalling.fields import allowed, ended, to_send
from mediaserver.calls.transfers.agents_leg import AgentsLeg
from mediaserver.calls.transfers.transfer import conversed, was_transferred
from mediaserver.calls.trunk_hunt import Line, TrunkHunt, signed
from mediaserver.errors import StoreError
from mediaserver.queue.records import CallStatus, Claim, Outcome
from pipeline.call_progress.answer_detection import AnswerDetector, EarlyMediaListener
from pipeline.text.templates import fill
from sip.call import Call, CallFailed
from sip.endpoint import Endpoint
from sip.errors import SipError
from sip.states import CallState, Direction, HangupCause
from sip.trunk import TrunkUnavailable

log = logging.getLogger(__name__)

STATUS_BEFORE_ANSWER: Mapping[HangupCause, CallStatus] = {
    HangupCause.BUSY: CallStatus.BUSY,
    HangupCause.NO_ANSWER: CallStatus.NO_ANSWER,
    HangupCause.CANCELLED: CallStatus.CANCELLED,
}
"""The final status by cause of a call that was never answered; FAILED for every other cause."""

PROGRESS: Mapping[CallState, CallStatus] = {
    CallState.RINGING: CallStatus.RINGING,
    CallState.ANSWERED: CallStatus.ANSWERED,
}
"""The progress of a call that is written to the store at once; `arm` writes DIALING."""

STOOD_STILL = "this process stood still"
STOPPED = "The server stopped while it rang"


class PhoneCallState(Enum):
    """The state of a live call, as far as hanging up depends on it."""

    WAITING = auto()  # not armed
    PLACING = auto()  # armed, the INVITE about to be sent; or an inbound call, to be answered
    ABANDONED = auto()  # to be ended, before there was a `Call`
    CONNECTED = auto()  # there is a `Call`
    TALKING = auto()  # the conversation has begun
    OVER = auto()


class PhoneCall:
    """One call that this node holds. `dial` or (begun at PLACING) `take` runs it; both return when its
    outcome is written."""

    def __init__(
        self,
        claim: Claim,
        profile: CallProfile,
        services: CallServices,
        *,
        state: PhoneCallState = PhoneCallState.WAITING,
    ) -> None:
        self.cdr = CallDetailRecord(claim, services)
        self.conversation = LiveConversation(self.cdr, profile, services)
        self._profile = profile
        self._services = services
        self._line: AnswerDetector | None = None  # on outbound calls
        self._state = state
        self._reached = CallStatus.DIALING
        self._call: Call | None = None
        self._sip_call_id = uuid4().hex  # of the INVITE, written before it leaves
        self._passed: list[dict[str, Any]] = []  # trunks that did not take the call
        self._stopped = False  # the node stops
        self._asked = 0.0  # when the store was asked whether an INVITE may leave
        self.leg: AgentsLeg | None = None
        """Where the agent talks; None before the conversation and after it."""
        self.on_over: Callable[[], object] | None = None
        """Called once when the conversation is over: who joined it is put out."""

    # Dialling and answering ---------------------------------------------------------------------------------

    async def dial(self, endpoint: Endpoint, lines: Sequence[Line]) -> None:
        """Places the call over the first of `lines` that takes it, and converses. Never raises: a failure
        becomes the call's outcome."""
        self.conversation.dialled.add(self.cdr.claim.phone_number)
        objection = await self.conversation.prepare("outbound")
        if self._over():
            return  # given back meanwhile
        if objection:
            self._finish(Outcome(status=CallStatus.FAILED, cause=OBJECTED, error=objection))
            await self.cdr.written
            return
        if not await self._arm():
            return
        if self._over():
            return  # given back meanwhile
        if self._state is PhoneCallState.ABANDONED:
            self._cancelled()
        else:
            await self._place(endpoint, lines)
        await self.cdr.written

    async def take(self, call: Call) -> None:
        """Answers an inbound call and converses. Never raises."""
        self.cdr.placed(call.direction.value, sip_call_id=call.sip_call_id)
        try:
            await call.ring()
            await call.answer()
        except SipError as error:
            log.info("caller was gone before the answer", extra={**self.cdr.fields(), "reason": str(error)})
        await self._follow(call)
        await self.cdr.written

    async def hang_up(self) -> None:
        """Ends the call in any state. Returns when the hang-up is requested, not when the call is over."""
        if self._state in (PhoneCallState.WAITING, PhoneCallState.PLACING):
            self._state = PhoneCallState.ABANDONED
        elif self._state is PhoneCallState.CONNECTED and self._call is not None:
            await self._call.hang_up()
        elif self._state is PhoneCallState.TALKING:
            self.conversation.stop()

    def give_back(self) -> None:
        """Returns a call that is not armed to the queue, because the node takes no more calls; others go
        on."""
        if self._state is PhoneCallState.WAITING:
            self._release("this node takes no more calls")

    async def give_up(self) -> None:
        """Ends the call like `hang_up`, because the node stops. An outbound call that is not answered yet is
        cancelled as if it had rung out, so that with the far end's final response it counts as an attempt and
        the agent's retry rules decide."""
        self._stopped = True
        self.give_back()
        if (
            self._call is not None
            and self._state is PhoneCallState.CONNECTED
            and self._unanswered_yet(self._call)
        ):
            await self._call.hang_up(HangupCause.NO_ANSWER)
        else:
            await self.hang_up()

    def _over(self) -> bool:
        return self._state is PhoneCallState.OVER

    def _abandoned(self) -> bool:
        return self._state is PhoneCallState.ABANDONED

    @staticmethod
    def _unanswered_yet(call: Call) -> bool:
        waiting = call.state in (CallState.DIALING, CallState.RINGING)
        return call.direction is Direction.OUTBOUND and waiting

    async def _place(self, endpoint: Endpoint, lines: Sequence[Line]) -> None:
        self._state = PhoneCallState.PLACING
        hunt = TrunkHunt(
            endpoint,
            lines,
            headers=self._headers,
            take=self._goes_over,
            figures=self._services.metrics.trunks,
        )
        self._passed = hunt.passed
        try:
            call = await hunt.call(call_id=self.cdr.call_id, sip_call_id=self._sip_call_id)
        except TrunkUnavailable as full:
            self._unplaced(str(full))
        except (SipError, OSError) as error:
            log.warning("call could not be placed", extra={**self.cdr.fields(), "reason": str(error)})
            if self._abandoned():
                self._abandon(str(error))
                return
            cause = error.cause if isinstance(error, CallFailed) else HangupCause.UNREACHABLE
            self._finish(Outcome(status=CallStatus.FAILED, cause=cause, error=str(error)))
        else:
            self.cdr.placed(call.direction.value, sip_call_id=call.sip_call_id)
            line = self._profile.engines.line
            self._line = AnswerDetector(line, fill(line.message, self.cdr.claim.variables))
            call.attach(EarlyMediaListener(self._line), None)
            await self._follow(call)

    def _unplaced(self, reason: str) -> None:
        self._release(reason)
        self.cdr.settle()

    def _abandon(self, reason: str) -> None:
        """Ends a call that was hung up, or whose node stopped, before any INVITE left."""
        if self._stopped:
            self._unplaced(reason)
        else:
            self._cancelled()

    def _cancelled(self) -> None:
        self._finish(Outcome(status=CallStatus.CANCELLED, cause=HangupCause.CANCELLED, ended_by="local"))

    async def _headers(self, line: Line) -> Mapping[str, str]:
        claim = self.cdr.claim
        wanted = claim.sip.get("headers", {}).items()
        asked = {name: value for name, value in wanted if allowed(name, line.trunk)}
        self.cdr.sip["headers"] = headers = to_send(line.trunk.send_headers, claim.variables, asked)
        headers = dict(await signed(self._services.signer, line, headers, given_up=self._abandoned))
        if self._stood_still(self._asked, asyncio.get_running_loop().time()):
            raise TrunkUnavailable(STOOD_STILL)
        return headers

    async def _goes_over(self, line: Line) -> bool:
        """Moves the call to another trunk, if it may go over that one."""
        trunk_id, dial_number = line.trunk.id, line.dial_number
        if self._abandoned():
            return False
        loop = asyncio.get_running_loop()
        self._asked = loop.time()
        try:
            moved = await self._services.store.reroute(
                self.cdr.claim, trunk_id=trunk_id, dial_number=dial_number
            )
        except StoreError as error:
            log.warning("call stays with its trunk", extra={**self.cdr.fields(), "reason": str(error)})
            return False
        if moved:
            self.cdr.claim = replace(self.cdr.claim, trunk_id=trunk_id, dial_number=dial_number)
        return moved and not self._abandoned() and not self._stood_still(self._asked, loop.time())

    async def _arm(self) -> bool:
        store, loop = self._services.store, asyncio.get_running_loop()
        self._asked = loop.time()
        try:
            armed = await store.arm(self.cdr.claim, self._services.lease_ms, sip_call_id=self._sip_call_id)
        except StoreError as error:
            # The commit may have succeeded all the same; only this process knows that no INVITE was sent.
            self._release(f"database away: {error}")
            return False
        if armed and not await self._noted():
            return False
        if armed and self._stood_still(self._asked, loop.time()):
            self._release(STOOD_STILL)
            return False
        return armed

    def _stood_still(self, asked: float, now: float) -> bool:
        """Whether half of the lease is over since the store was asked: others may think the call lost."""
        return now - asked > self._services.lease_ms / 2000

    async def _noted(self) -> bool:
        """Whether the attempt was noted outside the database, which may lose it."""
        try:
            if self._services.note_dial is not None:
                await self._services.note_dial(self.cdr.claim)
        except OSError as error:
            self._release(f"the attempt cannot be noted: {error}")
            return False
        return True

    def _release(self, reason: str) -> None:
        """Returns the call to the queue; no INVITE was sent."""
        log.warning("call not dialled", extra={**self.cdr.fields(), "reason": reason})
        self._state = PhoneCallState.OVER
        store = self._services.store
        self.cdr.note("release", lambda: store.release(self.cdr.claim))

    async def _follow(self, call: Call) -> None:
        abandoned, stopped = self._state is PhoneCallState.ABANDONED, self._stopped
        self._call, self._state = call, PhoneCallState.CONNECTED
        if self._services.traces is not None:
            self._services.traces.follow(call, self.cdr.call_id)
        call.on_state(self._state_changed)
        if call.state in PROGRESS:
            self._state_changed(call, call.state, 0.0)
        if stopped:
            await self.give_up()
        elif abandoned:
            await call.hang_up()
        try:
            await call.answered()
        except CallFailed as failure:
            self._finish(self._unanswered(call, failure))
            return
        await self._talk(call)

    async def _talk(self, call: Call) -> None:
        self._state = PhoneCallState.TALKING
        legs = self._services.outbound_legs
        self.leg = there = AgentsLeg(call, legs, self.cdr, self.conversation.dialled)
        result, error = await self.conversation.converse(there.leg, line=self._line)
        if was_transferred(result) and there.call.state is CallState.ANSWERED and legs is not None:
            result, error = await conversed(self.conversation, there.bridge(), result, there=there)
        await there.close()
        on_over, self.on_over, self.leg = self.on_over, None, None
        if on_over is not None:
            on_over()
        for telephone in dict.fromkeys((call, there.call)):
            await self._end(telephone)
        call, result = there.call, await self.conversation.debrief(result)
        cause, by = (call.cause or HangupCause.NORMAL).value, call.ended_by or ""
        self._finish(self.cdr.answered(result, cause=cause, ended_by=by, sip_status=call.status, error=error))

    async def _end(self, call: Call) -> None:
        """Hangs up unless the call has ended, and waits for the far end's response."""
        try:
            await call.hang_up()
            await call.ended()
        except SipError as error:
            log.warning("hang-up failed", extra={**self.cdr.fields(), "reason": str(error)})
        self._services.metrics.count_rtp(call.stats)

    # End of the call ----------------------------------------------------------------------------------------

    def _unanswered(self, call: Call, failure: CallFailed) -> Outcome:
        status = STATUS_BEFORE_ANSWER.get(failure.cause, CallStatus.FAILED)
        if self._reached is CallStatus.ANSWERED:  # hung up before the agent's first word
            status = CallStatus.COMPLETED
        outbound = call.direction is Direction.OUTBOUND
        if outbound and failure.cause is HangupCause.SHUTDOWN and not call.definite:
            status = CallStatus.UNKNOWN  # the far end may still ring
        return Outcome(
            status=status,
            cause=failure.cause.value,
            sip_status=failure.code if status is not CallStatus.UNKNOWN else 0,
            ended_by=call.ended_by or "",
            ended_at_ms=self.cdr.now_ms(),
            error=STOPPED if outbound and self._stopped else "",
            definite=call.definite,
            analysis={"line": self._line.early} if self._line is not None and self._line.early else {},
        )

    def _finish(self, outcome: Outcome) -> None:
        self._state = PhoneCallState.OVER
        if self._call is not None:
            self.cdr.sip |= ended(self._call)
        if self._passed:
            self.cdr.sip["passedOver"] = self._passed
        direction = self._call.direction if self._call is not None else Direction.OUTBOUND
        self.cdr.finish(outcome, direction.value)

    # Events during the call ---------------------------------------------------------------------------------

    def _state_changed(self, call: Call, state: CallState, now: float) -> None:
        status = PROGRESS.get(state)
        if status is None:
            return
        self._reached = status
        if status is CallStatus.ANSWERED:
            self.cdr.picked_up()
        store, at_ms = self._services.store, self.cdr.now_ms()
        self.cdr.note(status.value, lambda: store.progress(self.cdr.claim, status, at_ms))
