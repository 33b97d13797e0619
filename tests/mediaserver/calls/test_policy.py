"""The policy lines of a call that a supervisor takes over before they are settled."""

from __future__ import annotations

from typing import Any, cast

from mediaserver.calls.policy import Policy, PolicyConversation
from pipeline.agent import CallOpened, HandedBack, Say, UserKeyed, UserSaid
from pipeline.transcript import Role, TranscriptEntry
from tests.support.http.chat import acts_of
from tests.support.speech.conversation import FakeAgent

DISCLOSURE, QUESTION = "A machine speaks.", "May we record?"
BACK = HandedBack((TranscriptEntry(Role.COLLEAGUE, "I booked it", 0, 900),), heard="May", interrupted=True)


class Muted:
    """A recording, as far as consent goes."""

    muted = False


def joined(policy: Policy) -> tuple[Any, FakeAgent]:
    agent = FakeAgent([Say("Goodbye.")])
    recording = cast(Any, Muted())
    return PolicyConversation(agent, policy, language="en", recording=recording), agent


def lines(acts: list[Any]) -> list[str]:
    return [act.text for act in acts if isinstance(act, Say)]


async def test_an_agent_knows_of_a_take_over_while_consent_was_asked_for() -> None:
    conversation, agent = joined(Policy(DISCLOSURE, QUESTION))
    assert lines(await acts_of(conversation, CallOpened())) == [DISCLOSURE, QUESTION]
    cut = HandedBack(BACK.said, heard=f"{DISCLOSURE} May", interrupted=True)
    assert lines(await acts_of(conversation, cut)) == [QUESTION]
    assert agent.events == []
    assert lines(await acts_of(conversation, UserSaid("yes", 1.0))) == ["Goodbye."]
    assert agent.events == [HandedBack(BACK.said)]  # of its words nothing was said before


async def test_all_that_was_said_in_two_take_overs_reaches_the_agent() -> None:
    conversation, agent = joined(Policy("", QUESTION))
    await acts_of(conversation, CallOpened())
    for _ in range(2):
        assert lines(await acts_of(conversation, BACK)) == [QUESTION]
    await acts_of(conversation, UserSaid("no", 1.0))
    assert agent.events == [HandedBack(BACK.said * 2)]


async def test_a_disclosure_that_was_cut_is_said_again() -> None:
    for heard, said in (("A machine", [DISCLOSURE, "Goodbye."]), (DISCLOSURE, ["Goodbye."])):
        conversation, agent = joined(Policy(DISCLOSURE))
        agent.answers.insert(0, [Say("Hello.")])
        await acts_of(conversation, CallOpened())
        back = HandedBack(BACK.said, heard=heard, interrupted=True)
        assert lines(await acts_of(conversation, back)) == said


async def test_a_disclosure_that_was_heard_once_is_not_said_again() -> None:
    conversation, agent = joined(Policy(DISCLOSURE))
    agent.answers = []
    await acts_of(conversation, CallOpened())
    await acts_of(conversation, UserKeyed("1", heard=DISCLOSURE))
    assert lines(await acts_of(conversation, HandedBack(interrupted=True))) == []
