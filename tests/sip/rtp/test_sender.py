"""Is what leaves a stream that any phone can play: steady, numbered, marked, and never an exception?"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pipeline.audio.dtmf import DtmfDetector
from pipeline.media.pacer import Pacer
from sip.errors import LocalError
from sip.rtp.codecs import decoder
from sip.rtp.packet import RtpPacket, sequence_delta, timestamp_delta
from sip.rtp.sender import MAX_KEYED, RtpSender
from sip.rtp.telephone_event import EventReceiver
from sip.sdp.media_plan import G722, OPUS, PCMA, PCMU, Codec, MediaPlan
from tests.support.speech.media import VirtualClock, Voice, plan, sine, snr_db, speech_like

FAR = ("127.0.0.1", 40000)


class Tape:
    """A wire that keeps what is sent, with the time."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.packets: list[RtpPacket] = []
        self.times: list[float] = []
        self.error: OSError | None = None

    def sendto(self, data: bytearray | memoryview, address: Any, /) -> int:
        assert address == FAR
        if self.error is not None:
            raise self.error
        self.packets.append(RtpPacket.parse(bytes(data)))
        self.times.append(self._clock.time())
        return len(data)


class Call:
    """A sender on a pacer on a virtual clock."""

    def __init__(
        self, agreed: MediaPlan | None = None, rate_hz: int = 8000, *, voice: Voice | None = None
    ) -> None:
        self.clock = VirtualClock()
        self.pacer = Pacer(self.clock)
        self.wire = Tape(self.clock)
        self.sender = RtpSender(self.wire, rate_hz, time=self.clock.time, rng=random.Random(6))
        self.sender.address = FAR
        self.sender.configure(agreed or plan())
        self.sender.source = voice
        self.sender.pace = self.pacer.add(self.sender.tick, self.clock.time())
        if voice is not None:
            voice.on_ready(self.wake)

    def wake(self) -> None:
        if self.sender.silent and self.sender.pace is not None:
            self.sender.pace.wake()

    def run(self, seconds: float) -> list[RtpPacket]:
        """The packets of the next `seconds`."""
        before = len(self.wire.packets)
        self.clock.advance(seconds)
        return self.wire.packets[before:]

    @property
    def heard(self) -> np.ndarray:
        codec = {0: PCMU, 8: PCMA, 9: G722, 111: OPUS}
        decoders: dict[int, Callable[..., Any]] = {}
        frames = []
        for packet in self.wire.packets:
            decode = decoders.setdefault(packet.payload_type, decoder(codec[packet.payload_type]).decode)
            frames.append(decode(np.frombuffer(packet.payload, np.uint8)).copy())
        return np.concatenate(frames)


def assert_steady(stream: list[RtpPacket], step: int) -> None:
    for before, after in pairwise(stream):
        assert sequence_delta(after.sequence, before.sequence) == 1
        assert timestamp_delta(after.timestamp, before.timestamp) == step
    assert len({packet.ssrc for packet in stream}) == 1


