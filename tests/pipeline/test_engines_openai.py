"""OpenAI-compatible ears and voices, against a server that behaves well and badly."""

from __future__ import annotations

import asyncio
import gc
import gzip
import math
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from pipeline import registry
from pipeline.errors import EngineBusy, EngineError, EngineRefused, EngineTimeout, SettingsRefused
from pipeline.net.egress import EgressPolicy, egress_policy
from pipeline.net.model_endpoint import ModelEndpoint
from pipeline.net.sse import EventReader
from pipeline.speech import Expected
from pipeline.stt.openai import OpenAiSpeechToText
from pipeline.tts.openai import OpenAiTextToSpeech
from tests.support.http.openai_server import RATE_HZ, FakeOpenAi, Manners, openai_server, voice
from tests.support.speech.conversation import voice as speech
from tests.support.waiting import until
from tests.support.webrtc.web import answering

HERE = EgressPolicy(["127.0.0.0/8"])
TEXT = "one two three four five"


@pytest.fixture
async def fake() -> AsyncIterator[FakeOpenAi]:
    async with openai_server() as server:
        yield server


def engine(kind: str, fake: FakeOpenAi, **options: Any) -> Any:
    patience = {"timeout_s": 20.0} | ({"stall_s": 20.0} if kind == "tts" else {})
    with egress_policy(HERE):
        return registry.load(kind, "openai", {"base_url": fake.base_url} | patience | options)


async def transcribe(recognizer: OpenAiSpeechToText, expected: Expected | None = None) -> Any:
    """What `recognizer` make of a second of voice."""
    listening = recognizer.listen(rate_hz=8000, language="en-GB", expected=expected)
    try:
        listening.push(speech(1.0))
        return await listening.result()
    finally:
        listening.close()
        await recognizer.close()


async def said(tts: OpenAiTextToSpeech, text: str = TEXT) -> tuple[list[int], Any]:
    """The sizes of the chunks, and all samples."""
    try:
        chunks = [chunk.samples async for chunk in tts.speak(text, language="en")]
    finally:
        await tts.close()
    return [chunk.size for chunk in chunks], np.concatenate(chunks)


@asynccontextmanager
async def endpoint_at(handler: Any) -> AsyncIterator[ModelEndpoint]:
    """The endpoint of a server that answers everything with `handler`."""
    async with answering(handler) as url:
        endpoint = ModelEndpoint(f"{url}/v1", allowed=HERE)
        yield endpoint
        await endpoint.close()


async def events_of(endpoint: ModelEndpoint, *, first_s: float = 10, stall_s: float = 10) -> list[str]:
    return [data async for data in endpoint.stream_sse("chat", {}, first_s=first_s, stall_s=stall_s)]


@asynccontextmanager
async def listening_to(fake: FakeOpenAi, rate_hz: int = 8000, **options: Any) -> AsyncIterator[Any]:
    """An utterance that `fake` is asked about."""
    recognizer = engine("stt", fake, **options)
    listening = recognizer.listen(rate_hz=rate_hz, language="en", expected=None)
    yield listening
    listening.close()
    await recognizer.close()


# Ears -------------------------------------------------------------------------------------------------------


async def test_an_utterance_becomes_a_request_and_its_answer_words(fake: FakeOpenAi) -> None:
    expected = Expected(phrases=("yes please", "no thanks"))
    heard = await transcribe(engine("stt", fake, model="big", api_key="k-1"), expected=expected)
    assert heard.text == "yes please"
    request = fake.heard[0]
    assert request.fields["model"] == "big"
    assert request.fields["language"] == "en"
    assert request.fields["prompt"] == "yes please, no thanks"
    assert (request.rate_hz, request.samples.size) == (16000, 16000)
    assert np.abs(request.samples).max() > 1000
    assert fake.keys == ["Bearer k-1"]


