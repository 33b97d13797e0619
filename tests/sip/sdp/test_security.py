"""SRTP in offer and answer: what each policy offers and takes, and that nothing falls back."""

from __future__ import annotations

import base64

import pytest

from pipeline.plane.srtp_suite import Master, Masters, Suite
from sip.errors import MalformedSdp
from sip.sdp.media_plan import PCMU, MediaPlan
from sip.sdp.negotiation import Capabilities
from sip.sdp.offer_answer import OfferAnswer
from sip.sdp.sdp import SessionDescription
from sip.sdp.security import LocalSecurity, Srtp

KEY = base64.b64encode(bytes(range(30))).decode()
OTHER_KEY = base64.b64encode(bytes(range(1, 31))).decode()
LINE = f"a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}"


def side(srtp: Srtp, port: int = 20000) -> OfferAnswer:
    return OfferAnswer(Capabilities("192.0.2.1", port, (PCMU,), security=LocalSecurity(srtp)))


def offered(protocol: str, *lines: str) -> bytes:
    head = ["v=0", "o=- 1 1 IN IP4 192.0.2.9", "s=-", "c=IN IP4 192.0.2.9", "t=0 0"]
    return "\r\n".join([*head, f"m=audio 30000 {protocol} 0", *lines, ""]).encode()


def agreed(plan: MediaPlan | None) -> Masters:
    assert plan is not None
    assert isinstance(plan.security, Masters)
    return plan.security


PROTECTED = [Srtp.OPTIONAL, Srtp.SDES]


@pytest.mark.parametrize("ours", PROTECTED)
@pytest.mark.parametrize("theirs", PROTECTED)
def test_two_sides_agree_on_keys(ours: Srtp, theirs: Srtp) -> None:
    caller, callee = side(ours), side(theirs)
    caller.settle(callee.respond(caller.offer()))
    one, other = agreed(caller.plan), agreed(callee.plan)
    assert (one.sent, one.received) == (other.received, other.sent)
    assert one.sent.secret != one.received.secret
    assert one.sent.suite is Suite.AES_CM_128_HMAC_SHA1_80


@pytest.mark.parametrize(
    ("srtp", "protocol", "keys"),
    [(Srtp.OFF, "RTP/AVP", 0), (Srtp.OPTIONAL, "RTP/AVP", 3), (Srtp.SDES, "RTP/SAVP", 3)],
)
def test_an_offer_says_what_the_trunk_does(srtp: Srtp, protocol: str, keys: int) -> None:
    [media] = SessionDescription.parse(side(srtp).offer()).media
    assert (media.protocol, len(media.values("crypto"))) == (protocol, keys)


TAKEN = [
    (Srtp.OFF, "RTP/AVP", "plain"),
    (Srtp.OFF, "RTP/AVP+crypto", "plain"),
    (Srtp.OFF, "RTP/SAVP+crypto", "refused"),
    (Srtp.OPTIONAL, "RTP/AVP", "plain"),
    (Srtp.OPTIONAL, "RTP/AVP+crypto", "keys"),
    (Srtp.OPTIONAL, "RTP/SAVPF+crypto", "keys"),
    (Srtp.OPTIONAL, "RTP/SAVP", "refused"),
    (Srtp.SDES, "RTP/AVP", "refused"),
    (Srtp.SDES, "RTP/AVP+crypto", "keys"),
    (Srtp.SDES, "RTP/SAVP+crypto", "keys"),
    (Srtp.DTLS, "RTP/AVP", "refused"),
    (Srtp.DTLS, "RTP/SAVP+crypto", "refused"),
]


@pytest.mark.parametrize(("srtp", "offer", "outcome"), TAKEN)
def test_what_is_taken_from_an_offer(srtp: Srtp, offer: str, outcome: str) -> None:
    protocol, _, crypto = offer.partition("+")
    body = offered(protocol, *([LINE] if crypto else []))
    callee = side(srtp)
    if outcome == "refused":
        with pytest.raises(MalformedSdp) as refused:
            callee.respond(body)
        assert refused.value.code == 488
        return
    [media] = SessionDescription.parse(callee.respond(body)).media
    assert media.protocol == protocol
    assert callee.plan is not None
    assert (callee.plan.security is None) is (outcome == "plain")
    if outcome == "keys":
        [line] = media.values("crypto")
        assert line.startswith("1 AES_CM_128_HMAC_SHA1_80 inline:")
        assert agreed(callee.plan).received.secret == bytes(range(30))


