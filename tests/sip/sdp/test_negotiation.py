from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from sip.errors import MalformedSdp
from sip.sdp.media_plan import G722, OPUS, PCMA, PCMU, MediaPlan
from sip.sdp.negotiation import Capabilities, accept, answer, make_offer
from sip.sdp.sdp import SessionDescription
from tests.support.hostile.fuzz import offers
from tests.support.speech.interop import OFFERS

ALL = Capabilities("192.0.2.1", 20000, (PCMU, PCMA, G722, OPUS))
V6 = replace(ALL, host="2001:db8::1")
G711 = replace(ALL, codecs=(PCMU, PCMA))


def sdp(*lines: str, host: str = "192.0.2.9") -> bytes:
    family = "IP6" if ":" in host else "IP4"
    head = ["v=0", f"o=- 1 1 IN {family} {host}", "s=-", f"c=IN {family} {host}", "t=0 0"]
    return "".join(f"{line}\r\n" for line in [*head, *lines]).encode()


def respond(
    offer: bytes, capabilities: Capabilities = ALL, direction: str = "sendrecv"
) -> tuple[str, MediaPlan]:
    body, plan = answer(offer, capabilities, session_id=7, version=1, direction=direction)
    return body.decode(), plan


def refused(offer: bytes, capabilities: Capabilities = ALL) -> int:
    with pytest.raises(MalformedSdp) as caught:
        answer(offer, capabilities, session_id=7, version=1)
    return caught.value.code


def our_offer(capabilities: Capabilities = ALL, direction: str = "sendrecv") -> bytes:
    return make_offer(capabilities, session_id=7, version=3, direction=direction)


def test_offer_says_everything_that_we_can() -> None:
    session = SessionDescription.parse(our_offer())
    assert (session.origin.session_id, session.origin.version) == (7, 3)
    (media,) = session.media
    assert (media.port, media.protocol, session.address_of(media)) == (20000, "RTP/AVP", "192.0.2.1")
    assert media.formats == ("0", "8", "9", "111", "101", "102")
    assert [media.rtpmaps()[each].clock_rate_hz for each in (101, 102)] == [8000, 48000]
    assert (media.attribute("ptime"), media.direction) == ("20", "sendrecv")
    assert "useinbandfec=1" in media.fmtp(111)


def test_event_types_do_not_collide_with_codecs() -> None:
    codecs = (replace(OPUS, payload_type=101), PCMU)
    media = SessionDescription.parse(our_offer(replace(ALL, codecs=codecs))).media[0]
    assert len(set(media.formats)) == len(media.formats) == 4


def test_two_of_us_agree() -> None:
    offer = our_offer()
    body, theirs = answer(offer, replace(ALL, host="192.0.2.2", port=30000), session_id=1, version=1)
    ours = accept(body, offer)
    assert (ours.remote_host, ours.remote_port) == ("192.0.2.2", 30000)
    assert (theirs.remote_host, theirs.remote_port) == ("192.0.2.1", 20000)
    assert ours.codec == theirs.codec == PCMU
    assert ours.receive.keys() == theirs.receive.keys() == {0, 8, 9, 111}
    assert ours.dtmf_send == ours.dtmf_receive == theirs.dtmf_send == theirs.dtmf_receive == 101
    assert ours.rtcp_port == 30001
    assert ours.sends
    assert theirs.sends
    assert ours.receives
    assert theirs.receives


