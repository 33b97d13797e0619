"""Recordings: both channels where they belong, a valid file whatever happens."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import threading
import wave
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.errors import LocalError, RecordingError
from pipeline.media.recording import BLOCK_S, Recording, RecordingWriter

RATE_HZ = 8000
FRAME = 160


@pytest.fixture
async def writer() -> AsyncIterator[RecordingWriter]:
    writer = RecordingWriter()
    writer.start()
    yield writer
    await writer.close()


def frame(value: int) -> Pcm:
    return np.full(FRAME, value, np.int16)


def read(path: Path) -> Pcm:
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (2, 2, RATE_HZ)
        data = file.readframes(file.getnframes())
        assert len(data) == file.getnframes() * 4
    return np.frombuffer(data, np.int16).reshape(-1, 2)


def noise(samples: int, seed: int) -> Pcm:
    return np.random.default_rng(seed).integers(-9000, 9000, samples).astype(np.int16)


def delay_of(part: Pcm, whole: Pcm) -> int:
    """Where `part` lies in `whole`, by cross-correlation."""
    return int(np.argmax(np.correlate(whole.astype(np.float64), part.astype(np.float64), "valid")))


def call(recording: Recording, seconds: float, *, late: dict[int, float] | None = None) -> tuple[Pcm, Pcm]:
    """The caller from 0.5 s on, arriving with jitter; the agent from 1.25 s on, sent with jitter."""
    dice = np.random.default_rng(3)
    caller, agent = noise(RATE_HZ * 2, 1), noise(RATE_HZ, 2)
    for tick in range(int(seconds * 50)):
        now = 100.0 + tick * 0.02
        at = tick - 25
        if 0 <= at < 100:
            arrives = now + 0.02 + dice.uniform(0, 0.03) * (at > 0) + (late or {}).get(at, 0.0)
            recording.caller(caller[at * FRAME : (at + 1) * FRAME], 4800 + at * FRAME, arrives)
        at = tick - 62
        if 0 <= at < 50:
            recording.agent(
                agent[at * FRAME : (at + 1) * FRAME], now + dice.uniform(-0.004, 0.004) * (at > 0)
            )
    return caller, agent


async def test_both_channels_lie_where_they_were_heard(writer: RecordingWriter, tmp_path: Path) -> None:
    recording = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=100.0)
    caller, agent = call(recording, 4)
    stereo = read(await recording.close(104.0))
    assert len(stereo) == 4 * RATE_HZ
    assert delay_of(caller[:4000], stereo[:, 0]) == pytest.approx(0.5 * RATE_HZ, abs=1)
    assert delay_of(agent[:4000], stereo[:, 1]) == pytest.approx(1.24 * RATE_HZ, abs=1)
    assert (stereo[4000:20000, 0] == caller).all()  # jitter has not moved a sample
    assert (stereo[9920:17920, 1] == agent).all()
    assert not stereo[:3900].any()


async def test_a_first_packet_that_was_late_is_put_right(writer: RecordingWriter, tmp_path: Path) -> None:
    recording = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=100.0)
    caller, _ = call(recording, 4, late={0: 0.3})
    stereo = read(await recording.close())
    assert delay_of(caller[4000:8000], stereo[:, 0]) == pytest.approx(
        0.5 * RATE_HZ + 4000, abs=0.031 * RATE_HZ
    )


async def test_a_burst_of_late_packets_moves_nothing(writer: RecordingWriter, tmp_path: Path) -> None:
    recording = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=100.0)
    caller, _ = call(recording, 4, late={index: 0.4 - 0.02 * (index - 30) for index in range(30, 50)})
    stereo = read(await recording.close())
    assert (stereo[4000:20000, 0] == caller).all()


async def test_a_pause_of_the_agent_is_silence_of_its_length(writer: RecordingWriter, tmp_path: Path) -> None:
    recording = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=0.0)
    recording.agent(frame(1), 0.0)
    recording.agent(frame(2), 0.5)
    recording.agent(frame(3), 0.51)
    stereo = read(await recording.close())[:, 1]
    assert stereo[0] == 1
    assert stereo[4000] == 2
    assert stereo[4000 + FRAME] == 3
    assert not stereo[FRAME:4000].any()


async def test_a_long_hold_is_in_the_file_and_costs_no_memory(
    writer: RecordingWriter, tmp_path: Path
) -> None:
    recording = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=0.0)
    recording.agent(frame(1), 0.0)
    recording.agent(frame(2), 120.0)
    stereo = read(await recording.close())
    assert stereo[120 * RATE_HZ, 1] == 2
    assert len(stereo) == 120 * RATE_HZ + FRAME


async def test_one_thread_writes_all(writer: RecordingWriter, tmp_path: Path) -> None:
    before = threading.active_count()
    recordings = [writer.open(tmp_path / f"{n}.wav", rate_hz=RATE_HZ, now=0.0) for n in range(20)]
    for tick in range(150):
        for n, recording in enumerate(recordings):
            recording.agent(frame(n + 1), tick * 0.02)
    assert threading.active_count() == before
    for n, recording in enumerate(recordings):
        stereo = read(await recording.close())
        assert set(stereo[:, 1]) == {n + 1}


async def test_closing_twice_is_closing_once(writer: RecordingWriter, tmp_path: Path) -> None:
    recording = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=0.0)
    assert await recording.close() == await recording.close() == tmp_path / "a.wav"
    assert len(read(tmp_path / "a.wav")) == 0


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    """A path whose disk hangs until `freed`."""
    path = tmp_path / "hanging.wav"
    os.mkfifo(path)
    yield path
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


async def freed(path: Path) -> None:
    """The disk is back, as soon as the writer waits for it; a pipe takes no recording, though."""
    os.close(await asyncio.to_thread(os.open, path, os.O_RDONLY))


async def test_a_disk_that_is_too_slow_loses_sound_but_not_time(tmp_path: Path, hanging: Path) -> None:
    writer = RecordingWriter(max_waiting=2)
    writer.start()
    blocking = writer.open(hanging, rate_hz=RATE_HZ, now=0.0)
    recording = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=0.0)
    for tick in range(110):
        blocking.agent(frame(1), tick * 0.02)
    for tick in range(500):
        recording.agent(frame(7), tick * 0.02)
    assert recording.lost_blocks > 0
    await freed(hanging)
    with pytest.raises(RecordingError, match=r"hanging\.wav"):
        await blocking.close()
    stereo = read(await recording.close())[:, 1]
    assert len(stereo) == 500 * FRAME
    silent = int((stereo == 0).sum())
    assert silent == recording.lost_blocks * int(BLOCK_S * RATE_HZ)
    assert stereo[-1] == 7
    await writer.close()


@pytest.mark.parametrize("what", ["call", "server"])
async def test_a_disk_that_hangs_is_not_waited_for_at_the_end(
    hanging: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    monkeypatch.setattr("pipeline.media.recording.CLOSE_S", 0.05)
    writer = RecordingWriter()
    writer.start()
    recording = writer.open(hanging, rate_hz=RATE_HZ, now=0.0)
    recording.agent(frame(1), 0.0)
    recording.end()
    if what == "call":
        with pytest.raises(RecordingError, match="does not answer"):
            await recording.close()
    else:
        await writer.close()
        assert "recordings are not written to their end" in caplog.text
    await freed(hanging)
    with pytest.raises(RecordingError, match=r"hanging\.wav"):
        await recording.done
    await writer.close()


async def test_a_full_disk_is_told_at_the_end_and_does_not_stop_the_call(
    writer: RecordingWriter, tmp_path: Path
) -> None:
    recording = writer.open(Path("/dev/full"), rate_hz=RATE_HZ, now=0.0)
    for tick in range(500):
        recording.agent(frame(1), tick * 0.02)
    with pytest.raises(RecordingError, match="full"):
        await recording.close()
    fine = writer.open(tmp_path / "fine.wav", rate_hz=RATE_HZ, now=0.0)
    fine.agent(frame(1), 0.0)
    assert len(read(await fine.close())) == FRAME


def limit_files(size: int) -> None:
    """Files of this process grow no larger: what a full disk says of the next byte, and of half a block."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@contextmanager