@pytest.mark.parametrize(
    "line",
    [
        f"1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|2^20|1:4",  # an MKI
        f"1 AES_CM_128_HMAC_SHA1_80 inline:{KEY} UNENCRYPTED_SRTP",
        f"1 AES_CM_128_HMAC_SHA1_80 inline:{KEY} UNAUTHENTICATED_SRTP",
        f"1 AES_CM_128_HMAC_SHA1_80 inline:{KEY[:20]}",
        f"1 F8_128_HMAC_SHA1_80 inline:{KEY}",
        "1 AES_CM_128_HMAC_SHA1_80 inline:%%%",
        "nonsense",
    ],
)
def test_a_key_that_cannot_be_used_is_passed_over(line: str) -> None:
    callee = side(Srtp.SDES)
    with pytest.raises(MalformedSdp):
        callee.respond(offered("RTP/SAVP", f"a=crypto:{line}"))
    good = f"a=crypto:7 aes_cm_128_hmac_sha1_32 inline:{OTHER_KEY}|2^31 WSH=128"
    [media] = SessionDescription.parse(callee.respond(offered("RTP/SAVP", f"a=crypto:{line}", good))).media
    assert (
        media.attribute(
            "crypto",
        )
        is not None
    )
    assert str(media.attribute("crypto")).startswith("7 AES_CM_128_HMAC_SHA1_32 ")
    assert agreed(callee.plan).received == Master(Suite.AES_CM_128_HMAC_SHA1_32, bytes(range(1, 31)))


@pytest.mark.parametrize(
    ("protocol", "line"),
    [
        ("RTP/AVP", ""),
        ("RTP/AVP", LINE),
        ("RTP/SAVP", ""),
        ("RTP/SAVP", f"a=crypto:9 AES_CM_128_HMAC_SHA1_80 inline:{KEY}"),
        ("RTP/SAVP", f"a=crypto:1 AES_CM_128_HMAC_SHA1_32 inline:{KEY}"),
    ],
)
def test_no_answer_makes_an_insisting_side_fall_back(protocol: str, line: str) -> None:
    caller = side(Srtp.SDES)
    caller.offer()
    with pytest.raises(MalformedSdp) as refused:
        caller.settle(offered(protocol, *filter(None, [line])))
    assert refused.value.code == 488


def test_an_optional_side_takes_a_plain_answer() -> None:
    caller = side(Srtp.OPTIONAL)
    caller.offer()
    caller.settle(offered("RTP/AVP"))
    assert caller.plan is not None
    assert caller.plan.security is None


def test_no_plain_answer_to_a_later_offer_switches_protection_off() -> None:
    caller = side(Srtp.OPTIONAL)
    caller.offer()
    caller.settle(offered("RTP/AVP", LINE))
    before = agreed(caller.plan)
    for hold in (True, False):
        caller.offer(hold=hold)
        with pytest.raises(MalformedSdp) as refused:
            caller.settle(offered("RTP/AVP"))
        assert refused.value.code == 488
        assert agreed(caller.plan) == before
    caller.offer(hold=True)
    caller.settle(offered("RTP/AVP", LINE.replace(KEY, OTHER_KEY)))
    assert agreed(caller.plan).sent == before.sent


def test_another_fork_may_answer_plainly_what_the_first_answered_with_keys() -> None:
    caller = side(Srtp.OPTIONAL)
    caller.offer()
    caller.preview(offered("RTP/AVP", LINE))
    agreed(caller.plan)
    caller.settle(offered("RTP/AVP"))
    assert caller.plan is not None
    assert caller.plan.security is None


def test_a_key_of_ours_stays_and_theirs_may_change() -> None:
    callee = side(Srtp.SDES)
    first = callee.respond(offered("RTP/SAVP", LINE))
    before = agreed(callee.plan)
    callee.respond(offered("RTP/SAVP", LINE.replace(KEY, OTHER_KEY)))
    after = agreed(callee.plan)
    assert after.sent == before.sent
    assert after.received.secret == bytes(range(1, 31))
    [hold] = SessionDescription.parse(callee.offer(hold=True)).media
    assert hold.protocol == "RTP/SAVP"
    assert hold.values("crypto") == SessionDescription.parse(first).media[0].values("crypto")
    with pytest.raises(MalformedSdp):
        callee.settle(offered("RTP/AVP"))


def test_a_protected_stream_is_chosen_before_a_plain_one() -> None:
    both = offered("RTP/AVP") + f"m=audio 30002 RTP/SAVP 0\r\n{LINE}\r\n".encode()
    callee = side(Srtp.OPTIONAL)
    plain, protected = SessionDescription.parse(callee.respond(both)).media
    assert plain.port == 0
    assert protected.port == 20000
    assert agreed(callee.plan).received.secret == bytes(range(30))


def test_no_key_is_ever_shown() -> None:
    callee = side(Srtp.SDES)
    callee.respond(offered("RTP/SAVP", LINE))
    shown = repr(callee.plan)
    assert "secret" not in shown
    assert repr(bytes(range(30)))[2:20] not in shown


def test_no_key_comes_back_after_another() -> None:
    """It would protect the numbers of reports, and those of packets after a roll-over, a second time."""
    longer = base64.b64encode(bytes(range(28))).decode()
    gcm = f"a=crypto:1 AEAD_AES_128_GCM inline:{longer}"
    callee = side(Srtp.SDES)
    used = []
    for line in (LINE, LINE.replace(KEY, OTHER_KEY), gcm, LINE, gcm):
        callee.respond(offered("RTP/SAVP", line))
        used.append(agreed(callee.plan).sent)
    first, stays, *others = used
    assert first == stays
    assert len({first, *others}) == 4
    [media] = SessionDescription.parse(callee.offer()).media
    assert base64.b64encode(used[-1].secret).decode() in str(media.values("crypto"))
