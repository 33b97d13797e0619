"""What is done to session descriptions: useless lines go, video is refused, the absurd is turned away."""

from __future__ import annotations

import pytest

from mediaserver.rooms.errors import BadOffer
from mediaserver.rooms.webrtc.sdp_munging import MAX_BYTES, MAX_SECTIONS, Description, candidate_line

OFFER = "\r\n".join(
    [
        "v=0",
        "o=- 1 2 IN IP4 127.0.0.1",
        "s=-",
        "t=0 0",
        "a=group:BUNDLE 0 1 2",
        "m=audio 9 UDP/TLS/RTP/SAVPF 111 63",
        "c=IN IP4 0.0.0.0",
        "a=mid:0",
        "a=ice-ufrag:abcd",
        "a=ice-pwd:0123456789012345678901",
        "a=msid:stream track",
        "a=candidate:1 1 udp 2113937151 0b1a.local 50000 typ host",
        "a=candidate:2 1 tcp 2113937151 192.0.2.5 9 typ host tcptype active",
        "a=candidate:3 1 udp 2113937151 192.0.2.5 50001 typ host",
        "a=end-of-candidates",
        "a=sendonly",
        "m=video 9 UDP/TLS/RTP/SAVPF 96",
        "a=mid:1",
        "a=rtpmap:96 VP8/90000",
        "a=simulcast:send q;h;f",
        "a=sendonly",
        "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
        "a=mid:2",
        "",
    ]
)


def test_only_candidates_that_can_work_are_left() -> None:
    text = str(Description.parse(OFFER).for_aiortc())
    assert "192.0.2.5 50001" in text
    assert ".local" not in text
    assert "tcptype" not in text
    assert "end-of-candidates" not in text


def test_video_is_refused_in_its_place_and_the_rest_is_answered() -> None:
    offer = Description.parse(OFFER)
    visible = offer.for_aiortc()
    assert [each.kind for each in visible.sections] == ["audio", "application"]
    assert "a=group:BUNDLE 0 2" in str(visible)
    answer = Description.parse("v=0\r\nm=audio 5 X 111\r\na=mid:0\r\nm=application 5 X w\r\na=mid:2\r\n")
    answered = offer.answered(answer)
    assert [each.lines[0].split()[:2] for each in answered.sections] == [
        ["m=audio", "5"],
        ["m=video", "0"],
        ["m=application", "5"],
    ]
    assert [each.mid for each in answered.sections] == ["0", "1", "2"]
    assert "simulcast" not in str(answered)


def test_an_audio_section_says_who_sends_and_what_its_track_is_called() -> None:
    (section,) = Description.parse(OFFER).audio
    assert (section.mid, section.track, section.stream) == ("0", "track", "stream")
    assert section.sends
    assert not section.receives


def test_a_bundled_section_of_port_0_is_no_refusal() -> None:
    bundled = OFFER.replace("m=audio 9", "m=audio 0")
    (refused,) = Description.parse(bundled).audio
    (offered,) = Description.parse(bundled.replace("a=mid:0", "a=mid:0\r\na=bundle-only")).audio
    assert (refused.sends, offered.sends) == (False, True)


def test_credentials_are_found_in_the_first_section_that_has_them() -> None:
    assert Description.parse(OFFER).credentials == ("abcd", "0123456789012345678901")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("hello", id="prose"),
        pytest.param("v=0\r\n" + "a=x\r\n" * MAX_BYTES, id="a bomb of lines"),
        pytest.param("v=0\r\n" + "m=audio 9 X 0\r\n" * (MAX_SECTIONS + 1), id="a bomb of sections"),
        pytest.param("v=0\r\na=" + "x" * 5000, id="a bomb of one line"),
        pytest.param("v=0\r\nA nonsense", id="a line that is none"),
    ],
)
def test_an_absurd_description_is_turned_away(text: str) -> None:
    with pytest.raises(BadOffer):
        Description.parse(text)


def test_an_offer_without_audio_is_turned_away() -> None:
    with pytest.raises(BadOffer):
        Description.parse("v=0\r\nm=video 9 X 96\r\n").for_aiortc()


@pytest.mark.parametrize(
    ("line", "works"),
    [
        ("candidate:3 1 udp 2113937151 192.0.2.5 50001 typ host", True),
        ("a=candidate:3 1 UDP 2113937151 2001:db8::1 50001 typ srflx raddr 0.0.0.0 rport 9", True),
        ("candidate:1 1 udp 2113937151 0b1a.local 50000 typ host", False),
        ("candidate:2 1 tcp 2113937151 192.0.2.5 9 typ host tcptype active", False),
        ("candidate:3 2 udp 2113937151 192.0.2.5 50001 typ host", False),
    ],
)
def test_a_trickled_candidate_is_taken_or_left_out(line: str, works: bool) -> None:
    assert (candidate_line(line) is not None) is works


@pytest.mark.parametrize("line", ["nonsense", "candidate:1 1 udp", "x" * 5000])
def test_a_candidate_of_nonsense_is_an_error(line: str) -> None:
    with pytest.raises(BadOffer):
        candidate_line(line)


def test_video_that_the_client_would_only_receive_is_left_idle_in_the_bundle() -> None:
    offer = Description.parse(OFFER_WITH_PLACEHOLDER)
    answer = offer.answered(Description.parse(AUDIO_ANSWER))
    video = answer.sections[1]
    assert video.lines[0].split()[:2] == ["m=video", "9"]
    assert video.has("inactive")
    assert video.value("ice-ufrag") == answer.sections[0].value("ice-ufrag")
    assert "a=group:BUNDLE 0 1" in answer.session


OFFER_WITH_PLACEHOLDER = """v=0
o=- 1 1 IN IP4 0.0.0.0
s=-
t=0 0
a=group:BUNDLE 0 1
m=audio 9 UDP/TLS/RTP/SAVPF 111
a=mid:0
a=rtpmap:111 opus/48000/2
m=video 9 UDP/TLS/RTP/SAVPF 96
a=mid:1
a=rtpmap:96 VP8/90000
a=recvonly
"""

AUDIO_ANSWER = """v=0
o=- 1 1 IN IP4 0.0.0.0
s=-
t=0 0
a=group:BUNDLE 0
m=audio 9 UDP/TLS/RTP/SAVPF 111
a=mid:0
a=rtpmap:111 opus/48000/2
a=ice-ufrag:abcd
a=ice-pwd:0123456789012345678901
a=fingerprint:sha-256 AA:BB
a=setup:active
"""
