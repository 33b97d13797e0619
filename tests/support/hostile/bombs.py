"""Files that are small and mean harm: to memory, to processors, to patience."""

from __future__ import annotations

import random
import struct

import numpy as np

from mediaserver.errors import InvalidRequest, TooLarge
from tests.support.speech.sounds import file_of, tone


def chain(minutes: int) -> bytes:
    """A day of Ogg streams, one after the other, each of some minutes of nothing."""
    piece = file_of(np.zeros(8_000 * 60 * minutes, np.int16), 8_000, container="ogg", codec="libopus")
    return piece * (24 * 60 // minutes)


def cover() -> bytes:
    """An ID3 tag with a picture of 65500 by 65500, of which there is only the header."""
    picture = b"\xff\xd8\xff\xc0\0\x11\x08\xff\xdc\xff\xdc\3\1\x22\0\2\x11\1\3\x11\1"
    frame = b"\0image/jpeg\0\3\0" + picture
    tag = b"APIC" + struct.pack(">IH", len(frame), 0) + frame
    size = len(tag)
    lengths = bytes([size >> 21 & 127, size >> 14 & 127, size >> 7 & 127, size & 127])
    return b"ID3\3\0\0" + lengths + tag


def hidden(octets: bytes) -> bytes:
    """A FLAC file that does not say how long it is."""
    changed = bytearray(octets)
    changed[21] &= 0xF0
    changed[22:26] = bytes(4)
    return bytes(changed)


def wav(*, channels: int = 1, rate_hz: int = 8000) -> bytes:
    """A WAV whose header says anything."""
    header = struct.pack("<HHIIHH", 1, channels, rate_hz, rate_hz * 2, 2, 16)
    return b"RIFF\x24\x3f\0\0WAVEfmt \x10\0\0\0" + header + b"data\0\x3f\0\0" + bytes(0x3F00)


def bombs() -> dict[str, tuple[bytes, type[Exception]]]:
    silence = np.zeros(48_000 * 600, np.int16)
    long = file_of(silence, 48_000, container="flac", codec="flac")
    m4a = file_of(tone(44100, 2000), 44100, container="ipod", codec="aac")
    times = m4a.index(b"stts") + 8
    return {
        "ten minutes of silence in 100 KB": (long, TooLarge),
        "the same, its length not told": (hidden(long), TooLarge),
        "one sample a second": (wav(rate_hz=1), TooLarge),
        "two thousand million samples a second": (wav(rate_hz=2**31 - 1), InvalidRequest),
        "no samples a second": (wav(rate_hz=0), InvalidRequest),
        "65535 channels": (wav(channels=65535), InvalidRequest),
        "no channel": (wav(channels=0), InvalidRequest),
        "a table of a thousand million entries": (
            m4a[:times] + b"\x3f\xff\xff\xff" + m4a[times + 4 :],
            InvalidRequest,
        ),
        "nothing": (b"", InvalidRequest),
        "a header": (wav()[:44], InvalidRequest),
        "zeros": (bytes(20_000_000), InvalidRequest),
        "noise": (random.Random(1).randbytes(5_000_000), InvalidRequest),
        "text": (b"All work and no play makes Jack a dull boy.\n" * 50_000, InvalidRequest),
        "boxes in boxes": (
            b"".join(struct.pack(">I4s", 8 * n, b"moov") for n in range(40_000, 0, -1)),
            InvalidRequest,
        ),
        "a day of silence in a chain of Ogg streams": (chain(1), TooLarge),
        "a chain of empty Ogg streams": (
            b"OggS\0\2" + bytes(20) + b"\1\0" + b"OggS" * 200_000,
            InvalidRequest,
        ),
        "a film of pictures as large as a country": (
            b"YUV4MPEG2 W65535 H65535 F25:1\nFRAME\n" + bytes(100_000),
            InvalidRequest,
        ),
        "a moving picture as large": (
            b"GIF89a\xff\xff\xff\xff\xf7\0\0" + bytes(768) + b",\0\0\0\0\xff\xff\xff\xff\0\x08\xff" * 1000,
            InvalidRequest,
        ),
        "a song with such a cover": (cover() + bytes(10_000), InvalidRequest),
        "a WAV that says four hours and has none": (
            wav(rate_hz=8000)[:40] + struct.pack("<I", 8000 * 2 * 3600 * 4),
            InvalidRequest,
        ),
        "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(1000), InvalidRequest),
        "a zip": (b"PK\x03\x04" + bytes(1000), InvalidRequest),
    }


BOMBS = bombs()
