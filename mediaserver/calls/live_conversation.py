"""The agent's conversation of a live call, by phone (`mediaserver.calls.phone_call`) or web
(`mediaserver.rooms.web_call`): its `Session`, from the tools before it to the agent's report after it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from mediaserver.calls.analysis import debriefed
from mediaserver.calls.detail_record import CallDetailRecord
from mediaserver.calls.policy import Policy, PolicyConversation
from mediaserver.calls.pre_call_tools import brief
from mediaserver.calls.services import CallProfile, CallServices
from mediaserver.calls.take_over import TakeOver, TakeOverEnd
from mediaserver.errors import Conflict
from pipeline.agent import Advised, AgentContext, AgentReport, Conversation, Hearing, Opening, Summarising
from pipeline.call_progress.answer_detection import AnswerDetector
from pipeline.errors import EngineError, RecordingError, boundary, contained
from pipeline.leg import Leg
from pipeline.media.recording import Recording
from pipeline.media.silencing import LEFT, RIGHT, silence
from pipeline.net.trace_context import TRACE_ID, trace_id_of
from pipeline.result import EndReason, EngineFault, SessionObserver, SessionResult
from pipeline.session.parts import Resumption
from pipeline.session.session import Session
from pipeline.text.templates import fill
from pipeline.transcript import Role

log = logging.getLogger(__name__)

NOT_BEGUN: Final = SessionResult(
    reason=EndReason.STOPPED,
    disposition="",
    transfer_target="",
    leg_reason="",
    transcript=(),
    turns=(),
    interruptions=0,
    report=AgentReport(),
    faults=(),
    duration_ms=0,
    caller_speech_ms=0,
    agent_speech_ms=0,
)
"""The result of a conversation that was stopped before it began, while the tools before it were asked."""


class Going(Protocol):
    """A transfer under way that can be stopped by the call's owner."""

    def stop(self) -> None:
        """Ends the transfer; the caller's legs stay up."""


