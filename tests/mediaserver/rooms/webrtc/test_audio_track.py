"""The SRTP of one peer connection, between two sessions of libsrtp as aiortc makes them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest
from aiortc.rtcdtlstransport import SRTP_PROFILES, SRTPProtectionProfile
from pylibsrtp import Policy, Session

from mediaserver.rooms.webrtc.audio_track import SecureLink
from pipeline.audio.opus import OpusEncoder
from pipeline.plane.srtp_sources import SOURCES
from sip.rtp.packet import RtpPacket
from sip.rtp.rtcp import ReceiverReport
from tests.support.speech.tones import tone
from tests.support.webrtc.sources import known
from tests.support.webrtc.stepped_port import PT, SteppedPort, at

MICROPHONE: Final = 0xAAAA0001
SOUND: Final = OpusEncoder().encode(tone(440, 0.02, 16000))
pytestmark = pytest.mark.parametrize("profile", SRTP_PROFILES, ids=lambda each: each.openssl_profile.decode())


def session(profile: SRTPProtectionProfile, kind: int, secret: int = 1) -> Session:
    key = bytes([secret]) * (profile.key_length + profile.salt_length)
    policy = Policy(key, kind, srtp_profile=profile.libsrtp_profile)
    policy.window_size = 1024
    return Session(policy)


def there(profile: SRTPProtectionProfile, secret: int = 1) -> Session:
    return session(profile, Policy.SSRC_ANY_OUTBOUND, secret)


class Here:
    """A participant's row, which hears over a link."""

    def __init__(self, profile: SRTPProtectionProfile) -> None:
        self.received = session(profile, Policy.SSRC_ANY_INBOUND)
        dtls: Any = SimpleNamespace(_tx_srtp=there(profile), _rx_srtp=self.received)
        path: Any = SimpleNamespace()
        self._port = SteppedPort()
        self._port.know(at(1), 0)
        self._link = SecureLink(dtls, path)
        self._now = 0.0
        with self._port.held(0) as self.line:
            self._link.sessions.open(self.line)

    def opens(self, packet: bytes) -> bool:
        """Whether a packet is authentic and comes for the first time."""
        self._now += 1.0
        before = int(self.line["forged"] + self.line["replayed"])
        self._port.datagram(packet, at(1), self._now)
        return int(self.line["forged"] + self.line["replayed"]) == before

    def opened_report(self, data: bytes) -> bytes | None:
        with self._port.held(0):
            return self._link.sessions.opened_report(data)


def audio(ssrc: int, sequence: int = 1) -> bytes:
    return RtpPacket(PT, sequence & 0xFFFF, 960 * sequence & 0xFFFFFFFF, ssrc, SOUND).to_bytes()


def test_what_the_participant_says_is_heard(profile: SRTPProtectionProfile) -> None:
    here, far = Here(profile), there(profile)
    for sequence in range(5):
        assert here.opens(far.protect(audio(MICROPHONE, sequence)))
    assert (here.line["packets"], here.line["bad"]) == (5, 0)
    assert here.line["octets"] == 5 * len(SOUND)


def test_packets_and_reports_of_ever_new_sources_fill_no_memory(profile: SRTPProtectionProfile) -> None:
    here, far = Here(profile), there(profile)
    for ssrc in range(1, 200):
        report = ReceiverReport(1000 + ssrc).to_bytes()
        assert here.opens(far.protect(audio(ssrc)))
        assert here.opened_report(far.protect_rtcp(report)) == report
    assert known(here.received, range(1, 1200)) == SOURCES


def test_the_source_that_is_heard_stays_known_among_others(profile: SRTPProtectionProfile) -> None:
    """Its numbers roll over, and its packets come again."""
    here, far, sent = Here(profile), there(profile), []
    for count in range(100):
        sent.append(far.protect(audio(MICROPHONE, 0xFFC0 + count)))
        assert here.opens(sent[-1])
        assert here.opens(far.protect(audio(1 + count)))
    assert [here.opens(each) for each in sent] == [False] * 100


def test_who_has_no_key_makes_no_source_forgotten(profile: SRTPProtectionProfile) -> None:
    here, far, stranger = Here(profile), there(profile), there(profile, secret=2)
    once = far.protect(audio(MICROPHONE))
    assert here.opens(once)
    for ssrc in range(1, 100):
        assert not here.opens(stranger.protect(audio(ssrc)))
        assert here.opened_report(stranger.protect_rtcp(ReceiverReport(ssrc).to_bytes())) is None
    assert not here.opens(once)
    assert known(here.received, [MICROPHONE, *range(1, 100)]) == 1


def test_a_datagram_longer_than_any_packet_is_dropped(profile: SRTPProtectionProfile) -> None:
    here = Here(profile)
    assert not here.opens(audio(1) + bytes(1600))
    assert here.opened_report(ReceiverReport(1).to_bytes() + bytes(1600)) is None