@pytest.mark.parametrize(
    ("name", "capabilities", "codec", "types", "rtcp"),
    [
        ("asterisk", ALL, "PCMA", (8, 101), 11695),
        ("freeswitch", ALL, "opus", (102, 103), 17857),
        ("freeswitch", G711, "PCMU", (0, 101), 17857),
        ("cisco", ALL, "PCMU", (0, 101), 16649),
        ("sbc", ALL, "G722", (9, 101), 50008),
        ("cloud", ALL, "PCMU", (0, 101), 10547),
        ("baresip", V6, "opus", (96, 101), 18337),
        ("linphone", ALL, "opus", (96, 101), 7079),
        ("sipp", ALL, "PCMU", (0, None), 6001),
        ("terse", ALL, "PCMA", (8, None), 4001),
    ],
)
def test_offers_of_the_field(
    name: str, capabilities: Capabilities, codec: str, types: tuple[int, int | None], rtcp: int
) -> None:
    payload_type, event = types
    body, plan = respond(OFFERS[name], capabilities)
    assert (plan.codec.name, plan.send_payload_type) == (codec, payload_type)
    assert (plan.dtmf_send, plan.dtmf_receive, plan.rtcp_port) == (event, event, rtcp)
    offered, answered = SessionDescription.parse(OFFERS[name]), SessionDescription.parse(body.encode())
    assert [each.kind for each in answered.media] == [each.kind for each in offered.media]
    assert [bool(each.port) for each in answered.media] == [each.kind == "audio" for each in offered.media]
    assert set(answered.media[0].formats) <= set(offered.media[0].formats)
    assert answered.media[0].protocol == offered.media[0].protocol
    assert answered.media[0].formats[0] == str(payload_type)


def test_address_of_the_media_wins_over_that_of_the_session() -> None:
    assert respond(OFFERS["cisco"])[1].remote_host == "192.0.2.13"


def test_order_of_the_offerer_counts() -> None:
    offer = sdp("m=audio 4000 RTP/AVP 9 8 0")
    plan = respond(offer, replace(ALL, codecs=(PCMU, G722)))[1]
    assert plan.codec == G722
    assert list(plan.receive) == [9, 0]


def test_dynamic_numbers_are_the_offerers() -> None:
    offer = sdp("m=audio 4000 RTP/AVP 120 121", "a=rtpmap:120 OPUS/48000/2", "a=rtpmap:121 PCMU/8000/1")
    body, plan = respond(offer)
    assert (plan.codec.name, plan.send_payload_type, plan.codec.clock_rate_hz) == ("opus", 120, 48000)
    assert {number: codec.name for number, codec in plan.receive.items()} == {120: "opus", 121: "PCMU"}
    assert "a=fmtp:120 useinbandfec=1" in body


def test_same_number_may_mean_something_else() -> None:
    assert refused(sdp("m=audio 4000 RTP/AVP 0", "a=rtpmap:0 L16/44100/2")) == 488


def test_remote_options_are_kept() -> None:
    offer = sdp(
        "m=audio 4000 RTP/AVP 96", "a=rtpmap:96 opus/48000/2", "a=fmtp:96 Stereo=1; maxplaybackrate=8000;cbr"
    )
    assert respond(offer)[1].options == {"stereo": "1", "maxplaybackrate": "8000", "cbr": ""}


def test_digits_at_the_codecs_clock_rate() -> None:
    lines = [
        "a=rtpmap:96 opus/48000/2",
        "a=rtpmap:97 telephone-event/8000",
        "a=rtpmap:98 telephone-event/48000",
    ]
    plan = respond(sdp("m=audio 4000 RTP/AVP 96 0 97 98", *lines))[1]
    assert (plan.dtmf_send, plan.dtmf_clock_rate_hz) == (98, 48000)
    plan = respond(sdp("m=audio 4000 RTP/AVP 0 96 97 98", *lines))[1]
    assert (plan.dtmf_send, plan.dtmf_clock_rate_hz) == (97, 8000)
    plan = respond(sdp("m=audio 4000 RTP/AVP 96 97", *lines[:2]))[1]
    assert (plan.dtmf_send, plan.dtmf_clock_rate_hz) == (97, 8000)


def test_digits_only_where_both_want_them() -> None:
    body, plan = respond(OFFERS["asterisk"], replace(ALL, dtmf=False))
    assert (plan.dtmf_send, plan.dtmf_receive) == (None, None)
    assert "telephone-event" not in body


