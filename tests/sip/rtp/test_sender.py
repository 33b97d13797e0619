"""Is what leaves a stream that any phone can play: steady, numbered, marked, and never late after a stall?"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bench.support.codecs import decoder
from bench.support.stepped_stream import SteppedStream
from pipeline.audio import Pcm
from pipeline.audio.dtmf import DtmfDetector
from pipeline.plane.rows import AHEAD
from pipeline.plane.send import SLOT_NS
from pipeline.plane.setup import timestamp_at
from sip.rtp.packet import RtpPacket, sequence_delta, timestamp_delta
from sip.sdp.media_plan import G722, OPUS, PCMA, PCMU, Codec, MediaPlan
from tests.support.speech.media import RecordingListener, VirtualClock, plan, sine, snr_db, speech_like


class Call:
    """A stream whose ticks come by a virtual clock."""

    def __init__(self, agreed: MediaPlan | None = None, rate_hz: int = 8000) -> None:
        self.clock = VirtualClock()
        self.stream = SteppedStream(agreed or plan(), rate_hz=rate_hz, now=self.clock.time(), poke=self._send)
        self.stream.on_sent = self._left
        self.stream.on_keyed = self._keyed
        self.packets: list[RtpPacket] = []
        self.times: list[float] = []
        self.sent_at: list[float] = []
        self.keyed = 0
        self.lost = False
        self.clock.call_at(self.clock.time() + SLOT_NS / 1e9, self._tick)

    def say(self, samples: Pcm) -> None:
        frame = self.stream.outgoing.rate_hz // 50
        self.stream.outgoing.say([samples[at : at + frame] for at in range(0, len(samples), frame)])

    def run(self, seconds: float) -> list[RtpPacket]:
        """The packets of the next `seconds`."""
        before = len(self.packets)
        self.clock.advance(seconds)
        return self.packets[before:]

    def _tick(self) -> None:
        self.clock.call_at(self.clock.time() + SLOT_NS / 1e9, self._tick)
        self._send()

    def _send(self) -> None:
        for packet in self.stream.due(self.clock.time(), lost=self.lost):
            self.packets.append(RtpPacket.parse(packet))
            self.times.append(self.clock.time())
        if (between := self.stream.due_between) is not None:
            self.clock.call_at(between, self._send)

    def _left(self, at: float) -> None:
        self.sent_at.append(at)

    def _keyed(self, digits: int) -> None:
        self.keyed = digits

    @property
    def heard(self) -> np.ndarray:
        codec = {0: PCMU, 8: PCMA, 9: G722, 111: OPUS}
        decoders: dict[int, Callable[..., Any]] = {}
        frames = []
        for packet in self.packets:
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
    call = Call()
    silent = len(call.run(0.5))
    call.say(sine(1600))
    call.run(0.5)
    assert [packet.marker for packet in call.packets[silent:]][:12] == [True] + [False] * 11
    call.say(sine(800))
    call.run(0.5)
    assert [packet.marker for packet in call.packets].count(True) == 3
    assert_steady(call.packets, 160)


def test_the_first_word_leaves_at_once_and_its_clock_is_regular() -> None:
    call = Call()
    for pause_ms in (2801, 2807, 2813, 2819, 3050):  # the lead is given back meanwhile
        call.run(pause_ms / 1000)
        said_s, sent = call.clock.time(), len(call.packets)
        call.say(sine(800))
        assert call.times[sent:] == [said_s]
        assert call.sent_at[-1] == pytest.approx(said_s)
        assert call.packets[-1].marker
        call.run(0.12)
    assert_steady(call.packets, 160)
    assert max(later - earlier for earlier, later in pairwise(call.times)) < 0.031


@pytest.mark.parametrize("early_ms", [1, 5, 9, 14, 19])
def test_a_lead_is_given_back_in_steps_that_no_listener_notices(early_ms: int) -> None:
    call = Call()
    call.run(1.0 + (20 - early_ms) / 1000)
    call.say(sine(1600))
    began = len(call.packets)
    call.run(1.5)
    gaps_ms = [1000 * (later - earlier) for earlier, later in pairwise(call.times[began:])]
    assert max(gaps_ms) < 21.01
    assert min(gaps_ms) > 14.9  # from the first packet, which leaves at once, to the next tick
    assert_steady(call.packets, 160)


def test_a_lead_is_kept_while_the_agent_speaks() -> None:
    call = Call()
    call.run(1.007)
    call.say(sine(8000))
    began = len(call.packets)
    call.run(0.5)
    assert {round(1000 * (later - earlier)) for earlier, later in pairwise(call.times[began:])} == {20}


def test_the_next_answer_finds_the_lead_given_back_after_half_a_second() -> None:
    call = Call()
    for pause_ms in (501, 507, 513, 519, 550, 562):
        call.run(pause_ms / 1000 + 0.1)
        said_s, sent = call.clock.time(), len(call.packets)
        call.say(sine(800))
        assert call.times[sent:] == [said_s]


def test_answers_that_leave_at_once_do_not_move_the_clock() -> None:
    """Two minutes of answers: as many packets as time has passed, and a lead at the end."""
    call = Call()
    for answer in range(120):
        call.run(0.9 + 0.0007 * (answer % 40))
        call.say(sine(800))
    passed_ms = 1000 * (call.times[-1] - call.times[0])
    assert 0 <= 20 * (len(call.packets) - 1) - passed_ms < 20.01
    gaps_ms = [1000 * (later - earlier) for earlier, later in pairwise(call.times)]
    assert max(gaps_ms) < 21.01


def test_every_frame_and_no_silence_is_told() -> None:
    call = Call()
    call.say(sine(1600))
    call.run(1.0)
    assert len(call.sent_at) == 10
    assert len(call.packets) > 45


@pytest.mark.parametrize("codec", [PCMU, PCMA])
def test_what_is_said_is_what_leaves(codec: Codec) -> None:
    said = speech_like(8000)
    call = Call(plan(codec=codec))
    call.say(said)
    call.run(1.05)
    assert snr_db(call.heard, said, search=1) > 34


@pytest.mark.parametrize("left", [0, 1, 2, 7, 49])
def test_what_is_taken_back_is_never_heard_and_known_to_the_frame(left: int) -> None:
    call = Call()
    call.say(np.full(160 * 50, 8031, np.int16))
    while len(call.sent_at) < left:
        call.run(0.001)
    departed = len(call.sent_at)
    assert call.stream.outgoing.withdraw() == 50 - departed
    call.run(0.5)
    voiced = [packet for packet in call.packets if packet.payload != b"\xff" * 160]
    assert len(voiced) == len(call.sent_at) == departed
    assert len(call.stream.outgoing.departed()[0]) == departed
    call.say(np.full(160, 8031, np.int16))
    call.run(0.1)
    assert len(call.sent_at) == departed + 1


def test_words_may_wait_for_a_second() -> None:
    call = Call()
    assert call.stream.outgoing.room == AHEAD
    call.say(sine(AHEAD * 160))
    assert call.stream.outgoing.room <= 1
    call.run(AHEAD * 0.02 + 0.1)
    assert len(call.sent_at) == AHEAD


def test_what_left_is_not_written_over_before_it_was_asked_for() -> None:
    call = Call()
    call.say(np.full(160 * AHEAD, 2000, np.int16))
    call.run(0.4)
    assert call.stream.outgoing.room == 0
    heard = call.stream.outgoing.departed()[0]
    assert len(heard) == len(call.sent_at) == call.stream.outgoing.room
    assert (heard == 2000).all()


def test_the_gain_is_reached_in_steps_and_what_left_is_known_at_its_gain() -> None:
    call = Call()
    call.say(np.full(160 * 20, 8000, np.int16))
    call.run(0.1)
    call.stream.outgoing.move_gain(0.25)
    call.run(0.3)
    heard = call.stream.outgoing.departed()[0].reshape(-1)
    assert heard[0] == 8000
    assert heard[-1] == 2000
    assert np.abs(np.diff(heard.astype(int))).max() < 40


def test_a_codec_at_another_rate_is_resampled() -> None:
    call = Call(plan(codec=PCMU))
    call.say(speech_like(4000))
    call.run(0.6)
    call.stream.configure(plan(codec=G722))
    call.say(speech_like(4000))
    call.run(0.6)
    wideband = [packet for packet in call.packets if packet.payload_type == 9]
    assert len(wideband) == pytest.approx(30, abs=2)
    assert_steady(call.packets, 160)  # G.722 counts at 8000 Hz as well: the same source goes on


def test_a_codec_with_another_clock_is_a_new_source() -> None:
    call = Call()
    first = call.run(0.5)
    call.stream.configure(plan(codec=OPUS))
    second = call.run(0.5)
    assert {packet.ssrc for packet in first}.isdisjoint(packet.ssrc for packet in second)
    assert_steady(second, 960)
    assert second[0].marker


def test_on_hold_nothing_leaves_and_the_words_wait() -> None:
    call = Call()
    call.say(sine(8000))
    before = call.run(0.5)
    said = len(call.sent_at)
    call.stream.configure(plan(sends=False))
    assert call.run(1.0) == []
    assert len(call.sent_at) == said
    call.stream.configure(plan())
    after = call.run(0.6)
    assert after[0].marker
    assert sequence_delta(after[0].sequence, before[-1].sequence) == 1
    assert timestamp_delta(after[0].timestamp, before[-1].timestamp) == pytest.approx(1.0 * 8000, abs=320)
    assert len(call.sent_at) == 50


def test_after_a_stall_the_timestamps_are_where_the_time_is() -> None:
    call = Call()
    call.run(0.5)
    call.say(sine(8000))
    call.run(0.5)
    before = list(call.packets)
    call.clock.stall(2.0)
    after = call.run(0.8)
    elapsed_s = call.times[-1] - call.times[0]
    assert timestamp_delta(after[-1].timestamp, before[0].timestamp) == pytest.approx(
        elapsed_s * 8000, abs=320
    )  # the talkspurt is up to 20 ms ahead of its clock
    assert after[0].marker
    assert sequence_delta(after[0].sequence, before[-1].sequence) == 1
    assert sum(time == call.times[len(before)] for time in call.times) == 3


def test_a_network_that_refuses_is_counted_and_forgiven() -> None:
    call = Call()
    call.run(0.1)
    call.lost = True
    assert call.run(0.2) == []
    assert call.stream.line["send_errors"] == 10
    call.lost = False
    assert len(call.run(0.2)) == 10


def test_numbers_and_timestamps_wrap() -> None:
    call = Call()
    call.stream.line["sequence"], call.stream.line["timestamp"] = 0xFFFA, 0xFFFFFFFF - 800
    assert_steady(call.run(1.0), 160)


def test_counters_are_payload_bytes() -> None:
    call = Call()
    stream = call.run(1.0)
    line = call.stream.line
    assert (line["packets_sent"], line["octets_sent"]) == (len(stream), 160 * len(stream))
    assert timestamp_delta(timestamp_at(line, call.clock.time()), stream[-1].timestamp) in range(0, 161)


# Digits -----------------------------------------------------------------------------------------------------


def test_digits_leave_as_events_in_place_of_audio_which_waits() -> None:
    call, far, recorder = Call(), SteppedStream(plan(), rate_hz=8000, now=0.0), RecordingListener()
    far.listener = recorder
    call.stream.key("12#")
    call.run(0.01)
    call.say(speech_like(4000))
    keyed = call.run(0.58)
    events = [packet for packet in keyed if packet.payload_type == 101]
    for packet in events:
        far.datagram(packet.to_bytes(), 1.0)
    assert recorder.digits == ["1", "2", "#"]
    assert len({packet.timestamp for packet in events}) == 3
    numbers = [packet.sequence for packet in call.packets]
    assert all(sequence_delta(b, a) == 1 for a, b in pairwise(numbers))
    assert len(call.sent_at) <= 1
    call.run(0.6)
    assert call.keyed == 3
    assert len(call.sent_at) == 25


def test_digits_leave_as_tones_where_events_were_not_agreed() -> None:
    call = Call(plan(dtmf_send=None))
    call.stream.key("0459*")
    call.run(1.2)
    detector = DtmfDetector(8000)
    heard = call.heard
    found = [detector.push(heard[at : at + 160]) for at in range(0, len(heard), 160)]
    assert [digit for digit in found if digit] == list("0459*")
    assert call.keyed == 5


def test_digits_on_hold_wait_for_the_end_of_it() -> None:
    call = Call(plan(sends=False))
    call.stream.key("5")
    assert call.run(1.0) == []
    assert call.keyed == 0
    call.stream.configure(plan())
    assert 101 in {packet.payload_type for packet in call.run(0.3)}
    assert call.keyed == 1


def test_events_renegotiated_away_in_the_middle_end_the_digit_quietly() -> None:
    call = Call()
    call.stream.key("5")
    call.run(0.05)
    call.stream.configure(plan(dtmf_send=None))
    assert {packet.payload_type for packet in call.run(0.3)} == {0}
    assert call.keyed == 1
