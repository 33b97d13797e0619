"""The two media seams: what goes in as Opus comes out as frames, whatever the network did; and back."""

from __future__ import annotations

import random
import struct
from typing import Final

import numpy as np
import pytest

from mediaserver.rooms.webrtc.receiver import OPUS, PATIENCE_MS, OpusReceiver
from pipeline.audio import Pcm
from pipeline.audio.opus import CLOCK_HZ, RATE_HZ, BadPacket, OpusDecoder, OpusEncoder
from pipeline.plane.called import address_of, due_at, take_at
from pipeline.plane.outgoing import Outgoing
from pipeline.plane.rows import Field, rows, scratch, shared
from pipeline.plane.setup import Sending, begin_sending, begin_source, configure_sending, prepare
from tests.support.speech.media import RecordingListener
from tests.support.speech.tones import share_at, tone

PT = 111
FRAME = RATE_HZ // 50
SCRATCH: Final = scratch()


class Row:
    """A row of the media plane, stepped by hand."""

    def __init__(self) -> None:
        self._rows, self.shared = rows(1), shared()
        self.line = self._rows[0]

    def due(self, now: float) -> int:
        """The plane's tick; how many packets it sends."""
        self.line["open"] = 1
        step = address_of(self.line), address_of(SCRATCH), address_of(self.shared)
        return int(due_at(*step, round(now * 1e9)))

    def take(self, packet: bytes, now: float) -> None:
        """A packet of the far end's arrives, which is nowhere."""
        self.line["open"] = 1
        self.shared["packet"][: len(packet)] = np.frombuffer(packet, np.uint8)
        self.shared["clock"][[Field.SIZE, Field.SENDER_LENGTH]] = len(packet), 0
        take_at(address_of(self.line), address_of(SCRATCH), address_of(self.shared), round(now * 1e9))


class Receiver(OpusReceiver):
    """On a row of its own."""

    __slots__ = ("row",)

    def __init__(self) -> None:
        self.row = Row()
        super().__init__(self.row.line, 0)

    def packet(self, data: bytes, now: float) -> None:
        self.row.take(data, now)
        self.passed(int(self.row.line["frames"]), now)

    def flush(self, now: float) -> None:
        self.row.due(now)
        self.passed(int(self.row.line["frames"]), now)


class Heard(RecordingListener):
    """What is heard of a participant, who has no keys."""

    def digit_received(self, digit: str, now: float) -> None:
        raise AssertionError("no digits in a room")


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


def receiver() -> tuple[Receiver, Heard]:
    made, heard = Receiver(), Heard()
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
    assert made.row.line["held"]
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


class Room(Row):
    """A row that sends as that of a participant does; a tick is 20 ms."""

    def __init__(self) -> None:
        super().__init__()
        prepare(self.line, 0, rate_hz=RATE_HZ, patience_ms=PATIENCE_MS)
        begin_sending(self.line, -1, first_due_ns=0)
        begin_source(self.line, 99)
        self.line["remote_size"] = 16
        self.outgoing = Outgoing(self.line, lambda: None)
        self.connect(sends=True)

    def connect(self, *, sends: bool) -> None:
        opus = Sending(
            payload_type=PT, format=OPUS, events_type=-1, events_hz=CLOCK_HZ, sends=sends, discontinuous=True
        )
        configure_sending(self.line, opus)

    def tick(self, number: int, *said: Pcm) -> list[bytes]:
        self.outgoing.say(said)
        count = self.due(number * 0.02)
        return [self.shared["outbox"][k, : self.shared["outgoing"][k]].tobytes() for k in range(count)]


def fields(packet: bytes) -> tuple[int, int, int, int]:
    _, second, sequence, timestamp, ssrc = struct.unpack_from("!BBHII", packet)
    assert ssrc == 99
    return second >> 7, second & 0x7F, sequence, timestamp


def test_nothing_is_sent_while_the_agent_is_silent_and_time_goes_on() -> None:
    speech, room = tone(440, 0.02, RATE_HZ), Room()
    said = [[speech], [], [], [speech], [speech]]
    wire = [room.tick(number, *frames) for number, frames in enumerate(said)]
    assert [len(packets) for packets in wire] == [1, 0, 0, 1, 1]
    one, two, three = (fields(packet) for packets in wire for packet in packets)
    assert [one[0], two[0], three[0]] == [1, 1, 0]  # a marker starts each talkspurt
    assert {one[1], two[1], three[1]} == {PT}
    assert two[2] - one[2] == 1
    assert two[3] - one[3] == 3 * 960
    assert three[3] - two[3] == 960
    assert len(room.outgoing.departed()[1]) == 3


def test_what_is_sent_is_what_was_said() -> None:
    samples, room, decoder = tone(440, 0.4, RATE_HZ), Room(), OpusDecoder()
    wire = [room.tick(n, samples[n * FRAME : (n + 1) * FRAME]) for n in range(20)]
    back = np.concatenate([decoder.decode(packet[12:]).copy() for packets in wire for packet in packets])
    assert share_at(back[FRAME * 3 :], RATE_HZ, 440) > 0.95


def test_nothing_is_taken_from_the_agent_before_the_connection_is_up() -> None:
    room = Room()
    room.connect(sends=False)
    assert room.tick(0, tone(440, 0.02, RATE_HZ)) == []
    assert room.outgoing.waiting == 1


def test_who_does_not_want_the_agent_gets_nothing_and_the_agent_goes_on() -> None:
    speech, room = tone(440, 0.02, RATE_HZ), Room()
    (before,) = room.tick(0, speech)
    room.line["unwanted"] = 1
    assert room.tick(1, speech) == []
    assert room.tick(2, speech) == []
    room.line["unwanted"] = 0
    (after,) = room.tick(3, speech)
    assert len(room.outgoing.departed()[1]) == 4
    assert fields(after)[0] == 1
    assert fields(after)[2] - fields(before)[2] == 1  # none is missed
    assert fields(after)[3] - fields(before)[3] == 3 * 960
