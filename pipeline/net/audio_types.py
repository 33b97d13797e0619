"""Tells raw samples from audio files and texts in a server's answer: a file played as samples is loud noise.

A container is recognised by its first bytes; MPEG audio and AAC, which have no container, by two frame
headers at the distance that the first one gives (ISO/IEC 11172-3, 2.4.1.3; 13818-7, 6.2); an error message by
being text."""

from __future__ import annotations

from typing import Final

HEAD: Final = 64
"""Number of bytes from which `disguise` can recognise most formats."""

COMPRESSED_TYPES: Final = tuple(
    f"audio/{name}"
    for name in (
        "3gpp", "aac", "aacp", "amr", "flac", "m4a", "mp3", "mp4", "mpeg", "ogg", "opus", "webm", "x-flac",
        "x-m4a", "x-mpeg",
    )
)  # fmt: skip
"""Media types of compressed audio."""

_SIGNS: Final = (
    (b"ID3", "MP3"),
    (b"OggS", "Ogg"),
    (b"fLaC", "FLAC"),
    (b"\x1aE\xdf\xa3", "WebM"),
    (b"FORM", "AIFF"),
    (b"#!AMR", "AMR"),
    (b"\x1f\x8b\x08", "gzip"),
)
_KBPS: Final = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
)  # of layer III, MPEG-1 and the later two
_RATES_HZ: Final = (44100, 48000, 32000)
_MPEG_1: Final = 3
_TEXT: Final = frozenset(b"\t\n\r") | frozenset(range(32, 127))


def disguise(head: bytes, *, whole: bool = False) -> str | None:
    """Names the format of a stream that begins with `head`: "MP3", "text" and the like, "" for samples; None
    if more bytes are needed. `whole`: the stream ends after `head`."""
    if len(head) < HEAD and not whole:
        return None
    return _signed(head) or _framed(head, whole=whole)


def _signed(head: bytes) -> str:
    """The format that the first bytes identify, "" for none."""
    for sign, name in _SIGNS:
        if head.startswith(sign):
            return name
    if head[4:8] == b"ftyp":
        return "MP4"
    return "text" if head and _TEXT.issuperset(head[:HEAD]) else ""


def _framed(head: bytes, *, whole: bool) -> str | None:
    """Whether two frames of MPEG audio or AAC follow each other: "MP3 or AAC" or ""; None if more bytes are
    needed."""
    length = _frame_length(head)
    if not length:
        return ""
    if len(head) < length + 2 and not whole:
        return None
    again = head[length : length + 2]
    alike = again[:1] == b"\xff" and len(again) == 2 and (again[1] ^ head[1]) & 0xFE == 0
    return "MP3 or AAC" if alike or not again else ""


def _frame_length(head: bytes) -> int:
    """Length in bytes of the frame of MPEG audio or AAC at the beginning of `head`; 0 for none."""
    if len(head) < 7 or head[0] != 0xFF or head[1] < 0xE0:
        return 0
    if head[1] & 0xF6 == 0xF0:  # AAC in ADTS
        return (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    kbps, rate = head[2] >> 4, head[2] >> 2 & 3
    if version == 1 or layer != 1 or kbps in (0, 15) or rate == 3:
        return 0
    first = version == _MPEG_1
    rate_hz = _RATES_HZ[rate] >> (0 if first else 1 if version == 2 else 2)
    samples = 144 if first else 72
    return samples * _KBPS[not first][kbps] * 1000 // rate_hz + (head[2] >> 1 & 1)
