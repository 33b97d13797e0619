"""A whole conversation, with stand-ins for the models and the clock only."""

from __future__ import annotations

import asyncio
import logging
import wave
from collections.abc import AsyncIterator
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.agent import (
    CallOpened,
    DoNotCall,
    Expect,
    HangUp,
    Say,
    SendDigits,
    Transfer,
    Trouble,
    UserKeyed,
    UserSaid,
    UserSilent,
)
from pipeline.audio.dtmf import tone
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.endpointing.policy import TurnEvidence
from pipeline.errors import LanguageRefused
from pipeline.result import EndReason
from pipeline.session.prompts import Phrases
from pipeline.session.session import Session
from pipeline.session.word_clock import HEARD_LATER_MS
from pipeline.settings import SessionSettings
from pipeline.speech import Expected, SpeechChunk
from pipeline.transcript import Role
from tests.support.speech.conversation import (
    FakeAgent,
    FakeLeg,
    FakeListening,
    FakeStt,
    FakeTts,
    Watching,
    converse,
    latency_of,
    play,
    texts,
    voice,
)

SETTINGS = SessionSettings()
STRICT = SessionSettings(max_failures=0)
GREETING = Say("hello this is the clinic calling")
BYE = (Say("thank you goodbye"), HangUp("confirmed"))


# A call as it should be -------------------------------------------------------------------------------------


def test_greeting_answer_farewell() -> None:
    agent = FakeAgent([GREETING, Expect(Expected(kinds=("yes_no",)))], BYE)
    seen = Watching()
    result, leg = converse(agent, stt=FakeStt("yes"), says=[(3.0, voice(0.5))], observer=seen)
    assert result.reason is EndReason.AGENT
    assert result.disposition == "confirmed"
    assert [type(event) for event in agent.events] == [CallOpened, UserSaid]
    assert [(entry.role, entry.text) for entry in result.transcript] == [
        (Role.AGENT, "hello this is the clinic calling"),
        (Role.CALLER, "yes"),
        (Role.AGENT, "thank you goodbye"),
    ]
    assert seen.entries == list(result.transcript)
    assert seen.turns == list(result.turns)
    assert seen.states == [
        "speaking", "listening", "hearing", "endpointing", "presuming", "replying", "speaking", "leaving",
        "ended",
    ]  # fmt: skip
    assert leg.hung_up == 1
    assert result.report.answers == {"day": "monday"}
    assert result.faults == ()


def test_first_sound_leaves_at_once() -> None:
    """With engines that take no time the greeting's first frame is on the wire in the same moment."""
    _, leg = converse(FakeAgent([GREETING, HangUp()]))
    assert leg.frames[0][0] - leg.started_at < 0.001


def test_words_lie_on_the_media_clock() -> None:
    result, _ = converse(FakeAgent([GREETING], BYE), stt=FakeStt("yes please"), says=[(3.0, voice(0.5))])
    caller = next(entry for entry in result.transcript if entry.role is Role.CALLER)
    assert caller.start_ms == pytest.approx(3000, abs=70)
    assert caller.end_ms == pytest.approx(3500, abs=70)
    greeting = result.transcript[0]
    assert greeting.start_ms == 0
    assert [word.text for word in greeting.words] == GREETING.text.split()
    assert greeting.words[3].start_ms == pytest.approx(900, abs=25)


class FollowsWords(Watching):
    """Keeps the words that the caller has begun to hear, with their moments."""

    follows_words = True

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, float]] = []

    def agent_speaking(self, text: str, now: float) -> None:
        self.told.append((text, now))


@pytest.mark.parametrize("has_words", [True, False])
def test_words_are_shown_when_their_sound_begins(has_words: bool) -> None:
    """The n-th word is a level of its own, which the leg hears."""
    seen = FollowsWords()
    _, leg = converse(FakeAgent([GREETING], BYE), tts=FakeTts(has_words=has_words), observer=seen)
    words = GREETING.text.split()
    greeting = seen.told[: len(words)]
    assert [text for text, _ in greeting] == [" ".join(words[: end + 1]) for end in range(len(words))]
    for number, (_, shown) in enumerate(greeting):
        sounded = next(moment for moment, frame in leg.frames if frame.max() == 1000 + 10 * number)
        late_s = shown - sounded - HEARD_LATER_MS / 1000
        assert abs(late_s) < (0.021 if has_words else 0.3)  # of words of 0.3 s


def test_words_are_cut_where_the_voice_was_cut() -> None:
    seen = FollowsWords()
    converse(FakeAgent([LONG], BYE), stt=FakeStt("stop"), says=[(1.5, voice(0.6))], observer=seen)
    assert seen.entries[0].interrupted
    assert seen.entries[0].text == "one two three four five six"
    assert [text for text, _ in seen.told if text.startswith("one")][-1] == seen.entries[0].text


def test_nobody_who_does_not_ask_is_told_each_word() -> None:
    class Plain(FollowsWords):
        follows_words = False

    seen = Plain()
    converse(FakeAgent([GREETING], BYE), observer=seen)
    assert seen.told == []


