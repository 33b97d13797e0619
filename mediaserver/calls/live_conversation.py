"""A conversation that this node holds, whatever carries it: its `Session`, and how the store hears of it.

The store hears through the journal, in order and off the media path. A phone call
(`mediaserver.calls.phone_call`) and a web call (`mediaserver.rooms.web_call`) differ in how they begin and
end; between that they are this.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from mediaserver.calls.analysis import analyse, debriefed, entry_data, turn_data
from mediaserver.calls.journal import Journal, Write
from mediaserver.calls.outbound_legs import OutboundLegs
from mediaserver.calls.pre_call_tools import brief
from mediaserver.engine_pool.pool import AgentEngines
from mediaserver.metrics import Metrics
from mediaserver.queue.outbox import new_event_id
from mediaserver.queue.records import CallStatus, Claim, Outcome
from mediaserver.settings.tools import PreCallTool
from mediaserver.store.store import Store
from pipeline.agent import AgentContext, Conversation
from pipeline.call_progress.answer_detection import LineStage
from pipeline.errors import boundary
from pipeline.leg import Leg
from pipeline.media.recording import Recording, RecordingWriter
from pipeline.net.http import HttpClient
from pipeline.result import EndReason, EngineFault, SessionObserver, SessionResult, TurnRecord
from pipeline.session.session import Session
from pipeline.transcript import TranscriptEntry
from sip.call import Call

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallServices:
    """The services of a node that every live call uses."""

    store: Store
    journal: Journal
    metrics: Metrics
    recorder: RecordingWriter
    recordings: Path
    lease_ms: int
    http: HttpClient | None = None  # for tools before a call; without one, none are asked
    public_url: str = ""  # what links to this server begin with
    node_url: str = ""  # where the other nodes reach this one's recordings
    lines: OutboundLegs | None = None  # to people; without them, nobody is handed on
    note_dial: Callable[[Claim], Awaitable[None]] | None = None  # before an INVITE; raises OSError
    wall_clock: Callable[[], float] = time.time
    check: Callable[[], None] = lambda: None  # raises `Unavailable` while nothing new is begun


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProfile:
    """The agent's part in a call: engines and settings. `caller_id` None: the trunk's."""

    cast: AgentEngines
    language: str
    greeting: str
    records: bool
    caller_id: str | None = None
    tools: tuple[PreCallTool, ...] = ()
    unreachable: str = ""  # said when nobody answers to whom the caller is handed


class Going(Protocol):
    """A transfer under way that can be ended from outside."""

    def stop(self) -> None:
        """Ends the transfer; the caller's legs stay up."""


