"""One live phone call: from the claim of the ledger (or the caller's INVITE) to its outcome in the store.

```
outbound:  claim → arm (committed) → trunk.call → answered → Session → outcome
inbound:   Call offered → recorded → answer → Session → outcome
```

The store hears of it through the journal, in order and off the media path; what decides whether a call may be
dialled (`arm`) is awaited, since no INVITE may leave before it is committed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from mediaserver.analysis import analyse, entry_data, turn_data
from mediaserver.engines import Cast
from mediaserver.errors import StoreError
from mediaserver.journal import Journal, Write
from mediaserver.metrics import Metrics
from mediaserver.records import CallStatus, Claim, Outcome
from mediaserver.store import Store
from pipeline.agent import AgentContext
from pipeline.outcome import EndReason, SessionObserver, SessionResult, TurnRecord
from pipeline.recording import Recording, RecordingWriter
from pipeline.session import Session
from pipeline.transcript import TranscriptEntry
from sip.call import Call, CallFailed
from sip.errors import SipError
from sip.states import CallState, Direction, HangupCause
from sip.trunk import Trunk

log = logging.getLogger(__name__)

STATUS_BEFORE_ANSWER: Mapping[HangupCause, CallStatus] = {
    HangupCause.BUSY: CallStatus.BUSY,
    HangupCause.NO_ANSWER: CallStatus.NO_ANSWER,
    HangupCause.CANCELLED: CallStatus.CANCELLED,
}
"""What a call that was never answered becomes; every other cause is FAILED."""

PROGRESS: Mapping[CallState, CallStatus] = {
    CallState.RINGING: CallStatus.RINGING,
    CallState.ANSWERED: CallStatus.ANSWERED,
}
"""States of a call that the store is told of as they come; DIALING is written by `arm`."""


class Step(Enum):
    """Where a live call is, as far as hanging it up is concerned."""

    WAITING = auto()  # nothing has left for the wire
    ABANDONED = auto()  # nothing had when its end was asked for
    CONNECTED = auto()  # there is a `Call`
    TALKING = auto()  # there is a `Session`
    OVER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What every live call of a node stands on."""

    store: Store
    journal: Journal
    metrics: Metrics
    recorder: RecordingWriter
    recordings: Path
    lease_ms: int
    wall_clock: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What the agent plays in a call, from its settings. `caller_id` None: the trunk's."""

    cast: Cast
    language: str
    greeting: str
    records: bool
    caller_id: str | None = None