def full_after(size: int) -> Iterator[None]:
    limit_files(size)
    try:
        yield
    finally:
        limit_files(resource.RLIM_INFINITY)


async def test_what_was_recorded_before_the_disk_filled_is_kept(
    writer: RecordingWriter, tmp_path: Path
) -> None:
    recording = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=0.0)
    with full_after(44 + RATE_HZ * 4 * 5 // 2):  # two seconds and a half
        for tick in range(500):
            recording.agent(frame(1 + tick), tick * 0.02)
        with pytest.raises(RecordingError) as refused:
            await recording.close(10.0)
    assert refused.value.path == tmp_path / "a.wav"
    stereo = read(tmp_path / "a.wav")[:, 1]
    assert len(stereo) == RATE_HZ * 5 // 2
    assert (stereo == np.repeat(np.arange(1, 126), FRAME)).all()


async def test_a_recording_goes_on_at_its_time_when_there_is_room_again(
    writer: RecordingWriter, tmp_path: Path
) -> None:
    recording = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=0.0)
    with full_after(44 + RATE_HZ * 4 * 2):
        for tick in range(300):
            recording.agent(frame(1), tick * 0.02)
        while writer._taken < writer._put:
            await asyncio.sleep(0.01)
    for tick in range(300, 500):
        recording.agent(frame(1), tick * 0.02)
    with pytest.raises(RecordingError):
        await recording.close(10.0)
    stereo = read(tmp_path / "a.wav")[:, 1]
    assert len(stereo) == RATE_HZ * 10
    silent = np.flatnonzero(stereo == 0)
    assert silent[0] == RATE_HZ * 2
    assert len(silent) == silent[-1] - silent[0] + 1  # one hole, as long as the disk was full
    assert RATE_HZ * 2 <= len(silent) <= RATE_HZ * 4