@pytest.mark.parametrize(
    ("theirs", "wanted", "said", "sends", "receives"),
    [
        ("sendrecv", "sendrecv", "sendrecv", True, True),
        ("sendonly", "sendrecv", "recvonly", False, True),
        ("recvonly", "sendrecv", "sendonly", True, False),
        ("inactive", "sendrecv", "inactive", False, False),
        ("sendrecv", "sendonly", "sendonly", True, False),
        ("sendonly", "sendonly", "inactive", False, False),
    ],
)
def test_hold_by_direction(theirs: str, wanted: str, said: str, sends: bool, receives: bool) -> None:
    for offer in (sdp("m=audio 4000 RTP/AVP 0", f"a={theirs}"), sdp(f"a={theirs}", "m=audio 4000 RTP/AVP 0")):
        body, plan = respond(offer, direction=wanted)
        assert f"a={said}\r\n" in body
        assert (plan.sends, plan.receives) == (sends, receives)


def test_hold_by_the_unspecified_address() -> None:
    body, plan = respond(sdp("m=audio 4000 RTP/AVP 0", host="0.0.0.0"))
    assert "a=recvonly" in body
    assert (plan.sends, plan.receives) == (False, True)


def test_our_hold_is_accepted() -> None:
    offer = our_offer(direction="sendonly")
    plan = accept(sdp("m=audio 4000 RTP/AVP 0", "a=recvonly"), offer)
    assert (plan.sends, plan.receives) == (True, False)
    # A far end that ignores our direction is still not listened to.
    assert not accept(sdp("m=audio 4000 RTP/AVP 0"), offer).receives


@pytest.mark.parametrize(
    ("lines", "port", "mux"),
    [
        ([], 4001, False),
        (["a=rtcp:4100"], 4100, False),
        (["a=rtcp:4100 IN IP4 192.0.2.9"], 4100, False),
        (["a=rtcp:4100 IN IP4 198.51.100.1"], None, False),
        (["a=rtcp:junk"], None, False),
        (["a=rtcp-mux", "a=rtcp:4100"], 4000, True),
        (["b=RS:0", "b=RR:0"], None, False),
    ],
)
def test_where_rtcp_goes(lines: list[str], port: int | None, mux: bool) -> None:
    body, plan = respond(sdp("m=audio 4000 RTP/AVP 0", *lines))
    assert (plan.rtcp_port, plan.rtcp_mux) == (port, mux)
    assert ("a=rtcp-mux" in body) is mux


@pytest.mark.parametrize(
    ("lines", "ptime_ms"),
    [
        ([], 20),
        (["a=ptime:30"], 30),
        (["a=ptime:30", "a=maxptime:20"], 20),
        (["a=ptime:5"], 10),
        (["a=ptime:200"], 60),
        (["a=ptime:0"], 20),
        (["a=ptime:x"], 20),
    ],
)
def test_packet_time(lines: list[str], ptime_ms: int) -> None:
    offer = sdp("m=audio 4000 RTP/AVP 0", *lines)
    assert respond(offer)[1].ptime_ms == ptime_ms
    assert accept(offer, our_offer()).ptime_ms == ptime_ms


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["m=audio 0 RTP/AVP 0"],
        ["m=audio 4000 RTP/AVP 18"],
        ["m=audio 4000 RTP/AVP 101", "a=rtpmap:101 telephone-event/8000"],
        ["m=audio 4000 RTP/AVP 96"],
        ["m=audio 4000 RTP/SAVP 0", "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:x"],
        ["m=audio 4000 UDP/TLS/RTP/SAVPF 0", "a=fingerprint:sha-256 AA"],
        ["m=video 4000 RTP/AVP 0"],
        ["m=image 4000 udptl t38"],
    ],
)
def test_offers_that_cannot_be_answered(lines: list[str]) -> None:
    assert refused(sdp(*lines)) == 488


