"""Strangers that are refused a few times get silence for a while, and never more bytes than they sent."""

from __future__ import annotations

import pytest

from sip.strangers import BANS_LIMIT, KNOWN_S, STRANGERS_LIMIT, Strangers, Treatment

HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"
ANSWER, SILENCE, BAN = Treatment.ANSWER, Treatment.SILENCE, Treatment.BAN


def refused(
    strangers: Strangers, times: int, *, host: str = HERE, now: float = 0.0, guess: bool = True
) -> list[Treatment]:
    return [strangers.refused(host, now, guess=guess, received=400, sent=300) for _ in range(times)]


def test_a_few_tries_then_silence_until_the_ban_is_over() -> None:
    strangers = Strangers(tries=5, ban_s=600)
    assert refused(strangers, 8) == [ANSWER] * 5 + [BAN, SILENCE, SILENCE]
    assert strangers.silent(HERE, 599.9)
    assert not strangers.silent(ELSEWHERE, 0)
    assert (strangers.banned_now(599.9), strangers.bans, strangers.silenced) == (1, 1, 3)
    assert not strangers.silent(HERE, 600)
    assert strangers.banned_now(600) == 0
    assert refused(strangers, 7, now=600) == [ANSWER] * 5 + [BAN, SILENCE]
    assert strangers.bans == 2


def test_one_try_comes_back_in_ten_seconds() -> None:
    strangers = Strangers(tries=5, ban_s=600)
    refused(strangers, 5)
    assert refused(strangers, 3, now=20) == [ANSWER, ANSWER, BAN]


def test_a_slow_stranger_is_never_banned() -> None:
    strangers = Strangers(tries=5, ban_s=600)
    assert [refused(strangers, 1, now=60.0 * minute)[0] for minute in range(100)] == [ANSWER] * 100


def test_who_comes_in_is_no_stranger_for_a_day() -> None:
    strangers = Strangers(tries=5, ban_s=600)
    refused(strangers, 6)
    strangers.came_in(HERE, 1)
    assert not strangers.silent(HERE, 1)
    assert strangers.known(HERE, KNOWN_S)
    assert not strangers.known(HERE, KNOWN_S + 1)
    assert not strangers.known(ELSEWHERE, 1)


def test_a_carrier_that_pings_from_another_address_every_half_minute_is_never_banned() -> None:
    strangers = Strangers()
    assert [refused(strangers, 1, now=30.0 * ping)[0] for ping in range(1000)] == [ANSWER] * 1000


def test_what_is_not_answered_for_its_length_is_no_try() -> None:
    """Three short requests an answer: a telephone's repetitions."""
    strangers = Strangers(tries=5)
    given = [strangers.refused(HERE, 0, guess=True, received=100, sent=300) for _ in range(15)]
    assert given.count(ANSWER) == 5
    assert BAN not in given


def test_refusals_that_tell_a_scanner_nothing_ban_nobody() -> None:
    assert refused(Strangers(tries=5), 50, guess=False) == [ANSWER] * 50


def test_without_tries_nobody_is_banned() -> None:
    assert refused(Strangers(tries=0), 50) == [ANSWER] * 50


@pytest.mark.parametrize(("sent", "answered"), [(100, 20), (150, 13), (201, 9), (1000, 2)])
def test_answers_are_never_more_bytes_than_the_requests(sent: int, answered: int) -> None:
    """A telephone whose first request was shorter than its answer gets the answer at its repetition."""
    strangers = Strangers(tries=0)
    given = [strangers.refused(HERE, 0, guess=True, received=100, sent=sent) for _ in range(20)]
    assert given.count(ANSWER) == answered
    assert answered * sent <= 20 * 100


def test_credit_is_bounded() -> None:
    strangers = Strangers(tries=0)
    for _ in range(1000):
        strangers.refused(HERE, 0, guess=True, received=1000, sent=0)
    given = [strangers.refused(HERE, 0, guess=True, received=0, sent=1000) for _ in range(10)]
    assert given.count(ANSWER) == 4


def test_a_transport_that_proves_the_sender_has_no_budget() -> None:
    strangers = Strangers(tries=5)
    given = [strangers.refused(HERE, 0, guess=True, received=None, sent=1000) for _ in range(6)]
    assert given == [ANSWER] * 5 + [BAN]


def test_an_ipv6_subscriber_is_one_stranger_and_an_address_within_ipv6_is_that_address() -> None:
    strangers = Strangers(tries=1)
    refused(strangers, 2, host="2001:db8::1")
    assert strangers.silent("2001:db8::2", 0)
    assert not strangers.silent("2001:db8:0:1::2", 0)
    refused(strangers, 2, host=f"::ffff:{HERE}")
    assert strangers.silent(HERE, 0)


def test_the_memory_is_bounded() -> None:
    strangers = Strangers(tries=1)
    for number in range(BANS_LIMIT + 100):
        refused(strangers, 2, host=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        refused(strangers, 1, host=f"11.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert strangers.banned_now(0) == BANS_LIMIT
    assert len(strangers._tried) == STRANGERS_LIMIT