@pytest.mark.parametrize(
    ("segments", "text", "confidence"),
    [
        ([{"avg_logprob": -0.1, "no_speech_prob": 0.01}], "yes please", math.exp(-0.1)),
        ([{"avg_logprob": -0.1}, {"avg_logprob": -0.3}], "yes please", math.exp(-0.2)),
        ([{"avg_logprob": -2.5, "no_speech_prob": 0.01}], "", math.exp(-2.5)),
        ([{"avg_logprob": -1.1, "no_speech_prob": 0.9}], "", 0.0),
        ([{"avg_logprob": "nonsense"}], "yes please", 0.8),
        ("nonsense", "yes please", 0.8),
    ],
)
async def test_confidence_is_what_the_server_says(
    fake: FakeOpenAi, segments: Any, text: str, confidence: float
) -> None:
    fake.manners.answer = {"text": "Yes, please.", "segments": segments}
    heard = await transcribe(engine("stt", fake))
    assert (heard.text, heard.confidence) == (text, pytest.approx(confidence))


async def test_words_have_the_times_that_the_server_tells(fake: FakeOpenAi) -> None:
    words = [{"word": "Yes,", "start": 0.1, "end": 0.4}, {"word": "please", "start": 0.5, "end": 0.9}]
    fake.manners.answer = {"text": "Yes, please.", "words": [*words, {"word": "broken"}]}
    heard = await transcribe(engine("stt", fake))
    assert [(w.text, w.start_ms, w.end_ms) for w in heard.words] == [("yes", 100, 400), ("please", 500, 900)]


async def test_a_server_that_knows_json_only_is_asked_for_that(fake: FakeOpenAi) -> None:
    fake.manners.only_json = True
    async with listening_to(fake, 16000) as listening:
        for _ in range(2):
            listening.push(speech(0.5, rate_hz=16000))
            assert (await listening.result()).text == "yes please"
    assert [each.fields["response_format"] for each in fake.heard] == ["verbose_json", "json", "json"]


async def test_the_same_audio_is_asked_about_once(fake: FakeOpenAi) -> None:
    async with listening_to(fake) as listening:
        listening.push(speech(0.5))
        first = await listening.result()
        assert await listening.result() is first
        assert len(fake.heard) == 1
        listening.push(speech(0.5))
        await listening.result()
        assert [each.samples.size for each in fake.heard] == [8000, 16000]


STORY_S = 150
PAUSES_S = range(20, STORY_S, 20)


def story() -> Any:
    """A voice that pauses for 0.3 s at every 20 s."""
    samples = speech(float(STORY_S))
    for pause_s in PAUSES_S:
        samples[pause_s * 8000 : round((pause_s + 0.3) * 8000)] = 0
    return samples


def pushed(listening: Any, samples: Any) -> None:
    for at in range(0, len(samples), 160):
        listening.push(samples[at : at + 160])


