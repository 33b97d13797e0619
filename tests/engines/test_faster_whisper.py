"""faster-whisper with the demo's model: words of voices it knows, absent models, decodes at once."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.micro_whisper.corpus import OUT_OF_VOCABULARY, PHRASES, WORDS
from mediaserver.demo.micro_whisper import MODEL_DIR, unknown_words, vocabulary
from pipeline.audio import Pcm, silence
from pipeline.errors import EngineBusy, EngineError, EngineMissing, SettingsRefused
from pipeline.speech import HeardWord, Hypothesis
from pipeline.stt.faster_whisper import FasterWhisper
from pipeline.stt.whisper.listening import UtteranceFormat, WhisperListening
from pipeline.tts.espeak import Espeak
from tests.support.speech.engines import LINE_HZ, espeak, over_the_line, push, word_errors

SETTINGS = {"model": str(MODEL_DIR), "encoder_window_s": 1, "threads": 2, "min_confidence": 0.7}


@pytest.fixture
async def engine() -> AsyncIterator[FasterWhisper]:
    engine = FasterWhisper.from_settings(SETTINGS)
    await engine.start()
    yield engine
    await engine.close()


async def says(text: str, voice: str = "en-us") -> Pcm:
    speaker = Espeak.from_settings({"voice": voice})
    await speaker.start()
    try:
        return over_the_line(await espeak(speaker, text), speaker.rate_hz)
    finally:
        await speaker.close()


@pytest.mark.parametrize(
    "voice",
    ["en-us", *(pytest.param(voice, marks=pytest.mark.nightly("ci")) for voice in ("en-gb", "en-us+f3"))],
)
async def test_every_phrase_over_a_telephone_line_is_understood(engine: FasterWhisper, voice: str) -> None:
    wrong = []
    for phrase in PHRASES:
        listening = engine.listen(rate_hz=LINE_HZ, language="en", expected=None)
        push(listening, await says(phrase, voice))
        heard = await listening.result()
        listening.close()
        if word_errors(phrase, heard.text):
            wrong.append((phrase, heard))
    assert wrong == []


async def test_the_stock_window_understands_as_well() -> None:
    engine = FasterWhisper.from_settings({**SETTINGS, "encoder_window_s": 30})
    await engine.start()
    try:
        listening = engine.listen(rate_hz=LINE_HZ, language="en", expected=None)
        push(listening, await says("tomorrow at three thirty"))
        assert (await listening.result()).text == "tomorrow at three thirty"
    finally:
        await engine.close()


async def test_an_utterance_goes_on_after_a_result(engine: FasterWhisper) -> None:
    audio = await says("i want to cancel my appointment")
    listening = engine.listen(rate_hz=LINE_HZ, language="en", expected=None)
    push(listening, audio[:5000])
    first = await listening.result()
    push(listening, audio[5000:])
    assert (await listening.result()).text == "i want to cancel my appointment"
    assert first.text != "i want to cancel my appointment"


async def test_words_it_does_not_know_come_out_unsure(engine: FasterWhisper) -> None:
    sure = [await engine.decode(await says(text), LINE_HZ, "en", None) for text in PHRASES[:5]]
    unsure = [await engine.decode(await says(text), LINE_HZ, "en", None) for text in OUT_OF_VOCABULARY]
    assert min(heard.confidence for heard in sure) > max(heard.confidence for heard in unsure)


@pytest.mark.parametrize("level", [0, 30, 3000, 9000])
async def test_silence_and_noise_are_not_words(engine: FasterWhisper, level: int) -> None:
    noise = np.random.default_rng(1).standard_normal(2 * LINE_HZ) * level
    heard = await engine.decode(noise.clip(-32768, 32767).astype(np.int16), LINE_HZ, "en", None)
    assert heard.text == ""


async def test_nothing_pushed_is_nothing_heard(engine: FasterWhisper) -> None:
    assert (await engine.listen(rate_hz=LINE_HZ, language="en", expected=None).result()).text == ""


class Reader:
    """A model that reads its words off the samples: a stretch of the same value is a word."""

    def __init__(self) -> None:
        self.longest = 0

    def submit(self, samples: Pcm, rate_hz: int, language: str, expected: Any) -> Future[Hypothesis]:
        self.longest = max(self.longest, len(samples))
        begins = np.flatnonzero(np.diff(np.concatenate((np.zeros(1, np.int16), samples))))
        words = [f"w{samples[at]}" for at in begins if samples[at]]
        done: Future[Hypothesis] = Future()
        heard = tuple(HeardWord(word, confidence=0.9) for word in words)
        done.set_result(Hypothesis(" ".join(words), 0.9 if words else 0.0, heard))
        return done

    def submit_spare(self, samples: Pcm, rate_hz: int, language: str) -> Future[Hypothesis]:
        return self.submit(samples, rate_hz, language, None)

    def spare_pause_s(self) -> float:
        return 0.0


async def test_no_word_of_a_long_utterance_is_lost_or_heard_twice() -> None:
    """Two minutes in one breath, the words 0.2 s apart."""
    reader = Reader()
    listening = WhisperListening(reader, UtteranceFormat(LINE_HZ, "en", None), partial_every=LINE_HZ)
    spoken = [f"w{number}" for number in range(1, 121)]
    for number in range(1, 121):
        word = np.full(LINE_HZ, number, np.int16)
        word[-LINE_HZ // 5 :] = 0
        push(listening, word)
        so_far = listening.partial().split()
        assert so_far == spoken[: len(so_far)]
        assert len(so_far) >= number - 16
        if number in (10, 50, 120):
            assert (await listening.result()).text.split() == spoken[:number]
    heard = await listening.result()
    assert len(heard.words) == 120
    assert heard.confidence == pytest.approx(0.9)
    assert reader.longest <= 16 * LINE_HZ + LINE_HZ // 50
    listening.close()
    with pytest.raises(EngineError):
        await listening.result()


class Occupied(Reader):
    """One that has no thread for a while."""

    def __init__(self, seconds: range) -> None:
        super().__init__()
        self.seconds = seconds
        self.second = 0

    def submit(self, samples: Pcm, rate_hz: int, language: str, expected: Any) -> Future[Hypothesis]:
        if self.second in self.seconds:
            raise EngineBusy("no thread")
        return super().submit(samples, rate_hz, language, expected)


@pytest.mark.parametrize("last", [18, 19, 60])
async def test_a_moment_without_a_thread_loses_no_beginning(last: int) -> None:
    """At the 16th second, where a long utterance is cut, until the 19th."""
    reader = Occupied(range(15, 19))
    listening = WhisperListening(reader, UtteranceFormat(LINE_HZ, "en", None), partial_every=0)
    for number in range(1, last + 1):
        word = np.full(LINE_HZ, number, np.int16)
        word[-LINE_HZ // 5 :] = 0
        push(listening, word)
        reader.second = number
    if last in reader.seconds:
        with pytest.raises(EngineBusy):
            await listening.result()
        reader.second = 19
    assert (await listening.result()).text.split() == [f"w{number}" for number in range(1, last + 1)]
    assert reader.longest <= 16 * LINE_HZ
    listening.close()


async def test_speech_that_comes_at_once_is_decoded_in_pieces_too() -> None:
    reader = Reader()
    listening = WhisperListening(reader, UtteranceFormat(LINE_HZ, "en", None), partial_every=0)
    spoken = np.repeat(np.arange(1, 61, dtype=np.int16), LINE_HZ)
    spoken[np.arange(spoken.size) % LINE_HZ > 0.8 * LINE_HZ] = 0
    listening.push(spoken)
    assert (await listening.result()).text.split() == [f"w{number}" for number in range(1, 61)]
    assert reader.longest <= 16 * LINE_HZ


async def test_a_cancelled_result_leaves_the_utterance_usable(engine: FasterWhisper) -> None:
    listening = engine.listen(rate_hz=LINE_HZ, language="en", expected=None)
    push(listening, await says("mary johnson"))
    for _ in range(5):
        speculative = asyncio.create_task(listening.result())
        await asyncio.sleep(0)
        speculative.cancel()
        await asyncio.gather(speculative, return_exceptions=True)
    assert (await listening.result()).text == "mary johnson"


async def test_many_utterances_at_once(engine: FasterWhisper) -> None:
    texts = PHRASES[:12]
    audio = [await says(text) for text in texts]
    heard = await asyncio.gather(*(engine.decode(samples, LINE_HZ, "en", None) for samples in audio))
    assert [hypothesis.text for hypothesis in heard] == list(texts)


async def test_closing_under_a_decode_waits_and_refuses_what_comes_after(
    engine: FasterWhisper, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Future[Hypothesis]] = []
    submit = engine.submit

    def submitted(*args: Any) -> Future[Hypothesis]:
        jobs.append(submit(*args))
        return jobs[-1]

    monkeypatch.setattr(engine, "submit", submitted)
    listening = engine.listen(rate_hz=LINE_HZ, language="en", expected=None)
    push(listening, await says("yes please"))
    decode = asyncio.create_task(listening.result())
    async with asyncio.timeout(10):
        while not jobs or not (jobs[0].running() or jobs[0].done()):
            await asyncio.sleep(0)
    await engine.close()
    assert (await decode).text == "yes please"
    with pytest.raises(EngineError):
        await listening.result()


async def test_a_decode_that_had_not_begun_when_the_engine_was_closed_is_an_engine_error(
    engine: FasterWhisper, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: Future[Hypothesis] = Future()
    monkeypatch.setattr(engine, "submit", lambda *args: waiting)
    listening = engine.listen(rate_hz=LINE_HZ, language="en", expected=None)
    decode = asyncio.create_task(listening.result())
    await asyncio.sleep(0)
    waiting.cancel()  # what closing does to decodes whose turn has not come
    with pytest.raises(EngineError):
        await decode


@pytest.mark.parametrize("seconds", [1, 20])
async def test_whoever_is_cancelled_as_the_engine_is_closed_is_cancelled(
    engine: FasterWhisper, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    waiting: Future[Hypothesis] = Future()
    monkeypatch.setattr(engine, "submit", lambda *args: waiting)
    listening = engine.listen(rate_hz=LINE_HZ, language="en", expected=None)
    listening.push(silence(LINE_HZ, seconds * 1000))
    decode = asyncio.create_task(listening.result())
    await asyncio.sleep(0)
    decode.cancel()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await decode


async def test_a_closed_utterance_is_refused(engine: FasterWhisper) -> None:
    listening = engine.listen(rate_hz=LINE_HZ, language="en", expected=None)
    listening.close()
    with pytest.raises(EngineError):
        await listening.result()


async def test_an_english_model_says_so_to_another_language(engine: FasterWhisper) -> None:
    with pytest.raises(EngineMissing, match="English only"):
        await engine.decode(silence(LINE_HZ, 500), LINE_HZ, "ar", None)


@pytest.mark.parametrize("name", ["model.bin", "config.json", "tokenizer.json", "vocabulary.json"])
async def test_a_model_without_a_file_is_missing_and_names_it(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "model"
    shutil.copytree(MODEL_DIR, directory)
    (directory / name).unlink()
    with pytest.raises(EngineMissing, match=name):
        await FasterWhisper.from_settings({"model": str(directory)}).start()


async def test_a_model_that_is_a_name_is_missing_and_nobody_is_asked_for_it() -> None:
    with pytest.raises(EngineMissing, match="not a directory"):
        await FasterWhisper.from_settings({"model": "large-v3"}).start()


async def test_a_broken_model_is_missing(tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(MODEL_DIR, directory)
    (directory / "model.bin").write_bytes(b"not a model")
    with pytest.raises(EngineMissing, match="does not load"):
        await FasterWhisper.from_settings({"model": str(directory)}).start()


@pytest.mark.parametrize("error", [RuntimeError("no memory"), asyncio.CancelledError()])
async def test_a_start_that_breaks_off_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    pids = []

    def broken(self: FasterWhisper, decodes: object) -> None:
        pids.append(self.pid)
        raise error

    monkeypatch.setattr(FasterWhisper, "_decode", broken)
    engine = FasterWhisper.from_settings(SETTINGS)
    with pytest.raises((EngineError, asyncio.CancelledError)):
        await engine.start()
    assert engine.pid is None
    assert pids
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0] or 0, 0)


async def test_whatever_a_decode_raises_is_an_error_of_the_engine(
    engine: FasterWhisper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("libraries raise anything")

    monkeypatch.setattr(engine._model, "decoded", broken)
    with pytest.raises(EngineError, match="faster-whisper broke"):
        await engine.decode(silence(LINE_HZ, 500), LINE_HZ, "en", None)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"model": 5}, "model"),
        ({"model": "x", "beam": 5}, "beam"),
        ({"model": "x", "encoder_window_s": 31}, "encoder_window_s"),
    ],
)
def test_wrong_settings_name_their_key(settings: dict[str, object], key: str) -> None:
    with pytest.raises(SettingsRefused) as caught:
        FasterWhisper.from_settings(settings)
    assert [name for name, _ in caught.value.problems] == [key]


def test_the_vocabulary_is_what_the_model_was_trained_on() -> None:
    assert vocabulary() == set(WORDS)
    assert unknown_words("Yes please, because Tuesday, Xavier!") == ["because", "xavier"]
