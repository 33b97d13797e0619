"""The two media seams: what goes in as Opus comes out as frames, whatever the network did; and back."""

from __future__ import annotations

import random
import struct
from collections import deque

import numpy as np
import pytest

from mediaserver.rooms.webrtc.receiver import PATIENCE_MS, OpusReceiver
from mediaserver.rooms.webrtc.sender import OpusSender
from pipeline.audio import Pcm
from pipeline.audio.opus import RATE_HZ, BadPacket, OpusDecoder, OpusEncoder
from tests.support.speech.tones import share_at, tone

PT = 111
FRAME = RATE_HZ // 50


class Heard:
    """A `LegListener` that keeps everything."""

    def __init__(self) -> None:
        self.frames: list[Pcm] = []
        self.positions: list[int] = []
        self.concealed: list[bool] = []

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        self.frames.append(frame.copy())
        self.positions.append(position)
        self.concealed.append(concealed)

    def digit_received(self, digit: str, now: float) -> None:
        raise AssertionError("no digits in a room")

    def leg_ended(self, reason: str, now: float) -> None:
        raise AssertionError("the receiver ends nothing")


def packets(count: int, *, hz: float = 440, ssrc: int = 7, first: int = 65530) -> list[bytes]:
    return packed(tone(hz, count / 50, RATE_HZ), ssrc=ssrc, first=first)


