"""Connectivity checks of ICE, made by aioice's own messages: which pass, and what is answered."""

from __future__ import annotations

import pytest
from aioice import stun

from sip.sdp.ice import IceCredentials, checked

OURS = IceCredentials("ours", "a-password-of-ours")


def check(user: str = "ours:theirs", password: str = OURS.password, *, nominate: bool = True) -> bytes:
    message = stun.Message(stun.Method.BINDING, stun.Class.REQUEST)
    message.attributes["USERNAME"] = user
    message.attributes["PRIORITY"] = 1
    message.attributes["ICE-CONTROLLING"] = 7
    if nominate:
        message.attributes["USE-CANDIDATE"] = None
    message.add_message_integrity(password.encode())
    return bytes(message)


@pytest.mark.parametrize("host", ["198.51.100.7", "2001:db8::7"])
def test_a_check_is_answered_with_where_it_came_from(host: str) -> None:
    data = check()
    found = checked(data, OURS, host, 40_000)
    assert found is not None
    assert found.nominated
    answer = stun.parse_message(found.answer)
    asked = stun.parse_message(data)
    assert (answer.message_class, answer.transaction_id) == (stun.Class.RESPONSE, asked.transaction_id)
    assert answer.attributes["XOR-MAPPED-ADDRESS"] == (host, 40_000)
    sealed = stun.Message(stun.Method.BINDING, stun.Class.RESPONSE, asked.transaction_id)
    sealed.attributes["XOR-MAPPED-ADDRESS"] = (host, 40_000)
    sealed.add_message_integrity(OURS.password.encode())
    sealed.add_fingerprint()
    assert bytes(sealed) == found.answer


def test_a_check_that_does_not_nominate_moves_nothing() -> None:
    found = checked(check(nominate=False), OURS, "198.51.100.7", 40_000)
    assert found is not None
    assert not found.nominated


@pytest.mark.parametrize(
    "data",
    [
        check(password="a-guess"),
        check(user="others:theirs"),
        check()[:-9],
        check()[:40],
        b"",
        bytes(20),
        bytes(2000),
        bytes(stun.Message(stun.Method.BINDING, stun.Class.REQUEST)),
    ],
    ids=["password", "user", "cut", "shorter", "empty", "zeros", "long", "unsigned"],
)
def test_who_has_not_read_our_sdp_gets_no_answer(data: bytes) -> None:
    assert checked(data, OURS, "198.51.100.7", 40_000) is None


def test_a_broken_check_never_raises() -> None:
    whole = check()
    for place in range(len(whole)):
        broken = bytearray(whole)
        broken[place] ^= 0xFF
        checked(bytes(broken), OURS, "198.51.100.7", 40_000)
