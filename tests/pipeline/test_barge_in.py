"""Two voices at once, in whole conversations: who falls silent, when, and what becomes of the words."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from itertools import pairwise

import numpy as np
import pytest

from pipeline.agent import AgentAct, HangUp, Say, UserSaid
from pipeline.audio import Pcm
from pipeline.audio.gain import DUCKED
from pipeline.result import EndReason, SessionResult
from pipeline.settings import SessionSettings
from pipeline.speech import SpeechChunk
from tests.support.sip.callers import over_ulaw, spoken
from tests.support.speech.conversation import (
    RATE_HZ,
    WORD_S,
    FakeAgent,
    FakeLeg,
    FakeListening,
    FakeStt,
    FakeTts,
    Spelling,
    Streaming,
    Watching,
    agent_texts,
    converse,
    voice,
)

LONG = Say("one two three four five six seven eight nine ten")
BYE = (Say("thank you goodbye"), HangUp("confirmed"))


def hiss(seconds: float) -> Pcm:
    """As loud as a voice, and without a pitch."""
    noise = np.random.default_rng(7).standard_normal(int(seconds * RATE_HZ))
    return (noise * 3000).clip(-32768, 32767).astype(np.int16)


def level(leg: FakeLeg, from_s: float, to_s: float) -> float:
    """The quietest frame that left in this time, against what it would be; 0 for a silent line."""
    begin = leg.started_at
    frames = [frame for moment, frame in leg.frames if from_s <= moment - begin < to_s]
    return float(min(np.abs(frame).max() for frame in frames) / 1000) if frames else 0.0


def longest_silence(leg: FakeLeg, said: list[tuple[float, Pcm]]) -> float:
    """The longest time in which neither spoke."""
    spans = [(moment - leg.started_at, moment - leg.started_at + 0.02) for moment, _ in leg.frames]
    spans += [(at, at + samples.size / leg.rate_hz) for at, samples in said]
    ends, longest = 0.0, 0.0
    for begin, end in sorted(spans):
        longest = max(longest, begin - ends)
        ends = max(ends, end)
    return longest


def words_played(leg: FakeLeg) -> list[int]:
    """Which word each frame of the first reply belongs to (`FakeTts` gives each a level of its own), also
    where it is lowered."""
    loud = [float(np.median(np.abs(frame.astype(int)))) for _, frame in leg.frames]
    loud = [value / DUCKED if value < 300 else value for value in loud]
    return [round((value - 1000) / 10) for value in loud if 995 <= value <= 1100]


# The first stage --------------------------------------------------------------------------------------------


def test_a_listeners_mm_hm_lowers_the_agents_voice_and_stops_nothing() -> None:
    agent = FakeAgent([LONG], BYE)
    seen = Watching()
    result, leg = converse(
        agent, says=[(1.2, voice(0.45)), (6.0, voice(0.5))], stt=Spelling("mm-hm"), observer=seen
    )
    assert level(leg, 1.0, 1.35) > 0.99
    assert 0.25 < level(leg, 1.5, 1.6) / 1.05 < 0.255  # 12 dB
    assert level(leg, 1.9, 2.9) > 0.99
    assert agent_texts(result)[0] == LONG.text
    assert result.interruptions == 0
    assert "ducked" in seen.states
    assert "halted" not in seen.states
    assert max(b - a for (a, _), (b, _) in pairwise(leg.frames[:140])) < 0.03


def test_a_cough_stops_nothing() -> None:
    agent = FakeAgent([LONG], BYE)
    result, leg = converse(agent, says=[(1.2, hiss(0.5)), (6.0, voice(0.5))], stt=FakeStt("", "yes"))
    assert agent_texts(result)[0] == LONG.text
    assert result.interruptions == 0
    assert len(leg.frames) * 0.02 == pytest.approx(13 * WORD_S, abs=0.06)


def test_voices_that_change_level_do_not_click() -> None:
    _, leg = converse(FakeAgent([LONG], BYE), says=[(1.2, voice(0.28))], stt=FakeStt())
    sound = np.concatenate([frame for _, frame in leg.frames[5:140]]).astype(int)
    assert np.abs(np.diff(sound)).max() < 60  # a step of 12 dB would be 750


# The second stage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Spelling, Streaming])
def test_words_for_the_agent_stop_it_before_they_are_over(kind: type[Spelling]) -> None:
    agent = FakeAgent([LONG, LONG], BYE)
    stt = kind("no please stop talking about it", delay_s=0.0)
    result, leg = converse(agent, says=[(1.2, voice(1.8))], stt=stt)
    silent_from = next(a for (a, _), (b, _) in pairwise(leg.frames) if b - a > 0.1) - leg.started_at
    assert 1.2 + 0.24 <= silent_from <= 1.2 + 0.60
    said = agent.events[1]
    assert isinstance(said, UserSaid)
    assert said.text == "no please stop talking about it"
    assert said.interrupted
    assert result.transcript[0].text == said.heard == " ".join(LONG.text.split()[: len(said.heard.split())])


def test_a_short_no_is_heard_after_it_was_said() -> None:
    agent = FakeAgent([LONG], BYE)
    result, _ = converse(agent, says=[(1.2, voice(0.22))], stt=FakeStt("no"))
    assert [event.text for event in agent.events if isinstance(event, UserSaid)] == ["no"]
    assert result.transcript[0].interrupted


def test_a_mm_hm_that_grows_into_an_interruption_is_one() -> None:
    agent = FakeAgent([LONG, LONG], BYE)
    seen = Watching()
    result, _ = converse(
        agent, says=[(1.2, voice(1.8))], stt=Spelling("yeah yeah but tuesday is bad"), observer=seen
    )
    assert result.interruptions == 1
    said = agent.events[1]
    assert isinstance(said, UserSaid)
    assert said.text == "yeah yeah but tuesday is bad"


def test_one_mm_hm_after_the_other_is_listening_too() -> None:
    seen = Watching()
    said = [(at_s, voice(0.4)) for at_s in (0.7, 1.4, 2.1)]
    stt = Streaming("yeah right okay okay")
    result, leg = converse(FakeAgent([LONG], BYE), says=[*said, (6.5, voice(0.5))], stt=stt, observer=seen)
    assert seen.states.count("ducked") == len(said)
    assert "halted" not in seen.states
    assert agent_texts(result)[0] == LONG.text
    assert max(b - a for (a, _), (b, _) in pairwise(leg.frames[:140])) < 0.03


@pytest.mark.parametrize("pitched", [True, False])
def test_a_recogniser_without_partials_and_slow_is_not_waited_for(*, pitched: bool) -> None:
    """A voice has a pitch, a noise must last: for an agent that wants to yield at once."""
    agent = FakeAgent([LONG, LONG], BYE)
    settings = SessionSettings(hush_ms=300)
    sound, after_s = (voice(1.3), 0.3) if pitched else (hiss(1.3), 0.7)
    _, leg = converse(
        agent, says=[(1.2, sound)], stt=Spelling("my name is smith", delay_s=2.0), settings=settings
    )
    silent_from = next(a for (a, _), (b, _) in pairwise(leg.frames) if b - a > 0.1) - leg.started_at
    assert 1.2 + after_s - 0.02 <= silent_from <= 1.2 + after_s + 0.1


def test_an_answer_over_the_agents_last_word_is_kept_although_it_sounds_like_listening() -> None:
    """It is hushed, goes on, ends; what was said over it is the answer to it."""
    agent = FakeAgent([LONG], BYE)
    converse(agent, says=[(10 * WORD_S - 0.4, voice(0.4))], stt=Spelling("yes"))
    assert [event.text for event in agent.events if isinstance(event, UserSaid)] == ["yes"]


# A false stop -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_s", [0.0, 0.25])
def test_a_false_stop_goes_on_at_the_word_within_0_8_s(delay_s: float) -> None:
    agent = FakeAgent([LONG], BYE)
    result, leg = converse(agent, says=[(1.0, voice(0.9))], stt=FakeStt("", delay_s=delay_s))
    noise_ends = leg.started_at + 1.9
    stops, resumes = next((a, b) for (a, _), (b, _) in pairwise(leg.frames) if b - a > 0.1)
    assert stops < noise_ends < resumes < noise_ends + 0.8
    cut = round((stops + 0.02 - leg.started_at) / WORD_S - 0.5)
    played = words_played(leg)
    assert played.count(cut) * 0.02 >= WORD_S - 0.05  # said again, whole but for the fade
    assert set(played) == set(range(10))
    assert agent_texts(result)[0] == LONG.text
    assert not result.transcript[0].interrupted
    assert [type(event).__name__ for event in agent.events[:2]] == ["CallOpened", "UserSilent"]
    entry = result.transcript[0]
    assert entry.words[-1].end_ms == pytest.approx(entry.end_ms, abs=25)  # with the pause in between


def test_a_false_stop_loses_nothing_of_a_reply_that_is_still_being_made() -> None:
    """The agent thinks and its voice works while the noise lasts; what they make waits."""
    first, second = Say("one two three four"), Say("five six seven eight")
    agent = FakeAgent([first, 1.0, second, HangUp("done")])
    result, _ = converse(agent, says=[(0.9, voice(0.9))], stt=FakeStt(""), tts=FakeTts(delay_s=0.2))
    assert agent_texts(result) == [first.text, second.text]
    assert result.reason is EndReason.AGENT
    assert agent.closed_early == 0


def test_a_voice_without_words_that_does_not_end_does_not_keep_the_agent_from_speaking() -> None:
    """Babble sets in over the agent, and stays: it may pause, learns that nobody speaks, and goes on."""
    agent = FakeAgent([LONG], BYE)
    result, leg = converse(agent, says=[(1.0, voice(9.0))], stt=FakeStt(""))
    assert agent_texts(result)[0] == LONG.text
    assert not result.transcript[0].interrupted
    pauses = [b - a for (a, _), (b, _) in pairwise(leg.frames) if 0.1 < b - a < 5]
    assert sum(pauses) < 1.0
    assert not any(isinstance(event, UserSaid) for event in agent.events)


def test_a_dead_recogniser_leaves_the_floor_to_the_caller() -> None:
    agent = FakeAgent([LONG], BYE)
    result, _ = converse(agent, says=[(1.0, voice(1.2))], stt=FakeStt(fails=True))
    assert isinstance(agent.events[1], UserSaid)
    assert result.transcript[0].interrupted


# Our own voice ----------------------------------------------------------------------------------------------

SENTENCES = (
    "Good morning, this is the clinic calling about the appointment on Monday at nine.",
    "The doctor has asked us to move it, so which day of the week would suit you best?",
)


class Speaking(FakeTts):
    """A voice with the sound of one: nothing else has an echo that could be known."""

    rate_hz = 8000

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        yield SpeechChunk(spoken(SENTENCES)[SENTENCES.index(text)] if text in SENTENCES else voice(0.3))


class Echoing(FakeLeg):
    """A line that sends back what it is given, `loss_db` quieter and 160 ms later."""

    loss_db = 12.0

    def _speak(self, now: float) -> None:
        before = len(self.frames)
        super()._speak(now)
        if len(self.frames) > before:
            echo = over_ulaw(self.frames[-1][1] * 10 ** (-self.loss_db / 20))
            self.says(now - self.started_at + 0.16, echo)


def echoing(agent: FakeAgent, stt: FakeStt, *said: tuple[float, Pcm]) -> SessionResult:
    spoken(SENTENCES)  # not while the conversation runs

    settings = SessionSettings(reprompt_s=2.0, max_reprompts=0)
    return converse(agent, Echoing(said), stt=stt, tts=Speaking(), settings=settings)[0]


def test_the_echo_of_its_own_voice_does_not_stop_the_agent() -> None:
    agent = FakeAgent([Say(sentence) for sentence in SENTENCES])
    result = echoing(agent, FakeStt(*["stop please"] * 50))
    assert result.agent_speech_ms > 8000
    assert result.interruptions == 0
    assert [event for event in agent.events if isinstance(event, UserSaid)] == []
    assert result.reason is EndReason.SILENCE


def test_a_caller_over_the_echo_does() -> None:
    agent = FakeAgent([Say(sentence) for sentence in SENTENCES])
    (words,) = spoken(("No, wait a moment please, I have got a question.",), "en-gb")
    result = echoing(agent, Spelling("no wait a moment please i have got a question"), (3.0, words))
    assert result.interruptions == 1


# What other systems shipped ---------------------------------------------------------------------------------


def test_nothing_of_the_old_answer_is_heard_after_a_barge_in() -> None:
    """Audio that a cut reply had queued, and that its voice still makes, is gone for good."""
    old, new = Say(LONG.text), Say("alpha beta")
    agent = FakeAgent([old, old, old], [new, HangUp()])
    result, leg = converse(
        agent, says=[(1.5, voice(0.8))], stt=FakeStt("stop please"), tts=FakeTts(delay_s=0.05)
    )
    stops = next(i for i, ((a, _), (b, _)) in enumerate(pairwise(leg.frames)) if b - a > 0.1)
    after = [int(np.median(frame)) for _, frame in leg.frames[stops + 1 :]]
    assert {value for value in after if value > 900} == {1000, 1010}
    assert agent_texts(result)[1:] == [new.text]


def test_the_answer_after_a_barge_in_loses_no_frame() -> None:
    agent = FakeAgent([LONG], [LONG, HangUp()])
    _, leg = converse(agent, says=[(1.5, voice(0.8))], stt=FakeStt("stop please"))
    stops = next(i for i, ((a, _), (b, _)) in enumerate(pairwise(leg.frames)) if b - a > 0.1)
    answer = np.concatenate([frame for _, frame in leg.frames[stops + 1 :]])
    for word in range(10):
        loud = np.count_nonzero(np.abs(answer - (1000 + 10 * word)) <= 3)
        assert loud == pytest.approx(8000 * WORD_S, abs=100)


def test_an_answer_cut_in_its_first_word_is_not_an_empty_line_of_the_transcript() -> None:
    agent = FakeAgent([Say("hello there")], [LONG], BYE)
    said = ((1.0, voice(0.5)), (2.02, voice(0.8)))
    result, _ = converse(agent, says=said, stt=FakeStt("yes", "stop please"))
    assert all(entry.text for entry in result.transcript)
    assert result.reason is EndReason.AGENT


@pytest.mark.nightly("ci")
@pytest.mark.parametrize("seed", range(4))
def test_a_storm_of_interruptions_wedges_nothing(seed: int) -> None:
    """A hundred voices of any length over an agent that never stops talking: no dead air, no lost turn, and
    in the end it says goodbye."""
    chance = random.Random(seed)
    at, said = 1.0, []
    for _ in range(100):
        length = chance.choice((0.06, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0))
        said.append((at, voice(length)))
        at += length + chance.uniform(0.1, 3.0)
    words = ["", "stop", "mm-hm", "no wait", "yeah", "tuesday morning please", "um"]

    class Random(FakeStt):
        def understand(self, listening: FakeListening) -> str:
            return chance.choice(words)

    def acts() -> list[AgentAct | float | Exception]:
        thought: list[AgentAct | float | Exception] = [chance.choice((0.0, 0.2, 0.9)), LONG]
        return thought

    agent = FakeAgent(*[acts() for _ in range(600)])
    stt = Random(delay_s=chance.choice((0.0, 0.1, 0.3)))
    settings = SessionSettings(max_duration_s=at + 5, reprompt_s=2.0, max_reprompts=1000)
    result, leg = converse(agent, says=said, stt=stt, tts=FakeTts(delay_s=0.02), settings=settings)
    assert result.reason is EndReason.MAX_DURATION
    assert agent_texts(result)[-1] == settings.goodbye
    assert all(entry.text for entry in result.transcript)
    # A silence to which the caller may be the cause ends with the reprompt; recogniser and agent take 1.2 s.
    assert longest_silence(leg, said) < 2.0 + 1.3 + 0.3
    assert sum(isinstance(event, UserSaid) for event in agent.events) > 20
