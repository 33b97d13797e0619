"""Audio files that are sent while they are made: nothing in them is known only at the end.

Raw formats (pcm, mulaw) and WAV are written here; MP3, Ogg (Opus) and FLAC by FFmpeg (PyAV) into a sink that
cannot seek, so lengths that stand in a header stay unknown: 0xFFFFFFFF in WAV, as FFmpeg and browsers take
for "until the end", 0 in FLAC.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import av
import numpy as np

from pipeline.audio import Pcm, kernels
from pipeline.audio.resample import Resampler

UNKNOWN_LENGTH = 0xFFFFFFFF


class Encoder(ABC):
    """Encodes one file piece by piece. Not for the event loop: compressing takes a few milliseconds per
    second of audio."""

    @abstractmethod
    def encode(self, samples: Pcm) -> bytes:
        """Returns the octets to send after `samples` (int16 at the voice's rate); may be empty."""

    def finish(self) -> bytes:
        """Ends the file; returns its last octets: none, where each sample has been returned."""
        return b""


@dataclass(frozen=True, slots=True)
class Format:
    """A format by its name in requests. `rate_hz`: 0 is the voice's own; `make` makes an encoder for a
    voice's rate."""

    name: str
    rate_hz: int
    make: Callable[[int], Encoder]

    @property
    def content_type(self) -> str:
        """The value of the response's Content-Type header."""
        return f"audio/{self.name}"

    def sent_hz(self, voice_hz: int) -> int:
        """Returns the sample rate that the client gets for a voice of `voice_hz`."""
        return self.rate_hz or voice_hz


class RawPcm(Encoder):
    """Raw 16-bit little-endian samples, mono, at 24000 Hz."""

    RATE_HZ = 24000

    def __init__(self, voice_hz: int) -> None:
        self._resample = Resampler(voice_hz, self.RATE_HZ)

    def encode(self, samples: Pcm) -> bytes:
        """Returns `samples` resampled to `RATE_HZ`, without a header."""
        return self._resample(samples).astype("<i2", copy=False).tobytes()


class RawMulaw(Encoder):
    """Raw G.711 µ-law at 8000 Hz, mono, one octet per sample."""

    RATE_HZ = 8000

    def __init__(self, voice_hz: int) -> None:
        self._resample = Resampler(voice_hz, self.RATE_HZ)

    def encode(self, samples: Pcm) -> bytes:
        """Returns `samples` resampled to `RATE_HZ`, one octet each."""
        narrow = self._resample(samples)
        coded = np.empty(len(narrow), np.uint8)
        kernels.ulaw_encode(narrow, coded)
        return coded.tobytes()


class Wav(Encoder):
    """RIFF/WAVE, PCM, 16 bit, mono, at the voice's rate."""

    def __init__(self, voice_hz: int) -> None:
        self._header = wav_header(voice_hz)

    def encode(self, samples: Pcm) -> bytes:
        """Returns `samples` as they are, the first ones behind the header."""
        header, self._header = self._header, b""
        return header + samples.astype("<i2", copy=False).tobytes()


def wav_header(rate_hz: int) -> bytes:
    """Returns the 44 octets before the samples of a stream of unknown length (RIFF and data length
    0xFFFFFFFF)."""
    chunk = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate_hz, rate_hz * 2, 2, 16)
    riff = struct.pack("<4sI4s", b"RIFF", UNKNOWN_LENGTH, b"WAVE")
    return riff + chunk + struct.pack("<4sI", b"data", UNKNOWN_LENGTH)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings of FFmpeg for one format. `codec_rate_hz`: 0 is the voice's own; `sample`: the codec's sample
    format."""

    container: str
    codec: str
    sample: str
    codec_rate_hz: int = 0
    bit_rate: int = 0
    options: Mapping[str, str] = field(default_factory=dict)


class Sink:
    """The file that FFmpeg writes to; without a `seek`, so that FFmpeg does not seek either."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def write(self, data: Any) -> int:
        """Keeps what FFmpeg writes until `taken`; returns its length in octets."""
        self._kept += bytes(data)
        return len(data)

    def taken(self) -> bytes:
        """Returns everything written since the last call."""
        taken, self._kept = bytes(self._kept), bytearray()
        return taken


class Compressed(Encoder):
    """Encodes with a container and a codec of FFmpeg, at the recipe's rate."""

    def __init__(self, recipe: Recipe, voice_hz: int) -> None:
        self._voice_hz = voice_hz
        self._rate_hz = recipe.codec_rate_hz or voice_hz
        self._sink = Sink()
        self._given = 0
        options = {"flush_packets": "1", **recipe.options}
        self._file = av.open(self._sink, "w", format=recipe.container, options=options)
        stream: Any = self._file.add_stream(recipe.codec, rate=self._rate_hz, layout="mono")
        if recipe.bit_rate:
            stream.bit_rate = recipe.bit_rate
        self._stream = stream
        self._resample = av.AudioResampler(format=recipe.sample, layout="mono", rate=self._rate_hz)

    def encode(self, samples: Pcm) -> bytes:
        """Returns the octets that FFmpeg wrote after `samples`; it may hold some back until the next."""
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = self._voice_hz
        frame.pts = self._given
        frame.time_base = Fraction(1, self._voice_hz)
        self._given += len(samples)
        self._mux(frame)
        return self._sink.taken()

    def finish(self) -> bytes:
        """Flushes the codec and ends the container; returns their last octets."""
        self._mux(None)
        self._file.mux(self._stream.encode(None))
        self._file.close()
        return self._sink.taken()

    def _mux(self, frame: Any) -> None:
        for resampled in self._resample.resample(frame):
            self._file.mux(self._stream.encode(resampled))


MP3 = Recipe("mp3", "libmp3lame", "s16p", bit_rate=64_000, options={"write_xing": "0", "id3v2_version": "0"})
OGG = Recipe(  # a player gets a page at a time; FFmpeg's default is a second
    "ogg", "libopus", "s16", codec_rate_hz=48_000, bit_rate=32_000, options={"page_duration": "100000"}
)
FLAC = Recipe("flac", "flac", "s16")

FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format("wav", 0, Wav),
        Format("mp3", 0, lambda voice_hz: Compressed(MP3, voice_hz)),
        Format("ogg", OGG.codec_rate_hz, lambda voice_hz: Compressed(OGG, voice_hz)),
        Format("flac", 0, lambda voice_hz: Compressed(FLAC, voice_hz)),
        Format("pcm", RawPcm.RATE_HZ, RawPcm),
        Format("mulaw", RawMulaw.RATE_HZ, RawMulaw),
    )
}
"""Every format of a request. MP3 is made at the voice's rate, which must then be one of MPEG's (espeak-ng's
22050 Hz is)."""
