from __future__ import annotations

import pytest
from hypothesis import given, settings

from sip.errors import MalformedSdp
from sip.sdp.sdp import MediaDescription, Origin, RtpMap, SessionDescription
from tests.support.hostile.fuzz import offers
from tests.support.speech.interop import OFFERS

AUDIO = "m=audio 4000 RTP/AVP 0\r\n"


def described(*lines: str) -> SessionDescription:
    return SessionDescription.parse("".join(f"{line}\r\n" for line in ("v=0", *lines)).encode())


@pytest.mark.parametrize("name", OFFERS)
def test_descriptions_of_the_field_survive_a_round_trip(name: str) -> None:
    session = SessionDescription.parse(OFFERS[name])
    assert SessionDescription.parse(session.to_bytes()) == session
    assert session.media[0].kind == "audio"


def test_description_is_read() -> None:
    session = described(
        "o=- 12 3 IN IP4 192.0.2.1",
        "s=a call",
        "c=IN IP4 192.0.2.2/127",
        "b=AS:64",
        "t=0 0",
        "z=unknown lines are skipped",
        "a=sendonly",
        "m=audio 4000/2 RTP/AVP 0 96 8",
        "i=title",
        "b=RS:0",
        "a=RTPMAP:96 opus/48000/2",
        "a=fmtp:96 useinbandfec=1;  stereo=0 ",
        "m=video 0 RTP/AVP 31",
        "c=IN IP6 2001:DB8::1",
        "a=inactive",
    )
    assert session.origin == Origin(12, 3, "192.0.2.1")
    assert (session.name, session.connection, session.bandwidths) == ("a call", "192.0.2.2", {"AS": 64})
    audio = session.media[0]
    assert (audio.port, audio.port_count, audio.formats) == (4000, 2, ("0", "96", "8"))
    assert audio.rtpmaps()[96] == RtpMap("opus", 48000, 2)
    assert audio.fmtp(96) == "useinbandfec=1;  stereo=0"
    assert audio.rtpmaps()[8] == RtpMap("PCMA", 8000)
    assert 97 not in audio.rtpmaps()
    assert audio.fmtp(8) == ""
    assert audio.bandwidths == {"RS": 0}
    assert [session.direction_of(each) for each in session.media] == ["sendonly", "inactive"]
    assert [session.address_of(each) for each in session.media] == ["192.0.2.2", "2001:db8::1"]


def test_direction_is_sendrecv_unless_said() -> None:
    session = described(AUDIO.strip())
    assert session.direction_of(session.media[0]) == "sendrecv"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"junk",
        b"\xff\x00" * 50,
        b"o=- 1 1 IN IP4 1.2.3.4\r\n",
        b"v=1\r\n",
        b"v=0\r\nm=audio\r\n",
        b"v=0\r\nm=audio 65536 RTP/AVP 0\r\n",
        b"v=0\r\nm=audio -1 RTP/AVP 0\r\n",
        b"v=0\r\nm=audio 4000\r\n",
        b"v=0\r\nm=audio 4000 RTP/AVP" + b" 0" * 129,
        b"v=0\r\nc=IN IP4\r\n",
        b"v=0\r\nc=ATM NSAP x\r\n",
        b"v=0\r\n" + AUDIO.encode() * 33,
        b"v=0\r\n" + b"a=x\r\n" * 257,
        b"v=0\r\n" + AUDIO.encode() + b"a=x\r\n" * 257,
        b"v=0\r\n" + b"i=" + b"x" * 70_000,
    ],
)
def test_what_is_no_description(data: bytes) -> None:
    with pytest.raises(MalformedSdp) as caught:
        SessionDescription.parse(data)
    assert caught.value.code == 400


def test_names_are_not_looked_up() -> None:
    with pytest.raises(MalformedSdp) as caught:
        described("c=IN IP4 media.example.com", AUDIO.strip())
    assert caught.value.code == 488


def test_media_without_an_address() -> None:
    session = described(AUDIO.strip())
    with pytest.raises(MalformedSdp):
        session.address_of(session.media[0])


def test_description_is_written() -> None:
    media = MediaDescription(
        "audio",
        4000,
        "RTP/AVP",
        ("0",),
        attributes=(("ptime", "20"), ("sendrecv", None)),
        bandwidths={"RR": 0},
    )
    session = SessionDescription(Origin(1, 2, "2001:db8::1"), (media,), connection="2001:db8::1")
    assert session.to_bytes().decode().split("\r\n") == [
        "v=0",
        "o=- 1 2 IN IP6 2001:db8::1",
        "s=-",
        "c=IN IP6 2001:db8::1",
        "t=0 0",
        "m=audio 4000 RTP/AVP 0",
        "b=RR:0",
        "a=ptime:20",
        "a=sendrecv",
        "",
    ]


@settings(max_examples=300, deadline=None)
@given(offers())
def test_only_malformed_sdp_escapes(data: bytes) -> None:
    try:
        session = SessionDescription.parse(data)
    except MalformedSdp:
        return
    assert SessionDescription.parse(session.to_bytes()) == session