async def test_a_path_that_cannot_be_is_told_at_the_end(writer: RecordingWriter, tmp_path: Path) -> None:
    recording = writer.open(tmp_path / "missing" / "a.wav", rate_hz=RATE_HZ, now=0.0)
    recording.agent(frame(1), 0.0)
    with pytest.raises(RecordingError, match="missing"):
        await recording.close()


async def test_a_file_that_could_not_be_created_is_created_when_it_can_be(
    writer: RecordingWriter, tmp_path: Path
) -> None:
    path = tmp_path / "missing" / "a.wav"
    recording = writer.open(path, rate_hz=RATE_HZ, now=0.0)
    for tick in range(150):
        recording.agent(frame(1), tick * 0.02)
    while writer._taken < writer._put:
        await asyncio.sleep(0.01)
    path.parent.mkdir()
    for tick in range(150, 300):
        recording.agent(frame(1), tick * 0.02)
    with pytest.raises(RecordingError) as refused:
        await recording.close()
    assert refused.value.path == path
    assert path.stat().st_mode & 0o777 == 0o600
    stereo = read(path)[:, 1]
    assert len(stereo) == 300 * FRAME
    assert not stereo[:RATE_HZ].any()
    assert stereo[2 * RATE_HZ :].all()


async def test_a_recording_goes_on_where_it_stood(writer: RecordingWriter, tmp_path: Path) -> None:
    first = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=100.0)
    first.agent(frame(1), 100.0)
    path = await first.close(100.5)
    second = await writer.resume(path, rate_hz=RATE_HZ, now=100.0)
    second.agent(frame(2), 101.0)
    stereo = read(await second.close())[:, 1]
    assert stereo[0] == 1
    assert stereo[RATE_HZ] == 2
    assert len(stereo) == RATE_HZ + FRAME
    with pytest.raises(OSError, match="missing"):
        await writer.resume(tmp_path / "missing.wav", rate_hz=RATE_HZ, now=0.0)