@pytest.mark.parametrize("codec", [PCMU, PCMA, G722, OPUS], ids=str)
def test_a_steady_stream_leaves_even_when_nobody_speaks(codec: Codec) -> None:
    call = Call(plan(codec=codec), codec.rate_hz)
    stream = call.run(2.0)
    assert len(stream) == pytest.approx(100, abs=1)
    assert_steady(stream, codec.clock_rate_hz // 50)
    assert [packet.marker for packet in stream] == [True] + [False] * (len(stream) - 1)
    assert np.abs(call.heard).max() < 40


@pytest.mark.parametrize("codec", [PCMU, PCMA])
def test_silence_in_g711_is_the_code_of_zero(codec: Codec) -> None:
    call = Call(plan(codec=codec))
    assert {packet.payload for packet in call.run(0.2)} == {
        {0: b"\xff", 8: b"\xd5"}[codec.payload_type] * 160
    }


def test_each_talkspurt_begins_with_the_marker() -> None:
    voice = Voice()
    call = Call(voice=voice)
    silent = len(call.run(0.5))
    voice.say(sine(1600))
    call.run(0.5)
    assert [packet.marker for packet in call.wire.packets[silent:]][:12] == [True] + [False] * 11
    voice.say(sine(800))
    call.run(0.5)
    assert [packet.marker for packet in call.wire.packets].count(True) == 3
    assert_steady(call.wire.packets, 160)


def test_the_first_word_leaves_at_once_and_its_clock_is_regular() -> None:
    voice = Voice()
    call = Call(voice=voice)
    for pause_ms in (901, 907, 913, 919, 1450):  # 0.8 s give the whole lead back
        call.run(pause_ms / 1000)
        said_s, sent = call.clock.time(), len(call.wire.packets)
        voice.say(sine(800))
        assert call.wire.times[sent:] == [said_s]
        assert voice.sent_at[-1] == said_s
        assert call.wire.packets[-1].marker
        call.run(0.12)
    assert_steady(call.wire.packets, 160)


def test_the_source_hears_of_every_frame_and_of_no_silence() -> None:
    voice = Voice(sine(1600))
    call = Call(voice=voice)
    call.run(1.0)
    assert len(voice.sent_at) == 10
    assert voice.reads > 45


def test_what_is_said_is_what_leaves() -> None:
    said = speech_like(8000)
    call = Call(voice=Voice(said))
    call.run(1.05)
    assert snr_db(call.heard, said, search=1) > 34


def test_a_codec_at_another_rate_is_resampled() -> None:
    said = speech_like(16000)
    call = Call(plan(codec=PCMU), voice=Voice(said))
    call.run(1.0)
    call.sender.configure(plan(codec=G722))
    call.run(1.01)
    wideband = [packet for packet in call.wire.packets if packet.payload_type == 9]
    assert len(wideband) == pytest.approx(50, abs=2)
    assert_steady(call.wire.packets, 160)  # G.722 counts at 8000 Hz as well: the same source goes on


def test_a_codec_with_another_clock_is_a_new_source() -> None:
    call = Call()
    first = call.run(0.5)
    call.sender.configure(plan(codec=OPUS))
    second = call.run(0.5)
    assert {packet.ssrc for packet in first}.isdisjoint(packet.ssrc for packet in second)
    assert_steady(second, 960)
    assert second[0].marker


def test_on_hold_nothing_leaves_and_the_source_is_not_read() -> None:
    voice = Voice(sine(16000))
    call = Call(voice=voice)
    before = call.run(0.5)
    reads = voice.reads
    call.sender.configure(plan(sends=False))
    assert call.run(1.0) == []
    assert voice.reads == reads
    call.sender.configure(plan())
    after = call.run(0.5)
    assert after[0].marker
    assert sequence_delta(after[0].sequence, before[-1].sequence) == 1
    assert timestamp_delta(after[0].timestamp, before[-1].timestamp) == pytest.approx(1.0 * 8000, abs=320)


def test_after_a_stall_the_timestamps_are_where_the_time_is() -> None:
    call = Call(voice=Voice(sine(80000)))
    before = call.run(1.0)
    call.clock.stall(2.0)
    after = call.run(1.0)
    elapsed_s = call.wire.times[-1] - call.wire.times[0]
    assert timestamp_delta(after[-1].timestamp, before[0].timestamp) == pytest.approx(
        elapsed_s * 8000, abs=160
    )
    assert after[0].marker
    assert sequence_delta(after[0].sequence, before[-1].sequence) == 1
    assert sum(time == call.wire.times[len(before)] for time in call.wire.times) == 3


@pytest.mark.parametrize("error", [ConnectionRefusedError(), BlockingIOError(), OSError(101, "no route")])
def test_a_network_that_refuses_is_counted_and_forgiven(error: OSError) -> None:
    call = Call(voice=Voice(sine(16000)))
    call.run(0.1)
    call.wire.error = error
    assert call.run(0.2) == []
    assert call.sender.errors == 10
    call.wire.error = None
    assert len(call.run(0.2)) == 10


def test_a_source_with_frames_of_a_wrong_length_does_no_harm() -> None:
    call = Call(voice=Voice(sine(1000), frame=250))
    call.run(0.5)
    assert call.sender.errors == 4
    assert len(call.wire.packets) == pytest.approx(21, abs=1)


def test_counters_are_payload_bytes() -> None:
    call = Call()
    stream = call.run(1.0)
    assert (call.sender.packets, call.sender.octets) == (len(stream), 160 * len(stream))
    assert timestamp_delta(call.sender.timestamp_at(call.clock.time()), stream[-1].timestamp) in range(0, 161)


# Digits -----------------------------------------------------------------------------------------------------


def test_digits_leave_as_events_in_place_of_audio_which_waits() -> None:
    said = speech_like(4000)
    voice = Voice(said)
    call = Call(voice=voice)
    done: list[bool] = []
    call.sender.key("12#", done.append)
    keyed = call.run(0.61)
    assert done == [True]
    assert voice.reads <= 1
    events = [packet for packet in keyed if packet.payload_type == 101]
    receiver = EventReceiver(8000)
    assert [d for packet in events if (d := receiver.push(packet.payload, packet.timestamp))] == [
        "1",
        "2",
        "#",
    ]
    assert len({packet.timestamp for packet in events}) == 3
    assert [packet.marker for packet in events].count(True) == 3
    numbers = [packet.sequence for packet in call.wire.packets]
    assert all(sequence_delta(b, a) == 1 for a, b in pairwise(numbers))
    audio = call.run(0.6)
    assert timestamp_delta(audio[0].timestamp, events[0].timestamp) == 30 * 160 or voice.reads > 0
    assert len(voice.sent_at) == 25


def test_digits_leave_as_tones_where_events_were_not_agreed() -> None:
    call = Call(plan(dtmf_send=None))
    done: list[bool] = []
    call.sender.key("0459*", done.append)
    call.run(1.2)
    detector = DtmfDetector(8000)
    heard = call.heard
    found = [detector.push(heard[at : at + 160]) for at in range(0, len(heard), 160)]
    assert [digit for digit in found if digit] == list("0459*")
    assert done == [True]


def test_digits_on_hold_wait_for_the_end_of_it() -> None:
    call = Call(plan(sends=False))
    done: list[bool] = []
    call.sender.key("5", done.append)
    assert call.run(1.0) == []
    assert done == []
    call.sender.configure(plan())
    assert 101 in {packet.payload_type for packet in call.run(0.3)}
    assert done == [True]


def test_events_renegotiated_away_in_the_middle_end_the_digit_quietly() -> None:
    call = Call()
    done: list[bool] = []
    call.sender.key("5", done.append)
    call.run(0.05)
    call.sender.configure(plan(dtmf_send=None))
    assert {packet.payload_type for packet in call.run(0.3)} == {0}
    assert done == [True]


def test_closing_tells_those_who_wait() -> None:
    call = Call()
    done: list[bool] = []
    call.sender.key("12", done.append)
    call.sender.key("3", done.append)
    call.run(0.1)
    call.sender.close()
    assert done == [False, False]


def test_too_many_digits_are_refused_and_those_before_are_sent() -> None:
    call = Call()
    done: list[bool] = []
    call.sender.key("1" * MAX_KEYED, done.append)
    with pytest.raises(LocalError, match="DTMF"):
        call.sender.key("2", done.append)
    call.run(MAX_KEYED * 0.2 + 0.1)
    assert done == [True]