@pytest.mark.parametrize("asked_every_s", [2, 7, STORY_S])
async def test_of_a_long_story_the_beginning_is_heard_once_and_kept(
    fake: FakeOpenAi, asked_every_s: int
) -> None:
    fake.manners.answer = {"text": "Well,", "words": [{"word": "Well,", "start": 0.5, "end": 0.9}]}
    async with listening_to(fake) as listening:
        samples, heard = story(), None
        if asked_every_s == STORY_S:
            samples = samples[: 60 * 8000]  # as another engine that broke leaves it
        for at in range(0, len(samples), asked_every_s * 8000):
            pushed(listening, samples[at : at + asked_every_s * 8000])
            heard = await listening.result()
    assert heard is not None
    cuts_s = [pause_s for pause_s in PAUSES_S if pause_s <= len(samples) // 8000 - 20]
    assert heard.text == " ".join(["well"] * (len(cuts_s) + 1))
    assert [word.start_ms for word in heard.words] == [
        pytest.approx(begin_s * 1000 + 500, abs=300) for begin_s in (0, *cuts_s)
    ]
    sizes_s = [each.samples.size / each.rate_hz for each in fake.heard]
    assert max(sizes_s) <= 30.0
    assert sum(sizes_s) < 31 * len(samples) / 8000 / asked_every_s + len(samples) / 8000


async def test_what_the_server_did_not_answer_is_asked_about_again(fake: FakeOpenAi) -> None:
    async with listening_to(fake) as listening:
        samples = story()[: 50 * 8000]
        pushed(listening, samples)
        fake.manners.status = 500
        with pytest.raises(EngineError, match="500"):
            await listening.result()
        fake.manners.status = 200
        assert (await listening.result()).text == "yes please yes please"
    sent = sum(each.samples.size for each in fake.heard) / 16000
    assert sent == pytest.approx(2 * 50, abs=0.1)


async def test_what_nobody_answers_about_does_not_fill_the_memory(fake: FakeOpenAi) -> None:
    fake.manners.status = 500
    async with listening_to(fake) as listening:
        for _ in range(2):
            pushed(listening, story())
            with pytest.raises(EngineError, match="500"):
                await listening.result()
        fake.manners.status = 200
        fake.heard.clear()
        listening.push(speech(0.5))
        await listening.result()
    assert sum(each.samples.size for each in fake.heard) / 16000 < 60 + 30


async def test_what_is_lost_in_the_middle_of_a_story_costs_nothing_else(fake: FakeOpenAi) -> None:
    async with listening_to(fake) as listening:
        samples = story()
        pushed(listening, samples[: 45 * 8000])
        assert (await listening.result()).text == "yes please yes please"
        fake.manners.status = 500
        for at_s in range(45, STORY_S, 15):
            pushed(listening, samples[at_s * 8000 : (at_s + 15) * 8000])
            with pytest.raises(EngineError, match="500"):
                await listening.result()
        fake.manners.status = 200
        fake.heard.clear()
        heard = await listening.result()
    assert 60 <= sum(each.samples.size for each in fake.heard) / 16000 <= 60 + 30
    assert heard.text == " ".join(["yes please"] * (1 + len(fake.heard)))


async def test_whoever_does_not_wait_ends_the_request(fake: FakeOpenAi) -> None:
    fake.manners.delay_s = 60
    async with listening_to(fake) as listening:
        listening.push(speech(0.5))
        for close in (False, True):
            task = asyncio.create_task(listening.result())
            while len(fake.heard) < 1 + close:
                await asyncio.sleep(0.005)
            if close:
                listening.close()
                with pytest.raises(EngineError, match="closed"):
                    await task
            else:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
        while fake.cut_off < 2:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("closed_first", [False, True])
async def test_whoever_is_cancelled_as_the_utterance_is_closed_is_cancelled(
    fake: FakeOpenAi, closed_first: bool
) -> None:
    """A fault of the call would be told otherwise."""
    fake.manners.delay_s = 60
    async with listening_to(fake) as listening:
        listening.push(speech(0.5))
        task = asyncio.create_task(listening.result())
        while not fake.heard:
            await asyncio.sleep(0.005)
        for step in (listening.close, task.cancel) if closed_first else (task.cancel, listening.close):
            step()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_piece_is_sent_once_however_often_the_caller_goes_on(fake: FakeOpenAi) -> None:
    fake.manners.delay_s = 1.0
    async with listening_to(fake, timeout_s=30.0) as listening:
        samples = story()
        pushed(listening, samples[: 45 * 8000])
        for second in range(45, 48):
            speculative = asyncio.create_task(listening.result())
            while len(fake.heard) < second - 43:
                await asyncio.sleep(0.005)
            speculative.cancel()
            await asyncio.wait({speculative})
            pushed(listening, samples[second * 8000 : (second + 1) * 8000])
        assert (await listening.result()).text == "yes please yes please"
    ends_s = sorted(round(each.samples.size / 16000) for each in fake.heard)
    assert ends_s == [20, 25, 26, 27, 28]
    assert fake.cut_off == 3


async def test_a_closed_utterance_ends_the_requests_about_all_its_pieces(fake: FakeOpenAi) -> None:
    fake.manners.delay_s = 60
    async with listening_to(fake, timeout_s=60.0) as listening:
        pushed(listening, story()[: 45 * 8000])
        for asked in (2, 3):
            speculative = asyncio.create_task(listening.result())
            while len(fake.heard) < asked:
                await asyncio.sleep(0.005)
            if asked == 2:
                speculative.cancel()
            else:
                listening.close()
            await asyncio.wait({speculative})
        assert isinstance(speculative.exception(), EngineError)
        await until(lambda: fake.cut_off >= 3)


async def test_what_the_server_has_heard_is_kept_in_memory_no_longer(fake: FakeOpenAi) -> None:
    async with listening_to(fake) as listening:
        samples = story()
        tracemalloc.start()
        try:
            for at in range(0, len(samples), 15 * 8000):
                pushed(listening, samples[at : at + 15 * 8000])
                await listening.result()
                fake.heard.clear()
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 3 * 30 * 2 * 8000, "the end alone is there yet, and no piece of what was answered"


async def test_connections_are_kept(fake: FakeOpenAi) -> None:
    recognizer = engine("stt", fake)
    for _ in range(3):
        listening = recognizer.listen(rate_hz=8000, language="en", expected=None)
        listening.push(speech(0.2))
        await listening.result()
        listening.close()
    await recognizer.close()
    assert len(fake.connections) == 1


# The voice --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 1023, 100_000])
async def test_sound_comes_out_as_it_went_in_however_it_is_cut(fake: FakeOpenAi, pieces: int) -> None:
    text = "one" if pieces == 1 else TEXT
    fake.manners.pieces = pieces
    sizes, samples = await said(engine("tts", fake, voice="nova", api_key="k-2"), text)
    assert samples.tobytes() == voice(text)
    assert all(size >= RATE_HZ // 50 for size in sizes[:-1])
    assert fake.said[0] == {"model": "tts-1", "input": text, "voice": "nova", "response_format": "pcm"}
    assert fake.keys == ["Bearer k-2"]


async def test_the_first_chunk_is_there_before_the_last_is_made(fake: FakeOpenAi) -> None:
    fake.manners.stalls_after = 20_000
    tts = engine("tts", fake)
    chunks = tts.speak(TEXT, language="en")
    assert (await anext(chunks)).samples.size > 0
    await chunks.aclose()
    await tts.close()


@pytest.mark.parametrize("rate_hz", [24000, 16000, 44100])
async def test_a_wav_file_is_understood_at_any_rate(fake: FakeOpenAi, rate_hz: int) -> None:
    fake.manners.as_wav, fake.manners.wav_rate_hz, fake.manners.pieces = True, rate_hz, 37
    _, samples = await said(engine("tts", fake, response_format="wav"), "one")
    expected = np.frombuffer(voice("one"), "<i2")
    assert abs(samples.size - expected.size) <= RATE_HZ // 50
    spectrum = np.abs(np.fft.rfft(samples[1000:7000].astype(float)))
    assert np.argmax(spectrum) * RATE_HZ / 6000 == pytest.approx(300, abs=5)


async def test_voices_go_by_language(fake: FakeOpenAi) -> None:
    tts = engine("tts", fake, voice="nova", voices={"ar": "layla"}, speed=1.25)
    for language in ("en", "ar", "ar-SA"):
        async for _ in tts.speak("one", language=language):
            pass
    await tts.close()
    assert [each["voice"] for each in fake.said] == ["nova", "layla", "layla"]
    assert fake.said[0]["speed"] == 1.25


@pytest.mark.parametrize("kind", [b"ID3\x04 an mp3 file", b"OggS something", b"RIFF" + bytes(5000)])
async def test_what_is_no_pcm_is_not_played(kind: bytes) -> None:
    async def other(request: web.Request) -> web.Response:
        return web.Response(body=kind, content_type="application/octet-stream")

    async with answering(other) as url:
        with egress_policy(HERE):
            tts = registry.load("tts", "openai", {"base_url": f"{url}/v1", "timeout_s": 20.0})
        with pytest.raises(EngineError):
            await said(tts)


@pytest.mark.parametrize(
    "kind",
    ["application/json", "text/html", "audio/mpeg", "audio/ogg", "audio/flac", "audio/aac", "video/mp4"],
)
async def test_an_answer_of_a_type_without_samples_is_not_played(kind: str) -> None:
    async def other(request: web.Request) -> web.Response:
        return web.Response(body=voice(TEXT), content_type=kind)

    async with answering(other) as url:
        with egress_policy(HERE):
            tts = registry.load("tts", "openai", {"base_url": f"{url}/v1", "timeout_s": 20.0})
        with pytest.raises(EngineError, match=kind):
            await said(tts)


async def test_a_compressed_answer_is_refused_before_it_is_a_gigabyte() -> None:
    async def bomb(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "identity"
        body = gzip.compress(b'{"text": "' + b"word " * 200_000 + b'"}')
        return web.Response(body=body, headers={"Content-Encoding": "gzip"}, content_type="application/json")

    async with endpoint_at(bomb) as endpoint:
        with pytest.raises(EngineError, match="compressed"):
            await endpoint.post_json("chat", {})
        with pytest.raises(EngineError, match="compressed"):
            await events_of(endpoint)


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"text": NaN}', b'{"text": "' + b"a" * 2_000_000])
async def test_an_answer_that_is_no_json_is_an_error_whatever_it_is(body: bytes) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, status=200 if request.path.endswith("chat") else 500)

    async with endpoint_at(answer) as endpoint:
        for path in ("chat", "fails"):
            with pytest.raises(EngineError):
                await endpoint.post_json(path, {})


async def test_a_voice_that_breaks_off_says_so_after_what_it_said(fake: FakeOpenAi) -> None:
    fake.manners.dies_after = 20_000
    tts, samples = engine("tts", fake), 0

    async def listen() -> None:
        nonlocal samples
        async for chunk in tts.speak(TEXT, language="en"):
            samples += chunk.samples.size

    with pytest.raises(EngineError) as failure:
        await listen()
    await tts.close()
    assert failure.value.retryable
    assert samples > 5000


async def test_a_voice_that_stalls_is_given_up(fake: FakeOpenAi) -> None:
    fake.manners.stalls_after = 20_000
    with pytest.raises(EngineTimeout):
        await said(engine("tts", fake, stall_s=0.1))


# Failures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, EngineRefused, False),
        (401, EngineError, False),
        (404, EngineError, False),
        (408, EngineError, True),
        (429, EngineBusy, True),
        (500, EngineError, True),
        (502, EngineError, True),
        (503, EngineBusy, True),
        (302, EngineError, False),
    ],
)
@pytest.mark.parametrize("which", ["stt", "tts"])
async def test_a_status_is_an_error_that_tells_whether_to_come_again(
    fake: FakeOpenAi, which: str, status: int, kind: type[EngineError], retryable: bool
) -> None:
    fake.manners.status = status
    fake.manners.headers = {"Retry-After": "7", "Location": fake.base_url}
    made = engine(which, fake, api_key="k-secret")
    with pytest.raises(kind) as failure:
        await (transcribe(made) if which == "stt" else said(made))
    assert failure.value.retryable is retryable
    assert f"answered {status} (some_reason)" in str(failure.value)
    assert "secret" not in str(failure.value)
    assert "k-secret" not in repr(made.endpoint)
    if isinstance(failure.value, EngineBusy):
        assert failure.value.retry_after_s == 7