class LiveConversation:
    """The conversation of the call whose record is `cdr`."""

    def __init__(self, cdr: CallDetailRecord, profile: CallProfile, services: CallServices) -> None:
        self.cdr = cdr
        self.profile = profile
        self.services = services
        cdr.redactor = profile.redactor
        self._trace_id = trace_id_of(cdr.call_id) if services.tracer is not None else ""
        self.transfer: Going | None = None
        """The transfer that follows the conversation, where the agent started one."""
        self.taken_over: TakeOver | None = None
        """The supervisor who talks in the agent's place, None while the agent talks."""
        self.began = 0.0
        """When the conversation began, in seconds of the loop's clock."""
        self.stopped = False
        self.dialled: set[str] = set()
        """Numbers that are not called again in this call, whoever names them: all that a REFER of the far end
        led to, and those of the agent's own transfers unless nobody was certainly there."""
        self._handed_back: list[TakeOver] = []
        self._session: Session | None = None
        self._agent: Conversation | None = None
        self._policy: PolicyConversation | None = None

    def stop(self) -> None:
        """Ends the conversation, also one that has not begun, and the transfer that follows it. Returns when
        the end is requested."""
        self.stopped = True
        if self._session is not None:
            self._session.stop()
        if self.transfer is not None:
            self.transfer.stop()
        if self.taken_over is not None:
            self.taken_over.end(TakeOverEnd.STOPPED)

    async def prepare(self, direction: str) -> str:
        """Runs the agent's pre-call tools; returns "", or the reason for which the call must not be made.
        Never raises."""
        tools, http = self.profile.tools, self.services.http
        TRACE_ID.set(self._trace_id)
        if not tools or http is None:
            return ""
        briefing = await brief(http, tools, self.cdr.claim, direction=direction)
        self.cdr.fill(briefing.variables)
        return briefing.objection

    def write(self, text: str) -> None:
        """Passes a text message of the caller to the agent; dropped before the conversation has begun."""
        if self._session is not None:
            self._session.write(text)

    async def converse(
        self,
        leg: Leg,
        *,
        observer: SessionObserver | None = None,
        line: AnswerDetector | None = None,
        prompt_metadata: Mapping[str, Any] | None = None,
    ) -> tuple[SessionResult | None, str]:
        """Runs the conversation on `leg` to its end; without a result, also returns the error. Never raises.

        `observer`: instead of the call's record. `line`: who or what answers is not taken for granted.
        `prompt_metadata`: what the model is told of the call's metadata.
        """
        if self.stopped:
            return NOT_BEGUN, ""
        cdr = self.cdr
        context = AgentContext(
            cdr.call_id,
            self.profile.language,
            self.profile.greeting,
            cdr.claim.variables,
            cdr.claim.metadata,
            prompt_metadata=prompt_metadata or {},
            tool_used=cdr.tool_used,
            trace_id=self._trace_id,
        )
        with boundary(log, "conversation failed", **cdr.fields()) as failure:
            self.began = cdr.conversation_began()
            session = self._open_session(leg, context, observer or cdr, line)
            result = await self._without_agent(await self._run_once(session), leg, observer or cdr)
            return await self._consented(result), ""
        return None, f"{failure.kind}: {failure.error}"

    async def resume(
        self, leg: Leg, before: SessionResult, opening: Opening, *, observer: SessionObserver | None = None
    ) -> tuple[SessionResult | None, str]:
        """Goes on after `before`, of which the agent is told the `opening`; without a result of its own,
        returns `before` and the error. Never raises."""
        if self.stopped or self._policy is None:
            return before, ""
        with boundary(log, "conversation failed", **self.cdr.fields()) as failure:
            opened = await self._go_on(before, opening, leg, observer or self.cdr)
            return await self._without_agent(opened, leg, observer or self.cdr), ""
        return before, f"{failure.kind}: {failure.error}"

    async def _without_agent(
        self, result: SessionResult, leg: Leg, observer: SessionObserver
    ) -> SessionResult:
        """Waits while a supervisor talks in the agent's place, where one took the call over, and goes on
        with the agent; as often as that happens."""
        while (taken := self.taken_over) is not None and result.reason is EndReason.TAKEN_OVER:
            recording = await self._reopened(result, leg.rate_hz)
            result, handed_back = await taken.run(result, recording, observer)
            self.cdr.take_overs.append(taken.data())
            self.taken_over = None
            self._handed_back.append(taken)
            if handed_back is not None:
                result = await self._go_on(result, handed_back, leg, observer)
        if taken is not None:  # the session had ended by itself in that moment
            self.taken_over = None
            taken.undo()
        return result

    async def _go_on(
        self, before: SessionResult, opening: Opening, leg: Leg, observer: SessionObserver
    ) -> SessionResult:
        """Runs a session that goes on after `before`, of which the agent is told the `opening`."""
        agent = self._policy
        if agent is None:
            return before
        recording = await self._reopened(before, leg.rate_hz)
        resumption = Resumption(opening, before, self.began)
        session = self._session_on(leg, agent, observer, recording, resumption=resumption)
        result = await self._run_once(session)
        return result if result.recording is not None else replace(result, recording=before.recording)

    async def _run_once(self, session: Session) -> SessionResult:
        self._session = session
        if self.stopped:
            session.stop()
        try:
            return await session.run()
        finally:
            self._session = None

    def take_over(self, taken: TakeOver) -> None:
        """Lets a supervisor talk in the agent's place, which falls silent at once. Raises `Conflict` while
        another one does, and while the agent is not in the conversation."""
        if self.taken_over is not None:
            raise Conflict(f"{self.taken_over.who} has taken the call over")
        if self._session is None:
            raise Conflict("The agent is not in this conversation now")
        self.taken_over = taken
        taken.begin()
        self._session.stop(EndReason.TAKEN_OVER)

    def whisper(self, text: str) -> bool:
        """Tells the agent something that the caller does not hear; False: this agent cannot be told."""
        return isinstance(self._agent, Advised) and self._agent.advise(text)

    async def _reopened(self, before: SessionResult, rate_hz: int) -> Recording | None:
        if before.recording is None:
            return None
        try:
            path = before.recording
            recording = await self.services.recorder.resume(path, rate_hz=rate_hz, now=self.began)
        except OSError as error:
            log.error("conversation goes on unrecorded", extra={**self.cdr.fields(), "reason": str(error)})
            self.unrecorded(error)
            return None
        if self._policy is not None:
            self._policy.record_on(recording)
        return recording

    async def summary(self, result: SessionResult) -> str:
        """Returns what the conversation was about in a few sentences, "" from an agent that cannot tell.
        Never raises."""
        if not isinstance(self._agent, Summarising):
            return ". ".join(f"{name}: {value}" for name, value in result.report.answers.items())
        try:
            with contained("the agent", **self.cdr.fields()):
                return await self._agent.summarise(result.transcript)
        except EngineError as error:
            log.warning("no summary", extra={**self.cdr.fields(), "reason": str(error)})
        return ""

    def _open_session(
        self, leg: Leg, context: AgentContext, observer: SessionObserver, line: AnswerDetector | None
    ) -> Session:
        engines = self.profile.engines
        self._agent = engines.agent.join(context)
        recording = self._open_recording(leg.rate_hz)
        policy = Policy(fill(self.profile.policy.disclosure, context.variables), self.profile.policy.question)
        self._policy = PolicyConversation(self._agent, policy, language=context.language, recording=recording)
        return self._session_on(leg, self._policy, observer, recording, line=line)

    def _session_on(
        self,
        leg: Leg,
        agent: Conversation,
        observer: SessionObserver,
        recording: Recording | None,
        *,
        line: AnswerDetector | None = None,
        resumption: Resumption | None = None,
    ) -> Session:
        engines = self.profile.engines
        return Session(
            leg=leg,
            agent=agent,
            stt=engines.stt,
            tts=engines.tts,
            fallback_tts=engines.fallback_tts,
            settings=engines.session,
            call_id=self.cdr.call_id,
            phrases=engines.phrases,
            recording=recording,
            observer=observer,
            answer_detector=line,
            detector=engines.detector,
            vad=engines.vad,
            resumption=resumption,
            hearing=self._agent if isinstance(self._agent, Hearing) else None,
        )

    async def _consented(self, result: SessionResult) -> SessionResult:
        """Notes the caller's consent to being recorded, and removes a recording that must not be kept."""
        policy = self._policy
        if policy is None or policy.consent is None:
            return result
        policy.end()
        self.cdr.consent = policy.consent.value
        if policy.keeps or result.recording is None:
            return result
        await asyncio.to_thread(result.recording.unlink, missing_ok=True)
        return replace(result, recording=None)

    def _open_recording(self, rate_hz: int) -> Recording | None:
        if not self.profile.records:
            return None
        path = self.services.recordings / f"{self.cdr.call_id}.wav"
        return self.services.recorder.open(path, rate_hz=rate_hz, now=self.began)

    def unrecorded(self, error: Exception) -> None:
        """Notes a fault of the recording, which lacks a part of the call or all of it."""
        at_ms = round((asyncio.get_running_loop().time() - self.began) * 1000)
        self.cdr.faults.append(EngineFault("recording", str(error), at_ms))

    async def debrief(self, result: SessionResult | None) -> SessionResult | None:
        """Asks the agent for its report after the end of the call; never raises."""
        self.cdr.ended_at_ms = self.cdr.now_ms()
        result = await self._with_last_words(result)
        result = await self._sealed(await self._silenced(result))
        return await debriefed(self._agent, result, self.cdr.fields())

    async def _with_last_words(self, result: SessionResult | None) -> SessionResult | None:
        """Adds what was said just before the hand-backs, where that was recognised later."""
        late = [entry for taken in self._handed_back for entry in await taken.last_words()]
        if result is None or not late:
            return result
        entries = sorted((*result.transcript, *late), key=lambda entry: entry.end_ms)
        return replace(result, transcript=tuple(entries))

    async def _sealed(self, result: SessionResult | None) -> SessionResult | None:
        """Encrypts the recording where the server has a key; what cannot be now is at the next start."""
        files = self.services.sealed_files
        if files is None or result is None or result.recording is None:
            return result
        try:
            return replace(result, recording=await asyncio.to_thread(files.seal, result.recording))
        except OSError as error:
            log.error("recording not sealed", extra={**self.cdr.fields(), "reason": error.strerror or ""})
            return result

    async def _silenced(self, result: SessionResult | None) -> SessionResult | None:
        """Silences in the recording what is redacted in the transcript; a recording in which that cannot be
        done is removed."""
        redactor = self.profile.redactor
        if redactor is None or not self.profile.silences or result is None or result.recording is None:
            return result
        channels = {Role.CALLER: LEFT, Role.AGENT: RIGHT, Role.COLLEAGUE: RIGHT}
        found = redactor.silences(result.transcript)
        parts = [(channels[each.role], each.start_ms, each.end_ms) for each in found]
        try:
            await asyncio.to_thread(silence, result.recording, parts)
        except (RecordingError, OSError) as error:
            log.error("recording removed", extra={**self.cdr.fields(), "reason": str(error)})
            await asyncio.to_thread(result.recording.unlink, missing_ok=True)
            self.unrecorded(error)
            return replace(result, recording=None)
        return result
