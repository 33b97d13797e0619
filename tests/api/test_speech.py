"""Text-to-speech and speech-to-text as clients use them: a real server, a real voice, a real recogniser."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import pytest_asyncio

from mediaserver.errors import TooLarge
from pipeline.audio.resample import resample
from tests.support.hostile.bombs import BOMBS
from tests.support.node.node import KEY, REAL_ENGINES, SPEECH_KEY, Client, Site, bearer, running, write_site
from tests.support.speech.engines import flite, word_errors
from tests.support.speech.sounds import file_of, played, tone

SPEAK = "/v1/text-to-speech/generate"
HEAR = "/transcribe"
TEXT = "please call me back tomorrow morning"

LIMITS = """
[speech]
keyless_requests_per_minute = 60
keyless_text_characters = 40
text_characters = 12000
upload_mb = 2
audio_s = 30
at_once = 3
"""


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return write_site(tmp_path_factory.mktemp("speech"), engines=REAL_ENGINES, more=LIMITS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(site: Site) -> AsyncIterator[Client]:
    async with running(site) as (_, connected):
        yield connected


def body(**changes: Any) -> dict[str, Any]:
    """A request to speak."""
    return {"text": TEXT, "format": "wav", "chunk_size": 128, **changes}


async def speak(client: Client, key: str = SPEECH_KEY, **changes: Any) -> tuple[int, Any]:
    """Status, and what came: octets, or the error's JSON."""
    async with client.post(SPEAK, json=body(**changes), headers=bearer(key) if key else {}) as answer:
        if answer.status == 200:
            return 200, await answer.read()
        return answer.status, await answer.json()


def form(octets: bytes, **fields: str) -> aiohttp.FormData:
    """A form with a file."""
    data = aiohttp.FormData(fields)
    data.add_field("file", io.BytesIO(octets), filename="speech.wav", content_type="audio/wav")
    return data


async def hear(client: Client, data: Any, key: str = SPEECH_KEY) -> tuple[int, Any]:
    """Status and JSON."""
    async with client.post(HEAR, data=data, headers=bearer(key) if key else {}) as answer:
        return answer.status, await answer.json()


# Text to speech -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wav", "mp3", "ogg", "flac"])
async def test_a_text_is_spoken_in_a_format_that_players_know(client: Client, name: str) -> None:
    async with client.post(SPEAK, json=body(format=name), headers=bearer(SPEECH_KEY)) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == f"audio/{name}"
        assert answer.headers["Transfer-Encoding"] == "chunked"
        samples, rate_hz = played(await answer.read())
        assert str(rate_hz) == answer.headers["X-Sample-Rate"]
    assert 1 < len(samples) / rate_hz < 5
    assert np.abs(samples).max() > 3000


@pytest.mark.parametrize("chunk_size", [128, 32])
async def test_the_sizes_of_the_documentation_are_taken(client: Client, chunk_size: int) -> None:
    status, octets = await speak(client, chunk_size=chunk_size)
    assert status == 200
    assert len(octets) > 44


async def test_python_reads_the_wav_of_a_stream(client: Client) -> None:
    _, octets = await speak(client)
    with wave.open(io.BytesIO(octets)) as opened:
        assert (opened.getnchannels(), opened.getsampwidth()) == (1, 2)


async def test_the_first_sound_is_there_before_the_text_is_done(client: Client) -> None:
    """Ten minutes of speech: the beginning comes at once, and whoever has heard enough goes."""
    text = "This is a sentence that goes on for a while. " * 250
    headers = bearer(SPEECH_KEY)
    async with client.post(SPEAK, json=body(text=text, chunk_size=32), headers=headers) as answer:
        assert answer.status == 200
        first = await answer.content.readexactly(2000)
        assert first.startswith(b"RIFF")
        answer.close()
    status, _ = await speak(client)
    assert status == 200


async def test_a_language_can_be_named(client: Client) -> None:
    assert (await speak(client, text="مَرحَبًا", language="ar"))[0] == 200
    status, error = await speak(client, language="xx")
    assert status == 400
    assert "voice" in error["error"]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"format": "exe"}, 400),
        ({"format": "../wav"}, 400),
        ({"chunk_size": 0}, 400),
        ({"chunk_size": -1}, 400),
        ({"chunk_size": 10**9}, 400),
        ({"text": ""}, 400),
        ({"text": " \n "}, 400),
        ({"text": "x" * 12_001}, 400),
        ({"text": "a\x00b"}, 400),
        ({"text": 1}, 422),
        ({"text": None}, 422),
        ({"format": 1}, 422),
        ({"chunk_size": "128"}, 422),
        ({"chunk_size": 1.5}, 400),
        ({"chunk_size": True}, 422),
        ({"language": "English"}, 422),
        ({"voice": "x"}, 422),
    ],
)
async def test_what_is_wrong_is_named(client: Client, changes: dict[str, Any], status: int) -> None:
    got, error = await speak(client, **changes)
    assert got == status
    assert isinstance(error["error"], str)
    assert set(error) == {"error"}


