"""SRTP of one stream: RFC 3711's vectors, forged and replayed packets, new keys, reports."""

from __future__ import annotations

import ctypes

import pylibsrtp
import pytest

from bench.support.stepped_stream import SteppedStream
from pipeline.plane.srtp import Opener, Protection, Sealer, _library
from pipeline.plane.srtp_sources import SOURCES
from pipeline.plane.srtp_suite import Master, Masters, Suite
from sip.rtp.packet import RtpPacket
from tests.support.speech.media import SSRC, RecordingListener, packets, plan
from tests.support.webrtc.sources import known

FRAME_S = 0.02


def keys(suite: Suite) -> Masters:
    return Masters(Master.new(suite), Master.new(suite))


def seen_from_there(masters: Masters) -> Masters:
    return Masters(masters.received, masters.sent)


def there(master: Master, *, sequence: int = 1, ssrc: int = SSRC) -> tuple[SteppedStream, Protection]:
    """A far end that sends with the key from a packet number on."""
    made, protection = SteppedStream(plan(), rate_hz=8000, now=0.0), Protection()
    protection.use(made.line, Masters(master, Master.new(master.suite)))
    made.line["sequence"], made.line["own_ssrc"] = sequence, ssrc
    return made, protection


def stream(masters: Masters | None) -> tuple[SteppedStream, Protection, RecordingListener]:
    made, protection = SteppedStream(plan(), rate_hz=8000, now=0.0), Protection()
    made.listener = listener = RecordingListener()
    protection.require(made.line)
    if masters is not None:
        protection.use(made.line, masters)
    return made, protection, listener


# libsrtp's test vectors: test/srtp_driver.c, srtp_validate() and srtp_validate_gcm()
VECTORS = [
    (
        Suite.AES_CM_128_HMAC_SHA1_80,
        "e1f97a0d3e018be0d64fa32c06de41390ec675ad498afeebb6960b3aabe6",
        "800f1234decafbadcafebabe" + "ab" * 16,
        "800f1234decafbadcafebabe4e55dc4ce79978d88ca4d215949d2402b78d6acc99ea179b8dbb",
    ),
    (
        Suite.AEAD_AES_128_GCM,
        "000102030405060708090a0b0c0d0e0fa0a1a2a3a4a5a6a7a8a9aaab",
        "800f1234decafbadcafebabe" + "ab" * 16,
        "800f1234decafbadcafebabec5002ede04cfdd2eb91159e0880aa06ed2976826f796b201df3131a127e8a392",
    ),
]


@pytest.mark.parametrize(("suite", "secret", "plain", "protected"), VECTORS, ids=lambda each: str(each)[:24])
def test_the_vectors_of_libsrtp_are_met(suite: Suite, secret: str, plain: str, protected: str) -> None:
    master = Master(suite, bytes.fromhex(secret))
    receiver, _, _ = stream(Masters(Master.new(suite), master))
    receiver.line["media"][0x0F] = receiver.line["media"][0]
    assert receiver.datagram(bytes.fromhex(protected), 0.0)
    assert int(receiver.line["octets"]) == 16
    assert int(receiver.line["forged"]) == 0
    assert not receiver.datagram(bytes.fromhex(plain), 0.02)
    assert int(receiver.line["forged"]) + int(receiver.line["replayed"]) == 1


@pytest.mark.parametrize("suite", list(Suite))
def test_only_the_far_ends_packets_are_heard_and_each_once(suite: Suite) -> None:
    masters = keys(suite)
    sender, _, _ = stream(masters)
    receiver, _, listener = stream(seen_from_there(masters))
    for tick in range(50):
        for packet in sender.due(tick * FRAME_S):
            assert len(packet) == 12 + 160 + suite.tag_bytes
            broken = packet[:40] + bytes([packet[40] ^ 1]) + packet[41:]
            assert not receiver.datagram(broken, tick * FRAME_S)
            assert receiver.datagram(packet, tick * FRAME_S)
            assert not receiver.datagram(packet, tick * FRAME_S)
    line = receiver.line
    assert (int(line["packets"]), int(line["forged"]), int(line["replayed"])) == (50, 50, 50)
    assert int(sender.line["octets_sent"]) == int(line["octets"]) == 50 * 160
    assert len(listener.frames) == 50
    assert not any(listener.concealed)


