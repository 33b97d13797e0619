"""Damaged RTP for rows of the media plane and for a port that they share:
`python -m tests.support.hostile.damaged_rtp SEED PACKETS`.

With NUMBA_BOUNDSCHECK=1 a kernel that reads or writes past the end of an array raises IndexError; without it
that is anybody's memory."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any, Final

import numba
import numpy as np
from pylibsrtp import Policy, Session

from bench.support.stepped_stream import SteppedStream
from pipeline.audio.opus import OpusEncoder
from pipeline.audio.vad import VadSettings
from pipeline.plane.setup import configure_sending
from pipeline.plane.srtp import Lent
from sip.rtp.media_formats import sending
from sip.rtp.packet import RtpPacket
from sip.sdp.media_plan import G722, OPUS, PCMA, PCMU
from tests.support.speech.media import RecordingListener, plan
from tests.support.webrtc.stepped_port import PT, SteppedPort, at

_CODECS: Final = (PCMU, PCMA, G722, OPUS)
_STEPS: Final = (1,) * 40 + (0, 2, 2, 3, -1, -40, 90, 3000, 30_000)
_NEAR: Final = (0,) * 20 + (1, -1, -40, 90)
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


def survive_port(seed: int, packets: int) -> SteppedPort:
    """Returns a port with two streams, one of them over SRTP, on which so many datagrams have come: damaged
    media, and of other protocols, from addresses that come and go."""
    rng, key = random.Random(seed), bytes(range(30))
    sends = Policy(key, Policy.SSRC_ANY_OUTBOUND)
    sends.allow_repeat_tx, sends.window_size = True, 1024
    port, far = SteppedPort(2), Session(sends)
    lent = Lent(Session(sends), Session(Policy(key, Policy.SSRC_ANY_INBOUND)))
    with port.held(1) as line:
        lent.open(line)
    for ear in port.ears:
        ear.listener = RecordingListener()
    sound, now = [OpusEncoder().encode(np.full(320, each * 300, np.int16)) for each in range(20)], 0.0
    for number in range(packets):
        now += rng.choice(_WAITS_S)
        stream = rng.randrange(2)
        if number % 20 == 0:
            port.know(at(stream), stream)
        data = _datagram(rng, number, rng.choice(sound), far if stream else None)
        sender = at(stream) if rng.random() < 0.9 else at(rng.randrange(256), rng.getrandbits(16))
        _hand_over(port, data, sender[: rng.choice((16,) * 9 + (0, 7))], now, rng)
    return port


def _hand_over(port: SteppedPort, data: bytes, sender: bytes, now: float, rng: random.Random) -> None:
    """The datagram comes, while Python holds a row perhaps, changes the addresses, and reads or does not."""
    if rng.random() < 0.05:
        with port.held(rng.randrange(2)):
            for _ in range(rng.choice((1, 1, 100))):
                port.datagram(data, sender, now)
    else:
        port.datagram(data, sender, now)
    port.again()
    if rng.random() < 0.02:
        change = at(rng.randrange(256), rng.getrandbits(16))
        port.forget(change if rng.random() < 0.8 else at(rng.randrange(2)))
        port.know(change, rng.randrange(-1, 2))
    if rng.random() < 0.01:
        port.asides()


def _datagram(rng: random.Random, number: int, sound: bytes, far: Session | None) -> bytes:
    """Media mostly, which `far` encrypts, with wrong octets in front, cut off, or something of any length."""
    if rng.random() < 0.1:
        first = bytes((rng.choice((0, 1, 3, 20, 22, 63, 127, 128, 191, 192, 255)),))
        return (first + rng.randbytes(rng.choice((0, 1, 10, 11, 12, 40, 1500, 2047))))[:2048]
    payload = sound if rng.random() < 0.9 else rng.randbytes(rng.choice(_SIZES[:-3]))
    sequence = 1000 + number + rng.choice(_STEPS if far is None else _NEAR)
    packet = RtpPacket(PT, sequence & 0xFFFF, sequence * 960 & 0xFFFFFFFF, 7, payload).to_bytes()
    damaged = bytearray(packet if far is None else far.protect(packet))
    if rng.random() < 0.1:
        damaged[rng.randrange(min(16, len(damaged)))] = rng.getrandbits(8)
    if rng.random() < 0.05:
        del damaged[rng.randrange(1, len(damaged)) :]
    return bytes(damaged)


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
    shared = survive_port(int(sys.argv[1]), int(sys.argv[2]))
    print(
        _is_checked(),
        *(int(ended.line[name]) for name in ("frames", "concealed", "lost", "bad")),
        *(int(line[name]) for line in shared.lines for name in ("frames", "recovered", "lost", "bad")),
        *(int(shared.port[name]) for name in ("strays", "dropped", "sources", "head")),
    )
