"""WAV files as people have them: every depth, several channels, cut short, or something else altogether."""

from __future__ import annotations

import io
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from pipeline.audio import wav

SAMPLES = np.array([0, 1, -1, 255, 256, 12345, -12345, 32767, -32768], np.int16)


def file_of(octets: bytes, width: int, channels: int = 1) -> io.BytesIO:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(8000)
        file.writeframes(octets)
    buffer.seek(0)
    return buffer


def test_what_was_written_is_read(tmp_path: Path) -> None:
    wav.write(tmp_path / "a.wav", SAMPLES, 16000)
    samples, rate_hz = wav.read(tmp_path / "a.wav")
    assert rate_hz == 16000
    assert samples.dtype == np.int16
    assert samples.tolist() == SAMPLES.tolist()


def test_the_same_file_in_memory(tmp_path: Path) -> None:
    wav.write(tmp_path / "a.wav", SAMPLES, 8000)
    assert wav.encoded(SAMPLES, 8000) == (tmp_path / "a.wav").read_bytes()


def test_every_depth_is_read_as_sixteen_bits() -> None:
    wide = SAMPLES.astype(np.int64)
    as_24 = b"".join(int(x * 256).to_bytes(3, "little", signed=True) for x in wide)
    as_32 = (wide * 65536).astype("<i4").tobytes()
    assert wav.read(file_of(as_24, 3))[0].tolist() == SAMPLES.tolist()
    assert wav.read(file_of(as_32, 4))[0].tolist() == SAMPLES.tolist()
    assert wav.read(file_of(bytes([0, 128, 255]), 1))[0].tolist() == [-32768, 0, 32512]


def test_channels_stay_apart_or_are_averaged(tmp_path: Path) -> None:
    left, right = SAMPLES, np.zeros_like(SAMPLES)
    wav.write(tmp_path / "stereo.wav", np.stack((left, right)), 8000)
    channels, rate_hz = wav.read_channels(tmp_path / "stereo.wav")
    assert (channels.shape, rate_hz) == ((2, SAMPLES.size), 8000)
    assert channels[0].tolist() == left.tolist()
    assert channels[1].tolist() == right.tolist()
    assert wav.read(tmp_path / "stereo.wav")[0].tolist() == np.rint(left / 2).tolist()


def test_a_file_cut_short_gives_what_is_there() -> None:
    whole = wav.encoded(SAMPLES, 8000)
    assert wav.read(io.BytesIO(whole[:-5]))[0].tolist() == SAMPLES[:-3].tolist()


def test_an_empty_file_has_no_samples() -> None:
    assert wav.read(io.BytesIO(wav.encoded(np.zeros(0, np.int16), 8000)))[0].size == 0


G711_HEADER = (
    b"RIFF" + struct.pack("<I", 40) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 7, 1, 8000, 8000, 1, 8)
)


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"RIFF",
        b"ID3\x04 this is an mp3 file",
        b"\x00" * 100,
        G711_HEADER + b"data\x04\x00\x00\x00\xff\xff\xff\xff",
    ],
)
def test_anything_else_is_refused_with_a_reason(octets: bytes) -> None:
    with pytest.raises(wav.WavError, match=r"not a PCM WAV file: .+"):
        wav.read(io.BytesIO(octets))


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        wav.read(tmp_path / "none.wav")
