"""Policy lines before an agent's own words: who calls and that it is a machine, and whether the call may be
recorded.

Until the caller has agreed nothing is recorded, and without an agreement nothing of the call is: no, an
answer that is not understood twice, silence and a hang-up are none. Whoever asks instead not to be called
again is put on the do-not-call list, and the call ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pipeline.agent import (
    AgentAct,
    AgentEvent,
    AgentReport,
    CallOpened,
    Conversation,
    DoNotCall,
    Expect,
    HandedBack,
    HangUp,
    Say,
    UserSaid,
)
from pipeline.engines.aio import closing
from pipeline.media.recording import Recording
from pipeline.speech import Expected
from pipeline.text.answers import value_of
from pipeline.text.fold import folded, plain_words
from pipeline.text.lexicon import lexicon

ASKED_AT_MOST: Final = 2


class Consent(StrEnum):
    """The caller's answer to the question whether the call may be recorded."""

    PENDING = "pending"
    GIVEN = "given"
    REFUSED = "refused"
    UNANSWERED = "unanswered"


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy lines of an agent. `disclosure`: said first, and not to be interrupted; `question`: asked
    before anything is recorded; "" for none."""

    disclosure: str = ""
    question: str = ""


NO_POLICY: Final = Policy()


class PolicyConversation:
    """The conversation `agent`, after the lines of `policy`. `recording` is muted until the caller agrees."""

    def __init__(
        self, agent: Conversation, policy: Policy, *, language: str, recording: Recording | None
    ) -> None:
        self.consent = Consent.PENDING if policy.question and recording is not None else None
        """The caller's consent; None where it is not asked for."""
        self._agent = agent
        self._policy = policy
        self._lexicon = lexicon(language)
        self._asked = 0
        self._undisclosed = bool(policy.disclosure)
        self._opening: CallOpened | HandedBack = CallOpened()
        """What the agent is told first, where it begins after the question."""
        self._recording: Recording | None = None
        self.record_on(recording)

    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        """Answers with the policy lines until they are settled, else with the agent's acts."""
        self._take_in(event)
        if self._undisclosed:
            yield Say(self._policy.disclosure, interruptible=False)
        if self.consent is not Consent.PENDING:
            async with closing(self._agent.respond(event)) as acts:
                async for act in acts:
                    yield act
            return
        if isinstance(event, UserSaid) and event.settled is not None:
            await event.settled()  # what is recorded cannot be taken back
        said = plain_words(event.text) if isinstance(event, UserSaid) else ""
        if self._wants_no_calls(said):
            self._decide("no")
            yield DoNotCall(said)
            yield Say(self._lexicon.not_again)
            yield HangUp("do_not_call", final=True)
            return
        answer = value_of("yes_no", said, self._lexicon)
        if not answer and self._asked < ASKED_AT_MOST:
            self._asked += 1
            yield Say(self._policy.question)
            yield Expect(Expected(kinds=("yes_no",)))
            return
        self._decide(answer)
        async with closing(self._agent.respond(self._opening)) as acts:
            async for act in acts:
                yield act

    def report(self) -> AgentReport:
        """Reports the agent's result so far."""
        return self._agent.report()

    def record_on(self, recording: Recording | None) -> None:
        """Takes the recording that follows the one before, muted like it."""
        self._recording = recording
        if recording is not None:
            recording.muted = not self.keeps

    def end(self) -> None:
        """Notes that the caller has not answered, where the call is over before."""
        if self.consent is Consent.PENDING:
            self.consent = Consent.UNANSWERED

    @property
    def keeps(self) -> bool:
        """Whether the recording of the call may be kept."""
        return self.consent in (None, Consent.GIVEN)

    def _take_in(self, event: AgentEvent) -> None:
        """Notes what is to be said and asked again: nothing cuts a disclosure but a person who takes the call
        over."""
        if isinstance(event, HandedBack):
            self._opening = _joined(self._opening, event)
            self._asked = min(self._asked, ASKED_AT_MOST - 1)  # a question that was cut does not count
            disclosed = plain_words(event.heard).startswith(plain_words(self._policy.disclosure))
            self._undisclosed = self._undisclosed and not disclosed
        elif not isinstance(event, CallOpened):
            self._undisclosed = False

    def _wants_no_calls(self, said: str) -> bool:
        phrases = self._lexicon.no_more_calls
        return phrases is not None and phrases.search(folded(said)) is not None

    def _decide(self, answer: str) -> None:
        given = answer == "yes"
        self.consent = Consent.GIVEN if given else Consent.REFUSED if answer else Consent.UNANSWERED
        if given and self._recording is not None:
            self._recording.muted = False


def _joined(before: CallOpened | HandedBack, after: HandedBack) -> HandedBack:
    """Returns what both tell an agent that has not said anything yet."""
    return HandedBack((*(before.said if isinstance(before, HandedBack) else ()), *after.said))