def test_latency_is_the_endpoint_and_nothing_else_when_engines_take_no_time() -> None:
    result, leg = converse(FakeAgent([GREETING], BYE), stt=FakeStt("yes"), says=[(3.0, voice(0.5))])
    latency = latency_of(result.turns[-1])
    assert latency.endpoint_ms == pytest.approx(SETTINGS.endpoint_ms, abs=1)
    assert latency.server_ms < 1
    assert latency.stt_ms == latency.agent_ms == latency.tts_ms == 0
    answered = next(moment for moment, _ in leg.frames if moment > leg.started_at + 3)
    voice_ended = leg.started_at + 3.52  # the frame that ends at 3.5 s is there 20 ms later at the most
    assert latency.voice_to_voice_ms == pytest.approx((answered - voice_ended) * 1000, abs=41)


@pytest.mark.parametrize("begins_ms", range(3900, 4060, 10))
def test_no_answer_begins_over_a_voice_that_goes_on(begins_ms: int) -> None:
    """The voice begins around the moment of the answer; after two frames of it everybody can hear it."""

    _, leg = converse(
        FakeAgent([GREETING], BYE),
        stt=FakeStt("a table", "a table for two"),
        says=[(3.0, voice(0.5)), (begins_ms / 1000, voice(0.6))],
    )
    begun = next(moment - leg.started_at for moment, _ in leg.frames if moment > leg.started_at + 3.6)
    assert not begins_ms / 1000 + 0.041 < begun < begins_ms / 1000 + 0.6


def test_latency_names_who_took_the_time() -> None:
    result, _ = converse(
        FakeAgent([GREETING], [0.3, *BYE]),
        stt=FakeStt("yes", delay_s=0.45),
        tts=FakeTts(delay_s=0.1),
        says=[(3.0, voice(0.5))],
    )
    latency = latency_of(result.turns[-1])
    assert latency.stt_ms == pytest.approx(100 + 450 - 500, abs=1)  # asked at 100 ms, wanted at 500
    assert latency.agent_ms == pytest.approx(300, abs=1)
    assert latency.tts_ms == pytest.approx(100, abs=1)
    parts = latency.endpoint_ms + latency.stt_ms + latency.agent_ms + latency.tts_ms + latency.server_ms
    assert parts == pytest.approx(latency.voice_to_voice_ms, abs=0.1)


@pytest.mark.parametrize(("p", "waited_ms"), [(0.9, 300), (0.0, 1600), (0.45, 527)])
def test_a_judge_decides_how_long_a_pause_is_waited_for(p: float, waited_ms: int) -> None:
    class Judge(EndOfTurnDetector):
        async def p_eot(self, evidence: TurnEvidence) -> float:
            asked.append(evidence)
            return p

    asked: list[TurnEvidence] = []
    result, _ = converse(
        FakeAgent([GREETING], BYE), stt=FakeStt("tuesday"), says=[(3.0, voice(0.5))], detector=Judge()
    )
    (evidence,) = asked
    assert (evidence.words, evidence.asked, evidence.language) == ("tuesday", GREETING.text, "en")
    assert evidence.silence_ms == pytest.approx(SETTINGS.speculate_ms, abs=41)
    assert evidence.voiced_ms == pytest.approx(500, abs=60)
    assert evidence.audio.size == pytest.approx(3.62 * 8000, abs=640)
    loud = np.flatnonzero(np.abs(evidence.audio.astype(int)) > 500) / 8000
    assert loud[-1] == pytest.approx(3.5, abs=0.03)
    latency = latency_of(result.turns[-1])
    assert latency.endpoint_ms == pytest.approx(waited_ms, abs=1)


def test_expected_answer_reaches_the_recogniser_and_shortens_the_pause() -> None:
    expected = Expected(kinds=("yes_no",))
    stt = FakeStt("yes")
    result, _ = converse(FakeAgent([Expect(expected), GREETING], BYE), stt=stt, says=[(3.0, voice(0.5))])
    assert stt.listenings[0].expected == expected
    latency = latency_of(result.turns[-1])
    assert latency.endpoint_ms == pytest.approx(SETTINGS.endpoint_complete_ms, abs=1)


def test_recogniser_gets_the_sound_from_before_the_voice_was_certain() -> None:
    stt = FakeStt("yes")
    converse(FakeAgent([GREETING], BYE), stt=stt, says=[(3.0, voice(0.5))])
    first_loud = next(i for i, frame in enumerate(stt.listenings[0].pushed) if abs(frame).max() > 1000)
    assert 5 <= first_loud <= 14


def test_every_answer_is_an_utterance_of_its_own() -> None:
    agent = FakeAgent([GREETING], [Say("which day")], BYE)
    stt = FakeStt("yes", "monday")
    result, _ = converse(agent, stt=stt, says=[(3.0, voice(0.5)), (6.0, voice(0.5))])
    assert texts(result, Role.CALLER) == ["yes", "monday"]
    assert [listening.closed for listening in stt.listenings] == [True, True]
    assert [turn.user_text for turn in result.turns] == ["", "yes", "monday"]


