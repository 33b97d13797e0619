"""The espeak-ng voice: sound, words and their times, interruptions, and a helper process that dies."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pipeline.agent import HangUp, Say
from pipeline.audio import Pcm
from pipeline.engines.guard import Guard, GuardedVoice
from pipeline.errors import EngineError, EngineMissing, LocalError, SettingsRefused
from pipeline.result import EndReason
from pipeline.session.session import Session
from pipeline.speech import SpeechChunk, SpokenWord
from pipeline.tts import subprocess_client
from pipeline.tts.espeak import ESPEAK, Espeak
from pipeline.tts.espeak_text import SpeechCutter
from pipeline.tts.subprocess_client import VoiceProcess, VoiceProgram
from pipeline.tts.subprocess_voice import Piece
from pipeline.tts.subprocess_wire import Word
from tests.support.speech.conversation import FakeAgent, FakeLeg, FakeStt
from tests.support.speech.engines import espeak as speech_of

GREETING = "Thank you for calling. How can I help you today?"


@pytest.fixture
async def voice() -> AsyncIterator[Espeak]:
    voice = Espeak()
    await voice.start()
    yield voice
    await voice.close()


async def spoken(voice: Espeak, text: str, language: str = "en") -> list[SpeechChunk]:
    return [chunk async for chunk in voice.speak(text, language=language)]


def pid_of(voice: Espeak) -> int:
    process = voice._process
    assert process is not None
    assert process.pid is not None
    return process.pid


async def gone(pid: int) -> bool:
    """Whether a process is gone, after at most 5 s."""
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        await asyncio.sleep(0.01)
    return False


async def test_words_of_the_text_come_with_times_that_lie_in_the_speech(voice: Espeak) -> None:
    chunks = await spoken(voice, GREETING)
    words = [word for chunk in chunks for word in chunk.words]
    total = sum(len(chunk.samples) for chunk in chunks)
    assert [word.text for word in words] == GREETING.split()
    assert all(word.start < word.end <= total for word in words)
    assert all(first.end <= second.start for first, second in pairwise(words))


async def test_words_begin_in_their_chunk(voice: Espeak) -> None:
    begin = 0
    for chunk in await spoken(voice, GREETING):
        end = begin + len(chunk.samples)
        assert all(begin <= word.start < end for word in chunk.words)
        begin = end


async def test_words_sound_where_they_are_said_to(voice: Espeak) -> None:
    """A pause between sentences lies between the words around it."""
    chunks = await spoken(voice, "First part. Second part.")
    samples = np.concatenate([chunk.samples for chunk in chunks]).astype(float)
    words = [word for chunk in chunks for word in chunk.words]
    pause = samples[words[1].end : words[2].start]
    loud = [np.sqrt(np.mean(samples[word.start : word.end] ** 2)) for word in words]
    assert len(pause) > voice.rate_hz // 10
    assert np.sqrt(np.mean(pause**2)) < min(loud) / 20


@pytest.mark.parametrize("text", ["Call 555-0142 on 12/05, it costs $3.50.", "Your code: 1 2 3 4 — right?"])
async def test_numbers_keep_the_words_of_the_text(voice: Espeak, text: str) -> None:
    words = [word.text for chunk in await spoken(voice, text) for word in chunk.words]
    assert " ".join(words) == text


@pytest.mark.parametrize(
    ("name", "language", "text"),
    [
        ("", "ar", "مرحبا بك"),
        ("en-gb", "en", "Hello"),
        ("", "ar-SA", "مرحبا بك"),
        ("", "en-AU", "Hello"),
        ("", "fr-CA", "Bonjour"),
        ("en-gb", "ar-EG", "مرحبا بك"),
    ],
)
async def test_other_languages_and_voices(name: str, language: str, text: str) -> None:
    voice = Espeak.from_settings({"voice": name})
    await voice.start()
    try:
        samples = await speech_of(voice, text, language=language)
        assert len(samples) > voice.rate_hz // 4
        assert np.abs(samples.astype(int)).max() > 3000
    finally:
        await voice.close()


async def test_rate_and_volume_change_the_speech(voice: Espeak) -> None:
    plain = await speech_of(voice, GREETING)
    other = Espeak.from_settings({"rate_wpm": 300, "volume": 30})
    await other.start()
    try:
        fast = await speech_of(other, GREETING)
    finally:
        await other.close()
    assert len(fast) < 0.8 * len(plain)
    assert np.abs(fast.astype(int)).max() < 0.6 * np.abs(plain.astype(int)).max()


async def test_an_interrupted_sentence_leaves_the_voice_usable(voice: Espeak) -> None:
    stream = voice.speak(f"{GREETING} " * 40, language="en")
    await anext(stream)
    await stream.aclose()
    assert [word.text for chunk in await spoken(voice, "Goodbye now.") for word in chunk.words] == [
        "Goodbye",
        "now.",
    ]


async def test_many_calls_speak_at_once(voice: Espeak) -> None:
    texts = [f"This is call number {number}." for number in range(20)]
    heard = await asyncio.gather(*(spoken(voice, text) for text in texts))
    assert [" ".join(word.text for chunk in chunks for word in chunk.words) for chunks in heard] == texts


async def test_a_killed_helper_fails_its_sentence_and_is_back_for_the_next(voice: Espeak) -> None:
    first = pid_of(voice)
    stream = voice.speak(f"{GREETING} " * 40, language="en")
    await anext(stream)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(EngineError) as caught:
        async for _ in stream:
            pass
    assert caught.value.retryable
    assert len(await speech_of(voice, "Back again.")) > 0
    assert pid_of(voice) != first


async def test_a_hanging_helper_is_killed(voice: Espeak, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voice._process, "program", replace(ESPEAK, hung_s=0.2))
    pid = pid_of(voice)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(EngineError) as caught:
        await spoken(voice, GREETING)
    assert caught.value.retryable
    assert await gone(pid)


async def hears(voice: Espeak, text: str) -> None:
    """A caller hears all of `text`; there is no other voice."""
    session = Session(leg=FakeLeg(), agent=FakeAgent([Say(text), HangUp()]), stt=FakeStt(), tts=voice)
    result = await session.run()
    assert " ".join(entry.text for entry in result.transcript) == text
    assert result.reason is EndReason.AGENT
    assert {fault.role for fault in result.faults} == {"tts"}


async def test_a_caller_hears_the_answer_although_the_helper_hangs(voice: Espeak) -> None:
    os.kill(pid_of(voice), signal.SIGSTOP)
    await hears(voice, "Hello, and welcome. How can we help you today?")


async def test_a_caller_hears_the_answer_although_the_helper_dies_again_and_again(voice: Espeak) -> None:
    killed: set[int] = set()

    async def kill() -> None:
        """Three helpers, each as soon as there is one."""
        while len(killed) < 3:
            helper = voice._process._process if voice._process is not None else None
            if helper is not None and helper.returncode is None and helper.pid not in killed:
                killed.add(helper.pid)
                helper.kill()
            await asyncio.sleep(0.005)

    killing = asyncio.create_task(kill())
    await hears(voice, "Hello, and welcome. How can we help you today?")
    await killing


async def test_whoever_takes_speech_slowly_gets_all_of_it(voice: Espeak) -> None:
    said = []
    async for chunk in voice.speak(f"{GREETING} " * 8, language="en"):
        said += [word.text for word in chunk.words]
        await asyncio.sleep(0.01)
    assert " ".join(said) == " ".join([GREETING] * 8)


async def test_a_helper_that_has_others_to_serve_first_does_not_hang() -> None:
    program = VoiceProgram("slow", "tests.support.speech.slow_voice", start_s=30.0, hung_s=1.0)
    helper = await VoiceProcess.acquire(program)

    async def said() -> int:
        return sum([len(samples) async for samples, _ in helper.speak({})])

    try:
        pid = helper.pid
        assert all(await asyncio.gather(*(said() for _ in range(20))))  # the last one waits for 2 s
        assert helper.pid == pid
    finally:
        await helper.release()


async def test_a_helper_that_starts_slowly_is_started_once_for_callers_who_do_not_wait(
    tmp_path: Path,
) -> None:
    """Kokoro imports for five seconds; a call waits for one and a half."""
    started = tmp_path / "started"
    program = VoiceProgram("slow", "tests.support.speech.slow_voice", 30.0, 5.0, (str(started),))
    helper = await VoiceProcess.acquire(program)
    try:
        assert helper.pid is not None
        os.kill(helper.pid, signal.SIGKILL)
        with pytest.raises(EngineError):
            await anext(helper.speak({}))
        for _ in range(5):
            waiting = asyncio.ensure_future(anext(helper.speak({})))
            await asyncio.wait({waiting}, timeout=0.15)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert await anext(helper.speak({}))
    finally:
        await helper.release()
    pids = [int(line) for line in started.read_text().splitlines()]
    assert len(pids) == 2
    assert [await gone(pid) for pid in pids] == [True, True]


async def test_a_helper_that_is_given_back_while_it_starts_leaves_no_process(tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = VoiceProgram("slow", "tests.support.speech.slow_voice", 30.0, 5.0, (str(started),))
    helper = await VoiceProcess.acquire(program)
    assert helper.pid is not None
    os.kill(helper.pid, signal.SIGKILL)
    with pytest.raises(EngineError):
        await anext(helper.speak({}))
    waiting = asyncio.ensure_future(anext(helper.speak({})))
    while len(started.read_text().splitlines()) < 2:
        await asyncio.sleep(0.02)
    await helper.release()
    with pytest.raises(EngineError):
        await waiting
    for line in started.read_text().splitlines():
        assert await gone(int(line))


async def test_a_helper_whose_start_nobody_waited_for_leaves_no_process(tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = VoiceProgram("slow", "tests.support.speech.slow_voice", 30.0, 5.0, (str(started),))
    waiting = asyncio.create_task(VoiceProcess.acquire(program))
    while not started.exists() or not started.read_text():
        await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert await gone(int(started.read_text()))
    assert asyncio.get_running_loop() not in VoiceProcess._shared


async def test_whoever_is_cancelled_as_a_helper_is_closed_is_cancelled(tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = VoiceProgram("slow", "tests.support.speech.slow_voice", 30.0, 5.0, (str(started),))
    helper = VoiceProcess(program)
    waiting = asyncio.ensure_future(anext(helper.speak({})))
    while not started.exists() or not started.read_text():
        await asyncio.sleep(0.02)
    assert helper._starting is not None
    helper._starting.add_done_callback(lambda _: waiting.cancel())
    await helper._stop()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_hanging_helper_is_killed_after_an_interruption(
    voice: Espeak, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voice._process, "program", replace(ESPEAK, hung_s=0.2))
    pid = pid_of(voice)
    os.kill(pid, signal.SIGSTOP)
    waiting = asyncio.create_task(spoken(voice, GREETING))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await gone(pid)


async def test_all_voices_share_one_process_that_ends_with_the_last(voice: Espeak) -> None:
    other = Espeak.from_settings({"voice": "en-gb"})
    await other.start()
    pid = pid_of(voice)
    assert pid_of(other) == pid
    await voice.close()
    assert len(await speech_of(other, "Still here.")) > 0
    await other.close()
    assert await gone(pid)


async def test_a_voice_that_does_not_exist_is_missing_and_leaves_no_process() -> None:
    voice = Espeak.from_settings({"voice": "no-such-voice"})
    with pytest.raises(EngineMissing, match="no-such-voice"):
        await voice.start()
    assert asyncio.get_running_loop() not in VoiceProcess._shared


async def test_a_language_without_a_voice_is_refused_for_good(voice: Espeak) -> None:
    with pytest.raises(EngineError) as caught:
        await spoken(voice, "Hello", "xx-XX")
    assert not caught.value.retryable
    assert len(await speech_of(voice, "Hello.")) > 0


async def test_speaking_before_start_is_a_bug() -> None:
    with pytest.raises(LocalError):
        await spoken(Espeak(), "Hello")


@pytest.mark.parametrize("text", ["", "   ", "\0", "\0\0 hello \0"])
async def test_text_without_words_says_nothing_and_breaks_nothing(voice: Espeak, text: str) -> None:
    await spoken(voice, text)
    assert len(await speech_of(voice, "Hello.")) > 0


@pytest.mark.parametrize(
    "text",
    [
        "Good morning to you.",
        "w" * 40,
        "0" * 60,
        "1234567890" * 6,
        "#&*@" * 9,
        "مرحبا كيف حالك",
        "№" * 20,
        "ⅷ" * 20,
    ],
)
async def test_the_slowest_voice_says_no_text_without_end(text: str) -> None:
    slow = GuardedVoice(Espeak.from_settings({"rate_wpm": 80}), Guard("tts", "slow"), last=True)
    await slow.start()
    try:
        assert len(await speech_of(slow, text)) > 0
    finally:
        await slow.close()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"speed": 3}, "speed"),
        ({"rate_wpm": 10}, "rate_wpm"),
        ({"pitch": "high"}, "pitch"),
        ({"voice": 1}, "voice"),
    ],
)
def test_wrong_settings_name_their_key(settings: dict[str, object], key: str) -> None:
    with pytest.raises(SettingsRefused) as caught:
        Espeak.from_settings(settings)
    assert [name for name, _ in caught.value.problems] == [key]


# Text and words, without the engine


def cut(sentence: str, pushes: Sequence[tuple[int, list[Word]]]) -> tuple[Pcm, list[SpokenWord]]:
    cutter = SpeechCutter(sentence, offset=1000)
    chunks = [cutter.push(np.full(count, 5000, np.int16), events) for count, events in pushes]
    chunks.append(cutter.finish())
    kept = [chunk for chunk in chunks if chunk is not None]
    return np.concatenate([chunk.samples for chunk in kept]), [word for chunk in kept for word in chunk.words]


def test_a_word_without_an_event_shares_its_neighbours_time() -> None:
    samples, words = cut("one & two", [(300, [Word(0, 0), Word(6, 200)])])
    assert words == [SpokenWord("one &", 1000, 1200), SpokenWord("two", 1200, 1300)]
    samples, words = cut("one b two", [(300, [Word(0, 0), Word(6, 200)])])
    assert words == [
        SpokenWord("one", 1000, 1100),
        SpokenWord("b", 1100, 1200),
        SpokenWord("two", 1200, 1300),
    ]
    assert len(samples) == 300


def test_several_events_in_one_word_are_one_word() -> None:
    _, words = cut("12/05 ok", [(100, [Word(0, 0), Word(3, 50)]), (100, [Word(6, 150)])])
    assert words == [SpokenWord("12/05", 1000, 1150), SpokenWord("ok", 1150, 1200)]


class Silent(Espeak):
    """Has a process, and says nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def speak(self, text: str, *, language: str) -> AsyncGenerator[SpeechChunk, None]:
        self.asked.set()
        await asyncio.Event().wait()
        yield SpeechChunk(np.zeros(0, np.int16))