NOON = "Wed, 21 Oct 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("header", "date", "seconds"),
    [
        ("7", NOON, 7),
        ("86400", NOON, 300),
        ("Wed, 21 Oct 2026 12:00:09 GMT", NOON, 9),
        ("Wednesday, 21-Oct-26 12:00:09 GMT", NOON, 9),
        ("Wed Oct 21 12:00:09 2026", NOON, 9),
        ("Wed, 21 Oct 2026 11:00:00 GMT", NOON, 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", NOON, 300),
        ("Fri, 31 Dec 9999 23:59:59 GMT", "now", 300),
    ],
)
async def test_a_server_says_when_to_come_again_in_seconds_or_by_its_clock(
    fake: FakeOpenAi, header: str, date: str, seconds: float
) -> None:
    fake.manners = Manners(status=503, headers={"Retry-After": header, "Date": date})
    with pytest.raises(EngineBusy) as failure:
        await transcribe(engine("stt", fake))
    assert failure.value.retry_after_s == seconds


@pytest.mark.parametrize(
    "header", ["", "soon", "-1", "nan", "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 99999 07:28:00 GMT"]
)
async def test_a_strange_retry_after_is_none(fake: FakeOpenAi, header: str) -> None:
    fake.manners = Manners(status=429, headers={"Retry-After": header} if header else {}, body=b"\xff{")
    with pytest.raises(EngineBusy) as failure:
        await transcribe(engine("stt", fake))
    assert failure.value.retry_after_s == 0


