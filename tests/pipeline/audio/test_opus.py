"""Opus: what is lost comes out of the FEC, what is no Opus is refused, compiled code can call it alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pipeline.audio import Pcm, opus, wav
from pipeline.audio.opus import RATE_HZ, BadPacket, OpusDecoder, OpusEncoder, OpusMissing
from pipeline.audio.resample import Resampler
from tests.support.paths import ROOT

PERSON = Path("/usr/share/asterisk/sounds/en_US_f_Allison/demo-congrats.wav")
FRAME = RATE_HZ // 50


def person() -> Pcm:
    samples, rate_hz = wav.read(PERSON)
    return Resampler(rate_hz, RATE_HZ)(samples)


def packets(said: Pcm) -> list[bytes]:
    encoder = OpusEncoder()
    return [encoder.encode(said[at : at + FRAME]) for at in range(0, len(said) // FRAME * FRAME, FRAME)]


def heard(sent: Sequence[bytes], lost: int = 0, *, fec: bool = True) -> Pcm:
    """`sent`, every seventh packet and the `lost - 1` after it not received."""
    decoder, frames, missing = OpusDecoder(), [], 0
    for number, packet in enumerate(sent):
        if number and number % 7 < lost:
            missing += FRAME
            continue
        if missing:
            frames.append(decoder.recover(packet if fec else b"", missing).copy())
            missing = 0
        frames.append(decoder.decode(packet).copy())
    return np.concatenate(frames)


@pytest.mark.parametrize(("lost", "most"), [(1, 0.5), (2, 0.75)])
def test_a_persons_lost_packets_come_out_of_the_fec_of_the_next(lost: int, most: float) -> None:
    sent = packets(person())
    sent = sent[: len(sent) // 7 * 7]
    whole, repaired, made_up = heard(sent), heard(sent, lost), heard(sent, lost, fec=False)
    assert len(whole) == len(repaired) == len(made_up)
    told = np.repeat([bool(n) and n % 7 == lost - 1 for n in range(len(sent))], FRAME)

    def off(one: Pcm) -> float:
        """What differs of the frame before each received one, as a share of its energy."""
        difference = (one.astype(float) - whole)[told]
        return float(difference @ difference / (whole[told].astype(float) @ whole[told]))

    assert off(repaired) < most * off(made_up)


def test_a_gap_is_filled_to_its_length() -> None:
    packet = packets(person())[20]
    decoder = OpusDecoder()
    for samples in (40, 320, 960, 1920):
        assert len(decoder.recover(packet, samples)) == samples
        assert len(decoder.recover(b"", samples)) == samples
    assert len(decoder.recover(packet, 339)) == 320
    assert len(decoder.recover(packet, 5000)) == RATE_HZ * opus.MAX_PACKET_MS // 1000
    assert len(decoder.recover(packet, 0)) == 0
    assert len(decoder.recover(b"\xff", 320)) == 320


@pytest.mark.parametrize("packet", [b"", b"\xff", bytes(2000)], ids=len)
def test_what_is_no_opus_is_refused(packet: bytes) -> None:
    with pytest.raises(BadPacket):
        OpusDecoder().decode(packet)


@pytest.mark.parametrize("samples", [0, 100, 960])
def test_only_frames_of_20_ms_are_encoded(samples: int) -> None:
    with pytest.raises(ValueError, match="20 ms"):
        OpusEncoder().encode(np.zeros(samples, np.int16))


def test_a_packet_that_may_be_overrun_is_refused() -> None:
    with pytest.raises(ValueError, match="1275"):
        OpusEncoder().encode_into(np.zeros(FRAME, np.int16), np.zeros(1274, np.uint8))


def test_without_the_library_streams_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opus, "_LIBRARY", None)
    monkeypatch.setattr(opus, "_WHY_NOT", "libopus is missing: install it")
    for stream in (OpusEncoder, OpusDecoder):
        with pytest.raises(OpusMissing, match="install it"):
            stream()
    opus.opus_warm()


NATIVE = '''
import threading

import numba
import numpy as np

from pipeline.audio.g722 import COLUMNS, g722_decode, g722_encode, g722_init
from pipeline.audio.opus import OpusDecoder, OpusEncoder, opus_decode, opus_encode

T = numba.types


@numba.njit(
    [T.int64(T.uintp, T.uintp, T.int16[::1], T.uint8[::1], T.int32[:, ::1], T.int64[::1])],
    cache=True,
    nogil=True,
)
def both_ways(encoder, decoder, frame, packet, rows, stop):
    """Encodes and decodes for as long as Python does not get to say stop."""
    for turn in range(2_000_000):
        size = opus_encode(encoder, frame, packet)
        if opus_decode(decoder, packet[:size], frame, 0) != 320:
            return -1
        g722_encode(frame, packet, rows[0])
        g722_decode(packet[:160], frame, rows[1])
        if stop[0]:
            return turn
    return -2


encoder, decoder, turns = OpusEncoder(), OpusDecoder(), []
stop, rows = np.zeros(1, np.int64), np.zeros((2, COLUMNS), np.int32)
for row in rows:
    g722_init(row)
arrays = np.zeros(320, np.int16), np.zeros(1275, np.uint8), rows, stop
thread = threading.Thread(target=lambda: turns.append(both_ways(encoder.state, decoder.state, *arrays)))
thread.start()
stop[0] = 1  # gets here only because the thread has no lock
thread.join()
assert turns[0] >= 0, turns
print(sum(both_ways.stats.cache_hits.values()), sum(both_ways.stats.cache_misses.values()))
'''


def test_both_codecs_run_in_a_cached_kernel_on_a_thread_without_the_lock(tmp_path: Path) -> None:
    script = tmp_path / "native.py"
    script.write_text(NATIVE)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for hits in ("0 1", "1 0"):  # compiled, then taken from the cache
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout.strip()) == (0, hits), done.stderr
