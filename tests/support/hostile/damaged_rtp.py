"""Damaged RTP for a row of the media plane: `python -m tests.support.hostile.damaged_rtp SEED PACKETS`.

With NUMBA_BOUNDSCHECK=1 a kernel that reads or writes past the end of an array raises IndexError; without it
that is anybody's memory."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any, Final

import numba
import numpy as np

from bench.support.stepped_stream import SteppedStream
from pipeline.audio.vad import VadSettings
from pipeline.plane.setup import configure_sending
from sip.rtp.media_formats import sending
from sip.rtp.packet import RtpPacket
from sip.sdp.media_plan import G722, OPUS, PCMA, PCMU
from tests.support.speech.media import RecordingListener, plan

_CODECS: Final = (PCMU, PCMA, G722, OPUS)
_STEPS: Final = (1,) * 40 + (0, 2, 2, 3, -1, -40, 90, 3000, 30_000)
_SIZES: Final = (160,) * 12 + (0, 1, 4, 40, 480, 1440, 1500, 2036)
_WAITS_S: Final = (0.02,) * 12 + (0.0, 0.0, 0.001, 0.06, 0.3, 5.0)


def datagrams(rng: random.Random, count: int) -> Iterator[bytes]:
    """Yields packets of one source, some of them late, lost, of another codec, or with wrong octets."""
    sequence, codec, ssrc = rng.getrandbits(16), PCMU, 7
    for _ in range(count):
        sequence += rng.choice(_STEPS)
        codec = rng.choice(_CODECS) if rng.random() < 0.02 else codec
        ssrc = rng.getrandbits(32) if rng.random() < 0.002 else ssrc
        kind = rng.choice((13, 101)) if rng.random() < 0.03 else codec.payload_type
        stamp = rng.getrandbits(32) if rng.random() < 0.01 else sequence * 160
        payload = rng.randbytes(rng.choice(_SIZES))
        packet = bytearray(RtpPacket(kind, sequence & 0xFFFF, stamp & 0xFFFFFFFF, ssrc, payload).to_bytes())
        if rng.random() < 0.1:
            packet[rng.randrange(min(16, len(packet)))] = rng.getrandbits(8)
        if rng.random() < 0.02:
            del packet[rng.randrange(1, len(packet)) :]
        yield bytes(packet[:2048])


def survive(seed: int, packets: int) -> SteppedStream:
    """Returns a stream that has heard so many packets, and spoken meanwhile."""
    rng = random.Random(seed)
    agreed = plan(receive={each.payload_type: each for each in _CODECS})
    stream = SteppedStream(agreed, rate_hz=rng.choice((8000, 16_000)), now=0.0, inband_dtmf=True)
    stream.listener = listener = RecordingListener()
    ear = stream.heard
    ear.follow()
    ear.detect(VadSettings())
    ear.attend(rng.randrange(12))
    voice = np.full(stream.outgoing.rate_hz // 50, 9000, np.int16)
    now = 0.0
    for data in datagrams(rng, packets):
        now += rng.choice(_WAITS_S)
        stream.datagram(data, now)
        stream.due(now)
        stream.outgoing.departed()
        if rng.random() < 0.05:
            stream.outgoing.say([voice] * min(stream.outgoing.room, rng.randrange(8)))
        if rng.random() < 0.01:
            stream.outgoing.withdraw()
        if rng.random() < 0.002:
            stream.key("5")
        if rng.random() < 0.002:
            configure_sending(stream.line, sending(plan(codec=rng.choice(_CODECS))))
        listener.frames.clear()
    return stream


def _is_checked() -> bool:
    """Whether numba sees an index past the end."""
    past: Any = numba.njit(lambda numbers, index: numbers[index])
    try:
        past(np.zeros(4), 4)
    except IndexError:
        return True
    return False


if __name__ == "__main__":
    ended = survive(int(sys.argv[1]), int(sys.argv[2]))
    print(_is_checked(), *(int(ended.line[name]) for name in ("frames", "concealed", "lost", "bad")))