def test_pause_inside_an_utterance_is_one_turn() -> None:
    agent = FakeAgent([GREETING], BYE)

    stt = FakeStt("my number is five")
    # 400 ms lie in between: decoded there, but not the end
    result, _ = converse(agent, stt=stt, says=[(3.0, voice(0.5)), (3.9, voice(0.5))])
    assert len(stt.listenings) == 1
    assert stt.asked == 2
    assert texts(result, Role.CALLER) == ["my number is five"]


def test_silence_suppression_ends_the_turn_too() -> None:
    """A sender that stops sending when the caller stops speaking gives no silent frame to notice."""

    leg = FakeLeg([(3.0, voice(0.5))])
    leg.suppresses_silence = True
    result, _ = converse(FakeAgent([GREETING], BYE), leg, stt=FakeStt("yes"))
    assert texts(result, Role.CALLER) == ["yes"]
    assert result.reason is EndReason.AGENT


# Interruption -----------------------------------------------------------------------------------------------

LONG = Say("one two three four five six seven eight nine ten")


def test_barge_in_cuts_the_transcript_at_the_last_word_heard() -> None:
    agent = FakeAgent([LONG], BYE)
    result, leg = converse(agent, stt=FakeStt("stop"), says=[(1.5, voice(0.6))])
    cut = result.transcript[0]
    assert cut.interrupted
    # 1.5 s of speech before the caller begins, 240 to 320 ms until that is a barge-in: 5.8 to 6.1 words
    assert cut.text == "one two three four five six"
    assert cut.unheard == "seven eight nine ten"
    assert result.turns[0].interrupted
    assert result.interruptions == 1
    said = agent.events[1]
    assert isinstance(said, UserSaid)
    assert (said.text, said.heard, said.interrupted) == ("stop", cut.text, True)
    assert agent.closed_early == 0  # it had nothing more to say
    silent = [b - a for (a, _), (b, _) in pairwise(leg.frames) if b - a > 0.1]
    assert len(silent) == 1
    last = leg.frames[[i for i, (a, _) in enumerate(leg.frames) if a < leg.started_at + 2.5][-1]][0]
    assert 1.5 + 0.24 <= last - leg.started_at + 0.02 <= 1.5 + 0.36


def test_barge_in_stops_the_voice_and_the_agent() -> None:
    agent = FakeAgent([GREETING, LONG, LONG, LONG], BYE)
    tts = FakeTts(delay_s=0.2)
    converse(agent, stt=FakeStt("stop"), tts=tts, says=[(2.5, voice(0.8))])
    assert agent.closed_early == 1
    assert tts.closed_early == 1


def test_words_that_may_not_be_interrupted_are_not() -> None:
    agent = FakeAgent([Say(LONG.text, interruptible=False)], BYE)
    result, _ = converse(agent, stt=FakeStt("stop"), says=[(1.0, voice(0.6))])
    assert result.transcript[0].text == LONG.text
    assert not result.transcript[0].interrupted


def test_hello_over_the_greeting_does_not_stop_it() -> None:
    result, _ = converse(FakeAgent([LONG], BYE), stt=FakeStt(), says=[(0.3, voice(0.6))])
    assert result.transcript[0].text == LONG.text
    assert result.interruptions == 0


def test_who_goes_on_talking_over_the_greeting_gets_the_floor() -> None:
    result, _ = converse(FakeAgent([LONG], BYE), stt=FakeStt("no"), says=[(0.3, voice(2.0))])
    assert result.interruptions == 1
    assert 3 <= len(result.transcript[0].text.split()) <= 5  # a second is protected


def test_answer_into_the_agents_last_word_counts() -> None:
    agent = FakeAgent([Say(GREETING.text, interruptible=False)], BYE)  # 1.8 s
    result, _ = converse(agent, stt=FakeStt("yes"), says=[(1.3, voice(0.3))])
    assert texts(result, Role.CALLER) == ["yes"]


def test_murmur_in_the_middle_is_forgotten() -> None:
    agent = FakeAgent([LONG], BYE)

    stt = FakeStt("yes")
    result, _ = converse(agent, stt=stt, says=[(1.2, voice(0.14)), (4.5, voice(0.4))])
    assert result.interruptions == 0
    assert len(stt.listenings) == 2
    assert stt.listenings[0].closed
    assert texts(result, Role.CALLER) == ["yes"]


def test_going_on_before_the_answer_is_heard_makes_one_turn_of_it() -> None:
    """The end-point came too early: the agent is asked again, with all of it."""
    agent = FakeAgent([GREETING], [2.0, Say("never heard")], BYE)

    class Growing(FakeStt):
        def understand(self, listening: Any) -> str:
            return "monday" if self.asked == 1 else "monday or tuesday"

    result, _ = converse(agent, stt=Growing(), says=[(3.0, voice(0.5)), (4.3, voice(0.5))])
    first, second = (event for event in agent.events if isinstance(event, UserSaid))
    assert (first.text, first.continues) == ("monday", False)
    assert (second.text, second.continues) == ("monday or tuesday", True)
    assert texts(result, Role.CALLER) == ["monday or tuesday"]
    assert "never heard" not in texts(result, Role.AGENT)
    assert [turn.user_text for turn in result.turns] == ["", "monday or tuesday"]