@pytest.mark.parametrize("answer", [[], "text", {"text": None}, {"words": "hello"}])
async def test_an_answer_without_a_text_is_an_error(fake: FakeOpenAi, answer: Any) -> None:
    fake.manners.answer = answer or [1]
    with pytest.raises(EngineError, match="without a text"):
        await transcribe(engine("stt", fake))


async def test_a_dead_server_is_a_clear_error(fake: FakeOpenAi, unused_tcp_port: int) -> None:
    with egress_policy(HERE):
        recognizer = registry.load("stt", "openai", {"base_url": f"http://127.0.0.1:{unused_tcp_port}/v1"})
    assert f"cannot connect to 127.0.0.1:{unused_tcp_port}" in await recognizer.check()
    with pytest.raises(EngineError, match="cannot connect") as failure:
        await transcribe(recognizer)
    assert failure.value.retryable


async def test_a_slow_server_is_given_up(fake: FakeOpenAi) -> None:
    fake.manners.delay_s = 60
    with pytest.raises(EngineTimeout):
        await transcribe(engine("stt", fake, timeout_s=0.1))
    with pytest.raises(EngineTimeout):
        await said(engine("tts", fake, timeout_s=0.1))


async def test_check_tells_whether_the_server_is_there_and_takes_the_key(fake: FakeOpenAi) -> None:
    tts = engine("tts", fake)
    assert await tts.check() == ""
    fake.manners.status = 401
    assert "refuses the api_key (401)" in await tts.check()
    fake.manners.status = 404
    assert await tts.check() == ""  # not every server has a list of models
    await tts.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0"])
