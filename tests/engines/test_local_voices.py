"""Piper and Kokoro with their own weights: understood over a telephone line, words in time, a process that
dies."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from pipeline.agent import HangUp, Say
from pipeline.confinement.confinement import lacking
from pipeline.engines.local_weights import KOKORO, PIPER, WHISPER
from pipeline.errors import EngineError, EngineMissing, EngineRefused, SettingsRefused
from pipeline.registry import load
from pipeline.result import EndReason
from pipeline.session.session import Session
from pipeline.stt.faster_whisper import FasterWhisper
from pipeline.tts.clauses import pieces
from pipeline.tts.espeak import Espeak
from pipeline.tts.kokoro import Kokoro
from pipeline.tts.onnx.spoken_letters import letters_of
from pipeline.tts.piper import Piper
from tests.support.speech.conversation import FakeAgent, FakeLeg, FakeStt
from tests.support.speech.engines import word_errors
from tests.support.speech.local_speech import needs, said, sound, understood, whisper_tiny

SENTENCES = (
    "Thank you for calling, how can I help you today?",
    "Your appointment is on Monday, can you come?",
    "I have found your order, it left the house this morning and it will be with you tomorrow afternoon.",
    "Please say your name and address after the tone.",
    "We are open every day of the week, and it is free.",
)
"""Fifty-eight words that Whisper has one way of writing."""

GREETING = SENTENCES[0]


on_one_loop = pytest.mark.asyncio(loop_scope="module")

shared = pytest_asyncio.fixture(scope="module", loop_scope="module")
"""Started once for the tests of this file: a start takes a second of CPU."""


@shared
async def started_piper() -> AsyncIterator[Piper]:
    needs(PIPER)
    voice: Piper = load("tts", "piper", {})
    await voice.start()
    yield voice
    await voice.close()


@pytest_asyncio.fixture(loop_scope="module")
async def piper(started_piper: Piper) -> Piper:
    """With a process, which the test before may have killed."""
    assert started_piper._process is not None
    await started_piper._process._ensure_running()
    return started_piper


@shared
async def kokoro() -> AsyncIterator[Kokoro]:
    needs(KOKORO)
    voice: Kokoro = load("tts", "kokoro", {})
    await voice.start()
    yield voice
    await voice.close()


@shared
async def recognizer() -> AsyncIterator[FasterWhisper]:
    needs(WHISPER)
    engine = whisper_tiny()
    await engine.start()
    yield engine
    await engine.close()


def pid_of(voice: Piper | Kokoro) -> int:
    assert voice._process is not None
    assert voice._process.pid is not None
    return voice._process.pid


async def wrong_words(voice: Piper | Kokoro, recognizer: FasterWhisper, texts: tuple[str, ...]) -> int:
    """Of `texts`, words that are not understood; a sentence has all of its words, in order, in the sound."""
    wrong = 0
    for text in texts:
        chunks = await said(voice, text)
        words = [word for chunk in chunks for word in chunk.words]
        samples = sound(chunks)
        assert " ".join(word.text for word in words) == text
        assert all(before.end <= after.start for before, after in pairwise(words))
        assert all(word.start < word.end for word in words)
        assert words[-1].end <= len(samples)
        wrong += word_errors(text, await understood(recognizer, samples, voice.rate_hz))
    return wrong


def test_the_sentences_are_of_as_many_words_as_is_said() -> None:
    assert sum(len(text.split()) for text in SENTENCES) == 58


@pytest.mark.slow
@on_one_loop
async def test_piper_is_understood_on_the_telephone(piper: Piper, recognizer: FasterWhisper) -> None:
    assert await wrong_words(piper, recognizer, SENTENCES) <= 2


@pytest.mark.nightly("ci")
@pytest.mark.slow
@pytest.mark.timeout(400)  # half of real time on an idle core
@on_one_loop
async def test_kokoro_is_understood_on_the_telephone(kokoro: Kokoro, recognizer: FasterWhisper) -> None:
    assert await wrong_words(kokoro, recognizer, SENTENCES) <= 2


@pytest.mark.nightly("ci")
@on_one_loop
async def test_kokoros_voices_share_the_process(kokoro: Kokoro) -> None:
    other = Kokoro.from_settings({"voice": "jf_alpha"})
    await other.start()
    try:
        assert other._process is kokoro._process
        mine, others = sound(await said(kokoro, "Yes.")), sound(await said(other, "Yes."))
    finally:
        await other.close()
    assert not np.array_equal(mine, others)


@on_one_loop
async def test_words_begin_where_they_are_heard(piper: Piper, recognizer: FasterWhisper) -> None:
    """What stands from a word to the end is understood as the rest of the sentence."""
    text = "Please bring the blue paper and the green letter with you on Thursday."
    chunks = await said(piper, text)
    words = [word for chunk in chunks for word in chunk.words]
    for place in (4, 8):
        rest = sound(chunks)[words[place].start :]
        expected = " ".join(text.split()[place:])
        assert word_errors(expected, await understood(recognizer, rest, piper.rate_hz)) <= 1


@pytest.mark.nightly("ci")
@on_one_loop
async def test_a_second_pause_of_kokoros_is_cut_to_one_of_a_speakers(kokoro: Kokoro) -> None:
    samples = sound(await said(kokoro, "Thank you."))
    loud = np.flatnonzero(np.abs(samples) > 300)
    assert loud[0] < 0.1 * kokoro.rate_hz
    assert 0.1 * kokoro.rate_hz < len(samples) - loud[-1] < 0.5 * kokoro.rate_hz


@on_one_loop
async def test_speed_shortens(piper: Piper) -> None:
    fast: Piper = load("tts", "piper", {"speed": 2.0})
    await fast.start()
    try:
        assert fast._process is piper._process
        plain, short = sound(await said(piper, GREETING)), sound(await said(fast, GREETING))
    finally:
        await fast.close()
    assert len(short) < 0.8 * len(plain)  # pauses and the shortest sounds stay


@pytest.mark.parametrize(
    "texts",
    [
        ("", " ", "...", "— - —", "¿", "\0", "😀", "1/2 3:30 $4.50 x@y.z"),
        pytest.param(("a" * 3000,), marks=pytest.mark.nightly("ci")),
    ],
    ids=["short", "long"],
)
@on_one_loop
async def test_odd_texts_do_not_end_the_process(piper: Piper, texts: tuple[str, ...]) -> None:
    pid = pid_of(piper)
    for text in texts:
        await said(piper, text)
        assert len(sound(await said(piper, "Yes."))) > 0, text
        assert pid_of(piper) == pid, text


@on_one_loop
async def test_a_killed_piper_fails_its_sentence_and_is_back_for_the_next(piper: Piper) -> None:
    first = pid_of(piper)
    stream = piper.speak(" ".join(SENTENCES), language="en")
    await anext(stream)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(EngineError) as caught:
        async for _ in stream:
            pass
    assert caught.value.retryable
    assert len(sound(await said(piper, "Back again."))) > 0
    assert pid_of(piper) != first


@pytest.mark.nightly("ci")
@on_one_loop
async def test_a_hanging_piper_is_killed(piper: Piper, monkeypatch: pytest.MonkeyPatch) -> None:
    assert piper._process is not None
    monkeypatch.setattr(piper._process, "program", replace(piper._process.program, hung_s=0.3))
    first = pid_of(piper)
    os.kill(first, signal.SIGSTOP)
    with pytest.raises(EngineError) as caught:
        await said(piper, GREETING)
    assert caught.value.retryable
    monkeypatch.undo()
    assert len(sound(await said(piper, "Back again."))) > 0
    assert pid_of(piper) != first


def test_onnxruntime_is_told_to_report_to_nobody() -> None:
    told = "import os, pipeline.engines; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    done = subprocess.run(
        [sys.executable, "-c", told],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert done.stdout.strip() == b"1"


@pytest.mark.skipif(bool(lacking()), reason=f"this kernel has {'; '.join(lacking())}")
@on_one_loop
async def test_the_process_is_confined(piper: Piper, kokoro: Kokoro) -> None:
    for voice in (piper, kokoro):
        status = await asyncio.to_thread(Path(f"/proc/{pid_of(voice)}/status").read_text)
        assert re.search(r"^NoNewPrivs:\s1$", status, re.MULTILINE)
        assert re.search(r"^Seccomp:\s2$", status, re.MULTILINE)


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
@on_one_loop
async def test_a_call_goes_on_at_the_word_when_piper_dies_or_hangs(
    piper: Piper, blow: signal.Signals
) -> None:
    """As the server has it: espeak-ng stands behind."""
    behind = Espeak()
    await behind.start()
    text = "Hello, and welcome. How can we help you today?"
    os.kill(pid_of(piper), blow)
    try:
        session = Session(
            leg=FakeLeg(),
            agent=FakeAgent([Say(text), HangUp()]),
            stt=FakeStt(),
            tts=piper,
            fallback_tts=[behind],
        )
        result = await session.run()
    finally:
        await behind.close()
    assert " ".join(entry.text for entry in result.transcript) == text
    assert result.reason is EndReason.AGENT
    assert {fault.role for fault in result.faults} == {"tts"}


@on_one_loop
async def test_a_language_that_a_voice_does_not_speak_is_refused(piper: Piper) -> None:
    with pytest.raises(EngineRefused, match="'ar'"):
        async for _ in piper.speak("مرحبا", language="ar"):
            pass


@on_one_loop
async def test_a_voice_that_is_not_there_is_named() -> None:
    with pytest.raises(EngineMissing, match=r"no file /nowhere/voice\.onnx"):
        await Piper.from_settings({"model": "/nowhere/voice.onnx"}).start()


@on_one_loop
async def test_a_voice_that_kokoro_lacks_is_answered_with_those_it_has() -> None:
    needs(KOKORO)
    with pytest.raises(EngineMissing, match="no voice called nobody; there are jf_alpha"):
        await Kokoro.from_settings({"voice": "nobody"}).start()


@pytest.mark.parametrize(
    ("change", "key"), [({"speed": 9}, "speed"), ({"vioce": "x"}, "vioce"), ({"threads": 0}, "threads")]
)
def test_wrong_settings_are_named(change: dict[str, object], key: str) -> None:
    with pytest.raises(SettingsRefused) as caught:
        Piper.from_settings(change)
    assert [name for name, _ in caught.value.problems] == [key]


def test_the_first_clause_comes_by_itself() -> None:
    assert pieces("Thank you, your visit is on Monday. Bye.", longest=110) == [
        "Thank you,",
        "your visit is on Monday.",
        "Bye.",
    ]
    assert pieces("Well, yes, we can do that, of course.", longest=110)[0] == "Well, yes,"
    assert pieces("Yes, of course.", longest=110) == ["Yes, of course."]


SOUNDS = {"of": "ʌv", "the": "ðə", "house": "hˈaʊs", "2026": "twˈɛnti twˈɛnti sˈɪks", "no": "nˈoʊ", "-": ""}


@pytest.mark.parametrize(
    ("written", "letters", "begins"),
    [
        ("no, of the house", "nˈoʊ, ʌvðə hˈaʊs", {"no,": "nˈ", "of": "ʌv", "the": "ðə", "house": "hˈ"}),
        ("house 2026.", "hˈaʊs twˈɛnti twˈɛnti sˈɪks.", {"house": "hˈ", "2026.": "tw"}),
        ("of the 2026 house", "ʌvðə twˈɛnti twˈɛnti sˈɪks hˈaʊs", {"the": "ðə", "2026": "tw", "house": "hˈ"}),
        ("no - house", "nˈoʊ hˈaʊs", {"no": "nˈ", "-": "hˈ", "house": "hˈ"}),
        ('"no."', "nˈoʊ.", {'"no."': "nˈ"}),
        ("...", ".", {"...": "."}),
    ],
)
def test_words_are_laid_over_what_is_spoken(written: str, letters: str, begins: dict[str, str]) -> None:
    def sounds(words: str) -> str:
        return " ".join(filter(None, (SOUNDS[word] for word in words.split()))).replace("ʌv ðə", "ʌvðə")

    made = letters_of(written, sounds)
    assert made.text == letters
    found = {written[place:].split(maxsplit=1)[0]: made.text[at:] for place, at in made.words}
    for word, beginning in begins.items():
        assert found[word].startswith(beginning)
