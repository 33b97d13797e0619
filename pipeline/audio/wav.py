"""Reads and writes whole PCM WAV files; `pipeline.media.recording` writes those of calls, while they last."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from pipeline.audio import Pcm
from pipeline.errors import PipelineError


class WavError(PipelineError):
    """The file is no PCM WAV file; the message names the reason."""


def read(source: str | Path | BinaryIO) -> tuple[Pcm, int]:
    """Reads a PCM file of 8, 16, 24 or 32 bits: gives int16 mono samples, the mean of several channels, and
    the rate in Hz.

    Raises `WavError` for any other file, OSError when the file cannot be opened.
    """
    channels, rate_hz = read_channels(source)
    if channels.shape[0] == 1:
        return channels[0], rate_hz
    return np.rint(channels.mean(axis=0)).astype(np.int16), rate_hz


def read_channels(source: str | Path | BinaryIO) -> tuple[npt.NDArray[np.int16], int]:
    """Reads like `read`, but gives every channel: int16 of shape (channels, samples), and the rate in Hz."""
    try:
        with wave.open(str(source) if isinstance(source, Path) else source, "rb") as file:
            width, count, rate_hz = file.getsampwidth(), file.getnchannels(), file.getframerate()
            octets = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise WavError(f"not a PCM WAV file: {str(error) or 'it ends too early'}") from error
    if rate_hz <= 0:
        raise WavError(f"not a PCM WAV file: its rate is {rate_hz} Hz")
    whole = len(octets) - len(octets) % (width * count)
    samples = _linear(octets[:whole], width)
    return np.ascontiguousarray(samples.reshape(-1, count).T), rate_hz


def write(target: str | Path | BinaryIO, samples: npt.NDArray[np.int16], rate_hz: int) -> None:
    """Writes a 16-bit file of `samples`: shape (n,) for mono, (channels, n) for several channels. Raises
    OSError."""
    interleaved = np.atleast_2d(samples)
    with wave.open(str(target) if isinstance(target, Path) else target, "wb") as file:
        file.setnchannels(interleaved.shape[0])
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(np.ascontiguousarray(interleaved.T, "<i2").tobytes())


def encoded(samples: npt.NDArray[np.int16], rate_hz: int) -> bytes:
    """Gives a 16-bit WAV file of `samples` as bytes, for an HTTP body."""
    buffer = io.BytesIO()
    write(buffer, samples, rate_hz)
    return buffer.getvalue()


def _linear(octets: bytes, width: int) -> Pcm:
    """Converts little-endian samples of `width` octets to int16 by their upper 16 bits; 8-bit WAV is
    unsigned."""
    if width == 1:
        return (np.frombuffer(octets, np.uint8).astype(np.int16) - 128) << 8
    raw = np.frombuffer(octets, np.uint8).reshape(-1, width)
    return np.ascontiguousarray(raw[:, -2:]).view("<i2").reshape(-1).astype(np.int16)