def test_without_keys_nothing_is_sent_and_nothing_heard() -> None:
    sender, _, _ = stream(None)
    assert [packet for tick in range(10) for packet in sender.due(tick * FRAME_S)] == []
    receiver, _, listener = stream(None)
    for packet in packets([bytes(160)] * 5):
        receiver.datagram(packet.to_bytes(), 0.0)
    assert listener.frames == []
    assert int(receiver.line["forged"]) == 5


def test_plain_packets_are_never_played() -> None:
    receiver, _, listener = stream(keys(Suite.AES_CM_128_HMAC_SHA1_80))
    for packet in packets([bytes(160)] * 5):
        receiver.datagram(packet.to_bytes(), 0.0)
    assert listener.frames == []
    assert int(receiver.line["forged"]) == 5


@pytest.mark.parametrize("suite", list(Suite))
def test_packets_under_the_key_before_are_heard_until_the_new_one_is(suite: Suite) -> None:
    before, after = keys(suite), keys(suite)
    old, _, _ = stream(before)
    new, _, _ = stream(Masters(after.sent, before.received))
    receiver, protection, _ = stream(seen_from_there(before))
    sent = [packet for tick in range(6) for packet in old.due(tick * FRAME_S)]
    later = [packet for tick in range(2) for packet in new.due(tick * FRAME_S)]
    assert all(receiver.datagram(packet, 0.0) for packet in sent[:2])
    protection.use(receiver.line, Masters(before.received, after.sent))
    assert all(receiver.datagram(packet, 0.0) for packet in sent[2:4])
    receiver.datagram(later[0], 0.0)
    receiver.datagram(later[1], 0.0)
    assert int(receiver.line["forged"]) == 0
    assert not receiver.datagram(sent[5], 0.0)
    assert int(receiver.line["forged"]) == 1


def test_a_key_that_stays_or_comes_back_keeps_its_session() -> None:
    masters = keys(Suite.AES_CM_128_HMAC_SHA1_80)
    sender, protection, _ = stream(masters)
    address = int(sender.line["sealer"])
    protection.use(sender.line, Masters(masters.sent, Master.new(masters.received.suite)))
    assert int(sender.line["sealer"]) == address
    protection.use(sender.line, keys(Suite.AEAD_AES_128_GCM))
    assert int(sender.line["sealer"]) != address
    assert int(sender.line["tag_bytes"]) == 16
    protection.use(sender.line, masters)
    assert int(sender.line["sealer"]) == address


def test_the_roll_over_of_the_sequence_numbers_is_followed() -> None:
    master = Master.new(Suite.AES_CM_128_HMAC_SHA1_80)
    receiver, _, listener = stream(Masters(Master.new(master.suite), master))
    there, protection = SteppedStream(plan(), rate_hz=8000, now=0.0), Protection()
    protection.use(there.line, Masters(master, Master.new(master.suite)))
    there.line["sequence"] = 0xFFF0
    for tick in range(40):
        for packet in there.due(tick * FRAME_S):
            assert receiver.datagram(packet, tick * FRAME_S)
    assert RtpPacket.parse(packet).sequence < 40
    assert len(listener.frames) == 40


@pytest.mark.parametrize("suite", list(Suite))
def test_reports_are_protected_too(suite: Suite) -> None:
    master = Master.new(suite)
    report = bytes.fromhex("80c90001cafebabe")
    protected = Sealer(master).report(report)
    assert protected[8:] != b""
    opener = Opener(master)
    assert opener.report(protected[:-1] + bytes([protected[-1] ^ 1])) is None
    assert opener.report(report) is None
    assert opener.report(protected) == report
    assert opener.report(protected) is None
    assert opener.report(bytes(2000)) is None