class LiveCall(SessionObserver):
    """One call that this node holds. `dial` or `take` run it; both return when its outcome is written."""

    def __init__(self, claim: Claim, part: Part, floor: Floor) -> None:
        self.claim = claim
        self.transcript: list[dict[str, Any]] = []
        self.turns: list[dict[str, Any]] = []
        self._part = part
        self._floor = floor
        self._step = Step.WAITING
        self._reached = CallStatus.DIALING
        self._call: Call | None = None
        self._session: Session | None = None
        self._written = asyncio.get_running_loop().create_future()

    @property
    def call_id(self) -> str:
        """The id that the API knows the call by."""
        return self.claim.call_id

    # Its life -----------------------------------------------------------------------------------------------

    async def dial(self, trunk: Trunk) -> None:
        """Places the call and converses. Never raises: what goes wrong becomes the call's outcome."""
        if not await self._arm():
            return
        if self._step is Step.ABANDONED:
            self._finish(Outcome(status=CallStatus.CANCELLED, cause=HangupCause.CANCELLED, ended_by="local"))
        else:
            await self._place(trunk)
        await self._written

    async def take(self, call: Call) -> None:
        """Answers an inbound call and converses. Never raises."""
        try:
            await call.ring()
            await call.answer()
        except SipError as error:
            log.info("caller was gone before the answer", extra={**self._fields(), "reason": str(error)})
        await self._follow(call)
        await self._written

    async def hang_up(self) -> None:
        """Ends the call, whatever it is doing. Returns when the wish is on its way, not when it is over."""
        if self._step is Step.WAITING:
            self._step = Step.ABANDONED
        elif self._step is Step.CONNECTED and self._call is not None:
            await self._call.hang_up()
        elif self._step is Step.TALKING and self._session is not None:
            self._session.stop()

    async def _place(self, trunk: Trunk) -> None:
        try:
            call = await trunk.call(
                self.claim.dial_number, caller_id=self._part.caller_id, call_id=self.claim.call_id
            )
        except (SipError, OSError) as error:
            log.warning("call could not be placed", extra={**self._fields(), "reason": str(error)})
            self._finish(Outcome(status=CallStatus.FAILED, cause=HangupCause.UNREACHABLE, error=str(error)))
        else:
            await self._follow(call)

    async def _arm(self) -> bool:
        try:
            return await self._floor.store.arm(self.claim, self._floor.lease_ms)
        except StoreError as error:
            log.warning("call not dialled: database away", extra={**self._fields(), "reason": str(error)})
            store = self._floor.store
            self._note("release", lambda: store.release(self.claim))
            return False

    async def _follow(self, call: Call) -> None:
        abandoned = self._step is Step.ABANDONED
        self._call, self._step = call, Step.CONNECTED
        call.on_state(self._state_changed)
        if call.state in PROGRESS:
            self._state_changed(call, call.state, 0.0)
        if abandoned:
            await call.hang_up()
        try:
            await call.answered()
        except CallFailed as failure:
            self._finish(self._unanswered(call, failure))
            return
        await self._talk(call)

    async def _talk(self, call: Call) -> None:
        result, error = None, ""
        try:
            result = await self._converse(call)
        except Exception as failure:
            log.exception("conversation failed", extra=self._fields())
            error = f"{type(failure).__name__}: {failure}"
        await self._end(call)
        self._finish(self._answered(call, result, error))

    async def _converse(self, call: Call) -> SessionResult:
        cast, claim = self._part.cast, self.claim
        context = AgentContext(
            claim.call_id, self._part.language, self._part.greeting, claim.variables, claim.metadata
        )
        self._session = Session(
            leg=call,
            agent=cast.agent.join(context),
            stt=cast.stt,
            tts=cast.tts,
            fallback_tts=cast.fallback_tts,
            settings=cast.session,
            call_id=claim.call_id,
            phrases=cast.phrases,
            recording=self._open_recording(call.rate_hz),
            observer=self,
        )
        self._step = Step.TALKING
        return await self._session.run()

    def _open_recording(self, rate_hz: int) -> Recording | None:
        if not self._part.records:
            return None
        path = self._floor.recordings / f"{self.call_id}.wav"
        try:
            return self._floor.recorder.open(path, rate_hz=rate_hz, now=asyncio.get_running_loop().time())
        except OSError as error:
            log.error("call goes on unrecorded", extra={**self._fields(), "reason": str(error)})
            return None

    async def _end(self, call: Call) -> None:
        """Hangs up unless that has happened, and waits until the far end knows."""
        try:
            await call.hang_up()
            await call.ended()
        except SipError as error:
            log.warning("hang-up failed", extra={**self._fields(), "reason": str(error)})
        self._floor.metrics.count_rtp(call.stats)

    # What becomes of it -------------------------------------------------------------------------------------

    def _unanswered(self, call: Call, failure: CallFailed) -> Outcome:
        status = STATUS_BEFORE_ANSWER.get(failure.cause, CallStatus.FAILED)
        if self._reached is CallStatus.ANSWERED:  # and gone before a word could be said
            status = CallStatus.COMPLETED
        return Outcome(
            status=status,
            cause=failure.cause.value,
            sip_status=failure.code,
            ended_by=call.ended_by or "",
            ended_at_ms=self._now_ms(),
        )

    def _answered(self, call: Call, result: SessionResult | None, error: str) -> Outcome:
        cause = call.cause or HangupCause.NORMAL
        if result is None:
            return Outcome(
                status=CallStatus.FAILED,
                cause="server_error",
                sip_status=call.status,
                ended_by="local",
                ended_at_ms=self._now_ms(),
                error=error,
                transcript=self.transcript,
                turns=self.turns,
            )
        recorded = result.recording is not None
        for fault in result.faults:
            self._floor.metrics.engine_errors.labels(fault.role).inc()
        return Outcome(
            status=CallStatus.COMPLETED,
            cause=result.reason.value if result.reason in _OWN_CAUSES else cause.value,
            sip_status=call.status,
            ended_by=call.ended_by or "",
            ended_at_ms=self._now_ms(),
            transcript=[entry_data(entry) for entry in result.transcript],
            turns=[turn_data(turn) for turn in result.turns],
            analysis=analyse(result),
            recording_path=str(result.recording) if recorded else "",
            recording_url=f"/api/v1/calls/{self.call_id}/recording" if recorded else "",
        )

    def _finish(self, outcome: Outcome) -> None:
        self._step = Step.OVER
        direction = self._call.direction if self._call is not None else Direction.OUTBOUND
        self._floor.metrics.calls.labels(direction.value, outcome.status.value, outcome.cause).inc()
        log.info("call ended", extra={**self._fields(), "status": outcome.status, "cause": outcome.cause})
        store = self._floor.store
        self._note("finish", lambda: store.finish(self.claim, outcome), done=self._outcome_written)

    def _outcome_written(self) -> None:
        if not self._written.done():
            self._written.set_result(None)

    # What is seen of it on the way --------------------------------------------------------------------------

    def _state_changed(self, call: Call, state: CallState, now: float) -> None:
        status = PROGRESS.get(state)
        if status is None:
            return
        self._reached = status
        store, at_ms = self._floor.store, self._now_ms()
        self._note(status.value, lambda: store.progress(self.claim, status, at_ms))

    def turn_completed(self, turn: TurnRecord) -> None:
        """See `SessionObserver`."""
        data = turn_data(turn)
        self.turns.append(data)
        if turn.latency is not None:
            self._floor.metrics.turn_latency.observe(turn.latency.voice_to_voice_ms / 1000)
        if turn.interrupted:
            self._floor.metrics.interruptions.inc()
        store, kind = self._floor.store, "turn.completed"
        self._floor.journal.note(self.call_id, kind, lambda: store.event(self.call_id, kind, data))

    def transcript_added(self, entry: TranscriptEntry) -> None:
        """See `SessionObserver`."""
        self.transcript.append(entry_data(entry))

    def state_changed(self, state: str, now: float) -> None:
        """See `SessionObserver`."""

    def _note(self, name: str, write: Write, *, done: Callable[[], None] | None = None) -> None:
        self._floor.journal.note(self.call_id, name, write, essential=True, done=done)

    def _now_ms(self) -> int:
        return int(self._floor.wall_clock() * 1000)

    def _fields(self) -> dict[str, object]:
        return {"call_id": self.call_id, "company_id": self.claim.company_id, "agent_id": self.claim.agent_id}


_OWN_CAUSES = frozenset({EndReason.SILENCE, EndReason.MAX_DURATION, EndReason.ENGINE_ERROR})
"""Ends of ours that SIP knows only as a normal BYE: the API tells why."""
