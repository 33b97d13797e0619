"""Records the transcript, turns, silences and faults of one conversation, on the call's media clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.agent import AgentEvent, CallOpened, Opening, UserKeyed, UserSaid
from pipeline.latency import TurnClock, TurnLatency
from pipeline.media.playout import Heard
from pipeline.result import EngineFault, SessionObserver, Silence, TurnRecord
from pipeline.session.parts import Resumption
from pipeline.speech import HeardWord
from pipeline.text.redaction import Redaction, masked
from pipeline.transcript import Role, TimedWord, Transcript, TranscriptEntry, unheard_words

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Exchange:
    """The exchange under way: an event and the agent's answer to it."""

    event: AgentEvent
    began: float
    clock: TurnClock | None
    caller: TranscriptEntry | None
    masked: bool
    latency: TurnLatency | None = None
    heard_at: float | None = None
    fillers: int = 0
    silences: list[Silence] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


class TurnLog:
    """Records transcript, turns, silences and faults of one call and passes them to the observer. Moments are
    loop time; records have milliseconds since the log was made."""

    def __init__(
        self,
        observer: SessionObserver | None,
        *,
        call_id: str,
        loop: asyncio.AbstractEventLoop,
        resumption: Resumption | None = None,
    ) -> None:
        self.transcript = Transcript()
        self.redaction = Redaction()
        """While active, the caller's words and digits appear as dots in transcript, turns and events."""
        self.turns: list[TurnRecord] = []
        self.faults: list[EngineFault] = []
        self.silences: list[Silence] = []
        self.interruptions = 0
        self.agent_speech_s = 0.0
        self.heard = ""
        """The part of the agent's last answer that the caller heard."""
        self.cut_short = False
        """Whether the caller interrupted the agent's last answer."""
        self._observer = observer
        self.words_followed = observer is not None and observer.follows_words
        """Whether the observer takes the agent's words as they are heard (`agent_speaks`)."""
        self.call_id = call_id
        self._loop = loop
        self._began = loop.time()
        self._exchange: _Exchange | None = None
        self.opening: Opening = CallOpened() if resumption is None else resumption.opening
        """The event with which the conversation begins."""
        self.before = None if resumption is None else resumption.before
        """The result of the conversation that goes on; None for a new one."""
        if resumption is not None:
            self._go_on(resumption)

    def _go_on(self, resumption: Resumption) -> None:
        """Takes over the record of the conversation that goes on."""
        before, self._began = resumption.before, resumption.began
        for entry in before.transcript:
            self.transcript.add(entry)
        self.turns += before.turns
        self.faults += before.faults
        self.silences += before.silences
        self.interruptions = before.interruptions
        self.agent_speech_s = before.agent_speech_ms / 1000

    def ms(self, moment: float) -> int:
        """Converts loop time `moment` to milliseconds on the call's media clock."""
        return max(0, round((moment - self._began) * 1000))

    def fault(self, role: str, message: str, now: float) -> None:
        """Records a fault of an engine or of the agent."""
        self.faults.append(EngineFault(role, message, self.ms(now)))
        log.warning("engine fault", extra={"call_id": self.call_id, "role": role, "reason": message})

    def fault_now(self, role: str, message: str) -> None:
        """Records a fault of an engine or of the agent, at this moment."""
        self.fault(role, message, self._loop.time())

    # Exchanges ------------------------------------------------------------------------------------------

    def begin(
        self, event: AgentEvent, now: float, *, clock: TurnClock | None, caller: TranscriptEntry | None
    ) -> None:
        """Begins the exchange that `event` opens. An exchange under way is replaced: the caller went on
        before hearing any of its answer, and `caller` has the words of both."""
        self._exchange = _Exchange(event, now, clock, caller, self.redaction.active)

    def confirm(self, caller: TranscriptEntry | None, *, endpoint_due: float, words_known: float) -> None:
        """Sets the final words of the exchange, and the loop times of its end-point and its words."""
        exchange = self._exchange
        if exchange is not None:
            exchange.caller = caller
            if exchange.clock is not None:
                exchange.clock.endpoint_due, exchange.clock.words_known = endpoint_due, words_known

    def sounded(self, now: float, *, agent_s: float, tts_s: float) -> None:
        """Notes at the first call of an exchange that the caller hears the answer from `now` on: computes the
        latency and adds the caller's entry to the transcript. `agent_s`, `tts_s`: see `Reply.waited`."""
        exchange = self._exchange
        if exchange is None or exchange.heard_at is not None:
            return
        exchange.heard_at = now
        if exchange.clock is not None:
            exchange.clock.agent_s, exchange.clock.tts_s = agent_s, tts_s
            exchange.latency = exchange.clock.latency(now)
        if exchange.caller is not None:  # the caller's words are final from the first sound of the answer on
            self._add(exchange.caller)

    def filler(self) -> None:
        """Counts a filler phrase in the exchange under way."""
        if self._exchange is not None:
            self._exchange.fillers += 1

    def silence(self, began: float, seconds: float, cause: str) -> None:
        """Records a silence of `seconds` from loop time `began` on, with its cause."""
        silence = Silence(self.ms(began), round(seconds * 1000), cause)
        self.silences.append(silence)
        if self._exchange is not None:
            self._exchange.silences.append(silence)
        log.warning("silence in our turn", extra={"call_id": self.call_id, "ms": silence.ms, "cause": cause})

    def leave(self, now: float, *, keeps_words: bool) -> None:
        """Ends the exchange under way with the conversation: the answer in it was not heard to its end.
        `keeps_words`: the words of the caller are added later."""
        cut = self._exchange is not None
        if cut and keeps_words and not self.was_heard:
            self._exchange, self.heard = None, ""
        self.end(now)
        self.cut_short |= cut

    @property
    def was_heard(self) -> bool:
        """Whether the caller has heard a sound of the exchange under way."""
        return self._exchange is not None and self._exchange.heard_at is not None

    @property
    def answers_words(self) -> bool:
        """Whether the exchange under way answers words of the caller."""
        return self._exchange is not None and isinstance(self._exchange.event, UserSaid)

    def agent_said(self, heard: Heard, *, now: float, interrupted: bool) -> None:
        """Adds an utterance of the agent to the transcript: all its words, or, `interrupted`, those heard."""
        utterance = heard.utterance
        started = utterance.started_at
        words = utterance.heard(heard.samples)
        if started is None:
            return
        self.agent_speech_s += heard.samples / utterance.rate_hz
        text = " ".join(word.text for word in words) if interrupted else utterance.text
        if not text:
            return
        if self._exchange is not None:
            self._exchange.said.append(text)
        self._add(
            TranscriptEntry(
                Role.AGENT,
                text,
                start_ms=self.ms(started),
                end_ms=self.ms(now),
                interrupted=interrupted,
                words=tuple(
                    TimedWord(
                        word.text,
                        self.ms(utterance.time_of(word.start)),
                        self.ms(utterance.time_of(word.end - 1)),
                    )
                    for word in words
                ),
                unheard=unheard_words(utterance.text, words) if interrupted else "",
            )
        )

    def end(self, now: float, *, interrupted: bool = False, said: TranscriptEntry | None = None) -> None:
        """Ends the exchange under way, if there is one. `said`: the caller's words, where the end of their
        turn was never certain."""
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        exchange.caller = exchange.caller or said
        if exchange.heard_at is None and exchange.caller is not None:
            self._add(exchange.caller)
        self.heard, self.cut_short = " ".join(exchange.said), interrupted
        self.interruptions += interrupted
        event = exchange.event
        caller = exchange.caller
        text = event.text if isinstance(event, UserSaid) else ""
        keyed = event.digits if isinstance(event, UserKeyed) else ""
        keyed = event.keyed if isinstance(event, UserSaid) else keyed
        turn = TurnRecord(
            number=len(self.turns) + 1,
            user_text=masked(text) if exchange.masked else text,
            keyed=masked(keyed) if exchange.masked else keyed,
            confidence=event.confidence if isinstance(event, UserSaid) else 0.0,
            agent_text=self.heard,
            interrupted=interrupted,
            start_ms=caller.start_ms if caller is not None else self.ms(exchange.began),
            end_ms=self.ms(now),
            latency=exchange.latency,
            fillers=exchange.fillers,
            silences=tuple(exchange.silences),
            heard_ms=None if exchange.heard_at is None else self.ms(exchange.heard_at),
        )
        self.turns.append(turn)
        if self._observer is not None:
            self._observer.turn_completed(turn)

    def caller_entry(
        self, text: str, confidence: float, words: Sequence[HeardWord], *, times: tuple[float, float, float]
    ) -> TranscriptEntry | None:
        """Makes the transcript's entry for an utterance with `AudioInput.utterance_times`; None for an empty
        text."""
        if not text:
            return None
        first, last, origin = times
        if self.redaction.active:
            return TranscriptEntry(
                Role.CALLER, masked(text), self.ms(first), self.ms(last), confidence=confidence
            )
        base = self.ms(origin)
        timed = [
            TimedWord(word.text, base + word.start_ms, base + word.end_ms)
            for word in words
            if word.start_ms >= 0
        ]
        return TranscriptEntry(
            Role.CALLER, text, self.ms(first), self.ms(last), confidence=confidence, words=tuple(timed)
        )

    def understood(self, text: str, now: float) -> None:
        """Passes the caller's interim words to the observer, as dots while masking is active."""
        if self._observer is not None and text:
            self._observer.words_heard(masked(text) if self.redaction.active else text, now)

    def agent_speaks(self, text: str, now: float) -> None:
        """Passes the observer the words of an utterance that the caller has begun to hear."""
        if self._observer is not None and text:
            self._observer.agent_speaking(text, now)

    def caller_wrote(self, text: str, now: float) -> None:
        """Adds a chat message of the caller's to the transcript."""
        shown = masked(text) if self.redaction.active else text
        self._add(TranscriptEntry(Role.CALLER, shown, self.ms(now), self.ms(now), confidence=1.0))

    def caller_said(self, entry: TranscriptEntry) -> None:
        """Adds words of the caller that no exchange answers to the transcript."""
        self._add(entry)

    def _add(self, entry: TranscriptEntry) -> None:
        self.transcript.add(entry)
        if self._observer is not None:
            self._observer.transcript_added(entry)