def test_addresses_of_the_other_family_are_refused() -> None:
    assert refused(OFFERS["baresip"]) == 488
    assert refused(OFFERS["asterisk"], V6) == 488


def test_encryption_that_is_only_wished_for_is_declined() -> None:
    crypto = "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:x"
    body, plan = respond(sdp("m=audio 4000 RTP/AVP 0", crypto))
    assert plan.codec == PCMU
    assert "crypto" not in body


def test_streams_keep_their_places() -> None:
    offer = sdp(
        "m=video 5000 RTP/AVP 96",
        "a=rtpmap:96 VP8/90000",
        "m=audio 4000 RTP/SAVP 0",
        "m=audio 4002 RTP/AVP 0",
        "m=audio 4004 RTP/AVP 0",
        "m=application 6000 UDP/BFCP *",
    )
    body, plan = respond(offer)
    assert plan.remote_port == 4002
    assert [line for line in body.split("\r\n") if line.startswith("m=")] == [
        "m=video 0 RTP/AVP 96",
        "m=audio 0 RTP/SAVP 0",
        "m=audio 20000 RTP/AVP 0",
        "m=audio 0 RTP/AVP 0",
        "m=application 0 UDP/BFCP *",
    ]


def test_answerer_may_renumber() -> None:
    body = sdp("m=audio 4000 RTP/AVP 96 98", "a=rtpmap:96 opus/48000/2", "a=rtpmap:98 telephone-event/48000")
    plan = accept(body, our_offer())
    assert (plan.send_payload_type, plan.codec.name) == (96, "opus")
    assert {number: codec.name for number, codec in plan.receive.items()} == {111: "opus", 96: "opus"}
    assert (plan.dtmf_send, plan.dtmf_receive, plan.dtmf_clock_rate_hz) == (98, 102, 48000)


def test_answer_may_leave_out_what_we_said_already() -> None:
    plan = accept(sdp("m=audio 4000 RTP/AVP 111 102"), our_offer())
    assert (plan.codec.name, plan.dtmf_send) == ("opus", 102)


def test_answer_with_comfort_noise_nobody_offered() -> None:
    assert accept(sdp("m=audio 4000 RTP/AVP 0 13"), our_offer()).codec == PCMU


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"junk", 400),
        (sdp(), 488),
        (sdp("m=audio 4000 RTP/AVP 0", "m=video 0 RTP/AVP 31"), 488),
        (sdp("m=video 4000 RTP/AVP 0"), 488),
        (sdp("m=audio 0 RTP/AVP 0"), 488),
        (sdp("m=audio 4000 RTP/AVP 18"), 488),
        (sdp("m=audio 4000 RTP/AVP 0 97", "a=rtpmap:97 iLBC/8000"), 488),
        (sdp("m=audio 4000 RTP/AVP 77"), 488),
        (sdp("m=audio 4000 RTP/AVP 101"), 488),
        (sdp("m=audio 4000 RTP/AVP 9"), 488),
        (sdp("m=audio 4000 RTP/SAVP 0"), 488),
        (sdp("m=audio 4000 RTP/AVP 0", host="2001:db8::1"), 488),
    ],
)
def test_answers_that_do_not_fit(body: bytes, code: int) -> None:
    with pytest.raises(MalformedSdp) as caught:
        accept(body, our_offer(G711))
    assert caught.value.code == code


@settings(max_examples=300, deadline=None)
@given(offers())
def test_only_malformed_sdp_escapes(data: bytes) -> None:
    for capabilities in (ALL, V6):
        try:
            body, plan = answer(data, capabilities, session_id=1, version=1)
        except MalformedSdp as found:
            assert found.code in (400, 488)  # noqa: PT017
        else:
            assert SessionDescription.parse(body).media
            assert plan.receive[plan.send_payload_type] == plan.codec
        try:
            plan = accept(data, make_offer(capabilities, session_id=1, version=1))
        except MalformedSdp:
            continue
        assert plan.codec.name in {codec.name for codec in capabilities.codecs}
