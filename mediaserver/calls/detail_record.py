"""The record of a live call, which grows during the call.

The journal writes it to the store, in order and off the media path."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mediaserver.calls.analysis import analyse, entry_data, recordable, turn_data
from mediaserver.calls.journal import Write
from mediaserver.calls.redaction import Redactor
from mediaserver.calls.services import CallServices
from mediaserver.calls.supervisor_log import SupervisorLog
from mediaserver.queue.outbox import new_event_id
from mediaserver.queue.personal_data.audit import Audited
from mediaserver.queue.records import CallStatus, Claim, Outcome
from mediaserver.tracing.call_spans import TracedCall
from pipeline.agent import ToolUse
from pipeline.net.untrusted import clean_text
from pipeline.result import EndReason, EngineFault, SessionObserver, SessionResult, TurnRecord
from pipeline.transcript import TranscriptEntry

MAX_TOOL_CALLS = 100
MAX_TOOL_RESULT = 2000
"""The most uses of tools that are kept of a call, and the most characters of each result."""

log = logging.getLogger(__name__)

_SHOWN = ("role", "text", "startMs", "endMs", "interrupted")
"""What of a line of the transcript is shown to whoever watches the call."""

_OWN_CAUSES = frozenset({EndReason.SILENCE, EndReason.MAX_DURATION, EndReason.ENGINE_ERROR})
"""Ends of the conversation that the leg reports as a normal hang-up; the API reports these."""


class CallDetailRecord(SessionObserver):
    """The record (CDR) of one call that this node holds. The owner of the call makes an `Outcome`, calls
    `finish`, and awaits `written`."""

    def __init__(self, claim: Claim, services: CallServices) -> None:
        self.claim = claim
        self._lines: list[TranscriptEntry] = []
        self._turns: list[TurnRecord] = []
        self.faults: list[EngineFault] = []
        """Faults outside the conversation."""
        self.transfer: dict[str, Any] | None = None
        """The result of a transfer, for the analysis; None without one."""
        self.take_overs: list[dict[str, Any]] = []
        """The talks of supervisors in the agent's place, for the analysis."""
        self._supervisors = SupervisorLog()
        self.sip: dict[str, Any] = dict(claim.sip)
        """What SIP said of the call, and the header fields of its INVITE."""
        self.ended_at_ms = 0
        """When the conversation ended, in milliseconds since 1970; 0: not yet."""
        self.written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the outcome is in the store."""
        self.consent = ""
        """The caller's answer to whether the call may be recorded; "" where it was not asked."""
        self.redactor: Redactor | None = None
        """Redacts what is recorded; None: nothing is."""
        self._services = services
        self._placed_at_ms = 0
        self._answered_at_ms = 0
        self._began, self._began_at_ms = 0.0, 0
        self._tools: list[ToolUse] = []

    @property
    def call_id(self) -> str:
        """The id of the call in the API."""
        return self.claim.call_id

    @property
    def transcript(self) -> list[dict[str, Any]]:
        """The lines so far as the API has them; they are kept as the conversation has them."""
        return [entry_data(entry) for entry in self._entries(self._lines)]

    @property
    def turns(self) -> list[dict[str, Any]]:
        """The turns so far as the API has them."""
        return self._redacted_turns([turn_data(turn) for turn in self._turns])

    def fill(self, variables: Mapping[str, str]) -> None:
        """Sets the prompt variables of the call, with those that its pre-call tools returned."""
        self.claim = claim = replace(self.claim, variables=variables)
        store = self._services.store
        self.note("variables", lambda: store.fill_variables(claim))

    def answered(
        self, result: SessionResult | None, *, cause: str, ended_by: str, sip_status: int = 0, error: str = ""
    ) -> Outcome:
        """Returns the outcome of a call with a conversation; `cause` and `ended_by` are those of its leg."""
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
        url = f"{self._services.public_url}/api/v1/calls/{self.call_id}/recording"
        for fault in result.faults:
            self._services.metrics.engine_errors.labels(fault.role).inc()
        for silence in result.silences:
            self._services.metrics.silences.labels(silence.cause).inc()
        return Outcome(
            status=CallStatus.COMPLETED,
            cause=result.reason.value if result.reason in _OWN_CAUSES else cause,
            sip_status=sip_status,
            ended_by=ended_by,
            ended_at_ms=self.ended_at_ms or self.now_ms(),
            transcript=[entry_data(entry) for entry in self._entries(result.transcript)],
            turns=self._redacted_turns([turn_data(turn) for turn in result.turns]),
            analysis=self._redacted_analysis(
                analyse(result) | self._beside(),
                result,
            ),
            recording_path=str(result.recording) if recorded else "",
            recording_url=url if recorded else "",
            recording_node=self._services.node_url if recorded else "",
        )

    def _beside(self) -> dict[str, Any]:
        """Returns what the analysis tells beside the conversation."""
        tools = [_tool_data(use, self._began, self.redactor) for use in self._tools]
        known = {
            "transfer": self.transfer,
            "takeOvers": self.take_overs or None,
            "supervisors": self._supervisors.data(self._since_began_ms(self.ended_at_ms)) or None,
            "recordingConsent": self.consent or None,
            "toolCalls": tools or None,
        }
        return {name: value for name, value in known.items() if value is not None}

    def supervised(self, who: str, role: str) -> None:
        """Notes the role that a supervisor has in this call from now on, "" for one who has left: for the
        analysis, and in the audit log, also where the role stands in a token that was signed elsewhere."""
        operation = self._supervisors.change(who, role, self._since_began_ms())
        if operation:
            entry = _audited(self.claim, operation, f"{self.call_id} {who} {role}".rstrip())
            self.note("audit", lambda: self._services.store.note_audit(entry))

    def _since_began_ms(self, at_ms: int = 0) -> int:
        return max(0, (at_ms or self.now_ms()) - self._began_at_ms) if self._began_at_ms else 0

    def placed(self, direction: str, *, sip_call_id: str = "") -> None:
        """Logs that the call was placed, or has come."""
        self._placed_at_ms = self.now_ms()
        told = {"direction": direction, "trunk": self.claim.trunk_id, "phone_number": self.claim.phone_number}
        if sip_call_id:
            told["sip_call_id"] = sip_call_id
        log.info("call placed" if direction == "outbound" else "call received", extra=self.fields() | told)
        name = self.claim.variables.get("name") or self.sip.get("displayName") or ""
        self._show("call.started", direction=direction, phoneNumber=self.claim.phone_number, name=name)

    def picked_up(self) -> None:
        """Logs that the call was answered."""
        self._answered_at_ms = self.now_ms()
        log.info("call answered", extra=self.fields())
        self._show("call.answered")

    def conversation_began(self) -> float:
        """Notes that the conversation begins; returns the loop's clock, from which its times are counted."""
        self._began, self._began_at_ms = asyncio.get_running_loop().time(), self.now_ms()
        return self._began

    def finish(self, outcome: Outcome, direction: str) -> None:
        """Counts the call, logs its end and writes its outcome through the journal."""
        self._services.metrics.calls.labels(direction, outcome.status.value, outcome.cause).inc()
        ended_at_ms = outcome.ended_at_ms or self.now_ms()
        told = {
            "direction": direction,
            "status": outcome.status.value,
            "cause": outcome.cause,
            "ended_by": outcome.ended_by,
            "sip_status": outcome.sip_status,
            "answered_ms": max(0, ended_at_ms - self._answered_at_ms) if self._answered_at_ms else 0,
        }
        log.info("call ended", extra=self.fields() | told)
        disposition = outcome.analysis.get("disposition") or ""
        self._show(
            "call.ended", status=outcome.status.value, hangupCause=outcome.cause, disposition=disposition
        )
        store, kept = self._services.store, replace(outcome, sip=self.sip)
        for who in self._supervisors.there:
            self.supervised(who, "")
        self.note("finish", lambda: store.finish(self.claim, kept), done=self.settle)
        self._trace(outcome, direction, ended_at_ms)

    def _trace(self, outcome: Outcome, direction: str, ended_at_ms: int) -> None:
        if self._services.tracer is None:
            return
        self._services.tracer.add(
            TracedCall(
                claim=self.claim,
                direction=direction,
                outcome=outcome,
                placed_at_ms=self._placed_at_ms,
                answered_at_ms=self._answered_at_ms,
                began_at_ms=self._began_at_ms,
                ended_at_ms=ended_at_ms,
                began=self._began,
                turns=self._turns,
                tools=self._tools,
            )
        )

    def settle(self) -> None:
        """Completes `written`: nothing more is written of this call."""
        if not self.written.done():
            self.written.set_result(None)

    # Events during the call (`SessionObserver`) -------------------------------------------------------------

    def turn_completed(self, turn: TurnRecord) -> None:
        """Records a turn: for the call's row, metrics and the `turn.completed` webhook."""
        self._turns.append(turn)
        [data] = self._redacted_turns([turn_data(turn)])
        if turn.latency is not None:
            self._services.metrics.turn_latency.observe(turn.latency.voice_to_voice_ms / 1000)
            self._show("call.turn", turn=turn.number, latencyMs=turn.latency.voice_to_voice_ms)
        if turn.interrupted:
            self._services.metrics.interruptions.inc()
        self.tell("turn.completed", data)

    def tell(self, kind: str, data: dict[str, Any]) -> None:
        """Queues a webhook event of the call."""
        store = self._services.store
        event_id = new_event_id()  # the same for every repetition of the write
        self._services.journal.note(
            self.call_id, kind, lambda: store.event(self.call_id, kind, data, event_id=event_id)
        )

    def transcript_added(self, entry: TranscriptEntry) -> None:
        """Appends an entry to the call's transcript."""
        self._lines.append(entry)
        if self._services.live_events.heard:
            for line in map(entry_data, self._entries([entry])):
                self._show("call.words", **{name: line[name] for name in _SHOWN})

    def tool_used(self, use: ToolUse) -> None:
        """Keeps a use of a tool for the analysis: the first `MAX_TOOL_CALLS`."""
        if len(self._tools) < MAX_TOOL_CALLS:
            self._tools.append(use)

    def state_changed(self, state: str, now: float) -> None:
        """Shows the state of turn-taking to whoever watches."""
        self._show("call.state", state=state)

    def _show(self, kind: str, **data: Any) -> None:
        if self._services.live_events.heard:
            self._services.live_events.tell(kind, self.claim, self.now_ms(), data)

    # Redaction ----------------------------------------------------------------------------------------------

    def _entries(self, entries: Sequence[TranscriptEntry]) -> Sequence[TranscriptEntry]:
        return entries if self.redactor is None else self.redactor.entries(entries)

    def _redacted_analysis(self, analysis: dict[str, Any], result: SessionResult) -> dict[str, Any]:
        if self.redactor is None:
            return analysis
        known = self.redactor.known_of(result.transcript)
        redacted: dict[str, Any] = self.redactor.value(analysis, known)
        redacted["extracted"] = self.redactor.value(analysis["extracted"], known, integers=True)
        return redacted

    def _redacted_turns(self, turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns turns with marks: a number may go on from one turn of a party to the next."""
        if self.redactor is None:
            return turns
        for name in ("userText", "agentText", "keyed"):
            for turn, text in zip(turns, self.redactor.texts([turn[name] for turn in turns]), strict=True):
                turn[name] = text
        return turns

    def do_not_call(self, reason: str, now: float) -> None:
        """Puts the number of this call on the company's do-not-call list, whatever number the agent heard."""
        store, claim = self._services.store, self.claim
        if claim.phone_number:
            self.note(
                "do_not_call", lambda: store.opt_out(claim.company_id, claim.phone_number, reason=reason)
            )

    def note(self, name: str, write: Write, *, done: Callable[[], None] | None = None) -> None:
        """Queues an essential write of the journal, which is never dropped."""
        self._services.journal.note(self.call_id, name, write, essential=True, done=done)

    def now_ms(self) -> int:
        """Returns the wall clock in milliseconds since 1970 UTC."""
        return int(self._services.wall_clock() * 1000)

    def fields(self) -> dict[str, object]:
        """Returns the log fields that identify the call."""
        return {"call_id": self.call_id, "company_id": self.claim.company_id, "agent_id": self.claim.agent_id}


def _tool_data(use: ToolUse, began: float, redactor: Redactor | None) -> dict[str, Any]:
    arguments, result = recordable(dict(use.arguments)), clean_text(use.result)
    if redactor is not None:  # before the cut: half a number is not found
        arguments, result = redactor.value(arguments, integers=True), redactor.value(result)
    return {
        "tool": use.name,
        "arguments": arguments,
        "result": result[:MAX_TOOL_RESULT],
        "failed": use.failed,
        "startMs": round((use.began - began) * 1000),
        "durationMs": round((use.ended - use.began) * 1000),
    }


def _audited(claim: Claim, operation: str, subject: str) -> Audited:
    return Audited(
        company_id=claim.company_id, key_id="", request_id="", operation=operation, subject=subject
    )