@pytest.mark.parametrize("field", ["text", "format", "chunk_size"])
async def test_every_field_is_needed(client: Client, field: str) -> None:
    request = body()
    del request[field]
    async with client.post(SPEAK, json=request, headers=bearer(SPEECH_KEY)) as answer:
        assert answer.status == 422
        assert (await answer.json())["error"] == f"{field}: required"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"x"', b"\xff", b"null", b'{"text": NaN}'])
async def test_what_is_no_json_object_is_a_bad_request(client: Client, content: bytes) -> None:
    headers = {**bearer(SPEECH_KEY), "Content-Type": "application/json"}
    async with client.post(SPEAK, data=content, headers=headers) as answer:
        assert answer.status == 400
        assert "error" in await answer.json()


async def test_a_key_is_not_needed_but_must_be_right_and_gives_more(client: Client) -> None:
    assert (await speak(client, key=""))[0] == 200
    status, error = await speak(client, key="", text="x" * 41)
    assert (status, error["error"]) == (400, "text must have at most 40 characters without an API key")
    assert (await speak(client, text="x" * 41))[0] == 200
    assert await speak(client, key="no such key") == (401, {"error": "Invalid API key"})
    assert (await speak(client, key=KEY))[0] == 403  # a key for calls only
    async with client.post(SPEAK, json=body(), headers={"Authorization": "Basic YTpi"}) as answer:
        assert answer.status == 401


async def test_without_a_key_the_rate_is_low_and_says_when_to_come_back(client: Client) -> None:
    for _ in range(30):
        async with client.post(SPEAK, json=body(format="none")) as answer:
            if answer.status == 429:
                assert int(answer.headers["Retry-After"]) >= 1
                break
            assert answer.status == 400
    else:
        pytest.fail("never refused")
    assert (await speak(client))[0] == 200  # with a key it goes on


async def test_too_much_at_once_is_refused_and_places_come_back(client: Client) -> None:
    text = "This is a sentence that goes on for a while. " * 250
    headers = bearer(SPEECH_KEY)
    open_answers = []
    try:
        for _ in range(3):
            answer = await client.post(SPEAK, json=body(text=text), headers=headers)
            assert answer.status == 200
            open_answers.append(answer)
        status, error = await speak(client)
        assert (status, error["error"]) == (429, "No more than 3 requests at once")
    finally:
        for answer in open_answers:
            answer.close()
    async with asyncio.timeout(10):
        while (await speak(client))[0] != 200:
            await asyncio.sleep(0.05)


# Speech to text -------------------------------------------------------------------------------------------


async def test_what_a_voice_says_is_understood(client: Client, tmp_path: Path) -> None:
    samples = await flite(TEXT, tmp_path)
    for octets in (
        file_of(samples, 16000),
        file_of(resample(samples, 16000, 48000), 48000, container="mp3", codec="libmp3lame"),
    ):
        status, answer = await hear(client, form(octets))
        assert status == 200
        assert set(answer) == {"transcription", "confidence"}
        assert word_errors(TEXT, answer["transcription"]) <= 2
        assert 0 < answer["confidence"] <= 1


async def test_silence_is_no_words(client: Client) -> None:
    status, answer = await hear(client, form(file_of(np.zeros(8000, np.int16), 16000)))
    assert status == 200
    assert 0 <= answer["confidence"] <= 1


async def test_ten_milliseconds_are_enough_and_less_is_not(client: Client) -> None:
    assert (await hear(client, form(file_of(tone(8000, 100)[:80], 8000))))[0] == 200
    status, error = await hear(client, form(file_of(tone(8000, 100)[:79], 8000)))
    assert (status, error["error"]) == (400, "Audio must be at least 10 milliseconds long")


@pytest.mark.parametrize("octets", [b"", b"not audio", b"RIFF\xff\xff\xff\xffWAVE", bytes(100_000)])
async def test_what_is_no_audio_is_a_bad_request(client: Client, octets: bytes) -> None:
    status, error = await hear(client, form(octets))
    assert status == 400
    assert error["error"].startswith("Invalid audio file")


