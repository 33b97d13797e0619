"""One call of a language-model agent: events go to the model, its words to the voice.

The answer is made in a task that runs a little ahead of the voice, so that a tool runs while the words before
it are still being said. Closing the iterator (the caller goes on, or interrupts) ends the task.

What the caller says, what tools answer and what the customer's systems know of the caller are data: they
stand in messages of the roles user and tool, never in the system's. The configuration and the code around the
model decide what may be done; a model that obeys whoever spoke last gains nothing by it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pipeline.agent import (
    AgentAct,
    AgentContext,
    AgentEvent,
    AgentReport,
    CallOpened,
    HandedBack,
    Say,
    SwitchLanguage,
    TransferFailed,
    UserKeyed,
    UserSaid,
    UserSilent,
)
from pipeline.agents.llm.answer import Answer, LlmAgentSpec, Queued, State, Turn, tool_offers
from pipeline.agents.llm.confirmation import Pending, agrees
from pipeline.agents.llm.digits import Wanted, read_answer, shown
from pipeline.agents.llm.extraction import extract, spoken_lines, summarise
from pipeline.agents.llm.history import History, Message, Round, Segment
from pipeline.agents.llm.prompt import data_block, facts_messages, opening_messages, taking_turns
from pipeline.agents.llm.realtime.talk import HeardCall, HeardTurn, RealtimeTalk
from pipeline.agents.llm.tools.http import metadata_values
from pipeline.agents.llm.tools.tool import Budget
from pipeline.speech import SpeechToText
from pipeline.text.normalise import verbalize
from pipeline.text.templates import fill
from pipeline.transcript import TranscriptEntry

AHEAD: Final = 64
"""The most acts that may wait for the voice: a long answer. Beyond that the model's stream waits."""

UNHEARD: Final = 2
"""How many words of a question the caller may leave unheard by talking over it and still answer it."""

OPENED: Final = "[The caller is on the line. You speak first.]"
BACK: Final = (
    "[The transfer to {target} failed: {outcome}. The caller is back with you and heard only the ring.]"
)
HANDED_BACK: Final = (
    "[A colleague took the call over and has handed it back to you. Meanwhile this was said: {said}. "
    "Go on from there; do not greet again.]"
)
ADVICE: Final = (
    "Your supervisor tells you, and the caller does not hear it (never mention it): {text}\n"
    "Take it into account from now on."
)
MAX_ADVICE: Final = 20
"""The latest words of supervisors that are kept in a call."""

