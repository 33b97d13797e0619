"""Runs one conversation on one leg, from the answer to the hang-up.

```
leg ── audio_received ──► AudioInput ──► Dialogue ◄── events, actions ──► Turns
leg ◄── read / sent ───── Playout ◄── Synthesis ◄── Reply ◄── the agent
```

A frame goes in by direct call and comes out by direct call; only decoding and answering are tasks, and one
loop timer serves all timers of turn-taking. Everything here runs on the event loop's thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from pipeline.agent import AgentReport, Conversation, Hearing
from pipeline.audio import Pcm, silence
from pipeline.audio.echo_gate import EchoGate
from pipeline.audio.levels import is_audible
from pipeline.audio.other_vads import MakeVoiceDetector
from pipeline.audio.vad import EnergyVad
from pipeline.call_progress.answer_detection import AnswerDecision, AnswerDetectionAgent, AnswerDetector
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.errors import RecordingError, boundary
from pipeline.leg import Leg
from pipeline.media.recording import Recording
from pipeline.net.untrusted import clean_text
from pipeline.plane.incoming import ALWAYS, NO_LINE, Attention, Frames, Told
from pipeline.plane.outgoing import Left
from pipeline.result import EndReason, SessionObserver, SessionResult
from pipeline.session.audio_input import IDLE_FRAMES, PREROLL_MS, AudioInput
from pipeline.session.dialogue import Dialogue
from pipeline.session.parts import Resumption, SessionParts
from pipeline.session.prompts import Phrases
from pipeline.session.turn_log import TurnLog
from pipeline.session.word_clock import WordClock
from pipeline.settings import SessionSettings
from pipeline.speech import SpeechToText, TextToSpeech, voices_of_call
from pipeline.stt.fallback import of_call
from pipeline.turns.events import LegEnded

_NS: Final = 1e9

KEEP_LEG: Final = frozenset({EndReason.TRANSFER, EndReason.TAKEN_OVER})
"""Ends of a session after which others go on with its leg."""

log = logging.getLogger(__name__)


class Session:
    """One conversation on one leg: make a `Session` on the event loop and call `run` once. The session hangs
    up the leg at the end, except after the reasons `KEEP_LEG`.

    `fallback_tts`: voices that speak, in order, when `tts` cannot. `phrases`: the server's own phrases; None:
    tones. `recording`: fed and closed by the session. `observer`: called with events as they happen.
    `answer_detector`: detects answering machines and tones; the agent's first words wait for its verdict
    where its settings say so. `detector`: the end-of-turn detector; None: the words alone decide.
    `resumption`: a conversation that goes on, whose record this one takes over. `hearing`: the agent, where
    it may hear the caller by itself.
    """

    _incoming: Attention | None = None  # of a leg that detects voice and echo by itself

    def __init__(  # noqa: PLR0913 (the parts of a call; all keywords, half of them optional)
        self,
        *,
        leg: Leg,
        agent: Conversation,
        stt: SpeechToText,
        tts: TextToSpeech,
        settings: SessionSettings | None = None,
        call_id: str = "",
        fallback_tts: Sequence[TextToSpeech] = (),
        phrases: Phrases | None = None,
        recording: Recording | None = None,
        observer: SessionObserver | None = None,
        answer_detector: AnswerDetector | None = None,
        detector: EndOfTurnDetector | None = None,
        vad: MakeVoiceDetector = EnergyVad,
        resumption: Resumption | None = None,
        hearing: Hearing | None = None,
    ) -> None:
        self._loop, self._leg, settings = asyncio.get_running_loop(), leg, settings or SessionSettings()
        self._agent = agent if answer_detector is None else AnswerDetectionAgent(agent, answer_detector)
        self._answer_detector, self._recording, self._echo = answer_detector, recording, EchoGate(leg.rate_hz)
        self._verdict: asyncio.Future[AnswerDecision] = self._loop.create_future()
        self._call_id, self._leg_reason, self._ended, self._may_listen = call_id, "", 0.0, vad is EnergyVad
        self._hidden = None if settings.record_masked else silence(leg.rate_hz)
        self._turn_log = TurnLog(observer, call_id=call_id, loop=self._loop, resumption=resumption)
        faulty = partial(self._turn_log.fault_now, "stt")
        recognizer, ears = of_call(stt, faulty, call_id=call_id, language=settings.language)
        heard_by = recognizer if hearing is None else hearing.ears(recognizer, rate_hz=leg.rate_hz)
        ears = (*ears, heard_by) if heard_by is not recognizer else ears
        voices, own = voices_of_call((tts, *fallback_tts), call_id=call_id, language=settings.language)
        self._of_call: tuple[SpeechToText | TextToSpeech, ...] = (*ears, *own)
        self._audio_input = _audio_input(heard_by, settings, leg.rate_hz, vad, detector)
        parts = SessionParts(
            leg=leg, agent=self._agent, voices=voices, phrases=phrases or Phrases(), observer=observer,
            detector=detector,
        )  # fmt: skip
        self._dialogue = Dialogue(parts, self._audio_input, self._turn_log, settings=settings)
        self._words = WordClock(self._dialogue.playout, self._turn_log.agent_speaks)
        self._dialogue.playout.tap, self._dialogue.playout.line_tap = self._played, self._left

    async def run(self) -> SessionResult:
        """Runs the conversation, from the first word to the hang-up, and returns its result. Failures of an
        engine, the agent, the leg or the disk do not raise; they are in the result."""
        try:
            reason = await self._converse()
        finally:
            for each in self._of_call:
                await each.close()
        self._dialogue.agent_turns.leave()  # breaks reference cycles: the session is freed at once
        return await self._result(reason)

    async def _converse(self) -> EndReason:
        dialogue = self._dialogue
        async with asyncio.TaskGroup() as tasks:
            try:
                self._leg.attach(self, dialogue.playout)
                if await self._somebody_is_there():
                    dialogue.begin(tasks)
                    self._listen()
                reason = await dialogue.over
            finally:
                self._leg.attach(None, None)
                self._wind_up()
        if reason not in KEEP_LEG:
            await self._leg.hang_up()
        await dialogue.hear_out()
        return reason

    async def _somebody_is_there(self) -> bool:
        """Waits for the verdict of answer detection where the settings say so. False: the call is over."""
        answer_detector, over = self._answer_detector, self._dialogue.over
        if answer_detector is None:
            return True
        answer_detector.begin(self._loop.time())
        while answer_detector.holds and not self._verdict.done() and not over.done():
            due = answer_detector.timer_at()
            limit_s = None if due is None else max(0.0, due - self._loop.time())
            await asyncio.wait((self._verdict, over), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            answer_detector.handle_timer(self._loop.time())
            if answer_detector.verdict is not None:
                break
        if answer_detector.verdict is AnswerDecision.HANG_UP:
            self._dialogue.end(EndReason.AGENT)
        return not over.done()

    def write(self, text: str) -> None:
        """Takes a chat message of the caller's, which the agent answers like spoken words. No effect before
        the conversation has begun."""
        if text and self._dialogue.begun:
            self._dialogue.written(clean_text(text), self._loop.time())

    def stop(self, reason: EndReason = EndReason.STOPPED) -> None:
        """Ends the conversation at once, for `reason`. No effect after the end."""
        self._dialogue.end(reason)

    # From the leg (`LegListener`) -----------------------------------------------------------------------

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        """Takes a frame of the caller's audio: records it, and passes it to answer detection, the echo gate
        and voice detection. Parameters are those of `LegListener.audio_received`."""
        if self._recording is not None:
            hidden = self._hidden if now < self._turn_log.redaction.until else None
            self._recording.caller(frame if hidden is None else hidden, position, now)
        if self._answer_detector is not None:
            self._look_at(self._answer_detector, frame, now)
        if not self._dialogue.begun or self._leg.held:
            return
        self._dialogue.playout.catch_up()  # the echo of what a line has said by itself
        echo = self._echo.is_echo(frame, now)
        sound = self._audio_input.push(frame, position, now, concealed=concealed, echo=echo)
        if sound is not None:
            self._dialogue.heard(sound, now)

    # From a leg that listens by itself (`LineListener`) -----------------------------------------------------

    def line_connected(self, line: Attention | None) -> None:
        """Leaves voice detection and the echo gate to `line`, unless another detector is wanted."""
        self._incoming = line if self._may_listen else None
        if self._incoming is not None:
            self._incoming.follow()
        if self._incoming is None or self._dialogue.begun:
            self._listen()

    def _listen(self) -> None:
        idle_frames = ALWAYS if self._answer_detector is not None else IDLE_FRAMES
        self._audio_input.hear_by(self._incoming or NO_LINE, idle_frames=idle_frames)

    def frames_received(self, frames: Frames, told: Sequence[Told]) -> None:
        """Takes many frames of the caller's, with what the line has noticed in them."""
        playout = self._dialogue.playout
        if playout.frames.waiting:
            playout.catch_up()  # what is heard and what is said stay together
        if self._incoming is None:
            for frame, (position, arrived_ns, made_up, _, _) in zip(frames, told, strict=True):
                self.audio_received(frame, position, arrived_ns / _NS, concealed=bool(made_up))
            return
        self._record(frames, told)
        if self._answer_detector is not None:
            for frame, (_, arrived_ns, _, _, _) in zip(frames, told, strict=True):
                self._look_at(self._answer_detector, frame, arrived_ns / _NS)
        if self._dialogue.begun and not self._leg.held:
            self._audio_input.take(frames, told, self._dialogue.heard)

    def _record(self, frames: Frames, told: Sequence[Told]) -> None:
        recording, masked_until = self._recording, self._turn_log.redaction.until
        if recording is None:
            return
        if self._hidden is not None and told[0][1] / _NS < masked_until:
            heard = [arrived_ns / _NS >= masked_until for _, arrived_ns, _, _, _ in told]
            frames = frames * np.array(heard, np.int16)[:, np.newaxis]
        recording.caller_frames(frames, told)

    def _look_at(self, answer_detector: AnswerDetector, frame: Pcm, now: float) -> None:
        verdict = answer_detector.push(frame, now)
        if verdict is AnswerDecision.HANG_UP and self._dialogue.begun:
            self._dialogue.end(EndReason.AGENT)
        elif verdict is not None and not self._verdict.done():
            self._verdict.set_result(verdict)

    def digit_received(self, digit: str, now: float) -> None:
        """Takes a DTMF digit of the caller's."""
        if self._dialogue.begun:
            self._dialogue.keyed(digit, now)

    def leg_ended(self, reason: str, now: float) -> None:
        """Ends the conversation with `EndReason.FAR_END` when the leg has ended."""
        self._leg_reason = reason
        if self._dialogue.begun:
            self._dialogue.receive(LegEnded(), now)
        else:
            self._dialogue.end(EndReason.FAR_END)

    # Of the playout -------------------------------------------------------------------------------------

    def _played(self, frame: Pcm, now: float) -> None:
        self._echo.played(frame, now)
        self._dialogue.sounded(((round(now * _NS), is_audible(frame)),))
        if self._turn_log.words_followed:
            self._words.played()
        if self._recording is not None:
            self._recording.agent(frame, now)

    def _left(self, frames: Frames, told: Sequence[Left]) -> None:
        if self._incoming is None:
            for frame, (sent_ns, _) in zip(frames, told, strict=True):
                self._echo.played(frame, sent_ns / _NS)
        self._dialogue.sounded(told)
        if self._turn_log.words_followed:
            self._words.played()
        if self._recording is not None:
            self._recording.agent_frames(frames, told)

    # End of the conversation ----------------------------------------------------------------------------

    def _wind_up(self) -> None:
        self._ended = now = self._loop.time()
        self._dialogue.wind_up(now)
        self._dialogue.playout.tap = self._dialogue.playout.line_tap = None
        self._words.close()
        if self._recording is not None:
            self._recording.end(now)

    async def _result(self, reason: EndReason) -> SessionResult:
        recording = await self._close_recording()
        report = self._report()
        turn_log, agent_turns, before = self._turn_log, self._dialogue.agent_turns, self._turn_log.before
        caller_ms = self._audio_input.voiced_samples * 1000 // self._audio_input.rate_hz
        return SessionResult(
            reason=reason,
            disposition=agent_turns.disposition or self._detected() or report.disposition,
            line=self._line(),
            transfer_target=agent_turns.target,
            leg_reason=self._leg_reason,
            transcript=turn_log.transcript.entries,
            turns=tuple(turn_log.turns),
            interruptions=turn_log.interruptions,
            report=report,
            faults=tuple(turn_log.faults),
            duration_ms=turn_log.ms(self._ended),
            caller_speech_ms=caller_ms + (before.caller_speech_ms if before is not None else 0),
            agent_speech_ms=round(turn_log.agent_speech_s * 1000),
            recording=recording,
            silences=tuple(turn_log.silences),
            heard=turn_log.heard,
            cut_short=turn_log.cut_short,
            do_not_call=agent_turns.do_not_call_reason,
        )

    def _line(self) -> str:
        if self._answer_detector is None:
            return self._turn_log.before.line if self._turn_log.before is not None else ""
        return self._answer_detector.found or self._answer_detector.early

    def _detected(self) -> str:
        """The kind of line that answer detection hung up on, "" where it did not."""
        answer_detector = self._answer_detector
        return (
            answer_detector.found
            if answer_detector is not None and answer_detector.verdict is AnswerDecision.HANG_UP
            else ""
        )

    def _report(self) -> AgentReport:
        with boundary(log, "agent could not report", call_id=self._call_id) as failure:
            return self._agent.report()
        self._turn_log.fault_now("agent", f"the agent could not report ({failure.kind})")
        return AgentReport()

    async def _close_recording(self) -> Path | None:
        if self._recording is None:
            return None
        try:
            return await self._recording.close()
        except RecordingError as error:
            self._turn_log.fault_now("recording", str(error))
            return error.path


def _audio_input(
    stt: SpeechToText,
    settings: SessionSettings,
    rate_hz: int,
    vad: MakeVoiceDetector,
    detector: EndOfTurnDetector | None,
) -> AudioInput:
    """Makes the conversation's `AudioInput`, which keeps as much audio as `detector` looks at."""
    return AudioInput(
        stt,
        rate_hz=rate_hz,
        language=settings.language,
        sustained_ms=min(settings.duck_ms, settings.barge_in_ms),
        kept_ms=PREROLL_MS if detector is None else round(detector.evidence_s * 1000),
        vad=vad,
    )