@pytest.mark.parametrize("name", [name for name, (octets, _) in BOMBS.items() if len(octets) < 1_000_000])
async def test_a_bomb_is_400_or_413_while_others_are_served(client: Client, name: str) -> None:
    octets, refusal = BOMBS[name]
    answer, (spoken, _) = await asyncio.gather(hear(client, form(octets)), speak(client))
    assert (answer[0], spoken) == (413 if refusal is TooLarge else 400, 200)
    assert set(answer[1]) == {"error"}


async def test_what_is_too_long_or_too_large_is_413(client: Client) -> None:
    long = file_of(np.zeros(8000 * 60, np.int16), 8000, container="flac", codec="flac")
    status, error = await hear(client, form(long))
    assert (status, error["error"]) == (413, "Audio is longer than 30 seconds")
    status, error = await hear(client, form(bytes(2 * 1024 * 1024 + 1)))
    assert (status, error["error"]) == (413, "The file is larger than 2 MiB")


async def test_an_upload_without_a_length_is_cut_off_too(client: Client) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(400):
            yield bytes(64 * 1024)

    headers = {**bearer(SPEECH_KEY), "Content-Type": "multipart/form-data; boundary=x"}
    try:
        async with client.post(HEAR, data=endless(), headers=headers) as answer:
            assert answer.status == 413
    except aiohttp.ClientConnectionError:
        pass  # the server hung up on the rest: as good


@pytest.mark.parametrize("key", ["", "no such key", KEY])
async def test_a_key_for_speech_is_needed(client: Client, key: str) -> None:
    status, error = await hear(client, form(file_of(tone(8000, 100), 8000)), key)
    assert status == (403 if key == KEY else 401)
    assert set(error) == {"error"}


@pytest.mark.parametrize(
    ("content_type", "content"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=x", b""),
        ("multipart/form-data; boundary=x", b"--x\r\n"),
        ("multipart/form-data; boundary=x", b"--x--\r\n"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--x--',
        ),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nb'),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\nContent-Type: multipart/mixed; boundary=y\r\n\r\n--y\r\n",
        ),
        ("multipart/form-data; boundary=x", b"--x\r\n" + b"A" * 100_000),
        ("multipart/form-data; boundary=x", b"--x\r\nA: b\r\n\r\nc\r\n" * 30 + b"--x--"),
    ],
)
async def test_a_form_that_cannot_be_read_is_a_bad_request(
    client: Client, content_type: str, content: bytes
) -> None:
    headers = {**bearer(SPEECH_KEY), "Content-Type": content_type}
    async with client.post(HEAR, data=content, headers=headers) as answer:
        assert answer.status == 400
        assert set(await answer.json()) == {"error"}


@pytest.mark.parametrize("job_id", ["x" * 129, "y" * 10_000])
async def test_a_job_id_has_a_length(client: Client, job_id: str) -> None:
    status, error = await hear(client, form(file_of(tone(8000, 100), 8000), job_id=job_id))
    assert status == 400
    assert error["error"].startswith("job_id")


async def test_a_job_is_done_once_and_its_id_comes_back(client: Client, site: Site) -> None:
    octets, other = file_of(tone(8000, 300), 8000), file_of(tone(8000, 400), 8000)
    first = await hear(client, form(octets, job_id="job-1"))
    assert first[0] == 200
    assert first[1]["job_id"] == "job-1"
    with sqlite3.connect(site.data_dir / "mediaserver.db") as database:
        database.execute("UPDATE transcriptions SET transcription = 'kept' WHERE job_id = 'job-1'")
    database.close()
    status, again = await hear(client, form(octets, job_id="job-1"))
    assert (status, again["transcription"]) == (200, "kept")  # not understood a second time
    status, error = await hear(client, form(other, job_id="job-1"))
    assert status == 409
    assert error["error"] == (
        "This job_id was used with another file in the last 24 hours: send that file again, or this one with "
        "another job_id"
    )
    assert (await hear(client, form(other, job_id="job-2")))[0] == 200


async def test_a_job_sent_twice_at_once_is_done_once(client: Client) -> None:
    octets = file_of(tone(8000, 2000), 8000)
    answers = await asyncio.gather(*(hear(client, form(octets, job_id="twice")) for _ in range(3)))
    assert [status for status, _ in answers] == [200, 200, 200]
    assert len({json.dumps(answer) for _, answer in answers}) == 1