async def test_nobody_reaches_this_machine_unless_the_server_says_so(fake: FakeOpenAi, host: str) -> None:
    base_url = fake.base_url.replace("127.0.0.1", host)
    recognizer = registry.load("stt", "openai", {"base_url": base_url})
    with pytest.raises(EngineError, match="not an address that this server connects to") as failure:
        await transcribe(recognizer)
    assert not failure.value.retryable
    assert fake.heard == []


@pytest.mark.parametrize("kind", ["stt", "tts"])
@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "base_url"),
        ({"base_url": "ftp://models"}, "base_url"),
        ({"base_url": "http://models/v1", "timeout_s": 0}, "timeout_s"),
        ({"base_url": "http://models/v1", "modle": "x"}, "modle"),
    ],
)
def test_wrong_settings_are_named(kind: str, options: Mapping[str, Any], key: str) -> None:
    with pytest.raises(SettingsRefused) as refused:
        registry.load(kind, "openai", options)
    assert [problem[0] for problem in refused.value.problems] == [key]


# Events -----------------------------------------------------------------------------------------------------


async def test_events_are_read_however_they_are_cut() -> None:
    stream = b': hello\n\ndata: {"a": 1}\r\n\r\nevent: x\ndata:one\ndata: two\n\ndata: [DONE]'

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for start in range(0, len(stream), 3):
            await response.write(stream[start : start + 3])
        return response

    async with endpoint_at(answer) as endpoint:
        events = await events_of(endpoint)
    assert events == ['{"a": 1}', "one\ntwo", "[DONE]"]