async def test_a_recording_goes_on_when_the_disk_has_written_its_end(
    writer: RecordingWriter, tmp_path: Path, hanging: Path
) -> None:
    writer.open(hanging, rate_hz=RATE_HZ, now=100.0).end()
    first = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=100.0)
    first.agent(frame(1), 100.0)
    first.end()
    going_on = asyncio.create_task(writer.resume(first.path, rate_hz=RATE_HZ, now=100.0))
    await asyncio.sleep(0)
    await freed(hanging)
    second = await going_on
    second.agent(frame(2), 101.0)
    stereo = read(await second.close())[:, 1]
    assert (stereo[0], stereo[RATE_HZ]) == (1, 2)


async def test_a_writer_that_was_not_started_is_a_bug(tmp_path: Path) -> None:
    with pytest.raises(LocalError):
        RecordingWriter().open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=0.0)


CRASH = """
import asyncio, os, pathlib, sys, time
import numpy as np
from pipeline.media.recording import RecordingWriter
async def main():
    writer = RecordingWriter(); writer.start()
    recording = writer.open(pathlib.Path(sys.argv[1]), rate_hz=8000, now=0.0)
    for tick in range(50 * 20):
        recording.agent(np.full(160, 5, np.int16), tick * 0.02)
    while writer._put != writer._taken:
        await asyncio.sleep(0.01)
    os._exit(9)
asyncio.run(main())
"""


def test_what_a_crash_leaves_is_a_valid_file(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    done = subprocess.run([sys.executable, "-c", CRASH, str(path)], check=False, timeout=60)
    assert done.returncode == 9
    stereo = read(path)
    assert len(stereo) >= 13 * RATE_HZ  # 20 s, less what was in memory and the header's last stretch
    assert set(stereo[:, 1]) == {5}


async def test_close_waits_for_what_is_under_way(tmp_path: Path) -> None:
    writer = RecordingWriter()
    writer.start()
    recording = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=0.0)
    recording.agent(frame(1), 0.0)
    recording.end()
    await writer.close()
    assert len(read(tmp_path / "a.wav")) == FRAME
    await asyncio.sleep(0)
    assert recording.done.done()


async def test_little_of_a_recording_waits_in_memory_while_both_are_heard(
    writer: RecordingWriter, tmp_path: Path
) -> None:
    recording = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=0.0)
    most = 0
    for tick in range(500):
        recording.agent(frame(1), tick * 0.02)
        recording.caller(frame(2), tick * FRAME, tick * 0.02 + 0.02)
        await asyncio.sleep(0)
        most = max(most, len(recording._blocks))
    assert most <= 2
    stereo = read(await recording.close(10.0))
    assert (stereo == (2, 1)).all()
    assert recording.lost_blocks == 0


async def test_frames_told_a_second_late_lie_where_they_were_heard(
    writer: RecordingWriter, tmp_path: Path
) -> None:
    """A loop that stood still for a second tells first of the one channel, then of the other."""
    recording = writer.open(tmp_path / "a.wav", rate_hz=RATE_HZ, now=0.0)
    for second in range(4):
        ticks = range(second * 50, second * 50 + 50)
        for tick in ticks:
            recording.caller(frame(2 + tick), tick * FRAME, tick * 0.02 + 0.02)
        for tick in ticks:
            recording.agent(frame(1 + tick), tick * 0.02)
        await asyncio.sleep(0)
    stereo = read(await recording.close(4.0))
    assert (stereo[::FRAME, 0] == np.arange(2, 202)).all()
    assert (stereo[::FRAME, 1] == np.arange(1, 201)).all()