def packed(samples: Pcm, *, ssrc: int = 7, first: int = 65530) -> list[bytes]:
    encoder = OpusEncoder()
    return [
        rtp(encoder.encode(samples[n * FRAME : (n + 1) * FRAME]), first + n, n * 960, ssrc=ssrc)
        for n in range(len(samples) // FRAME)
    ]


def rtp(payload: bytes, sequence: int, timestamp: int, *, ssrc: int = 7, pt: int = PT) -> bytes:
    return struct.pack("!BBHII", 0x80, pt, sequence & 0xFFFF, timestamp & 0xFFFFFFFF, ssrc) + payload


def receiver() -> tuple[OpusReceiver, Heard]:
    made, heard = OpusReceiver(), Heard()
    made.receive({PT})
    made.listener = heard
    return made, heard


def test_a_packet_in_order_is_heard_in_the_same_call() -> None:
    made, heard = receiver()
    for number, packet in enumerate(packets(10)):
        made.packet(packet, number * 0.02)
        assert len(heard.frames) == number + 1
    assert heard.positions == [n * FRAME for n in range(10)]
    assert share_at(np.concatenate(heard.frames[2:]), RATE_HZ, 440) > 0.9


def test_a_lost_packet_comes_out_of_the_fec_of_the_next() -> None:
    """The pitch jumps in the packet that is lost: what was heard before says nothing of it."""
    made, heard = receiver()
    sent = packed(np.concatenate([tone(300, 0.8, RATE_HZ), tone(1000, 0.4, RATE_HZ)]))
    for number, packet in enumerate(sent):
        if number != 40:
            made.packet(packet, number * 0.02)
            made.flush(number * 0.02)
    assert len(heard.frames) == 60
    assert heard.positions == [n * FRAME for n in range(60)]
    assert [n for n, made_up in enumerate(heard.concealed) if made_up] == [40]
    assert share_at(heard.frames[40][FRAME // 2 :], RATE_HZ, 1000) > 0.5
    assert (made.lost, made.recovered) == (1, 1)


def test_a_gap_holds_up_speech_for_forty_milliseconds_at_the_most() -> None:
    made, heard = receiver()
    sent = packets(5)
    made.packet(sent[0], 0.0)
    made.packet(sent[2], 0.04)
    assert len(heard.frames) == 1
    assert made.waiting
    made.flush(0.04 + PATIENCE_MS / 1000 - 0.001)
    assert len(heard.frames) == 1
    made.flush(0.04 + PATIENCE_MS / 1000 + 0.001)
    assert len(heard.frames) == 3


def test_packets_in_the_wrong_order_are_put_right_and_nothing_is_made_up() -> None:
    made, heard = receiver()
    sent = packets(20)
    sent[5], sent[6] = sent[6], sent[5]
    for number, packet in enumerate(sent):
        made.packet(packet, number * 0.02)
    assert heard.positions == [n * FRAME for n in range(20)]
    assert not any(heard.concealed)


def test_silence_suppression_leaves_a_hole_in_time_and_not_in_the_count() -> None:
    made, heard = receiver()
    encoder = OpusEncoder()
    frame = tone(440, 0.02, RATE_HZ)
    made.packet(rtp(encoder.encode(frame), 1, 0), 0.0)
    made.packet(rtp(encoder.encode(frame), 2, 48000), 1.0)
    assert heard.positions == [0, RATE_HZ]
    assert not any(heard.concealed)


def test_a_microphone_published_again_is_heard_again() -> None:
    made, heard = receiver()
    for number, packet in enumerate(packets(5, ssrc=1)):
        made.packet(packet, number * 0.02)
    for number, packet in enumerate(packets(5, ssrc=2, first=100)):
        made.packet(packet, 1.0 + number * 0.02)
    assert len(heard.frames) == 10
    assert heard.positions == sorted(heard.positions)


def test_two_microphones_at_once_are_not_heard_as_one() -> None:
    made, heard = receiver()
    for number, (one, two) in enumerate(zip(packets(10, ssrc=1), packets(10, ssrc=2), strict=True)):
        made.packet(one, number * 0.02)
        made.packet(two, number * 0.02 + 0.01)
    assert len(heard.frames) == 10


def test_packets_of_sixty_milliseconds_become_three_frames() -> None:
    made, heard = receiver()
    # An Opus packet of three 20 ms frames: code 3 with the same configuration, RFC 6716 3.2.5.
    encoder = OpusEncoder()
    parts = [encoder.encode(tone(440, 0.02, RATE_HZ)) for _ in range(3)]
    toc = parts[0][0] & 0xFC | 3
    sizes = bytes(len(part) - 1 for part in parts[:2])
    payload = bytes((toc, 0x80 | 3)) + sizes + b"".join(part[1:] for part in parts)
    made.packet(rtp(payload, 1, 0), 0.0)
    assert heard.positions == [0, FRAME, 2 * FRAME]


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x80\x6f\x00", id="shorter than a header"),
        pytest.param(rtp(b"\xff\xff", 2, 960, pt=0), id="another payload type"),
        pytest.param(b"\x9f" + rtp(b"", 2, 960)[1:], id="extension that is not there"),
        pytest.param(rtp(b"\xff", 2, 960), id="not Opus"),
        pytest.param(rtp(b"", 2, 960), id="padding only"),
    ],
)
def test_what_is_not_audio_harms_nothing(packet: bytes) -> None:
    made, heard = receiver()
    sent = packets(4, first=1)
    made.packet(sent[0], 0.0)
    made.packet(packet, 0.02)
    for number, each in enumerate(sent[1:], 1):
        made.packet(each, 0.02 * number)
    made.flush(1.0)
    assert heard.positions[-1] == 3 * FRAME


def test_random_packets_never_raise() -> None:
    made, _ = receiver()
    rng = random.Random(1)
    for number in range(3000):
        payload = rng.randbytes(rng.randrange(60))
        sequence = rng.choice([number, rng.randrange(1 << 16)])
        made.packet(rtp(payload, sequence, rng.choice([number * 960, rng.getrandbits(32)])), number * 0.02)
        made.flush(number * 0.02)


def test_the_decoder_says_what_it_cannot_decode() -> None:
    with pytest.raises(BadPacket):
        OpusDecoder().decode(b"\xff")


def test_the_encoder_takes_frames_of_twenty_milliseconds_only() -> None:
    with pytest.raises(ValueError, match="20 ms"):
        OpusEncoder().encode(np.zeros(100, np.int16))


# Sending ----------------------------------------------------------------------------------------------------


class Source:
    """An `AudioSource` of the frames given."""

    def __init__(self, *frames: Pcm | None) -> None:
        self.frames = deque(frames)
        self.sent_at: list[float] = []

    def read(self) -> Pcm | None:
        return self.frames.popleft() if self.frames else None

    def sent(self, now: float) -> None:
        self.sent_at.append(now)

    def on_ready(self, wake: object) -> None:
        pass


def sender(source: Source) -> tuple[OpusSender, list[bytes]]:
    wire: list[bytes] = []

    def take(packet: bytes) -> bool:
        wire.append(packet)
        return True

    made = OpusSender(time=lambda: 0.0, rng=random.Random(1))
    made.source, made.wire, made.ssrc = source, take, 99
    return made, wire


def fields(packet: bytes) -> tuple[int, int, int, int]:
    _, second, sequence, timestamp, ssrc = struct.unpack_from("!BBHII", packet)
    assert ssrc == 99
    return second >> 7, second & 0x7F, sequence, timestamp


def test_nothing_is_sent_while_the_agent_is_silent_and_time_goes_on() -> None:
    speech = tone(440, 0.02, RATE_HZ)
    source = Source(speech, None, None, speech, speech)
    made, wire = sender(source)
    for tick in range(5):
        made.tick(tick * 0.02)
    one, two, three = (fields(packet) for packet in wire)
    assert [one[0], two[0], three[0]] == [1, 1, 0]  # a marker starts each talkspurt
    assert two[2] - one[2] == 1
    assert two[3] - one[3] == 3 * 960
    assert three[3] - two[3] == 960
    assert len(source.sent_at) == 3


def test_what_is_sent_is_what_was_said() -> None:
    samples = tone(440, 0.4, RATE_HZ)
    source = Source(*(samples[at : at + FRAME] for at in range(0, samples.size, FRAME)))
    made, wire = sender(source)
    for tick in range(20):
        made.tick(tick * 0.02)
    decoder = OpusDecoder()
    back = np.concatenate([decoder.decode(packet[12:]).copy() for packet in wire])
    assert share_at(back[FRAME * 3 :], RATE_HZ, 440) > 0.95


def test_nothing_is_taken_from_the_agent_before_the_connection_is_up() -> None:
    source = Source(tone(440, 0.02, RATE_HZ))
    made, wire = sender(source)
    made.wire = None
    made.tick(0.0)
    assert len(source.frames) == 1
    assert not wire