# Keys -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keyed", "expected", "got"), [("12#", 0, "12"), ("1234", 4, "1234"), ("77", 0, "77"), ("#", 0, "#")]
)
def test_keys_are_collected(keyed: str, expected: int, got: str) -> None:
    agent = FakeAgent([GREETING, Expect(Expected(kinds=("digits",), digits=expected))], BYE)
    result, _ = converse(agent, keys=[(3.0, keyed)])
    assert agent.events[1] == UserKeyed(got)
    assert result.turns[1].keyed == got


def test_the_sound_of_a_key_is_no_speech() -> None:
    """The tone stays in the audio; held down for a second it must not become a turn of the caller's."""
    agent = FakeAgent([GREETING], BYE)
    stt = FakeStt("beep")
    result, _ = converse(agent, stt=stt, says=[(3.0, tone("5", 8000, duration_ms=1000))], keys=[(3.04, "5")])
    assert agent.events[1] == UserKeyed("5")
    assert stt.asked == 0
    assert texts(result, Role.CALLER) == []
    assert result.reason is EndReason.AGENT


def test_a_key_interrupts_but_not_words_that_may_not_be_and_is_not_lost() -> None:
    agent = FakeAgent([Say(GREETING.text, interruptible=False), Say(LONG.text)], BYE)
    result, _ = converse(agent, keys=[(0.5, "5#")])
    assert agent.events[1] == UserKeyed("5")
    assert result.transcript[0].text == GREETING.text
    assert result.transcript[1].text != LONG.text


# Chat -------------------------------------------------------------------------------------------------------


def test_what_is_written_is_answered_like_what_is_said() -> None:
    agent = FakeAgent([GREETING], BYE)
    result, _ = converse(agent, written=[(3.0, "yes please")])
    said = agent.events[1]
    assert isinstance(said, UserSaid)
    assert (said.text, said.confidence, said.continues) == ("yes please", 1.0, False)
    assert texts(result, Role.CALLER) == ["yes please"]
    assert result.turns[1].user_text == "yes please"
    assert result.turns[1].latency is None
    assert result.reason is EndReason.AGENT


def test_half_a_character_from_anybody_reaches_nobody() -> None:
    agent = FakeAgent(
        [Say("hello \ud83d there"), Trouble("it said \ud83d")],
        [Say("yes \0"), DoNotCall("told \ud83d me")],
        [HangUp("done \ud83d")],
    )
    result, _ = converse(
        agent, stt=FakeStt("half \ud83d a word"), written=[(8.0, "bye \ud83d")], says=[(3.0, voice(0.5))]
    )
    said = [event.text for event in agent.events if isinstance(event, UserSaid)]
    assert said == ["half \ufffd a word", "bye \ufffd"]
    whole = [*texts(result, Role.CALLER), *texts(result, Role.AGENT), *said, result.disposition]
    whole += [result.do_not_call or "", *(fault.message for fault in result.faults)]
    assert "".join(whole).encode()
    assert "\0" not in "".join(whole)
    assert (result.disposition, result.do_not_call) == ("done \ufffd", "told \ufffd me")


def test_writing_interrupts_but_not_words_that_may_not_be_and_is_not_lost() -> None:
    agent = FakeAgent([LONG], [Say(GREETING.text, interruptible=False)], BYE)
    result, _ = converse(agent, written=[(1.0, "stop"), (1.5, "and"), (1.6, "goodbye")])
    assert [event.text for event in agent.events if isinstance(event, UserSaid)] == ["stop", "and goodbye"]
    assert result.transcript[0].interrupted
    assert [entry.text for entry in result.transcript[1:]] == [
        "stop",
        GREETING.text,
        "and goodbye",
        "thank you goodbye",
    ]


def test_writing_before_the_first_word_is_answered_after_it() -> None:
    agent = FakeAgent([0.5, GREETING], BYE)
    result, _ = converse(agent, written=[(0.1, "hello")])
    assert texts(result, Role.CALLER) == ["hello"]
    assert [type(event) for event in agent.events] == [CallOpened, UserSaid]


def test_going_on_by_voice_before_the_answer_loses_nothing_that_was_written() -> None:
    agent = FakeAgent([GREETING], [2.0, LONG], [2.0, LONG], BYE)
    result, _ = converse(
        agent, stt=FakeStt("for two"), says=[(3.5, voice(0.5))], written=[(3.0, "a table"), (3.2, "please")]
    )
    last = agent.events[-1]
    assert isinstance(last, UserSaid)
    assert (last.text, last.continues) == ("a table please for two", True)
    assert texts(result, Role.CALLER) == ["a table", "please", "for two"]


def test_what_was_written_and_answered_is_not_said_again_with_what_is_spoken_later() -> None:
    agent = FakeAgent([GREETING], [LONG], [3.0, LONG], BYE)

    expects = SessionSettings(key_pause_ms=300)
    result, _ = converse(
        agent,
        stt=FakeStt("for two"),
        says=[(5.6, voice(0.5))],
        keys=[(5.0, "1"), (5.2, "#")],
        written=[(3.0, "a table")],
        settings=expects,
    )
    last = agent.events[-1]
    assert isinstance(last, UserSaid)
    assert last.text == "for two"
    assert texts(result, Role.CALLER)[-1] == "for two"