async def test_a_voice_whose_start_is_given_up_leaves_no_process() -> None:
    voice = Silent()
    starting = asyncio.create_task(voice.start())
    await voice.asked.wait()
    pid = voice.pid
    assert pid is not None
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


class Broken(Espeak):
    """Makes no pieces of a text."""

    def _pieces(self, text: str, language: str) -> Iterator[Piece]:
        raise ZeroDivisionError


async def test_a_voice_that_breaks_in_an_unforeseen_way_as_it_starts_leaves_no_process() -> None:
    with pytest.raises(ZeroDivisionError):
        await Broken().start()
    assert VoiceProcess._shared.get(asyncio.get_running_loop(), {}) == {}


UNFORESEEN = """
from pipeline.tts.espeak_library import EspeakLibrary

library, taken = EspeakLibrary(), []

def refuse(samples, words):
    taken.append(len(samples))
    return 1 // 0

try:
    library.speak("One, two, three.", refuse, voice="en", parameters={})
except ZeroDivisionError:
    print("raised", len(taken))
library.speak("One.", lambda samples, words: taken.append(len(samples)) or False, voice="en", parameters={})
print("spoken", sum(taken) > 2000)
"""


def test_what_the_taker_of_samples_raises_comes_out_of_the_library() -> None:
    """An exception that crosses C is lost, and the library goes on."""
    done = subprocess.run([sys.executable, "-c", UNFORESEEN], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["raised 1", "spoken True"]
    assert done.stderr == ""


async def test_a_voice_for_which_no_process_is_left_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*arguments: str) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    program = VoiceProgram("slow", "tests.support.speech.slow_voice", 30.0, 5.0)
    monkeypatch.setattr(subprocess_client, "start_confined", refused)
    for _ in range(2):  # nothing is left of the first
        with pytest.raises(EngineMissing, match="does not start: Resource temporarily unavailable"):
            await VoiceProcess.acquire(program)
    assert VoiceProcess._shared.get(asyncio.get_running_loop(), {}) == {}