def test_a_far_end_of_ever_new_sources_fills_no_memory() -> None:
    """Each packet of another source is authentic, and libsrtp looks through all sources for each packet."""
    master = Master.new(Suite.AES_CM_128_HMAC_SHA1_80)
    receiver, protection, _ = stream(Masters(Master.new(master.suite), master))
    for ssrc in range(1, 200):
        far, _ = there(master, ssrc=ssrc)
        assert all(receiver.datagram(packet, 0.0) for packet in far.due(FRAME_S))
    assert int(receiver.line["forged"]) == 0
    assert protection.opener is not None
    assert known(protection.opener._rtp, range(1, 200)) <= SOURCES


def test_the_source_that_is_heard_stays_known_among_others() -> None:
    """Its numbers roll over, and its packets come again."""
    master = Master.new(Suite.AEAD_AES_128_GCM)
    receiver, _, listener = stream(Masters(Master.new(master.suite), master))
    far, _ = there(master, sequence=0xFFC0)
    sent = []
    for tick in range(100):
        stranger, _ = there(master, ssrc=1000 + tick)
        for packet in far.due(tick * FRAME_S):
            assert receiver.datagram(packet, tick * FRAME_S)
            sent.append(packet)
        for packet in stranger.due(0.0):
            receiver.datagram(packet, tick * FRAME_S)
    assert int(receiver.line["forged"]) == 0
    assert len(listener.frames) == 100
    assert not any(receiver.datagram(packet, 3.0) for packet in sent)
    assert int(receiver.line["replayed"]) == 100


@pytest.mark.parametrize("suite", list(Suite))
def test_reports_of_ever_new_sources_fill_no_memory(suite: Suite) -> None:
    master = Master.new(suite)
    opener = Opener(master)
    for ssrc in range(1, 200):
        report = bytes.fromhex("80c90001") + ssrc.to_bytes(4)
        assert opener.report(Sealer(master).report(report)) == report
    assert known(opener._rtcp, range(1, 200)) <= SOURCES


@pytest.mark.parametrize("suite", list(Suite))
def test_a_report_is_taken_once_however_many_new_sources_report_meanwhile(suite: Suite) -> None:
    master = Master.new(suite)
    opener, sealer, taken = Opener(master), Sealer(master), []
    for ssrc in range(1000, 1100):
        taken.append(sealer.report(bytes.fromhex("80c90001000000aa")))
        assert opener.report(taken[-1]) is not None
        assert opener.report(Sealer(master).report(bytes.fromhex("80c90001") + ssrc.to_bytes(4))) is not None
    assert not any(opener.report(again) for again in taken)


@pytest.mark.parametrize("suite", list(Suite))
@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "from 0"])
def test_a_new_key_after_a_roll_over_is_heard_wherever_the_far_end_counts_from(
    suite: Suite, goes_on: bool
) -> None:
    """RFC 3711 3.3.1: the count must not be reset to 0. Who makes a new session for the new key does so."""
    before, after = Master.new(suite), Master.new(suite)
    receiver, protection, listener = stream(Masters(Master.new(suite), before))
    far, theirs = there(before, sequence=0xFFF0)
    for tick in range(40):
        assert all(receiver.datagram(packet, tick * FRAME_S) for packet in far.due(tick * FRAME_S))
    ours = Master.new(suite)
    protection.use(receiver.line, Masters(ours, after))
    theirs.use(far.line, Masters(after, ours))
    if goes_on:
        policy = pylibsrtp.Policy(
            after.secret, pylibsrtp.Policy.SSRC_SPECIFIC, SSRC, srtp_profile=suite.profile
        )
        assert theirs.sealer is not None
        theirs.sealer._rtp.add_stream(policy)
        _library.srtp_set_stream_roc(ctypes.c_void_p(theirs.sealer.address), SSRC, 1)
    for tick in range(40, 80):
        assert all(receiver.datagram(packet, tick * FRAME_S) for packet in far.due(tick * FRAME_S))
    assert int(receiver.line["forged"]) == 0
    assert len(listener.frames) == 80