def test_the_agent_keys_digits_when_its_words_were_heard() -> None:
    class Keying(FakeLeg):
        async def send_dtmf(self, digits: str) -> None:
            await super().send_dtmf(digits)
            moments.append(asyncio.get_running_loop().time())

    moments: list[float] = []
    _, leg = converse(FakeAgent([GREETING, SendDigits("42#"), HangUp()]), Keying())
    assert leg.dtmf == "42#"
    assert moments[0] >= leg.frames[-1][0]


# Silence and time -------------------------------------------------------------------------------------------


def test_silence_reprompts_then_says_goodbye() -> None:
    agent = FakeAgent([GREETING], [Say("are you there")], [Say("hello hello")])
    result, leg = converse(agent)
    assert [event.count for event in agent.events if isinstance(event, UserSilent)] == [1, 2]
    assert result.reason is EndReason.SILENCE
    assert texts(result, Role.AGENT)[-1] == SETTINGS.goodbye
    assert result.duration_ms == pytest.approx(
        1800 + 3 * 8000 + 900 + 600 + 300 + SETTINGS.linger_ms, abs=200
    )
    assert leg.hung_up == 1


def test_an_agent_that_says_nothing_to_silence_does_not_hang_the_call() -> None:
    result, _ = converse(FakeAgent([GREETING]))
    assert result.reason is EndReason.SILENCE


def test_no_call_is_longer_than_its_maximum() -> None:
    settings = SessionSettings(max_duration_s=5.0)
    talk = FakeAgent([Say(" ".join(["word"] * 100))])
    result, _ = converse(talk, settings=settings)
    assert result.reason is EndReason.MAX_DURATION
    assert result.duration_ms < 6500
    assert texts(result, Role.AGENT)[-1] == settings.goodbye
    assert result.transcript[0].interrupted


def test_music_on_hold_is_cut_into_turns() -> None:
    settings = SessionSettings(max_utterance_s=5.0)
    agent = FakeAgent([GREETING], BYE)
    result, _ = converse(agent, stt=FakeStt("la la la"), settings=settings, says=[(3.0, voice(30.0))])
    assert texts(result, Role.CALLER)[0] == "la la la"
    assert result.reason is EndReason.AGENT


def test_a_held_line_is_not_dead_air() -> None:
    """On hold the leg pulls nothing; nobody apologises to music."""
    leg = FakeLeg()
    leg.held = True
    result, _ = converse(FakeAgent([GREETING, HangUp()]), leg, later=[(20.0, lambda _: leg.resume())])
    assert result.reason is EndReason.AGENT
    assert [entry.text for entry in result.transcript] == [GREETING.text]


# The end ----------------------------------------------------------------------------------------------------


def test_the_last_words_are_heard_to_the_end() -> None:
    _, leg = converse(FakeAgent([GREETING, *BYE]))
    spoken_s = (len(GREETING.text.split()) + 3) * 0.3
    assert len(leg.frames) * 0.02 == pytest.approx(spoken_s, abs=0.06)


def test_transfer_leaves_the_leg_alone() -> None:
    result, leg = converse(FakeAgent([Say("I put you through"), Transfer("+966110000001")]))
    assert (result.reason, result.transfer_target) == (EndReason.TRANSFER, "+966110000001")
    assert leg.hung_up == 0
    assert leg.listener is None


def test_the_caller_hangs_up_in_the_middle() -> None:
    leg = FakeLeg()
    leg.ends(1.0, "media_timeout")
    result, _ = converse(FakeAgent([LONG]), leg)
    assert (result.reason, result.leg_reason) == (EndReason.FAR_END, "media_timeout")
    assert texts(result, Role.AGENT) == ["one two three"]
    assert result.transcript[0].interrupted
    assert len(result.turns) == 1


def test_what_the_caller_said_last_is_in_the_transcript() -> None:
    result, _ = converse(
        FakeAgent([GREETING]), stt=FakeStt("goodbye then"), says=[(3.0, voice(0.5))], ends_s=3.6
    )
    assert texts(result, Role.CALLER) == ["goodbye then"]


def test_a_caller_who_hangs_up_while_the_agent_thinks_is_quoted_once() -> None:
    result, _ = converse(
        FakeAgent([GREETING], [30.0, *BYE]), stt=FakeStt("forget it"), says=[(3.0, voice(0.5))], ends_s=5.0
    )
    assert texts(result, Role.CALLER) == ["forget it"]
    assert result.turns[-1].user_text == "forget it"
    assert result.turns[-1].agent_text == ""


def test_stop_from_outside() -> None:
    result, leg = converse(FakeAgent([LONG]), later=[(1.0, Session.stop)])
    assert result.reason is EndReason.STOPPED
    assert result.duration_ms == 1000
    assert leg.hung_up == 1


def test_a_leg_that_was_gone_before_it_ran() -> None:
    class Gone(FakeLeg):
        def attach(self, listener: Any, source: Any) -> None:
            if listener is not None:
                listener.leg_ended("cancelled", 1000.0)

    result, _ = converse(FakeAgent([LONG]), Gone())
    assert (result.reason, result.leg_reason) == (EndReason.FAR_END, "cancelled")
    assert result.transcript == ()