class LiveConversation(SessionObserver):
    """One call that this node holds. Whoever runs it reaches an `Outcome`, calls `finish`, awaits
    `written`."""

    prompt_takes_metadata: ClassVar[bool] = False
    """Whether the model is told the call's metadata: never on the phone."""

    def __init__(self, claim: Claim, part: CallProfile, floor: CallServices) -> None:
        self.claim = claim
        self.transcript: list[dict[str, Any]] = []
        self.turns: list[dict[str, Any]] = []
        self.written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the outcome is in the store."""
        self.part = part
        self.floor = floor
        self.transfer: Going | None = None
        """What follows the conversation, where the agent handed the caller on."""
        self.handed: dict[str, Any] | None = None
        """What came of it, for the analysis."""
        self.began = 0.0
        """When the conversation did, on the loop's clock."""
        self.stopped = False
        self.line: LineStage | None = None
        """Who or what answers is not taken for granted: on calls that we place."""
        self.faults: list[EngineFault] = []
        """What went wrong beside the conversation."""
        self._session: Session | None = None
        self._agent: Conversation | None = None
        self._ended_at_ms = 0

    @property
    def call_id(self) -> str:
        """The id that the API knows the call by."""
        return self.claim.call_id

    async def hang_up(self) -> None:
        """Ends the call in any state. Returns when the hang-up is requested, not when the call is over."""
        self.stopped = True
        if self._session is not None:
            self._session.stop()
        if self.transfer is not None:
            self.transfer.stop()

    async def prepare(self, direction: str) -> str:
        """Runs the agent's pre-call tools; returns "", or the reason for which the call must not be made.
        Never raises."""
        tools, http = self.part.tools, self.floor.http
        if not tools or http is None:
            return ""
        briefing = await brief(http, tools, self.claim, direction=direction)
        self.claim = replace(self.claim, variables=briefing.variables)
        store, claim = self.floor.store, self.claim
        self.note("variables", lambda: store.fill_variables(claim))
        return briefing.objection

    def write(self, text: str) -> None:
        """Passes a text message of the caller to the agent; dropped before the conversation has begun."""
        if self._session is not None:
            self._session.write(text)

    async def converse(self, leg: Leg) -> tuple[SessionResult | None, str]:
        """Runs the conversation on `leg` to its end; without a result, also returns the error. Never
        raises."""
        with boundary(log, "conversation failed", **self.fields()) as failure:
            return await self._conversation(leg), ""
        return None, f"{failure.kind}: {failure.error}"

    async def _conversation(self, leg: Leg) -> SessionResult:
        cast, claim = self.part.cast, self.claim
        context = AgentContext(
            claim.call_id,
            self.part.language,
            self.part.greeting,
            claim.variables,
            claim.metadata,
            prompt_metadata=claim.metadata if self.prompt_takes_metadata else {},
        )
        self.began = asyncio.get_running_loop().time()
        self._agent = cast.agent.join(context)
        self._session = Session(
            leg=leg,
            agent=self._agent,
            stt=cast.stt,
            tts=cast.tts,
            fallback_tts=cast.fallback_tts,
            settings=cast.session,
            call_id=claim.call_id,
            phrases=cast.phrases,
            recording=self._open_recording(leg.rate_hz),
            observer=self,
            line=self.line,
            judge=cast.judge,
        )
        self.conversing()
        try:
            return await self._session.run()
        finally:
            self._session = None  # it knows us, as its observer

    def conversing(self) -> None:
        """Called just before the session runs; subclasses override this method."""

    def handed_to(self, call: Call, now: float) -> None:
        """The person has answered to whom the agent handed the caller."""

    def _open_recording(self, rate_hz: int) -> Recording | None:
        if not self.part.records:
            return None
        path = self.floor.recordings / f"{self.call_id}.wav"
        return self.floor.recorder.open(path, rate_hz=rate_hz, now=self.began)

    def unrecorded(self, error: Exception) -> None:
        """Notes a fault of the recording, which lacks a part of the call or all of it."""
        at_ms = round((asyncio.get_running_loop().time() - self.began) * 1000)
        self.faults.append(EngineFault("recording", str(error), at_ms))

    # End of the call ----------------------------------------------------------------------------------------

    async def debrief(self, result: SessionResult | None) -> SessionResult | None:
        """Asks the agent for its report after the end of the call; never raises."""
        self._ended_at_ms = self.now_ms()
        return await debriefed(self._agent, result, self.fields())

    def answered(
        self, result: SessionResult | None, *, cause: str, ended_by: str, sip_status: int = 0, error: str = ""
    ) -> Outcome:
        """The outcome of a call that was talked on: `cause` and `ended_by` are the leg's words for its
        end."""
        if result is None:
            return Outcome(
                status=CallStatus.FAILED,
                cause="server_error",
                sip_status=sip_status,
                ended_by="local",
                ended_at_ms=self.now_ms(),
                error=error,
                transcript=self.transcript,
                turns=self.turns,
            )
        result = replace(result, faults=(*result.faults, *self.faults))
        recorded = result.recording is not None
        url = f"{self.floor.public_url}/api/v1/calls/{self.call_id}/recording"
        for fault in result.faults:
            self.floor.metrics.engine_errors.labels(fault.role).inc()
        for silence in result.silences:
            self.floor.metrics.silences.labels(silence.cause).inc()
        return Outcome(
            status=CallStatus.COMPLETED,
            cause=result.reason.value if result.reason in _OWN_CAUSES else cause,
            sip_status=sip_status,
            ended_by=ended_by,
            ended_at_ms=self._ended_at_ms or self.now_ms(),
            transcript=[entry_data(entry) for entry in result.transcript],
            turns=[turn_data(turn) for turn in result.turns],
            analysis=analyse(result) | ({} if self.handed is None else {"transfer": self.handed}),
            recording_path=str(result.recording) if recorded else "",
            recording_url=url if recorded else "",
            recording_node=self.floor.node_url if recorded else "",
        )

    def finish(self, outcome: Outcome, direction: str) -> None:
        """Counts the call and writes its outcome through the journal."""
        self.floor.metrics.calls.labels(direction, outcome.status.value, outcome.cause).inc()
        log.info("call ended", extra={**self.fields(), "status": outcome.status, "cause": outcome.cause})
        store = self.floor.store
        self.note("finish", lambda: store.finish(self.claim, outcome), done=self._outcome_written)

    def _outcome_written(self) -> None:
        if not self.written.done():
            self.written.set_result(None)

    # Events during the call (`SessionObserver`) -------------------------------------------------------------

    def turn_completed(self, turn: TurnRecord) -> None:
        """Records a turn: for the call's row, metrics and the `turn.completed` webhook."""
        data = turn_data(turn)
        self.turns.append(data)
        if turn.latency is not None:
            self.floor.metrics.turn_latency.observe(turn.latency.voice_to_voice_ms / 1000)
        if turn.interrupted:
            self.floor.metrics.interruptions.inc()
        self.tell("turn.completed", data)

    def tell(self, kind: str, data: dict[str, Any]) -> None:
        """Queues a webhook event of the call."""
        store = self.floor.store
        event_id = new_event_id()  # the same however often it is written

        def write() -> Awaitable[None]:
            return store.event(self.call_id, kind, data, event_id=event_id)

        self.floor.journal.note(self.call_id, kind, write)

    def transcript_added(self, entry: TranscriptEntry) -> None:
        """Appends an entry to the call's transcript."""
        self.transcript.append(entry_data(entry))

    def do_not_call(self, reason: str, now: float) -> None:
        """Puts this call's number on the company's do-not-call list, whatever number the agent was told."""
        store, claim = self.floor.store, self.claim
        if claim.phone_number:
            self.note(
                "do_not_call",
                lambda: store.bar(claim.company_id, claim.phone_number, reason=reason),
            )

    def note(self, name: str, write: Write, *, done: Callable[[], None] | None = None) -> None:
        """Queues an essential write of the journal: one that decides the call's outcome."""
        self.floor.journal.note(self.call_id, name, write, essential=True, done=done)

    def now_ms(self) -> int:
        """The wall clock in milliseconds since 1970 UTC."""
        return int(self.floor.wall_clock() * 1000)

    def fields(self) -> dict[str, object]:
        """The log fields that identify the call."""
        return {"call_id": self.call_id, "company_id": self.claim.company_id, "agent_id": self.claim.agent_id}


_OWN_CAUSES = frozenset({EndReason.SILENCE, EndReason.MAX_DURATION, EndReason.ENGINE_ERROR})
"""Ends of ours that the leg knows only as a normal one: the API tells why."""
