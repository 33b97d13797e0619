"""What does the listener hear when the network, or the far end, misbehaves?"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.support.codecs import encoder
from bench.support.stepped_stream import SteppedStream
from pipeline.audio.dtmf import tone
from pipeline.plane.reception.frames import MAX_CONCEALED
from pipeline.plane.reception.recovery import MAX_RECOVERED
from pipeline.plane.rows import PACKET_BYTES
from sip.rtp.media_stream import PATIENCE_MS
from sip.rtp.packet import RtpPacket
from sip.rtp.telephone_event import event_payloads
from sip.sdp.media_plan import G722, OPUS, PCMA, PCMU, Codec, MediaPlan
from tests.support.speech.media import (
    RecordingListener,
    feed,
    packets,
    plan,
    receiver,
    sine,
    snr_db,
    speech_like,
)
from tests.support.speech.tones import share_at

FRAME_S = 0.02


def payloads(samples: np.ndarray, codec: Codec = PCMU, frame: int = 160) -> list[bytes]:
    encode, packet = encoder(codec), np.zeros(1440, np.uint8)
    sizes = (encode.encode(samples[at : at + frame], packet) for at in range(0, len(samples), frame))
    return [packet[:size].tobytes() for size in sizes]


def numbered(count: int, **where: int) -> list[RtpPacket]:
    """Packets whose every byte is their index, so that frames can be told apart."""
    return packets([bytes([i % 100]) * 160 for i in range(count)], **where)


def talk(target: SteppedStream, stream: list[RtpPacket], now: float = 10.0) -> float:
    """Feeds a packet every 20 ms, with the tick between them. Returns the time after the last."""
    for packet in stream:
        feed(target, packet, now)
        target.due(now + FRAME_S / 2)
        now += FRAME_S
    return now


def counts(target: SteppedStream, *names: str) -> tuple[int, ...]:
    return tuple(int(target.line[name]) for name in names)


def one_of(index: int) -> int:
    """The first sample of a numbered packet."""
    fresh, recorder = receiver()
    feed(fresh, numbered(index + 1)[index], 1.0)
    return int(recorder.frames[0][0])


# The ordinary stream ------------------------------------------------------------------


def test_every_frame_arrives_at_once_with_its_position() -> None:
    target, recorder = receiver()
    for i, packet in enumerate(numbered(50)):
        feed(target, packet, 10 + i * FRAME_S)
        assert len(recorder.frames) == i + 1
    assert recorder.positions == [i * 160 for i in range(50)]
    assert recorder.arrivals == [10 + i * FRAME_S for i in range(50)]
    assert not any(recorder.concealed)
    assert counts(target, "packets", "octets", "lost", "bad") == (50, 8000, 0, 0)


def test_numbers_and_timestamps_wrap_unnoticed() -> None:
    target, recorder = receiver()
    talk(target, numbered(60, sequence=0xFFF0, timestamp=0xFFFFFFFF - 20 * 160))
    assert recorder.positions == [i * 160 for i in range(60)]
    assert not any(recorder.concealed)
    assert target.line["lost"] == 0


@pytest.mark.parametrize("ms", [10, 30, 40, 60])
@pytest.mark.parametrize("codec", [PCMU, PCMA], ids=["pcmu", "pcma"])
def test_other_packet_times_become_frames_of_20_ms(ms: int, codec: Codec) -> None:
    said = speech_like(8000 * 240 * 2 // 1000 * 10)
    data = b"".join(payloads(said, codec))
    step = 8 * ms
    cut = [data[at : at + step] for at in range(0, len(data), step)]
    target, recorder = receiver(plan(codec=codec))
    for i, packet in enumerate(packets(cut, step=step, payload_type=codec.payload_type)):
        feed(target, packet, 10 + i * ms / 1000)
    assert {len(frame) for frame in recorder.frames} == {160}
    assert recorder.positions == [i * 160 for i in range(len(recorder.frames))]
    assert len(recorder.heard) == len(said)
    assert snr_db(recorder.heard, said, search=1) > 34


@pytest.mark.parametrize(
    ("codec", "rate_hz", "step"), [(G722, 16000, 160), (OPUS, 16000, 960), (PCMU, 16000, 160)]
)
def test_positions_count_samples_of_the_legs_rate(codec: Codec, rate_hz: int, step: int) -> None:
    said = speech_like(codec.rate_hz, codec.rate_hz)
    stream = packets(payloads(said, codec, codec.rate_hz // 50), step=step, payload_type=codec.payload_type)
    target, recorder = receiver(plan(codec=codec), rate_hz=rate_hz)
    talk(target, stream)
    assert recorder.positions == [i * 320 for i in range(50)]
    assert {len(frame) for frame in recorder.frames} == {320}


def test_headers_with_csrcs_extension_and_padding_are_heard_alike() -> None:
    plain, recorder = receiver()
    odd, same_recorder = receiver()
    for i, packet in enumerate(numbered(20)):
        data = packet.to_bytes()
        dressed = (
            bytes([0xB2]) + data[1:12] + bytes(8) + b"\xbe\xde\x00\x01abcd" + data[12:] + b"\x00\x00\x00\x04"
        )
        feed(plain, data, 10 + i * FRAME_S)
        feed(odd, dressed, 10 + i * FRAME_S)
    assert np.array_equal(recorder.heard, same_recorder.heard)
    assert len(recorder.frames) == 20


# What is no packet of ours ------------------------------------------------------------------


def test_garbage_of_every_kind_is_counted_and_the_call_goes_on() -> None:
    rng = random.Random(4)
    target, recorder = receiver()
    good = numbered(200)
    bad = 0
    for i, packet in enumerate(good):
        data = bytearray(packet.to_bytes())
        for junk in (
            rng.randbytes(rng.randrange(0, 12)),  # truncated
            bytes([rng.choice((0x00, 0x40, 0xC0))]) + bytes(data[1:]),  # another version
            bytes(data[:1]) + bytes([77]) + bytes(data[2:]),  # a payload type that nobody agreed on
            bytes([0x8F]) + bytes(data[1:30]),  # CSRCs that are not there
            b"",
        ):
            feed(target, junk, 10 + i * FRAME_S)
            bad += 1
        feed(target, bytes(data), 10 + i * FRAME_S)
    assert target.line["bad"] == bad
    assert len(recorder.frames) == 200
    assert not any(recorder.concealed)


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(0, 3))
def test_no_datagram_raises(datagrams: list[bytes], kind: int) -> None:
    codec = (PCMU, PCMA, G722, OPUS)[kind]
    target, _ = receiver(plan(codec=codec), rate_hz=codec.rate_hz)
    for i, data in enumerate(datagrams):
        for start in (b"", b"\x80\x00", b"\x80\x0d", b"\x80\x65", b"\x80\x6f", b"\xb1\x09"):
            feed(target, start + data, 10 + i * FRAME_S)
        target.due(10 + i * FRAME_S)


def test_a_packet_as_large_as_the_buffer_does_no_harm() -> None:
    target, recorder = receiver()
    feed(target, numbered(1)[0].to_bytes() + bytes(PACKET_BYTES - 172), 10.0)
    assert target.line["bad"] == 1
    talk(target, numbered(10, sequence=101))
    assert len(recorder.frames) == 10


def test_reports_on_the_rtp_port_are_told_apart() -> None:
    target, _ = receiver()
    report = b"\x80\xc9\x00\x01" + bytes(8)
    feed(target, report, 1.0)
    assert target.aside == [report]
    assert target.line["bad"] == 0


# Loss and order ------------------------------------------------------------------


def test_a_lost_packet_is_concealed_within_the_patience() -> None:
    target, recorder = receiver()
    stream = numbered(20)
    now = talk(target, stream[:10])
    talk(target, stream[11:], now + FRAME_S)
    assert recorder.positions == [i * 160 for i in range(20)]
    assert [i for i, made_up in enumerate(recorder.concealed) if made_up] == [10]
    assert target.line["lost"] == 1
    waited = recorder.arrivals[10] - (now + FRAME_S)  # since the packet behind the gap
    assert waited <= PATIENCE_MS / 1000 + FRAME_S
    assert recorder.frames[11][-1] == one_of(11)


def test_the_tick_alone_ends_the_wait_when_no_packet_follows() -> None:
    target, recorder = receiver()
    stream = numbered(5)
    now = talk(target, stream[:3])
    feed(target, stream[4], now)
    assert (len(recorder.frames), target.line["held"]) == (3, 1)
    target.due(now + PATIENCE_MS / 1000 - 0.001)
    assert len(recorder.frames) == 3
    target.due(now + PATIENCE_MS / 1000 + 0.001)
    assert recorder.concealed == [False] * 3 + [True, False]
    assert target.line["held"] == 0


def test_swapped_packets_are_put_in_order_and_nothing_is_made_up() -> None:
    target, recorder = receiver()
    stream = numbered(40)
    for at in range(1, 39, 3):
        stream[at], stream[at + 1] = stream[at + 1], stream[at]
    talk(target, stream)
    assert recorder.positions == [i * 160 for i in range(40)]
    assert not any(recorder.concealed)
    assert [int(frame[0]) for frame in recorder.frames] == [one_of(i) for i in range(40)]


def test_duplicates_are_heard_once() -> None:
    target, recorder = receiver()
    talk(target, [packet for packet in numbered(30) for _ in range(3)])
    assert recorder.positions == [i * 160 for i in range(30)]


def test_a_third_lost_and_the_rest_shuffled_keeps_time() -> None:
    rng = random.Random(9)
    target, recorder = receiver()
    stream = [
        (i * FRAME_S + rng.uniform(0, 0.05), packet)
        for i, packet in enumerate(numbered(1000))
        if i < 3 or i > 990 or rng.random() > 0.3
    ]
    for now, packet in sorted(stream, key=lambda arrival: arrival[0]):
        feed(target, packet, 10 + now)
        target.due(10 + now)
    target.due(100)
    assert recorder.positions == sorted(set(recorder.positions))
    assert all(position % 160 == 0 for position in recorder.positions)
    assert recorder.positions[-1] == 999 * 160
    heard = dict(zip(recorder.positions, recorder.frames, strict=True))
    made_up = dict(zip(recorder.positions, recorder.concealed, strict=True))
    lost = 1000 - len(stream)
    assert target.line["lost"] - target.line["late"] == lost
    assert sum(made_up.values()) >= 0.8 * lost
    for i in range(1000):  # a frame is what was said then; after a concealed one its start is a cross-fade
        if i * 160 in heard and not made_up[i * 160]:
            assert heard[i * 160][-1] == one_of(i % 100)


def test_a_lost_opus_packet_comes_out_of_the_fec_of_the_next() -> None:
    """The pitch jumps in the packet that is lost: what was heard before says nothing of it."""
    said = np.concatenate([sine(40 * 320, 16000, 300), sine(40 * 320, 16000, 1000)])
    sent = packets(payloads(said, OPUS, 320), step=960, payload_type=111)
    target, recorder = receiver(plan(codec=OPUS), rate_hz=16000)
    talk(target, [packet for i, packet in enumerate(sent) if i != 40])
    assert recorder.positions == [i * 320 for i in range(80)]
    assert [i for i, made_up in enumerate(recorder.concealed) if made_up] == [40]
    assert share_at(recorder.frames[40][160:], 16000, 1000) > 0.5
    assert (target.line["lost"], target.line["concealed"]) == (1, 1)


def test_a_hole_in_opus_is_filled_to_its_length_or_left_but_for_its_last_frame() -> None:
    sent = packets(payloads(speech_like(16000 * 2, 16000), OPUS, 320), step=960, payload_type=111)
    for lost in (3, MAX_RECOVERED, MAX_RECOVERED + 1):
        target, recorder = receiver(plan(codec=OPUS), rate_hz=16000)
        talk(target, sent[:40] + sent[40 + lost :])
        made_up = [
            position // 320 for position, up in zip(recorder.positions, recorder.concealed, strict=True) if up
        ]
        last = 40 + lost - 1
        assert made_up == (list(range(40, last + 1)) if lost <= MAX_RECOVERED else [last])
        assert recorder.positions[-1] == 99 * 320
        assert target.line["concealed"] == len(made_up)


def test_a_long_hole_is_concealed_for_a_moment_and_stays_a_hole() -> None:
    target, recorder = receiver()
    stream = numbered(60)
    now = talk(target, stream[:10])
    talk(target, stream[40:], now + 30 * FRAME_S)
    assert sum(recorder.concealed) == MAX_CONCEALED
    assert recorder.positions[10 + MAX_CONCEALED] == 40 * 160
    assert target.line["lost"] == 30


def test_a_packet_too_late_is_counted_and_not_heard() -> None:
    target, recorder = receiver()
    stream = numbered(20)
    late = stream.pop(10)
    now = talk(target, stream)
    feed(target, late, now)
    assert len(recorder.frames) == 20
    assert (target.line["lost"], target.line["late"]) == (1, 1)


# Clocks and sources ------------------------------------------------------------------


def test_silence_suppression_leaves_a_hole_of_its_true_length() -> None:
    target, recorder = receiver()
    now = talk(target, numbered(10))
    talk(target, numbered(10, sequence=110, timestamp=5000 + 260 * 160), now + 5.0)
    assert recorder.positions[9:11] == [9 * 160, 260 * 160]
    assert not any(recorder.concealed)


@pytest.mark.parametrize("jump", [8_000_000, 0x7FFFFFFF, -8_000_000, -160])
def test_a_clock_set_anew_does_not_move_the_listeners_time(jump: int) -> None:
    target, recorder = receiver()
    now = talk(target, numbered(10))
    talk(target, numbered(10, sequence=110, timestamp=(5000 + 1600 + jump) & 0xFFFFFFFF), now)
    assert recorder.positions == [i * 160 for i in range(20)]


def test_a_clock_set_anew_after_a_pause_goes_on_at_the_listeners_time() -> None:
    target, recorder = receiver()
    now = talk(target, numbered(10))
    talk(target, numbered(10, sequence=110, timestamp=0x70000000), now + 2.0)
    assert recorder.positions[10] == pytest.approx((0.2 + 2.0) * 8000, abs=1)


def test_a_new_source_is_taken_over_after_its_second_packet() -> None:
    target, recorder = receiver()
    now = talk(target, numbered(50))
    talk(target, numbered(50, ssrc=0x99, sequence=40_000, timestamp=77), now)
    assert len(recorder.frames) == 99  # the first of the newcomer was on probation
    assert recorder.positions == [i * 160 for i in range(50)] + [i * 160 for i in range(50, 99)]
    assert target.line["bad"] == 1
    assert target.line["ssrc"] == 0x99
    assert target.line["lost"] == 0


def test_a_stray_source_beside_a_living_one_never_gets_in() -> None:
    target, recorder = receiver()
    ours, theirs = numbered(100), numbered(100, ssrc=0x99, sequence=40_000)
    talk(target, [packet for pair in zip(ours, theirs, strict=True) for packet in pair])
    assert len(recorder.frames) == 100
    assert target.line["bad"] == 100
    assert recorder.positions == [i * 160 for i in range(100)]


def test_comfort_noise_is_silence_until_speech_goes_on() -> None:
    target, recorder = receiver()
    stream = numbered(10)
    noise = RtpPacket(13, 110, 5000 + 1600, stream[0].ssrc, b"\x3c")
    now = talk(target, [*stream, noise])
    talk(target, numbered(5, sequence=111, timestamp=5000 + 60 * 160), now + 1.0)
    assert not recorder.frames[10].any()
    assert recorder.positions[9:12] == [1440, 1600, 60 * 160]
    assert not any(recorder.concealed)
    assert target.line["bad"] == 0


@pytest.mark.parametrize("codec", [PCMU, PCMA, G722, OPUS], ids=lambda codec: codec.name)
def test_comfort_noise_before_any_audio_is_no_harm(codec: Codec) -> None:
    target, recorder = receiver(plan(codec=codec), rate_hz=codec.rate_hz)
    for i in range(3):
        feed(target, RtpPacket(13, 97 + i, 5000 + 160 * i, 7, b"\x40"), 10 + i * FRAME_S)
    said = payloads(speech_like(codec.rate_hz), codec, codec.rate_hz // 50)
    kind = plan(codec=codec).send_payload_type
    talk(target, packets(said, payload_type=kind, ssrc=7, step=codec.clock_rate_hz // 50), 10.06)
    assert len(recorder.frames) == 50
    assert recorder.positions[0] == 0


def test_the_far_end_may_change_its_codec_from_packet_to_packet() -> None:
    said = speech_like(16000)
    both = plan(receive={0: PCMU, 8: PCMA})
    target, recorder = receiver(both)
    ulaw, alaw = packets(payloads(said)), packets(payloads(said, PCMA), payload_type=8)
    talk(target, [(ulaw if i % 2 else alaw)[i] for i in range(len(ulaw))])
    assert snr_db(recorder.heard, said, search=1) > 34


def test_a_codec_with_another_clock_keeps_the_positions() -> None:
    both = plan(receive={0: PCMU, 111: OPUS})
    target, recorder = receiver(both)
    now = talk(target, numbered(10))
    opus = payloads(speech_like(16000, 16000), OPUS, 320)
    talk(target, packets(opus, sequence=110, timestamp=5000 + 1600, step=960, payload_type=111), now)
    assert recorder.positions == [i * 160 for i in range(60)]
    assert {len(frame) for frame in recorder.frames} == {160}


def test_an_undecodable_packet_is_counted_and_the_next_is_heard() -> None:
    target, recorder = receiver(plan(codec=OPUS), rate_hz=16000)
    good = packets(payloads(speech_like(3200, 16000), OPUS, 320), step=960, payload_type=111)
    good[4] = replace(good[4], payload=b"\xff\xff\xff")
    talk(target, good)
    assert target.line["bad"] == 1
    assert len(recorder.frames) == 9
    assert recorder.positions[-1] == 9 * 320


def test_while_held_nothing_is_heard_and_afterwards_nothing_was_lost() -> None:
    target, recorder = receiver()
    stream = numbered(300)
    now = talk(target, stream[:50])
    target.configure(plan(receives=False))
    now = talk(target, stream[50:250], now)
    assert len(recorder.frames) == 50
    target.configure(plan())
    talk(target, stream[250:], now)
    assert target.line["lost"] == 0
    assert recorder.positions[50] == 250 * 160
    assert not any(recorder.concealed)


# Digits ------------------------------------------------------------------


def keyed(digits: str, *, sequence: int = 100, timestamp: int = 5000) -> list[RtpPacket]:
    """Digits keyed in the middle of speech, as gateways send them: audio is replaced."""
    stream: list[RtpPacket] = []
    for digit in digits:
        stream += numbered(5, sequence=sequence, timestamp=timestamp)
        for i, payload in enumerate(event_payloads(digit, 8000)):
            stream.append(
                RtpPacket(101, (sequence + 5 + i) & 0xFFFF, timestamp + 800, stream[0].ssrc, payload, i == 0)
            )
        sequence, timestamp = sequence + 12, timestamp + 12 * 160
    return stream


def test_events_in_the_audio_are_digits_and_no_holes() -> None:
    target, recorder = receiver()
    talk(target, keyed("159#"))
    assert recorder.digits == list("159#")
    assert not any(recorder.concealed)
    assert target.line["lost"] == 0


def test_events_survive_loss_and_disorder() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        target, recorder = receiver()
        stream = [packet for packet in keyed("0123456789*#") if packet.marker or rng.random() > 0.2]
        for at in range(0, len(stream) - 1, 5):
            stream[at], stream[at + 1] = stream[at + 1], stream[at]
        talk(target, stream)
        assert recorder.digits == list("0123456789*#")


def test_short_events_are_bad_packets() -> None:
    target, recorder = receiver()
    feed(target, RtpPacket(101, 1, 1, 1, b"\x01\x02"), 1.0)
    assert (target.line["bad"], recorder.digits) == (1, [])


def in_band(digits: str) -> list[bytes]:
    pause = np.zeros(800, np.int16)
    return payloads(np.concatenate([np.concatenate([tone(digit, 8000, 100), pause]) for digit in digits]))


@pytest.mark.parametrize(
    ("agreed", "asked"), [(plan(dtmf_send=None, dtmf_receive=None), False), (plan(), True)]
)
def test_tones_are_digits_where_events_were_not_agreed_or_the_trunk_asks(
    agreed: MediaPlan, asked: bool
) -> None:
    target, recorder = receiver(agreed, inband_dtmf=asked)
    talk(target, packets(in_band("159*")))
    assert recorder.digits == list("159*")
    assert len(recorder.frames) == 4 * 10


def test_tones_are_only_sound_where_events_were_agreed() -> None:
    target, recorder = receiver()
    talk(target, packets(in_band("159*")))
    assert recorder.digits == []


def test_an_event_and_its_tone_are_one_digit() -> None:
    target, recorder = receiver(inband_dtmf=True)
    event = [RtpPacket(101, 90 + i, 4000, 0x1234ABCD, p) for i, p in enumerate(event_payloads("5", 8000))]
    now = talk(target, event)
    talk(target, packets(in_band("5"), sequence=97, timestamp=5000), now)
    assert recorder.digits == ["5"]


def test_a_listener_that_left_costs_nothing_but_the_counting() -> None:
    target, recorder = receiver()
    talk(target, numbered(5))
    target.listener = None
    now = talk(target, keyed("1", sequence=105, timestamp=5800))
    assert (len(recorder.frames), recorder.digits) == (5, [])
    again = RecordingListener()
    target.listener = again
    talk(target, numbered(5, sequence=117, timestamp=5800 + 12 * 160), now)
    assert again.positions[0] == 17 * 160


def test_steady_sound_has_no_seam_between_packets() -> None:
    target, recorder = receiver()
    said = sine(16000)
    talk(target, packets(payloads(said)))
    assert np.abs(np.diff(recorder.heard.astype(int))).max() <= np.abs(np.diff(said.astype(int))).max() + 520