def test_the_recording_holds_both_sides_where_the_transcript_says(tmp_path: Path) -> None:
    path = tmp_path / "call.wav"
    agent = FakeAgent([GREETING], BYE)
    result, _ = converse(agent, stt=FakeStt("yes"), says=[(3.0, voice(0.5))], record_to=path)
    assert result.recording == tmp_path / "call.wav"
    with wave.open(str(result.recording)) as file:
        stereo = np.frombuffer(file.readframes(file.getnframes()), np.int16).reshape(-1, 2)
    assert len(stereo) == pytest.approx(result.duration_ms * 8, abs=8)
    for entry in result.transcript:
        loud = np.flatnonzero(np.abs(stereo[:, int(entry.role is Role.AGENT)].astype(np.int32)) > 500) / 8
        inside = loud[(loud > entry.start_ms - 300) & (loud < entry.end_ms + 300)]
        assert inside[0] == pytest.approx(entry.start_ms, abs=70)
        assert inside[-1] == pytest.approx(entry.end_ms, abs=70)


async def test_stopped_before_it_ran() -> None:
    session = Session(leg=FakeLeg(), agent=FakeAgent([LONG]), stt=FakeStt(), tts=FakeTts())
    session.stop()
    assert (await session.run()).reason is EndReason.STOPPED


@pytest.mark.virtual_clock
async def test_cancelling_the_task_leaves_nothing_behind() -> None:
    leg = FakeLeg()
    agent = FakeAgent([LONG, 1000.0, LONG])
    task = asyncio.create_task(Session(leg=leg, agent=agent, stt=FakeStt(), tts=FakeTts()).run())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert leg.listener is None
    assert agent.closed_early == 1
    assert len(asyncio.all_tasks()) == 1


# Engines that fail ------------------------------------------------------------------------------------------


def longest_silence(leg: FakeLeg, after_s: float, *, until: float = inf) -> float:
    """From the caller's last word on, the longest stretch in which the line was silent."""
    sent = [at for at, _ in leg.frames if after_s < at - leg.started_at < until]
    moments = [leg.started_at + after_s, *sent]
    return max(b - a for a, b in pairwise(moments))


def test_a_dead_recogniser_is_words_not_understood() -> None:
    agent = FakeAgent([GREETING], [Say("sorry"), HangUp()])
    result, leg = converse(agent, stt=FakeStt(fails=True), says=[(3.0, voice(0.5))])
    assert isinstance(agent.events[1], UserSaid)
    assert agent.events[1].text == ""
    assert [fault.role for fault in result.faults] == ["stt"]
    assert result.reason is EndReason.AGENT
    assert longest_silence(leg, 3.5) < 2.5


def test_a_late_recogniser_is_not_waited_for() -> None:
    agent = FakeAgent([GREETING], [Say("sorry"), HangUp()])
    result, leg = converse(agent, stt=FakeStt("yes", delay_s=60), says=[(3.0, voice(0.5))])
    assert [fault.role for fault in result.faults] == ["stt"]
    assert longest_silence(leg, 3.5) < 2.5


def test_words_that_are_answered_are_in_the_transcript_when_the_recogniser_is_late() -> None:
    """The agent answers partial words that do not change any more; the recogniser never confirms them."""

    class Unconfirmed(FakeStt):
        def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> FakeListening:
            listening = super().listen(rate_hz=rate_hz, language=language, expected=expected)
            listening.words_so_far = "no i am traveling"
            return listening

    agent = FakeAgent([GREETING], BYE)
    stt = Unconfirmed("no i am traveling", delay_s=60)
    result, _ = converse(agent, stt=stt, says=[(3.0, voice(0.8))])
    assert [turn.user_text for turn in result.turns[1:]] == ["no i am traveling"]
    assert texts(result, Role.CALLER) == ["no i am traveling"]


