"""Speech as a stream of a file: every format plays, and its beginning is there before the text is done."""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from bench.support.codecs import from_ulaw
from bench.support.stub import Stub
from mediaserver.errors import InvalidRequest, SpeechFailed
from mediaserver.speech.encoders import FORMATS, UNKNOWN_LENGTH
from mediaserver.speech.synthesise import spoken
from pipeline.audio import Pcm, kernels
from pipeline.engines.guard import Guard, GuardedVoice
from pipeline.errors import EngineError, EngineMissing, EngineTimeout
from pipeline.speech import SpeechChunk
from tests.support.speech.sounds import played, tone

RATE_HZ = 22050


class Voice(Stub):
    """Says one chunk of 50 ms for every word, and writes down how far it got. The word "fail" is not said."""

    rate_hz = RATE_HZ

    def __init__(self) -> None:
        self.said = 0
        self.closed = False
        self.error: Exception = EngineError("the voice broke", retryable=True)
        self._wave = tone(RATE_HZ, 60_000)

    async def speak(self, text: str, *, language: str) -> AsyncGenerator[SpeechChunk, None]:
        size = RATE_HZ // 20
        try:
            for place, word in enumerate(text.split()):
                if word == "fail":
                    raise self.error
                self.said += 1
                yield SpeechChunk(self._wave[place * size : (place + 1) * size])
        finally:
            self.closed = True


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    kernels.warm()
    with ThreadPoolExecutor(2) as pool:
        yield pool


def guarded(*voices: Voice) -> list[GuardedVoice]:
    """The voices as the server has them: all but the last are left alone when they fail."""
    return [GuardedVoice(voice, Guard("tts", "test"), last=voice is voices[-1]) for voice in voices]


def file_stream(
    voice: Voice, form: str, threads: ThreadPoolExecutor, *, words: int = 40, chunk_ms: int = 128
) -> AsyncGenerator[bytes, None]:
    text = " ".join(["word"] * words)
    return spoken(guarded(voice), text, language="en", form=FORMATS[form], chunk_ms=chunk_ms, threads=threads)


def heard(form: str, octets: bytes) -> tuple[Pcm, int]:
    """The samples of a whole file; raw formats have no header to say what they are."""
    if form == "pcm":
        return np.frombuffer(octets, "<i2").astype(np.int16), 24000
    if form == "mulaw":
        return from_ulaw(octets), 8000
    return played(octets)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("chunk_ms", [32, 128])