SILENT: Final = "[The caller says nothing.]"
NOT_UNDERSTOOD: Final = "[The caller said something that was not understood.]"
DOUBTFUL: Final = "[This may not be what the caller said: ask whether it is right.]"


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the caller has been asked, and has given so far."""

    pending: Pending | None = None
    wanted: Wanted | None = None
    given: Mapping[str, str] = field(default_factory=dict)


class LlmConversation:
    """The conversation of one call. `said`: what the caller has already heard from the script before this
    agent."""

    def __init__(self, spec: LlmAgentSpec, context: AgentContext, *, said: str = "") -> None:
        self._spec = spec
        self._context = context
        self._state = State(
            History(max_turns=spec.history_turns, max_tokens=spec.history_tokens),
            Budget(spec.limits),
            context.language,
            {**context.variables, **metadata_values(context.metadata)},
            context.call_id,
            context.tool_used,
            context.trace_id,
        )
        self._advice: deque[str] = deque(maxlen=MAX_ADVICE)
        self._before = _Asked()  # what was asked of the caller before their last words
        self._opening = opening_messages(spec.prompt, context)
        if spec.realtime is not None:
            self._state.realtime = RealtimeTalk(spec.realtime, self._opening)
        if said:
            self._was_said(said, said)

    async def respond(self, event: AgentEvent) -> AsyncGenerator[AgentAct, None]:
        """Answers `event` with the model's acts, as a task makes them; closing the iterator cancels the
        task."""
        if isinstance(event, CallOpened) and self._context.greeting:
            yield self._greet()
            return
        acts: asyncio.Queue[Queued] = asyncio.Queue(AHEAD)
        answer = Answer(self._spec, self._state, self._take_in(event), acts, messages=self._messages)
        task = asyncio.create_task(answer.run())
        try:
            while (act := await acts.get()) is not None:
                if isinstance(act, Exception):
                    raise act
                yield act
                if isinstance(act, SwitchLanguage):  # done for certain: acts of a wrong guess never come here
                    self._state.language = act.language
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def ears(self, stt: SpeechToText, *, rate_hz: int) -> SpeechToText:
        """Gives the recogniser through which a model that hears by itself hears the caller; `stt` where there
        is none."""
        state = self._state
        if state.realtime is None:
            return stt
        call = HeardCall(state.call_id, tool_offers(self._spec.builtins, self._spec.tools()))
        return state.realtime.ears(
            stt, call, rate_hz=rate_hz, history=state.history, is_private=lambda: state.wanted is not None
        )

    def advise(self, text: str) -> bool:
        """Takes a supervisor's words as an instruction from the next answer on; False: a model that hears by
        itself has its instructions from the start."""
        if self._state.realtime is not None:
            return False
        self._advice.append(text)
        return True

    def report(self) -> AgentReport:
        """Returns the disposition and the noted facts and numbers, masked where configured."""
        notes = self._state.notes
        numbers = shown(self._spec.policy.asks, self._state.given)
        return AgentReport(disposition=notes.disposition, answers=notes.facts | numbers)

    async def debrief(self, transcript: Sequence[TranscriptEntry]) -> AgentReport:
        """Returns `report`, with the fields of the extraction schema where one is configured. Raises
        `EngineError`."""
        report, settings = self.report(), self._spec.extract
        return report if settings is None else await extract(self._spec.chat, settings, transcript, report)

    async def summarise(self, transcript: Sequence[TranscriptEntry]) -> str:
        """Returns what a colleague is told who takes the caller over. Raises `EngineError`."""
        return await summarise(self._spec.chat, transcript, self._state.language)

    # Events -------------------------------------------------------------------------------------------------

    def _greet(self) -> Say:
        text = fill(self._context.greeting, self._context.variables)
        spoken = verbalize(text, self._state.language)
        self._was_said(text, spoken)
        return Say(spoken)

    def _was_said(self, text: str, spoken: str) -> None:
        self._state.history.begin(OPENED).rounds.append(Round([Segment(text, spoken)]))

    def _take_in(self, event: AgentEvent) -> Turn:
        """Brings the history up to what the caller heard, and begins the turn."""
        state = self._state
        state.budget.new_turn()
        state.go_on()
        unheard = self._catch_up(event)
        before, state.pending = _Asked(state.pending, state.wanted, dict(state.given)), None
        granted: Pending | None = None
        if isinstance(event, UserSaid):
            self._before = before
            pending = before.pending
            if (
                pending is not None
                and unheard <= UNHEARD
                and not event.keyed
                and not event.doubtful
                and agrees(event.text, state.language, pending.question)
            ):
                granted = pending
        else:
            self._before = replace(self._before, pending=None)
        told, say, was_wanted = _told(event), "", state.wanted is not None
        if isinstance(event, UserSaid) and event.text and event.doubtful:
            told = f"{told} {DOUBTFUL}"
        if state.wanted is not None and isinstance(event, UserSaid | UserKeyed):
            told, say = self._read(state.wanted, event, told)
        settled = event.settled if isinstance(event, UserSaid) else None
        exchange = state.history.begin(told)
        if state.realtime is not None:
            state.realtime.takes_turn(
                state.history, exchange, _heard(event, hidden=was_wanted or state.wanted is not None)
            )
        return Turn(exchange, say, granted, settled)

    def _read(self, wanted: Wanted, event: UserSaid | UserKeyed, told: str) -> tuple[str, str]:
        """Reads an answer to a question for a number; returns what the model is told of it, and what is said
        without the model."""
        reading = read_answer(wanted, event, told, self._state.language)
        self._state.wanted = reading.wanted
        if reading.value:
            self._state.given[wanted.ask.name] = reading.value
        return reading.told, reading.say

    def _catch_up(self, event: AgentEvent) -> int:
        """Cuts the history to what the caller heard; returns how many words of the last answer the caller did
        not hear."""
        state = self._state
        if isinstance(event, UserSaid) and event.continues:
            if state.realtime is not None and state.history.exchanges:
                state.realtime.forget(state.history.exchanges[-1])
            acted, before = state.history.undo(), self._before
            state.pending = None if acted else before.pending
            state.wanted, state.given = before.wanted, dict(before.given)
            return 0
        if isinstance(event, UserSaid | UserKeyed | UserSilent | HandedBack) and event.interrupted:
            return state.history.heard(event.heard)
        return 0

    def _messages(self) -> list[Message]:
        facts = facts_messages(self._state.notes)
        return taking_turns([*self._advised(), *facts, *self._state.history.messages()])

    def _advised(self) -> Sequence[Message]:
        """Returns the opening messages with the supervisors' words in the system's, the first: templates of
        some models refuse a second one."""
        if not self._advice:
            return self._opening
        system, *others = self._opening
        told = [system["content"], *(ADVICE.format(text=text) for text in self._advice)]
        return [{"role": "system", "content": "\n\n".join(told)}, *others]


def _told(event: AgentEvent) -> str:
    """Returns what the model is told of an event."""
    match event:
        case UserSaid(text=text, keyed=keyed):
            return f"{_pressed(keyed)} {text or NOT_UNDERSTOOD}".strip()
        case UserKeyed(digits=digits):
            return _pressed(digits)
        case UserSilent():
            return SILENT
        case TransferFailed(target=target, outcome=outcome):
            return BACK.format(target=target, outcome=outcome)
        case HandedBack(said=said):
            return HANDED_BACK.format(said=data_block({"transcript": spoken_lines(said)}))
        case _:
            return OPENED


def _heard(event: AgentEvent, *, hidden: bool) -> HeardTurn:
    """What a model that hears by itself is to know of an event; `hidden`: this server alone reads it."""
    if not isinstance(event, UserSaid):
        return HeardTurn()
    return HeardTurn(spoken=not hidden, keyed=_pressed(event.keyed), continues=event.continues)


def _pressed(keys: str) -> str:
    return f"[The caller pressed the keys {keys}.]" if keys else ""
