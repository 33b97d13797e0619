"""Handshakes of DTLS-SRTP between two sides in one process."""

from __future__ import annotations

import time

import pytest

from sip.rtp.dtls import GIVE_UP_S, Certificate, DtlsHandshake, DtlsState
from sip.sdp.security import Handshake, Role


def side(own: Certificate, theirs: Certificate, role: Role) -> DtlsHandshake:
    name, value = theirs.fingerprint.split()
    return DtlsHandshake(own.context(), Handshake(role, frozenset({(name, value)})), 0.0)


def shake(client: DtlsHandshake, server: DtlsHandshake, *, lose: int = -1) -> None:
    """Carries datagrams until nothing moves; number `lose` does not arrive, and is sent again by OpenSSL's
    own clock."""
    waiting = [(server, data) for data in client.begin(0.0)]
    carried = 0
    for now in (0.0, 1.5, 3.0):
        while waiting:
            to, data = waiting.pop(0)
            if carried != lose:
                waiting += [(client if to is server else server, each) for each in to.receive(data, now)]
            carried += 1
        if DtlsState.SHAKING not in (client.state, server.state):
            return
        time.sleep(1.05)
        waiting = [(server, each) for each in client.tick(now + 1.5)]
        waiting += [(client, each) for each in server.tick(now + 1.5)]


@pytest.mark.parametrize("lost", [-1, 0, 3])
def test_both_sides_make_the_same_keys_whatever_datagram_is_lost(lost: int) -> None:
    one, other = Certificate(), Certificate()
    client, server = side(one, other, Role.ACTIVE), side(other, one, Role.PASSIVE)
    shake(client, server, lose=lost)
    assert (client.state, server.state) == (DtlsState.DONE, DtlsState.DONE)
    assert client.masters is not None
    assert server.masters is not None
    assert client.masters.sent == server.masters.received
    assert client.masters.received == server.masters.sent
    assert client.masters.sent != client.masters.received


def test_another_certificate_than_that_of_sdp_makes_no_keys() -> None:
    one, other, third = Certificate(), Certificate(), Certificate()
    client, server = side(one, third, Role.ACTIVE), side(other, one, Role.PASSIVE)
    shake(client, server)
    assert client.state is DtlsState.FAILED
    assert client.masters is None
    assert "certificate" in client.error


def test_a_far_end_that_is_silent_is_given_up() -> None:
    client = side(Certificate(), Certificate(), Role.ACTIVE)
    sent = client.begin(0.0)
    assert sent
    assert all(len(each) <= 1200 for each in sent)
    states = []
    for now in (GIVE_UP_S - 1, GIVE_UP_S):
        client.tick(now)
        states.append(client.state)
    assert states == [DtlsState.SHAKING, DtlsState.FAILED]
    assert client.tick(GIVE_UP_S + 1) == []


def test_rubbish_does_no_harm() -> None:
    one, other = Certificate(), Certificate()
    client, server = side(one, other, Role.ACTIVE), side(other, one, Role.PASSIVE)
    for data in (b"\x16", b"\x16\xfe\xfd" + bytes(40), bytes(range(20, 63)), b"\x17" * 1500):
        server.receive(data, 0.0)
    shake(client, server)
    assert server.masters is not None
