"""Whole conversations in Arabic and in both languages, with stand-ins for the models and the clock only."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.agent import AgentContext
from pipeline.agents.script.agent import Script
from pipeline.audio import Pcm
from pipeline.result import EndReason, SessionResult
from pipeline.session.prompts import Phrases
from pipeline.settings import SessionSettings
from pipeline.text.fold import plain_words
from pipeline.text.normalise import verbalize
from pipeline.text.prompts import STANDARD, Phrase, standard
from pipeline.transcript import Role
from pipeline.tts.espeak import Espeak
from pipeline.tts.espeak_arabic import vowelled
from tests.support.speech.conversation import Bilingual, FakeTts, Polyglot, converse, play, texts, voice

CLINIC = """
start = "coming"
[[step]]
id = "coming"
say = "موعدك يوم 3/5/2026 الساعة 4:30. هل تستطيع الحضور؟"
expect = { kinds = ["yes_no"] }
on = { yes = "number", no = "day" }
[[step]]
id = "day"
say = "أي يوم يناسبك؟"
expect = { kinds = ["date"] }
collect = "day"
next = "number"
[[step]]
id = "number"
say = "ما هي آخر أربعة أرقام من هاتفك؟"
expect = { digits = 4 }
collect = "number"
next = "bye"
[[step]]
id = "bye"
say = "شكراً {{name}}، الرسوم 25 ريال."
action = "hang_up"
disposition = "confirmed"
goal = true
"""

CHOICE = """
start = "which"
[[step]]
id = "which"
say = "English, or Arabic?"
answers = { arabic = ["arabic"], english = ["english"] }
on = { arabic = "name", english = "end" }
[[step]]
id = "name"
language = "ar"
say = "ما اسمك؟"
expect = { kinds = ["name"] }
collect = "name"
next = "end"
[[step]]
id = "end"
language = "en"
say = "Thank you. It is 5 km."
action = "hang_up"
"""


def conversed(
    plan: str, language: str, *texts: str, says: Sequence[tuple[float, Pcm]]
) -> tuple[SessionResult, Bilingual, Polyglot]:
    stt, tts = Bilingual(*texts), Polyglot()
    script = Script.from_settings(tomllib.loads(plan))
    settings = SessionSettings(
        language=language,
        goodbye=standard(Phrase.GOODBYE, language),
        filler=standard(Phrase.FILLER, language),
        reprompt_s=3.0,
    )
    phrases = play(lambda: Phrases.prepare([FakeTts()], settings, languages=script.languages))
    greeting = {"ar": "السلام عليكم.", "en": "Hello."}[language]
    agent = script.join(AgentContext("call", language, greeting, {"name": "سالم"}))
    result, _ = converse(agent, says=says, stt=stt, tts=tts, settings=settings, phrases=phrases)
    return result, stt, tts


def test_a_call_in_arabic_from_the_greeting_to_the_goodbye() -> None:
    answers = ("لا، لا أَسْتَطِيع", "يوم الاحد القادم", "واحد اتنين خمسة وسبعين")
    result, stt, tts = conversed(
        CLINIC, "ar", *answers, says=[(8.0, voice(0.6)), (14.0, voice(0.9)), (21.0, voice(0.9))]
    )
    assert result.reason is EndReason.AGENT
    assert result.report.reached_goal
    assert result.report.answers == {"day": "يوم الاحد القادم", "number": "1275"}
    assert set(stt.languages) == {language for language, _ in tts.said} == {"ar"}
    said = " ".join(texts(result, Role.AGENT))
    assert "الثالث من مايو عام ألفين وستة وعشرين الساعة الرابعة والنصف" in said
    assert "شكراً سالم، الرسوم خمسة وعشرون ريالاً." in said
    assert not any(character.isdecimal() for character in said)


def test_digits_in_parts_are_asked_for_in_arabic_and_the_silent_are_taken_leave_of_in_it() -> None:
    result, _, _ = conversed(CLINIC, "ar", "أيوه", "تسعة سبعة", says=[(8.0, voice(0.6)), (14.0, voice(0.6))])
    assert "تفضل، أكمل." in texts(result, Role.AGENT)
    assert texts(result, Role.AGENT)[-1] == "مع السلامة."
    assert result.disposition == "no_answer"
    assert result.report.answers == {}


def test_a_call_that_changes_to_arabic_and_back() -> None:
    result, stt, tts = conversed(
        CHOICE, "en", "arabic please", "اسمي أحمد", says=[(3.0, voice(0.6)), (7.0, voice(0.6))]
    )
    assert tts.said[-2:] == [("ar", "ما اسمك؟"), ("en", "Thank you. It is five kilometres.")]
    assert stt.languages == ["en", "ar"]
    assert result.report.answers == {"name": "أحمد"}
    assert result.reason is EndReason.AGENT


async def test_phrases_are_there_in_every_language_that_the_agent_may_change_to() -> None:
    tts = Polyglot()
    phrases = await Phrases.prepare([tts], SessionSettings(), languages=("ar", "en"))
    assert phrases.at(Phrase.FILLER, 8000, "ar").text == STANDARD["ar"][Phrase.FILLER]
    assert phrases.at(Phrase.FILLER, 8000, "en").text == SessionSettings().filler
    assert phrases.at(Phrase.FILLER, 8000, "de").text == SessionSettings().filler
    assert ("ar", STANDARD["ar"][Phrase.GOODBYE]) in tts.said


@pytest.mark.parametrize("wanted", ["", "en-gb", "ar"])
async def test_espeak_speaks_each_language_with_a_voice_that_can(wanted: str) -> None:
    """An English voice spells Arabic letters: it would take several times as long."""
    speaker, reference = Espeak.from_settings({"voice": wanted}), Espeak.from_settings({})
    await speaker.start()
    await reference.start()
    try:
        for text, language in (("مرحبا، كيف حالك اليوم؟", "ar"), ("Hello, how are you today?", "en-GB")):
            heard = [chunk.samples async for chunk in speaker.speak(text, language=language)]
            right = [chunk.samples async for chunk in reference.speak(text, language=language)]
            samples = np.concatenate(heard)
            assert len(samples) == pytest.approx(len(np.concatenate(right)), rel=0.15)
            assert np.sqrt(np.mean(samples.astype(np.float64) ** 2)) > 500
    finally:
        await speaker.close()
        await reference.close()


def test_every_word_that_figures_are_put_into_has_its_vowels_for_espeak() -> None:
    written = (
        *map(str, range(121)),
        "1,234,567,890",
        "2026-12-31",
        "15:45",
        "8:20 ص",
        "99 ريال",
        "2.5 كم",
        "7%",
    )
    words = {word.strip("،") for each in written for word in verbalize(each, "ar").split()}
    bare = {word for word in words if not any("\u064b" <= sign <= "\u0652" for sign in vowelled(word))}
    assert bare <= {"آلاف"}


@given(st.text(st.sampled_from("أبتخمسةعشرونووصفرَُِّ ،.abc12"), max_size=60))
def test_vowels_change_no_word_but_its_vowels(text: str) -> None:
    assert len(vowelled(text).split()) == len(text.split())
    assert plain_words(vowelled(text)) == plain_words(text)


async def test_the_words_that_espeak_has_spoken_are_those_that_were_written() -> None:
    speaker = Espeak.from_settings({})
    await speaker.start()
    try:
        text = "المبلغ خمسة وعشرون ريالاً، من فضلك."
        words = [word async for chunk in speaker.speak(text, language="ar") for word in chunk.words]
    finally:
        await speaker.close()
    assert [word.text for word in words] == text.split()
    assert all(word.start < word.end for word in words)
