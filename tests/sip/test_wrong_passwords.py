"""Who guesses SIP passwords waits; who has come in goes on, whatever strangers behind its address do."""

from __future__ import annotations

import pytest

from sip.wrong_passwords import KNOWN_LIMIT, REFILL_S, TRIES, WrongPasswords

HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"


def guess_for(guarded: WrongPasswords, seconds: int, *, host: str = HERE, username: str = "acme") -> int:
    """Guesses a hundred times a second; how many passwords were looked at."""
    looked_at = 0
    for tick in range(seconds * 100):
        if not guarded.wait_s(host, username, tick / 100):
            guarded.wrong(host, username, tick / 100)
            looked_at += 1
    return looked_at


@pytest.mark.parametrize("minutes", [1, 10, pytest.param(60, marks=pytest.mark.nightly("ci"))])
def test_an_address_has_a_few_tries_and_one_a_minute(minutes: int) -> None:
    guarded = WrongPasswords()
    assert guess_for(guarded, minutes * 60) <= TRIES + minutes
    assert 0 < guarded.wait_s(HERE, "another name", minutes * 60) <= REFILL_S
    assert guarded.wait_s(ELSEWHERE, "acme", minutes * 60) == 0


def test_who_has_come_in_from_an_address_has_tries_of_its_own() -> None:
    guarded = WrongPasswords()
    guarded.right(HERE, "acme")
    guess_for(guarded, 10, username="other")
    assert guarded.wait_s(HERE, "other", 10) > 0
    assert guarded.wait_s(HERE, "acme", 10) == 0
    guess_for(guarded, 10)
    assert guarded.wait_s(HERE, "acme", 10) > 0


def test_an_ipv6_subscriber_is_one_and_an_address_within_ipv6_is_that_address() -> None:
    guarded = WrongPasswords()
    guess_for(guarded, 10, host="2001:db8::1")
    assert guarded.wait_s("2001:db8::ffff:2", "acme", 10) > 0
    assert guarded.wait_s("2001:db8:0:1::1", "acme", 10) == 0
    guess_for(guarded, 10, host=f"::ffff:{HERE}")
    assert guarded.wait_s(HERE, "acme", 10) > 0


def test_it_is_told_once_until_the_address_was_quiet() -> None:
    guarded = WrongPasswords()
    told = [guarded.wrong(HERE, "acme", 0.0) for _ in range(TRIES + 5)]
    assert [index for index, each in enumerate(told) if each] == [TRIES - 1]
    quiet_s = REFILL_S * (TRIES + 10)
    told = [guarded.wrong(HERE, "acme", quiet_s) for _ in range(TRIES)]
    assert [index for index, each in enumerate(told) if each] == [TRIES - 1]


def test_the_memory_is_bounded() -> None:
    guarded = WrongPasswords()
    for number in range(KNOWN_LIMIT + 10):
        host = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        guarded.right(host, "acme")
        guarded.wrong(host, "acme", 0.0)
    assert len(guarded._known) <= KNOWN_LIMIT
    assert len(guarded._tries) <= KNOWN_LIMIT
