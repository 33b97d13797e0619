"""Does a voice come out of each codec as it went in, through both halves of a row of the media plane?"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from bench.support.stepped_stream import SteppedStream
from pipeline.audio import Pcm, frame_samples, opus
from pipeline.plane.codecs import MAX_PAYLOAD_BYTES
from sip.errors import LocalError
from sip.rtp.media_formats import receiving, sending
from sip.rtp.packet import RtpPacket
from sip.sdp.media_plan import CODECS, G722, OPUS, PCMA, PCMU, Codec
from tests.support.speech.media import (
    RecordingListener,
    feed,
    packets,
    plan,
    receiver,
    sine,
    snr_db,
    spectral_distance_db,
    speech_like,
)

ALL = list(CODECS.values())
FRAME_S = 0.02


def stream(codec: Codec, *, rate_hz: int = 0) -> SteppedStream:
    """One that speaks and hears `codec`, on a leg of `rate_hz` (0: the codec's)."""
    return SteppedStream(plan(codec=codec), rate_hz=rate_hz or codec.rate_hz, now=10.0)


def spoken(speaker: SteppedStream, said: Pcm, rate_hz: int, *, now: float = 10.0) -> list[RtpPacket]:
    """The packets that carry `said`."""
    step = frame_samples(rate_hz)
    sent = []
    for at in range(0, len(said), step):
        speaker.outgoing.say([said[at : at + step]])
        sent += [RtpPacket.parse(packet) for packet in speaker.due(now)]
        now += FRAME_S
    return sent


def heard_of(sent: list[RtpPacket], listener: SteppedStream, *, now: float = 20.0) -> RecordingListener:
    recorder = RecordingListener()
    listener.listener = recorder
    for place, packet in enumerate(sent):
        feed(listener, packet, now + place * FRAME_S)
    return recorder


def through(codec: Codec, said: Pcm) -> tuple[Pcm, list[int]]:
    sent = spoken(stream(codec), said, codec.rate_hz)
    return heard_of(sent, stream(codec)).heard, [len(packet.payload) for packet in sent]


# Both ways --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("codec", "least_db"), [(PCMU, 34), (PCMA, 34), (G722, 18)], ids=str)
def test_speech_comes_through(codec: Codec, least_db: float) -> None:
    said = speech_like(codec.rate_hz * 2, codec.rate_hz)
    heard, _ = through(codec, said)
    assert len(heard) == len(said)
    assert snr_db(heard, said, search=codec.rate_hz // 50) > least_db


def test_speech_comes_through_opus() -> None:
    said = speech_like(32000, 16000)
    heard, _ = through(OPUS, said)
    assert len(heard) == len(said)
    assert spectral_distance_db(heard, said, delay=119) < 2.0


@pytest.mark.parametrize(("codec", "leg_hz"), [(G722, 8000), (PCMU, 16000), (PCMA, 16000)], ids=str)
def test_a_leg_at_another_rate_is_resampled_both_ways(codec: Codec, leg_hz: int) -> None:
    said = speech_like(leg_hz * 2, leg_hz)
    sent = spoken(stream(codec, rate_hz=leg_hz), said, leg_hz)
    heard = heard_of(sent, stream(codec, rate_hz=leg_hz))
    assert {len(frame) for frame in heard.frames} == {frame_samples(leg_hz)}
    assert snr_db(heard.heard, said, search=leg_hz // 50) > 15


def test_payload_sizes_are_those_of_the_formats() -> None:
    for codec in (PCMU, PCMA, G722):
        _, sizes = through(codec, speech_like(codec.rate_hz, codec.rate_hz))
        assert set(sizes) == {160}
    _, sizes = through(OPUS, speech_like(16000, 16000))
    assert 20 < np.mean(sizes) < 100


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_silence_is_sent_as_audio_that_is_silent(codec: Codec) -> None:
    speaker = stream(codec)
    sent = [RtpPacket.parse(packet) for n in range(50) for packet in speaker.due(10 + n * FRAME_S)]
    assert len(sent) == 50
    heard = heard_of(sent, stream(codec))
    assert len(heard.frames) == 50
    assert np.abs(heard.heard).max() < 40


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_the_clock_is_that_of_the_description(codec: Codec) -> None:
    sent = spoken(stream(codec), speech_like(codec.rate_hz, codec.rate_hz), codec.rate_hz)
    stamps = np.diff([packet.timestamp for packet in sent]) & 0xFFFFFFFF
    assert set(stamps.tolist()) == {codec.clock_rate_hz // 50}
    assert {packet.payload_type for packet in sent} == {codec.payload_type}


def test_streams_do_not_share_state() -> None:
    said = speech_like(16000, 16000)
    for codec in (G722, OPUS):
        alone, _ = through(codec, said)
        one, other, far = stream(codec), stream(codec), stream(codec)
        recorder = far.listener = RecordingListener()
        for place in range(len(said) // 320):
            other.outgoing.say([sine(320, 16000)])
            other.due(10 + place * FRAME_S)
            one.outgoing.say([said[place * 320 : place * 320 + 320]])
            for packet in one.due(10 + place * FRAME_S):
                feed(far, packet, 10 + place * FRAME_S)
        assert np.array_equal(recorder.heard, alone)


# Payloads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ms", [10, 20, 30, 40, 60])
@pytest.mark.parametrize("codec", [PCMU, PCMA, G722], ids=str)
def test_payloads_of_other_durations_are_heard_in_frames_of_20_ms(codec: Codec, ms: int) -> None:
    said = speech_like(codec.rate_hz * 24 // 10, codec.rate_hz)
    whole = spoken(stream(codec), said, codec.rate_hz)
    octets = b"".join(packet.payload for packet in whole)
    size = 8 * ms
    cut = [octets[at : at + size] for at in range(0, len(octets), size)]
    sent = packets(cut, step=size, payload_type=codec.payload_type)
    recorder = heard_of(sent, stream(codec))
    assert recorder.positions == [n * codec.rate_hz // 50 for n in range(120)]
    assert np.array_equal(recorder.heard, heard_of(whole, stream(codec)).heard)


@pytest.mark.parametrize("durations", [3, 6])
def test_opus_packets_of_several_frames_are_heard(durations: int) -> None:
    """Code 3 of RFC 6716 3.2.5: frames of 20 ms with one configuration, of different sizes."""
    sent = spoken(stream(OPUS), speech_like(320 * durations * 10, 16000), 16000)
    joined = []
    for at in range(0, len(sent), durations):
        parts = [packet.payload for packet in sent[at : at + durations]]
        sizes = bytes(len(part) - 1 for part in parts[:-1])
        head = bytes([parts[0][0] & 0xFC | 3, 0x80 | durations])
        joined.append(head + sizes + b"".join(part[1:] for part in parts))
    recorder = heard_of(packets(joined, step=960 * durations, payload_type=111), stream(OPUS))
    assert recorder.positions == [n * 320 for n in range(durations * 10)]


@pytest.mark.parametrize("codec", [PCMU, PCMA, G722], ids=str)
def test_the_largest_payload_is_heard_and_none_above_it(codec: Codec) -> None:
    target = stream(codec)
    sizes = [MAX_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES + 1, 0]
    sent = packets([b"\xd5" * size for size in sizes], payload_type=codec.payload_type)
    recorder = heard_of(sent, target)
    assert len(recorder.frames) == MAX_PAYLOAD_BYTES // 160
    assert target.line["bad"] == 2


def test_padding_that_probes_the_bandwidth_is_nothing_bad() -> None:
    target = stream(OPUS)
    feed(target, b"\xa0\x6f\x00\x01" + bytes(8) + bytes(19) + b"\x14", 10.0)
    assert (target.line["packets"], target.line["bad"]) == (1, 0)


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_garbage_is_audio_or_bad_and_the_next_packet_is_fine(codec: Codec) -> None:
    rng = random.Random(11)
    target, recorder = stream(codec), RecordingListener()
    target.listener = recorder
    good = spoken(stream(codec), speech_like(codec.rate_hz * 4, codec.rate_hz), codec.rate_hz)
    for place, packet in enumerate(good):
        junk = replace(packet, payload=rng.randbytes(rng.randrange(0, 400)))
        feed(target, junk if place % 2 else packet, 10 + place * FRAME_S)
    assert target.line["packets"] == len(good)
    heard = len(recorder.frames)
    feed(target, replace(good[-1], sequence=(good[-1].sequence + 1) & 0xFFFF), 15.0)
    assert len(recorder.frames) > heard


# Changes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [G722, OPUS], ids=str)
def test_a_new_source_is_decoded_afresh(codec: Codec) -> None:
    said = speech_like(codec.rate_hz, codec.rate_hz)
    fresh = spoken(stream(codec), said, codec.rate_hz)
    target = stream(codec)
    heard_of(spoken(stream(codec), sine(16000, 16000), 16000), target)
    for packet in fresh[:2]:  # the first is not believed yet
        feed(target, packet, 21.5)
    after = heard_of(fresh[2:], target, now=21.54)
    alone = stream(codec)
    heard_of(fresh[1:2], alone)
    assert np.array_equal(after.heard, heard_of(fresh[2:], alone, now=20.02).heard)


@pytest.mark.parametrize("codec", [G722, OPUS], ids=str)
def test_an_agreement_that_keeps_the_codec_keeps_its_state(codec: Codec) -> None:
    said = speech_like(codec.rate_hz, codec.rate_hz)
    without, _ = through(codec, said)
    speaker, target = stream(codec), stream(codec)
    first = spoken(speaker, said[: len(said) // 2], codec.rate_hz)
    before = heard_of(first, target)
    for each in (speaker, target):
        each.configure(plan(codec=codec))
    rest = spoken(speaker, said[len(said) // 2 :], codec.rate_hz, now=10.5)
    after = heard_of(rest, target, now=20.5)
    assert np.array_equal(np.concatenate([before.heard, after.heard]), without)


def test_the_codec_may_change_in_the_middle_of_the_call() -> None:
    said = speech_like(32000, 16000)
    speaker, target = stream(G722), stream(G722)
    before = heard_of(spoken(speaker, said[:16000], 16000), target)
    for each in (speaker, target):
        each.configure(plan(codec=OPUS))
    sent = spoken(speaker, said[16000:], 16000, now=11.0)
    after = heard_of(sent, target, now=21.0)
    assert snr_db(before.heard, said[:16000], search=320) > 18
    assert {packet.payload_type for packet in sent} == {111}
    assert spectral_distance_db(after.heard, said[16000 + 320 :], delay=119) < 4.0


def test_an_unknown_codec_is_our_mistake() -> None:
    gsm = plan(codec=Codec("GSM", 3, 8000, 8000))
    for made in (receiving, sending):
        with pytest.raises(LocalError, match="GSM"):
            made(gsm)


def test_without_libopus_there_is_no_opus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opus, "_LIBRARY", None)
    monkeypatch.setattr(opus, "_WHY_NOT", "libopus is missing: install it")
    for made in (receiving, sending):
        with pytest.raises(LocalError, match="no codec opus: libopus is missing"):
            made(plan(codec=OPUS))


def test_what_was_lost_of_opus_comes_out_of_the_packet_behind() -> None:
    """The pitch jumps in what is lost: what was heard before says nothing of it."""
    said = np.concatenate([sine(40 * 320, 16000, 300), sine(40 * 320, 16000, 1000)])
    sent = spoken(stream(OPUS), said, 16000)
    target, recorder = receiver(plan(codec=OPUS), rate_hz=16000)
    for place, packet in enumerate(sent):
        if place != 40:
            feed(target, packet, 10 + place * FRAME_S)
            target.due(10.01 + place * FRAME_S)
    assert [n for n, made_up in enumerate(recorder.concealed) if made_up] == [40]
    assert (target.line["lost"], target.line["recovered"], target.line["concealed"]) == (1, 1, 1)
    lost = recorder.frames[40][160:].astype(float)
    spectrum = np.abs(np.fft.rfft(lost * np.hanning(len(lost)), 1600))
    assert 900 < spectrum.argmax() * 10 < 1100