async def test_a_mark_before_the_first_event_is_none_of_it() -> None:
    reader = EventReader()
    stream = b"\xef\xbb\xbfdata: one\n\n\xef\xbb\xbfdata: two\n\ndata: three\n\n"
    events = [event for at in range(len(stream)) for event in reader.feed(stream[at : at + 1])]
    assert events == ["one", "three"], "a mark in the middle belongs to the name of a field"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_a_line_ends_with_whatever_the_standard_allows(end: bytes, size: int) -> None:
    reader = EventReader()
    stream = end.join((b"data: one", b"data: two", b"", b": a comment", b"data: three", b"", b""))
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [event for piece in pieces for event in reader.feed(piece)] == ["one\ntwo", "three"]


@pytest.mark.parametrize("line", [b"data:\n", b"data:x\n", b"data"])
async def test_an_event_is_as_long_as_what_is_kept_of_it(line: bytes) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            for _ in range(400):
                await response.write(line * 5_000)
        return response

    async with endpoint_at(answer) as endpoint:
        with pytest.raises(EngineError, match="without end"):
            await events_of(endpoint)


async def test_a_server_that_only_sends_space_is_late() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(b"\n")
                await asyncio.sleep(0.02)
        return response

    async with endpoint_at(answer) as endpoint:
        async with asyncio.timeout(10):
            with pytest.raises(EngineTimeout):
                await events_of(endpoint, first_s=0.2, stall_s=60)


async def test_a_server_that_answers_without_end_is_stopped() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"data" * 50_000)
        except ConnectionError:
            return response

    async with endpoint_at(answer) as endpoint:
        with pytest.raises(EngineError, match="without end"):
            await endpoint.post_json("chat", {})
        with pytest.raises(EngineError, match="without end"):
            await events_of(endpoint)


@pytest.mark.parametrize("form", [b"data: %s\n\n", b"%s"], ids=["event", "document"])
async def test_an_answer_of_a_chat_model_is_no_longer_than_anybody_speaks(form: bytes) -> None:
    """All calls wait while it is read."""
    size = 200_000

    async def answer(request: web.Request) -> web.Response:
        body = form % (b'{"choices": [], "padding": "%s"}' % (b"x" * size))
        kind = "text/event-stream" if body.startswith(b"data") else "application/json"
        return web.Response(body=body, content_type=kind)

    async with endpoint_at(answer) as endpoint:
        (data,) = await events_of(endpoint)
        assert len(data) > size
        size = 300_000
        with pytest.raises(EngineError, match="without end"):
            await events_of(endpoint)


async def test_a_form_may_be_longer_than_what_is_spoken() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"padding": "x" * 900_000})

    async with endpoint_at(answer) as endpoint:
        assert len((await endpoint.post_json("chat", {}))["padding"]) == 900_000


async def test_a_kept_connection_that_is_gone_costs_no_request() -> None:
    asked = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if asked == 2:  # as if the server had closed it while nobody used it
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"answer": asked})

    async with endpoint_at(answer) as endpoint:
        assert await endpoint.post_json("chat", {}) == {"answer": 1}
        assert await endpoint.post_json("chat", {}) == {"answer": 3}


async def test_a_kept_connection_that_is_reset_costs_no_request() -> None:
    """What a load balancer does that has forgotten it, or a server that closed it while we wrote."""
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            asked += 1
            if asked == 2:
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                writer.transport.abort()
                return
            body = b'{"answer": %d}' % asked
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            if asked == 3:
                writer.close()
                return

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    endpoint = ModelEndpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", allowed=HERE)
    assert await endpoint.post_json("chat", {}) == {"answer": 1}
    assert await endpoint.post_json("chat", {}) == {"answer": 3}
    await endpoint.close()
    server.close()
    await server.wait_closed()