async def test_a_file_of_any_format_holds_what_was_said(
    threads: ThreadPoolExecutor, form: str, chunk_ms: int
) -> None:
    pieces = [piece async for piece in file_stream(Voice(), form, threads, chunk_ms=chunk_ms)]
    samples, rate_hz = heard(form, b"".join(pieces))
    assert rate_hz == FORMATS[form].sent_hz(RATE_HZ)
    assert len(samples) / rate_hz == pytest.approx(2.0, abs=0.1)
    middle = samples[rate_hz // 2 : rate_hz * 3 // 2].astype(float)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    assert spectrum.argmax() == pytest.approx(440, abs=2)  # a second: bins of 1 Hz
    assert spectrum[430:451].sum() > 0.8 * spectrum.sum()  # and nothing that clicks where pieces meet
    assert FORMATS[form].content_type == f"audio/{form}"


@pytest.mark.parametrize("form", FORMATS)
async def test_the_first_piece_is_there_before_the_text_is_said(
    threads: ThreadPoolExecutor, form: str
) -> None:
    voice = Voice()
    stream = file_stream(voice, form, threads, words=400, chunk_ms=32)
    first = await anext(stream)
    assert first
    assert voice.said < 40  # Ogg fills a page; the others need a word or two
    await stream.aclose()
    assert voice.closed
    assert voice.said < 40


async def test_chunk_size_is_the_audio_that_goes_out_at_a_time(threads: ThreadPoolExecutor) -> None:
    for chunk_ms in (10, 32, 128, 10_000):
        pieces = [piece async for piece in file_stream(Voice(), "wav", threads, chunk_ms=chunk_ms)]
        sizes = [len(piece) // 2 for piece in (pieces[0][44:], *pieces[1:])]
        samples = RATE_HZ * chunk_ms // 1000
        assert set(sizes[:-1]) <= {samples}
        assert 0 < sizes[-1] <= samples or sizes[-1] == 0
        assert sum(sizes) == 40 * (RATE_HZ // 20)


async def test_a_wav_says_that_its_end_is_not_known(threads: ThreadPoolExecutor) -> None:
    first = await anext(file_stream(Voice(), "wav", threads))
    riff, length, wave = struct.unpack("<4sI4s", first[:12])
    assert (riff, length, wave) == (b"RIFF", UNKNOWN_LENGTH, b"WAVE")
    kind, channels, rate_hz, octets_s, block, bits = struct.unpack("<HHIIHH", first[20:36])
    assert (kind, channels, rate_hz, octets_s, block, bits) == (1, 1, RATE_HZ, RATE_HZ * 2, 2, 16)
    assert first[36:44] == struct.pack("<4sI", b"data", UNKNOWN_LENGTH)


@pytest.mark.parametrize("form", FORMATS)
async def test_text_without_a_sound_is_still_a_file(threads: ThreadPoolExecutor, form: str) -> None:
    pieces = [piece async for piece in file_stream(Voice(), form, threads, words=0)]
    samples, rate_hz = heard(form, b"".join(pieces))
    assert 0 < len(samples) < rate_hz
    assert np.abs(samples).max() < 10


async def test_a_voice_that_breaks_is_told_without_its_reasons(threads: ThreadPoolExecutor) -> None:
    voice = Voice()
    stream = spoken(
        guarded(voice), "one two fail", language="en", form=FORMATS["wav"], chunk_ms=32, threads=threads
    )
    with pytest.raises(SpeechFailed) as caught:
        [piece async for piece in stream]
    assert "broke" not in str(caught.value)
    voice.error = EngineMissing("no voice for xx")
    with pytest.raises(InvalidRequest, match="no voice for xx"):
        await anext(
            spoken(guarded(voice), "fail", language="xx", form=FORMATS["wav"], chunk_ms=32, threads=threads)
        )


class Spare(Voice):
    """Says everything, at a rate of its own."""

    rate_hz = 16000

    async def speak(self, text: str, *, language: str) -> AsyncGenerator[SpeechChunk, None]:
        for _ in text.split():
            self.said += 1
            yield SpeechChunk(tone(16000, 50))


async def pcm(voices: list[GuardedVoice], text: str, threads: ThreadPoolExecutor) -> bytes:
    stream = spoken(voices, text, language="en", form=FORMATS["wav"], chunk_ms=32, threads=threads)
    return b"".join([piece async for piece in stream])


async def test_another_voice_says_it_at_the_rate_of_the_first(threads: ThreadPoolExecutor) -> None:
    first, spare = Voice(), Spare()
    samples, rate_hz = heard("wav", await pcm(guarded(first, spare), "fail one two", threads))
    assert rate_hz == RATE_HZ
    assert len(samples) / rate_hz == pytest.approx(0.15, abs=0.03)
    assert np.abs(samples).max() > 1000


async def test_a_voice_that_failed_is_left_alone(threads: ThreadPoolExecutor) -> None:
    first, spare = Voice(), Spare()
    first.error = EngineTimeout("slow")
    voices = guarded(first, spare)
    await pcm(voices, "fail", threads)
    await pcm(voices, "one two", threads)
    assert (first.said, spare.said) == (0, 3)


async def test_what_has_no_letters_is_no_fault_of_the_voice(threads: ThreadPoolExecutor) -> None:
    first, spare = Voice(), Spare()
    voices = guarded(first, spare)
    first.error = EngineError("nothing to say", retryable=True)
    for _ in range(5):
        await pcm(voices, " ", threads)
    await pcm(voices, "one", threads)
    assert (first.said, spare.said) == (1, 0)


async def test_a_file_that_has_begun_stays_in_one_voice(threads: ThreadPoolExecutor) -> None:
    spare = Spare()
    with pytest.raises(SpeechFailed):
        await pcm(guarded(Voice(), spare), "one fail", threads)
    assert spare.said == 0


async def test_where_no_voice_can_the_server_is_at_fault_if_any_broke(threads: ThreadPoolExecutor) -> None:
    broken, foreign = Voice(), Voice()
    foreign.error = EngineMissing("no voice for xx")
    with pytest.raises(SpeechFailed):
        await pcm(guarded(broken, foreign), "fail", threads)
    with pytest.raises(InvalidRequest, match="no voice for xx"):
        await pcm(guarded(foreign, foreign), "fail", threads)


class Odd(Spare):
    """Sends so many seconds of sound, then of silence."""

    def __init__(self, sound_s: float, silence_s: float) -> None:
        super().__init__()
        self.made_s = (sound_s, silence_s)

    async def speak(self, text: str, *, language: str) -> AsyncGenerator[SpeechChunk, None]:
        for made_s, made in zip(self.made_s, (tone(16000, 50), np.zeros(800, np.int16)), strict=True):
            for _ in range(round(made_s * 20)):
                self.said += 1
                yield SpeechChunk(made)


@pytest.mark.parametrize("silence_s", [0.5, 60.0])
async def test_a_voice_that_makes_silence_is_replaced(threads: ThreadPoolExecutor, silence_s: float) -> None:
    odd, spare = Odd(0, silence_s), Spare()
    samples, rate_hz = heard("wav", await pcm(guarded(odd, spare), "one two", threads))
    assert len(samples) / rate_hz == pytest.approx(0.1, abs=0.03)
    assert spare.said == 2
    assert odd.said < 100


async def test_where_every_voice_is_silent_there_is_no_file(threads: ThreadPoolExecutor) -> None:
    with pytest.raises(SpeechFailed):
        await pcm(guarded(Odd(0, 60), Odd(0, 60)), "one two", threads)
    with pytest.raises(InvalidRequest):
        await pcm(guarded(Odd(0, 0.5), Odd(0, 0.5)), "one two", threads)


async def test_a_voice_that_falls_silent_is_no_file(threads: ThreadPoolExecutor) -> None:
    odd = Odd(1, 60)
    with pytest.raises(SpeechFailed):
        await pcm(guarded(odd), "one two", threads)
    assert odd.said < 200
    assert len(await pcm(guarded(Odd(1, 2)), "one two", threads)) > 2 * 2 * 16000  # a long pause is none


async def test_a_voice_without_end_is_no_file(threads: ThreadPoolExecutor) -> None:
    odd = Odd(1000, 0)
    with pytest.raises(SpeechFailed):
        await pcm(guarded(odd), "one two", threads)
    assert odd.said < 20 * 20
