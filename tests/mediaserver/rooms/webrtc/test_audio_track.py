"""The SRTP of one peer connection, between two sessions of libsrtp as aiortc makes them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest
from aiortc.rtcdtlstransport import SRTP_PROFILES, SRTPProtectionProfile
from pylibsrtp import Policy, Session

from mediaserver.rooms.webrtc.audio_track import SecureLink
from pipeline.plane.srtp_sources import SOURCES
from sip.rtp.packet import RtpPacket
from sip.rtp.rtcp import ReceiverReport
from tests.support.webrtc.sources import known

MICROPHONE: Final = 0xAAAA0001
pytestmark = pytest.mark.parametrize("profile", SRTP_PROFILES, ids=lambda each: each.openssl_profile.decode())


def session(profile: SRTPProtectionProfile, kind: int, secret: int = 1) -> Session:
    key = bytes([secret]) * (profile.key_length + profile.salt_length)
    policy = Policy(key, kind, srtp_profile=profile.libsrtp_profile)
    policy.window_size = 1024
    return Session(policy)


def there(profile: SRTPProtectionProfile, secret: int = 1) -> Session:
    return session(profile, Policy.SSRC_ANY_OUTBOUND, secret)


def here(profile: SRTPProtectionProfile) -> tuple[SecureLink, Session]:
    received = session(profile, Policy.SSRC_ANY_INBOUND)
    dtls: Any = SimpleNamespace(_rx_srtp=received)
    path: Any = SimpleNamespace(media=None)
    return SecureLink(dtls, path), received


def audio(ssrc: int, sequence: int = 1) -> bytes:
    return RtpPacket(111, sequence & 0xFFFF, 960 * sequence & 0xFFFFFFFF, ssrc, b"opus").to_bytes()


def test_packets_and_reports_of_ever_new_sources_fill_no_memory(profile: SRTPProtectionProfile) -> None:
    link, received = here(profile)
    far = there(profile)
    for ssrc in range(1, 200):
        packet, report = audio(ssrc), ReceiverReport(1000 + ssrc).to_bytes()
        assert link.opened(far.protect(packet)) == packet
        assert link.opened_report(far.protect_rtcp(report)) == report
    assert known(received, range(1, 1200)) == SOURCES


def test_the_source_that_is_heard_stays_known_among_others(profile: SRTPProtectionProfile) -> None:
    """Its numbers roll over, and its packets come again."""
    link, _ = here(profile)
    far, sent = there(profile), []
    for count in range(100):
        packet = audio(MICROPHONE, 0xFFC0 + count)
        sent.append(far.protect(packet))
        assert link.opened(sent[-1]) == packet
        assert link.opened(far.protect(audio(1 + count))) is not None
    assert [link.opened(each) for each in sent] == [None] * 100


def test_who_has_no_key_makes_no_source_forgotten(profile: SRTPProtectionProfile) -> None:
    link, received = here(profile)
    far, stranger = there(profile), there(profile, secret=2)
    once = far.protect(audio(MICROPHONE))
    assert link.opened(once) is not None
    for ssrc in range(1, 100):
        assert link.opened(stranger.protect(audio(ssrc))) is None
        assert link.opened_report(stranger.protect_rtcp(ReceiverReport(ssrc).to_bytes())) is None
    assert link.opened(once) is None
    assert known(received, [MICROPHONE, *range(1, 100)]) == 1


def test_a_datagram_longer_than_any_packet_is_dropped(profile: SRTPProtectionProfile) -> None:
    link, _ = here(profile)
    assert link.opened(audio(1) + bytes(1600)) is None
    assert link.opened_report(ReceiverReport(1).to_bytes() + bytes(1600)) is None
