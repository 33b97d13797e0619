"""Does a voice come out of each codec as it went in, and garbage as an error?"""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pytest

from pipeline.audio import Pcm, frame_samples, opus
from sip.errors import LocalError
from sip.rtp.codecs import MAX_PAYLOAD_BYTES, BadPayload, decoder, encoder, silent_payload
from sip.sdp.media_plan import CODECS, G722, OPUS, PCMA, PCMU, Codec
from tests.support.speech.media import snr_db, spectral_distance_db, speech_like

ALL = list(CODECS.values())


def through(codec: Codec, said: Pcm) -> tuple[Pcm, list[int]]:
    encode, decode = encoder(codec), decoder(codec)
    packet = np.zeros(MAX_PAYLOAD_BYTES, np.uint8)
    heard, sizes = [], []
    step = frame_samples(codec.rate_hz)
    for at in range(0, len(said), step):
        size = encode.encode(said[at : at + step], packet)
        sizes.append(size)
        heard.append(decode.decode(packet[:size]).copy())
    return np.concatenate(heard), sizes


@pytest.mark.parametrize(("codec", "least_db"), [(PCMU, 34), (PCMA, 34), (G722, 18)])
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


def test_payload_sizes_are_those_of_the_formats() -> None:
    for codec in (PCMU, PCMA, G722):
        _, sizes = through(codec, speech_like(codec.rate_hz, codec.rate_hz))
        assert set(sizes) == {160}
    _, sizes = through(OPUS, speech_like(16000, 16000))
    assert 20 < np.mean(sizes) < 100


@pytest.mark.parametrize(("codec", "code"), [(PCMU, 0xFF), (PCMA, 0xD5)])
def test_silence_is_the_code_of_a_sample_of_zero(codec: Codec, code: int) -> None:
    assert silent_payload(codec) == bytes([code]) * 160
    packet = np.zeros(MAX_PAYLOAD_BYTES, np.uint8)
    assert encoder(codec).encode(np.zeros(160, np.int16), packet) == 160
    assert set(packet[:160].tolist()) == {code}
    assert np.abs(decoder(codec).decode(packet[:160])).max() <= 8


@pytest.mark.parametrize("codec", [G722, OPUS], ids=str)
def test_codecs_with_state_have_no_constant_silence(codec: Codec) -> None:
    assert silent_payload(codec) is None
    heard, _ = through(codec, np.zeros(codec.rate_hz, np.int16))
    assert np.abs(heard).max() < 40


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_garbage_is_audio_or_an_error_and_the_next_packet_is_fine(codec: Codec) -> None:
    rng = random.Random(11)
    decode, encode = decoder(codec), encoder(codec)
    packet = np.zeros(MAX_PAYLOAD_BYTES, np.uint8)
    said = speech_like(codec.rate_hz, codec.rate_hz)
    for _ in range(200):
        garbage = np.frombuffer(rng.randbytes(rng.randrange(0, 400)), np.uint8)
        with suppress(BadPayload):
            assert decode.decode(garbage).dtype == np.int16
        size = encode.encode(said[: frame_samples(codec.rate_hz)], packet)
        assert len(decode.decode(packet[:size])) == frame_samples(codec.rate_hz)


@pytest.mark.parametrize("codec", ALL, ids=str)
@pytest.mark.parametrize("size", [0, MAX_PAYLOAD_BYTES + 1])
def test_payloads_without_a_sensible_size_are_refused(codec: Codec, size: int) -> None:
    with pytest.raises(BadPayload):
        decoder(codec).decode(np.zeros(size, np.uint8))


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_a_packet_too_small_for_the_frame_is_not_overrun(codec: Codec) -> None:
    memory = np.zeros(64, np.uint8)
    with pytest.raises(BadPayload):
        encoder(codec).encode(speech_like(frame_samples(codec.rate_hz), codec.rate_hz), memory[:8])
    assert not memory[8:].any()


@pytest.mark.parametrize("ms", [10, 20, 30, 40, 60])
@pytest.mark.parametrize("codec", [PCMU, PCMA, G722], ids=str)
def test_payloads_of_other_durations_are_decoded(codec: Codec, ms: int) -> None:
    assert len(decoder(codec).decode(np.full(8 * ms, 0xD5, np.uint8))) == codec.rate_hz * ms // 1000


def test_streams_do_not_share_state() -> None:
    said = speech_like(16000, 16000)
    alone, _ = through(G722, said)
    packet = np.zeros(MAX_PAYLOAD_BYTES, np.uint8)
    one, other, decode = encoder(G722), encoder(G722), decoder(G722)
    mixed = []
    for at in range(0, len(said), 320):
        other.encode(np.zeros(320, np.int16), np.zeros(MAX_PAYLOAD_BYTES, np.uint8))
        size = one.encode(said[at : at + 320], packet)
        mixed.append(decode.decode(packet[:size]).copy())
    assert np.array_equal(np.concatenate(mixed), alone)


def test_an_unknown_codec_is_our_mistake() -> None:
    gsm = Codec("GSM", 3, 8000, 8000)
    for make in (encoder, decoder):
        with pytest.raises(LocalError, match="GSM"):
            make(gsm)


def test_a_frame_that_opus_does_not_encode_is_refused_as_of_the_other_codecs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sender counts a `BadPayload` and sends the next frame."""
    packet = np.zeros(MAX_PAYLOAD_BYTES, np.uint8)
    with pytest.raises(BadPayload):
        encoder(OPUS).encode(np.zeros(319, np.int16), packet)
    monkeypatch.setattr(opus, "opus_encode", lambda *_: -3)
    with pytest.raises(BadPayload):
        encoder(OPUS).encode(np.zeros(320, np.int16), packet)


def test_without_libopus_there_is_no_encoder_and_no_decoder_of_opus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opus, "_LIBRARY", None)
    monkeypatch.setattr(opus, "_WHY_NOT", "libopus is missing: install it")
    for made in (encoder, decoder):
        with pytest.raises(LocalError, match="for opus: libopus is missing"):
            made(OPUS)
