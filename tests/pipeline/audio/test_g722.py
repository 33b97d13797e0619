"""G.722 against three other implementations: FFmpeg's, spandsp's, and the files of Debian's announcer."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
import numpy.typing as npt
import pytest

from pipeline.audio import Pcm, g722
from tests.support.speech.media import snr_db

Octets = npt.NDArray[np.uint8]
Codec = Callable[[Any], Any]

SOUNDS = Path("/usr/share/asterisk/sounds/en_US_f_Allison")
SAID = ("vm-goodbye", "agent-alreadyon", "conf-getpin", "demo-congrats")
DELAY = 22
"""Samples by which both filters together are late."""


def people() -> Octets:
    """The announcer, coded by whoever made the Debian package, in whole frames."""
    octets = np.concatenate([np.fromfile(SOUNDS / f"{name}.g722", np.uint8) for name in SAID])
    return octets[: len(octets) // 160 * 160]


def decoded(octets: Octets, *, at_once: int = 160) -> Pcm:
    row, out = np.zeros(g722.COLUMNS, np.int32), np.zeros(2 * len(octets), np.int16)
    g722.g722_init(row)
    for at in range(0, len(octets), at_once):
        g722.g722_decode(octets[at : at + at_once], out[2 * at :], row)
    return out


def encoded(samples: Pcm, *, at_once: int = 320) -> Octets:
    row, out = np.zeros(g722.COLUMNS, np.int32), np.zeros(len(samples) // 2, np.uint8)
    g722.g722_init(row)
    for at in range(0, len(samples), at_once):
        g722.g722_encode(samples[at : at + at_once], out[at // 2 :], row)
    return out


def ffmpeg(mode: Literal["r", "w"]) -> Any:
    context: Any = av.CodecContext.create("g722", mode)
    context.sample_rate, context.layout = 16000, "mono"
    if mode == "w":
        context.format, context.time_base = "s16", Fraction(1, 16000)
    context.open()
    return context


def ffmpeg_decoded(octets: Octets) -> Pcm:
    context = ffmpeg("r")
    packets = (av.Packet(octets[at : at + 160].tobytes()) for at in range(0, len(octets), 160))
    return np.concatenate(
        [each.to_ndarray().ravel() for packet in packets for each in context.decode(packet)]
    )


def ffmpeg_encoded(samples: Pcm) -> Octets:
    context, coded = ffmpeg("w"), b""
    for at in range(0, len(samples), 320):
        frame = av.AudioFrame.from_ndarray(samples[None, at : at + 320], format="s16", layout="mono")
        frame.sample_rate, frame.pts = 16000, at
        coded += b"".join(bytes(packet) for packet in context.encode(frame))
    return np.frombuffer(coded, np.uint8)


@cache
def spandsp() -> Any:
    """The library that baresip's G.722 is."""
    library = ctypes.CDLL(ctypes.util.find_library("spandsp") or "libspandsp.so.2")
    pointer = ctypes.c_void_p
    for name in ("g722_decode", "g722_encode"):
        getattr(library, f"{name}_init").restype = pointer
        getattr(library, f"{name}_init").argtypes = [pointer, ctypes.c_int, ctypes.c_int]
        getattr(library, f"{name}_release").argtypes = [pointer]
        getattr(library, name).argtypes = [pointer, pointer, pointer, ctypes.c_int]
    return library


def spandsp_decoded(octets: Octets) -> Pcm:
    out = np.zeros(2 * len(octets), np.int16)
    state = spandsp().g722_decode_init(None, 64000, 0)
    assert spandsp().g722_decode(state, out.ctypes.data, octets.ctypes.data, len(octets)) == len(out)
    spandsp().g722_decode_release(state)
    return out


def spandsp_encoded(samples: Pcm) -> Octets:
    out = np.zeros(len(samples) // 2, np.uint8)
    state = spandsp().g722_encode_init(None, 64000, 0)
    assert spandsp().g722_encode(state, out.ctypes.data, samples.ctypes.data, len(samples)) == len(out)
    spandsp().g722_encode_release(state)
    return out


@pytest.mark.parametrize("other", [ffmpeg_decoded, spandsp_decoded])
def test_a_persons_octets_are_decoded_to_the_sample_as_others_decode_them(other: Codec) -> None:
    octets = people()
    assert len(octets) > 100_000
    assert np.array_equal(decoded(octets), other(octets))


@pytest.mark.parametrize("seed", range(4))
def test_any_octets_are_decoded_to_the_sample_as_ffmpeg_decodes_them(seed: int) -> None:
    octets = np.random.default_rng(seed).integers(0, 256, 160 * 200, dtype=np.uint8)
    assert np.array_equal(decoded(octets), ffmpeg_decoded(octets))


@pytest.mark.parametrize("other", [ffmpeg_encoded, spandsp_encoded])
def test_a_persons_speech_is_encoded_to_the_octet_as_others_encode_it(other: Codec) -> None:
    said = decoded(people())
    assert np.array_equal(encoded(said), other(said))


def test_noise_at_full_scale_is_encoded_as_spandsp_encodes_it() -> None:
    loudest = np.random.default_rng(7).integers(-32768, 32768, 32000).astype(np.int16)
    assert np.array_equal(encoded(loudest), spandsp_encoded(loudest))


def test_others_decode_our_speech_as_well_as_their_own() -> None:
    said = decoded(people())
    own = snr_db(ffmpeg_decoded(ffmpeg_encoded(said)), said, search=DELAY + 1)
    for other in (ffmpeg_decoded, spandsp_decoded):
        assert snr_db(other(encoded(said)), said, search=DELAY + 1) >= own > 15


def test_a_stream_is_the_same_however_it_is_cut() -> None:
    octets = people()[:16000]
    said = decoded(octets)
    assert np.array_equal(decoded(octets, at_once=80), said)
    assert np.array_equal(decoded(octets, at_once=16000), said)
    assert np.array_equal(encoded(said, at_once=32), encoded(said))


def test_streams_are_rows_of_one_table() -> None:
    octets = people()[:8000]
    rows, out = np.zeros((3, g722.COLUMNS), np.int32), np.zeros((3, 16000), np.int16)
    for row in rows:
        g722.g722_init(row)
    for at in range(0, 8000, 160):
        for row, heard, part in zip(rows, out, (octets, octets[::-1].copy(), octets), strict=True):
            g722.g722_decode(part[at : at + 160], heard[2 * at :], row)
    assert np.array_equal(out[0], decoded(octets))
    assert np.array_equal(out[0], out[2])


def test_silence_is_quiet_and_stays_so() -> None:
    heard = decoded(encoded(np.zeros(16000 * 5, np.int16)))
    assert np.abs(heard).max() < 40


def test_what_does_not_fit_is_cut() -> None:
    row = np.zeros(g722.COLUMNS, np.int32)
    g722.g722_init(row)
    room = np.full(8, 77, np.int16)
    g722.g722_decode(np.zeros(1000, np.uint8), room[:5], row)
    assert room[4:].tolist() == [77] * 4
    octets = np.full(8, 77, np.uint8)
    g722.g722_encode(np.zeros(1000, np.int16), octets[:3], row)
    assert octets[3:].tolist() == [77] * 5
    g722.g722_encode(np.zeros(5, np.int16), octets, row)
    assert octets[3:].tolist() == [77] * 5
