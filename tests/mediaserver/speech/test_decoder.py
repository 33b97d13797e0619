"""Strangers' audio files: every common format is understood, what pretends to be one does no harm."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from bench.support.processes import children
from mediaserver.errors import InvalidRequest, SpeechFailed, TooLarge, Unavailable
from mediaserver.speech.decoder import Audio, Limits, Reader
from pipeline.confinement.confinement import lacking
from tests.support.hostile.bombs import BOMBS, wav
from tests.support.speech.sounds import file_of, tone
from tests.support.waiting import until

LIMITS = Limits(audio_s=60)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader() -> AsyncIterator[Reader]:
    reading = Reader()
    await reading.start()
    yield reading
    await reading.close()


async def read(reader: Reader, octets: bytes, limits: Limits = LIMITS) -> Audio:
    """What the reader makes of a file; it has an end of its own, however bad the file is."""
    file = os.memfd_create("test")
    try:
        os.write(file, octets)
        os.lseek(file, len(octets) // 2, os.SEEK_SET)  # wherever it is: files are read from their beginning
        return await reader.read(file, limits)
    finally:
        os.close(file)


@pytest.mark.parametrize(
    ("container", "codec", "rate_hz", "channels"),
    [
        ("wav", "pcm_s16le", 8000, 1),
        ("wav", "pcm_mulaw", 8000, 1),
        ("wav", "pcm_alaw", 8000, 2),
        ("wav", "pcm_s24le", 48000, 2),
        ("wav", "pcm_f32le", 44100, 1),
        ("mp3", "libmp3lame", 44100, 2),
        ("ipod", "aac", 44100, 1),  # .m4a
        ("ipod", "alac", 44100, 1),
        ("mp4", "aac", 22050, 2),
        ("adts", "aac", 16000, 1),
        ("ogg", "libopus", 48000, 1),
        ("matroska", "pcm_s16le", 44100, 2),
        ("flac", "flac", 96000, 1),
        ("webm", "libopus", 48000, 2),
        ("aiff", "pcm_s16be", 22050, 1),
        ("au", "pcm_s16be", 8000, 1),
        ("amr", "libopencore_amrnb", 8000, 1),
        ("mpegts", "aac", 48000, 1),
    ],
)
async def test_a_second_of_tone_comes_through_any_format(
    reader: Reader, container: str, codec: str, rate_hz: int, channels: int
) -> None:
    octets = file_of(tone(rate_hz, 1000), rate_hz, container=container, codec=codec, channels=channels)
    audio = await read(reader, octets)
    assert audio.duration_ms == pytest.approx(1000, abs=100)  # codecs pad to whole frames
    assert len(audio.samples) == pytest.approx(16 * audio.duration_ms, abs=40)
    spectrum = np.abs(np.fft.rfft(audio.samples[2000:14000].astype(float)))
    assert spectrum.argmax() * 16000 / 12000 == pytest.approx(440, abs=3)
    assert np.abs(audio.samples).max() == pytest.approx(6000, rel=0.25)


async def test_lengths_are_exact_to_the_sample(reader: Reader) -> None:
    for samples, expected in ((79, 9.875), (80, 10.0), (81, 10.125)):
        audio = await read(reader, file_of(tone(8000, 100)[:samples], 8000))
        assert audio.duration_ms == expected


async def test_a_stream_of_unknown_length_is_read_to_its_end(reader: Reader) -> None:
    octets = bytearray(file_of(tone(8000, 500), 8000))
    at = octets.index(b"data") + 4
    octets[4:8] = octets[at : at + 4] = b"\xff\xff\xff\xff"
    assert (await read(reader, bytes(octets))).duration_ms == 500


async def test_the_file_stays_open_and_several_are_read_at_once(reader: Reader) -> None:
    files = [file_of(tone(8000, 100 * place), 8000) for place in range(1, 7)]
    read_files = await asyncio.gather(*(read(reader, octets) for octets in files))
    assert [audio.duration_ms for audio in read_files] == [100 * place for place in range(1, 7)]


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_is_refused_within_a_second(reader: Reader, name: str) -> None:
    octets, refusal = BOMBS[name]
    await no_forks(reader)
    before_s = cpu_of_forks_s(reader)
    async with asyncio.timeout(60):  # of the clock: whoever waits is told at last, however busy the machine
        with pytest.raises(refusal) as caught:
            await read(reader, octets)
        await no_forks(reader)
    assert caught.type is refusal
    assert cpu_of_forks_s(reader) - before_s < 1  # of CPU: 0.6 is the limit that a fork has
    assert len(str(caught.value)) < 100
    assert (await read(reader, wav())).duration_ms > 0  # and the next file is read as ever


async def test_a_file_that_needs_much_memory_is_refused(reader: Reader) -> None:
    octets, _ = BOMBS["the same, its length not told"]
    with pytest.raises(InvalidRequest, match="memory"):
        await read(reader, octets, Limits(audio_s=3600, memory_mb=4))


@pytest.mark.parametrize(
    "template",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:9,\n{url}/x.ts\n#EXT-X-ENDLIST\n",
        "#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:10.0,\nconcat:{url}/h|file:///etc/hostname\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile '{url}/x.wav'\n",
        "ffconcat version 1.0\nfile '/etc/hostname'\n",
        '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
        'mediaPresentationDuration="PT10S"><Period><AdaptationSet mimeType="audio/mp4">'
        '<Representation id="1" bandwidth="1000"><BaseURL>{url}/x.mp4</BaseURL></Representation>'
        "</AdaptationSet></Period></MPD>",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio {port} RTP/AVP 0\n",
        "[playlist]\nFile1={url}/x.mp3\nNumberOfEntries=1\n",
    ],
)
async def test_a_file_that_names_others_reaches_nothing(reader: Reader, template: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.setblocking(False)
        port = trap.getsockname()[1]
        octets = template.replace("{url}", f"http://127.0.0.1:{port}").replace("{port}", str(port)).encode()
        with pytest.raises(InvalidRequest):
            await read(reader, octets)
        with pytest.raises(BlockingIOError):
            trap.accept()


async def test_damaged_files_are_read_or_refused_and_never_more(reader: Reader) -> None:
    """A hundred files with a few octets changed each: whatever a codec does with them, the server goes on."""
    chance = random.Random(7)
    originals = [
        file_of(tone(rate_hz, 400), rate_hz, container=container, codec=codec)
        for container, codec, rate_hz in (
            ("ipod", "aac", 44100),
            ("ogg", "libopus", 48000),
            ("flac", "flac", 16000),
            ("webm", "libopus", 48000),
            ("mp3", "libmp3lame", 44100),
        )
    ]
    outcomes = {"read": 0, "refused": 0}
    for place in range(100):
        octets = bytearray(originals[place % len(originals)])
        for _ in range(chance.randint(1, 8)):
            octets[chance.randrange(len(octets))] = chance.randrange(256)
        try:
            audio = await read(reader, bytes(octets[: chance.randint(len(octets) // 2, len(octets))]))
        except (InvalidRequest, TooLarge):
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
            assert audio.duration_ms <= 61_000
    assert min(outcomes.values()) > 0
    assert (await read(reader, wav())).duration_ms > 0


async def test_forks_leave_no_children_and_the_server_no_descriptors(reader: Reader) -> None:
    octets = file_of(tone(8000, 100), 8000)
    await read(reader, octets)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        await read(reader, octets)
        with pytest.raises(InvalidRequest):
            await read(reader, b"no")
    assert len(os.listdir("/proc/self/fd")) == before
    await no_forks(reader)


async def no_forks(reader: Reader) -> None:
    await until(lambda: not _children(reader), 60)


def text_of(path: str) -> str:
    return Path(path).read_text()


def _children(reader: Reader) -> list[int]:
    assert reader.pid is not None
    return children(reader.pid)


async def test_a_reader_that_died_is_started_again() -> None:
    reading = Reader()
    octets = file_of(tone(8000, 100), 8000)
    try:
        await read(reading, octets)
        first = reading.pid
        assert first is not None
        os.kill(first, 9)
        await until(lambda: reading.pid is None)
        assert (await read(reading, octets)).duration_ms == 100
        assert reading.pid != first
    finally:
        await reading.close()
    assert reading.pid is None


async def test_a_reader_killed_just_now_is_not_the_clients_fault() -> None:
    reading = Reader()
    octets = file_of(tone(8000, 100), 8000)
    try:
        for _ in range(5):
            await reading.start()
            assert reading.pid is not None
            os.kill(reading.pid, signal.SIGKILL)
            assert (await read(reading, octets)).duration_ms == 100
    finally:
        await reading.close()


def cpu_of_forks_s(reader: Reader) -> float:
    """CPU time of all forks that have ended."""
    user, system = text_of(f"/proc/{reader.pid}/stat").rpartition(")")[2].split()[13:15]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def slow_file(reader: Reader, tmp_path: Path) -> tuple[int, int]:
    """A file whose fork, the only one, waits until something is written into it: both ends."""
    await no_forks(reader)
    path = tmp_path / "slow"
    os.mkfifo(path)
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK), os.open(path, os.O_WRONLY)


async def kill_fork(reader: Reader, before: set[int]) -> set[int]:
    """Kills the fork that reads, as the kernel does where memory runs out; gives all that there were."""
    async with asyncio.timeout(30):
        while not (forks := set(_children(reader)) - before):
            await asyncio.sleep(0.01)
    for fork in forks:
        os.kill(fork, signal.SIGKILL)
    return forks | before


async def test_a_file_whose_fork_was_killed_is_read_by_another(reader: Reader, tmp_path: Path) -> None:
    file, written = await slow_file(reader, tmp_path)
    reading = asyncio.create_task(reader.read(file, LIMITS))
    first = await kill_fork(reader, set())
    await until(lambda: set(_children(reader)) - first)
    os.write(written, file_of(tone(8000, 100), 8000))
    os.close(written)
    assert (await reading).duration_ms == 100
    os.close(file)


async def test_after_two_killed_forks_the_client_is_asked_to_come_back(
    reader: Reader, tmp_path: Path
) -> None:
    file, written = await slow_file(reader, tmp_path)
    reading = asyncio.create_task(reader.read(file, LIMITS))
    await kill_fork(reader, await kill_fork(reader, set()))
    with pytest.raises(Unavailable) as caught:
        await reading
    assert caught.value.retry_after_s > 0
    os.close(written)
    os.close(file)


async def test_a_fork_has_the_file_to_read_and_nothing_else(reader: Reader, tmp_path: Path) -> None:
    file, written = await slow_file(reader, tmp_path)
    reading = asyncio.create_task(reader.read(file, LIMITS))
    async with asyncio.timeout(30):
        while not (forks := _children(reader)):
            await asyncio.sleep(0.01)
        held = Path(f"/proc/{forks[0]}/fd")
        while len(os.listdir(held)) != 5:  # /dev/null twice, the log, the file and where to answer
            await asyncio.sleep(0.01)
    modes = {
        os.readlink(held / each): int(re.findall(r"flags:\t(\d+)", told)[0], 8) & os.O_ACCMODE
        for each in os.listdir(held)
        for told in [text_of(f"/proc/{forks[0]}/fdinfo/{each}")]
    }
    assert modes[str(tmp_path / "slow")] == os.O_RDONLY
    assert sum(name.startswith("socket:") for name in modes) == 1
    await until(lambda: lacking() or "Seccomp_filters:\t2\n" in text_of(f"/proc/{forks[0]}/status"))
    os.close(written)
    with pytest.raises(InvalidRequest):
        await reading
    os.close(file)


async def test_a_reader_that_does_not_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(SpeechFailed, match="does not start"):
        await Reader().start()
    with pytest.raises(Unavailable):
        await read(Reader(), wav())


async def test_a_parser_that_never_ends_is_ended() -> None:
    """In C or in Python: the limit needs no cooperation."""
    code = (
        "from mediaserver.speech.decoder_process import confine\n"
        "confine({'memory_mb': 64, 'cpu_s': 5, 'in_use': 1 << 30})\n"
        "pow(3, 10**9)\n"  # minutes inside one C function
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    async with asyncio.timeout(60):
        assert await process.wait() == -signal.SIGPROF


async def test_what_the_tests_make_is_what_it_says() -> None:
    assert wav().startswith(b"RIFF")
    assert len(BOMBS["ten minutes of silence in 100 KB"][0]) < 110_000
