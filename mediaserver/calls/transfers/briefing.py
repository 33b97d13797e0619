"""Tells a person about a call before they are connected with the caller, and asks whether they take it.

The briefing is a conversation of its own on the person's telephone: they may talk over it, and answer by key
or by word. Whoever says nothing that is understood does not take the call: nor does an answering machine."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Final

from mediaserver.calls.services import CallProfile
from pipeline.agent import (
    AgentAct,
    AgentEvent,
    AgentReport,
    CallOpened,
    Expect,
    HangUp,
    Say,
    Transfer,
    UserKeyed,
    UserSaid,
)
from pipeline.errors import boundary
from pipeline.result import EndReason
from pipeline.session.session import Session
from pipeline.speech import Expected
from pipeline.text.answers import value_of
from pipeline.text.fold import plain_words
from pipeline.text.lexicon import lexicon
from sip.call import Call

log = logging.getLogger(__name__)

LIMIT_S: Final = 90.0
"""Longest briefing in seconds, which the caller spends with the ring."""

ASKED_AT_MOST: Final = 2
TAKES, LEAVES = "1", "2"
"""The keys by which a person takes the call or leaves it."""


@dataclass(frozen=True, slots=True)
class Briefing:
    """What a person hears: `words`, then `question`; "": they are connected without being asked."""

    words: str
    question: str = ""


class BriefingConversation:
    """One briefing; it ends with a transfer where the person takes the call, else with a hang-up."""

    def __init__(self, briefing: Briefing, language: str) -> None:
        self._briefing = briefing
        self._lexicon = lexicon(language)
        self._asked = 0

    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        """Tells and asks, then ends by the answer."""
        if isinstance(event, UserSaid) and event.settled is not None:
            await event.settled()
        if isinstance(event, CallOpened) and self._briefing.words:
            yield Say(self._briefing.words, interruptible=bool(self._briefing.question))
        answer = self._answer(event) if self._briefing.question else "yes"
        if answer == "yes":
            yield Transfer("caller")
        elif answer == "no" or self._asked >= ASKED_AT_MOST:
            yield HangUp("declined", final=True)
        else:
            self._asked += 1
            yield Expect(Expected(kinds=("yes_no",), choices=(TAKES, LEAVES)))
            yield Say(self._briefing.question)

    def report(self) -> AgentReport:
        """Returns an empty report: the call's own agent reports."""
        return AgentReport()

    def _answer(self, event: AgentEvent) -> str:
        if isinstance(event, UserKeyed):
            return {TAKES: "yes", LEAVES: "no"}.get(event.digits, "")
        if isinstance(event, UserSaid) and event.keyed in (TAKES, LEAVES):
            return "yes" if event.keyed == TAKES else "no"
        return (
            value_of("yes_no", plain_words(event.text), self._lexicon) if isinstance(event, UserSaid) else ""
        )


async def brief(call: Call, briefing: Briefing, profile: CallProfile, *, call_id: str) -> bool:
    """Runs the briefing on `call`; returns whether the person takes the caller. Never raises."""
    engines = profile.engines
    settings = replace(engines.session, max_duration_s=LIMIT_S, max_reprompts=ASKED_AT_MOST, rescue="")
    with boundary(log, "briefing failed", call_id=call_id):
        session = Session(
            leg=call,
            agent=BriefingConversation(briefing, profile.language),
            stt=engines.stt,
            tts=engines.tts,
            fallback_tts=engines.fallback_tts,
            settings=settings,
            call_id=call_id,
            phrases=engines.phrases,
            detector=engines.detector,
            vad=engines.vad,
        )
        return (await session.run()).reason is EndReason.TRANSFER
    return False