def test_words_that_were_presumed_before_the_caller_went_on_are_not_those_of_their_turn() -> None:
    """A partial "yes" is answered, the caller speaks on, the words are withdrawn, no result comes."""

    class Withdrawn(FakeStt):
        def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> FakeListening:
            listening = WithdrawnListening(self, expected)
            self.listenings.append(listening)
            return listening

    class WithdrawnListening(FakeListening):
        def partial(self) -> str:
            return "yes" if self.samples < 8000 * 2 else ""

    agent = FakeAgent([GREETING], [Say("sorry"), HangUp()], [Say("sorry"), HangUp()])
    pause = np.zeros(8000 * 3 // 10, np.int16)
    speech = np.concatenate([voice(0.6), pause, voice(2.0)])
    result, _ = converse(agent, stt=Withdrawn(delay_s=60), says=[(3.0, speech)])
    assert texts(result, Role.CALLER) == [turn.user_text for turn in result.turns[1:] if turn.user_text]


def test_a_recogniser_with_a_bug_is_survived() -> None:
    class Buggy(FakeStt):
        def understand(self, listening: Any) -> str:
            raise ZeroDivisionError

    agent = FakeAgent([GREETING], [Say("sorry"), HangUp()])
    result, _ = converse(agent, stt=Buggy(), says=[(3.0, voice(0.5))])
    assert result.reason is EndReason.AGENT


def test_a_slow_agent_is_covered_by_a_filler() -> None:
    agent = FakeAgent([GREETING], [4.0, *BYE])
    result, leg = converse(agent, stt=FakeStt("yes"), says=[(3.0, voice(0.5))])
    assert texts(result, Role.AGENT) == [GREETING.text, SETTINGS.filler, "thank you goodbye"]
    assert result.turns[-1].fillers == 1
    assert longest_silence(leg, 3.5) < 2.5
    assert result.reason is EndReason.AGENT
    latency = latency_of(result.turns[-1])
    assert latency.agent_ms > 1000
    assert latency.server_ms < 30


def test_a_voice_that_stops_within_a_frame_is_covered_by_a_filler() -> None:
    """What is left of its sound is less than a frame, and nothing that anybody hears."""

    class Halting(FakeTts):
        WORD_MS = 310

        async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
            async for chunk in super().speak(text, language=language):
                yield chunk
                if text == GREETING.text and len(self.asked) == 1:
                    await asyncio.sleep(3.0)

    settings = SessionSettings(tts_stall_ms=5000, max_failures=0)
    result, leg = converse(FakeAgent([GREETING, HangUp()]), tts=Halting(), settings=settings)
    assert settings.filler in texts(result, Role.AGENT)[0]
    assert longest_silence(leg, 0.0) < 2.5


def test_a_voice_that_is_awaited_took_the_time_until_the_filler() -> None:
    class Slow(FakeTts):
        async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
            await asyncio.sleep(1.9 if text == "thank you goodbye" else 0.0)
            async for chunk in super().speak(text, language=language):
                yield chunk

    agent = FakeAgent([GREETING], [*BYE])
    result, _ = converse(
        agent,
        tts=Slow(),
        stt=FakeStt("yes"),
        settings=SessionSettings(tts_stall_ms=4000),
        says=[(3.0, voice(0.5))],
    )
    latency = latency_of(result.turns[-1])
    assert (result.turns[-1].fillers, result.faults) == (1, ())
    assert latency.tts_ms > 1000
    assert latency.server_ms < 30


def test_an_agent_that_takes_six_seconds_is_waited_for() -> None:
    agent = FakeAgent([GREETING], [6.0, *BYE])
    result, leg = converse(agent, stt=FakeStt("yes"), says=[(3.0, voice(0.5))])
    assert texts(result, Role.AGENT)[-1] == "thank you goodbye"
    assert (result.reason, result.faults) == (EndReason.AGENT, ())
    assert longest_silence(leg, 3.5) < 2.5


def test_an_agent_that_never_answers_ends_in_an_apology() -> None:
    result, leg = converse(
        FakeAgent([GREETING], [1000.0]), stt=FakeStt("yes"), says=[(3.0, voice(0.5))], settings=STRICT
    )
    assert texts(result, Role.AGENT)[-3:] == [SETTINGS.filler, SETTINGS.filler, SETTINGS.apology]
    assert result.reason is EndReason.ENGINE_ERROR
    assert [fault.role for fault in result.faults] == ["agent"]
    assert longest_silence(leg, 3.5) < 2.5
    assert leg.hung_up == 1


@pytest.mark.parametrize(("fault", "again_s"), [(1000.0, 20.0), (RuntimeError("a bug"), 11.0)])
@pytest.mark.parametrize("said_before", [(), (Say("let me see"),)])
def test_a_caller_is_heard_again_after_a_turn_that_failed(
    fault: Any, again_s: float, said_before: tuple[Say, ...]
) -> None:
    agent = FakeAgent([GREETING], [*said_before, fault], BYE)
    result, leg = converse(
        agent, stt=FakeStt("yes", "yes i said"), says=[(3.0, voice(0.5)), (again_s, voice(0.5))]
    )
    spoken = [text for text in texts(result, Role.AGENT) if text != SETTINGS.filler]
    assert spoken == [
        GREETING.text,
        *(each.text for each in said_before),
        SETTINGS.retry,
        "thank you goodbye",
    ]
    assert texts(result, Role.CALLER) == ["yes", "yes i said"]
    assert (result.reason, len(result.faults)) == (EndReason.AGENT, 1)
    assert longest_silence(leg, 3.5, until=12.0) < 2.5
    assert result.turns[1].latency is not None


def test_turns_that_fail_again_and_again_end_the_call() -> None:
    says = [(at_s, voice(0.5)) for at_s in (3.0, 9.0, 15.0)]
    agent = FakeAgent([GREETING], *[[RuntimeError("a bug")]] * 3)
    result, _ = converse(agent, stt=FakeStt("yes", "yes", "yes"), says=says)
    assert texts(result, Role.AGENT) == [GREETING.text, SETTINGS.retry, SETTINGS.retry, SETTINGS.apology]
    assert result.reason is EndReason.ENGINE_ERROR


def test_the_apology_stands_behind_what_it_answers() -> None:
    result, _ = converse(
        FakeAgent([GREETING], [ValueError("a bug")]),
        stt=FakeStt("yes"),
        settings=STRICT,
        says=[(3.0, voice(0.5))],
    )
    assert [entry.role for entry in result.transcript] == [Role.AGENT, Role.CALLER, Role.AGENT]
    assert result.turns[-1].latency is not None


def test_an_agent_that_raises_ends_in_an_apology(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        result, leg = converse(
            FakeAgent([GREETING], [RuntimeError("bug of 12345")]),
            stt=FakeStt("yes"),
            says=[(3.0, voice(0.5))],
            settings=STRICT,
            call_id="call-7",
        )
    assert texts(result, Role.AGENT)[-1] == SETTINGS.apology
    assert result.reason is EndReason.ENGINE_ERROR
    assert longest_silence(leg, 3.5) < 2.5
    assert [record.message for record in caplog.records] == ["engine broke"]
    assert caplog.records[0].call_id == "call-7"  # type: ignore[attr-defined]


def test_a_voice_that_breaks_off_goes_on_at_the_word() -> None:
    tts = FakeTts()
    tts.fail_at[0] = 3
    result, _ = converse(FakeAgent([LONG, HangUp()]), tts=tts)
    assert tts.asked == [LONG.text, "four five six seven eight nine ten"]
    assert texts(result, Role.AGENT) == [LONG.text]
    assert len(result.faults) == 1


def test_a_voice_that_stalls_goes_on_at_the_word() -> None:
    tts = FakeTts()
    tts.stall_at[0] = 2
    result, leg = converse(FakeAgent([LONG, HangUp()]), tts=tts)
    assert tts.asked[1] == "three four five six seven eight nine ten"
    assert texts(result, Role.AGENT) == [LONG.text]
    assert max(leg.gaps()) < 2.5


def test_another_voice_takes_over() -> None:
    broken, other = FakeTts(), FakeTts()
    broken.always_fails = True
    result, _ = converse(FakeAgent([GREETING, *BYE]), tts=broken, fallback_tts=[other])
    assert len(broken.asked) == 4  # each text twice: the failure may have passed
    assert texts(result, Role.AGENT) == [GREETING.text, "thank you goodbye"]
    assert result.reason is EndReason.AGENT


class Foreign(FakeTts):
    """A voice of another language."""

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        if language != "fr":
            self.asked.append(text)
            raise LanguageRefused(f"this voice speaks 'fr', not {language!r}")
        async for chunk in super().speak(text, language=language):
            yield chunk


def test_a_language_that_the_next_voice_speaks_is_no_fault() -> None:
    foreign = Foreign()
    result, _ = converse(FakeAgent([GREETING, *BYE]), tts=foreign, fallback_tts=[FakeTts()])
    assert len(foreign.asked) == 2
    assert texts(result, Role.AGENT) == [GREETING.text, "thank you goodbye"]
    assert list(result.faults) == []


def test_a_language_that_no_voice_speaks_is_a_fault() -> None:
    result, _ = converse(
        FakeAgent([GREETING, *BYE]), tts=Foreign(), fallback_tts=[Foreign()], settings=STRICT
    )
    assert "this voice speaks 'fr', not 'en'" in [fault.message for fault in result.faults]
    assert result.reason is EndReason.ENGINE_ERROR


@pytest.mark.parametrize(("retryable", "asked"), [(True, 6), (False, 1)])
def test_without_any_voice_the_caller_hears_the_apology(retryable: bool, asked: int) -> None:
    """Until then the only voice has the session's patience with a voice to come back in, if it may."""
    broken = FakeTts()
    broken.always_fails, broken.retryable = True, retryable
    result, leg = converse(FakeAgent([GREETING]), tts=broken, settings=STRICT)
    assert len(broken.asked) == asked
    assert texts(result, Role.AGENT) == [SETTINGS.apology]
    assert result.reason is EndReason.ENGINE_ERROR
    assert max(leg.gaps()) < 2.5


def test_a_voice_that_is_silent_for_ever_is_covered() -> None:
    tts = FakeTts(delay_s=3600)
    result, leg = converse(FakeAgent([GREETING]), tts=tts, settings=STRICT)
    assert max(leg.gaps()) < 2.5
    assert texts(result, Role.AGENT)[-1] == SETTINGS.apology
    assert result.reason is EndReason.ENGINE_ERROR


def test_with_no_phrase_prepared_there_is_a_tone() -> None:
    broken = FakeTts()
    broken.always_fails = True
    phrases = play(lambda: Phrases.prepare([broken], SETTINGS))
    result, leg = converse(FakeAgent([GREETING]), tts=broken, phrases=phrases, settings=STRICT)
    assert abs(leg.heard).max() > 1000
    assert result.reason is EndReason.ENGINE_ERROR


def test_a_report_that_raises_does_not_lose_the_call() -> None:
    class Rude(FakeAgent):
        def report(self) -> Any:
            raise KeyError("x")

    result, _ = converse(Rude([GREETING, HangUp()]))
    assert result.reason is EndReason.AGENT
    assert result.faults[0].role == "agent"


def test_an_agent_without_words_gives_the_floor_back() -> None:
    agent = FakeAgent([], [], BYE)
    result, _ = converse(
        agent, stt=FakeStt("hello", "anybody there"), says=[(1.0, voice(0.5)), (4.0, voice(0.5))]
    )
    assert texts(result, Role.CALLER) == ["hello", "anybody there"]
    assert result.reason is EndReason.AGENT
