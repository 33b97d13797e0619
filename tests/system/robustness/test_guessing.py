"""Who guesses at keys waits ever longer; who has one goes on, whatever strangers do."""

from __future__ import annotations

import pytest

from mediaserver.admission.key_guessing import (
    ADDRESS_TRIES,
    KNOWN_LIMIT,
    NEAR_TRIES,
    PREFIX_TRIES,
    SUSPECTS_LIMIT,
    Change,
    Guesses,
    Standing,
)

HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"
MINE = "ml_Q2VydGFpbmx5-not-to-be-guessed"


def guess(guesses: Guesses, key: str, now: float, address: str = HERE) -> bool:
    """Tries a wrong key; whether it was looked up."""
    if guesses.wait_s(address, key, now) > 0:
        return False
    list(guesses.wrong(address, key, now))
    return True


def guess_for(guesses: Guesses, seconds: int, *, address: str = HERE) -> int:
    """Guesses a hundred times a second; how many keys were looked up."""
    return sum(
        guess(guesses, f"{tick:x}-other-{address}", tick / 100, address) for tick in range(seconds * 100)
    )


@pytest.mark.parametrize(("seconds", "most"), [(10, 34), (600, 40), (7200, 43)])
def test_an_address_has_few_keys_looked_up_however_long_it_guesses(seconds: int, most: int) -> None:
    """Without limits it was 2,044 a second."""
    assert ADDRESS_TRIES <= guess_for(Guesses(), seconds) <= most


def test_what_changes_is_told_once_for_each_standing() -> None:
    guesses, changes, now = Guesses(), list[Change](), 0.0
    for number in range(60):
        key = f"{number}-other"
        now += guesses.wait_s(HERE, key, now)
        changes += guesses.wrong(HERE, key, now)
    assert [(each.by, each.standing) for each in changes] == [
        ("address", Standing.SLOWED),
        ("address", Standing.BANNED),
    ]
    assert changes[0].wait_s == 1.0


def test_a_key_that_opened_something_here_opens_it_while_strangers_are_banned_here() -> None:
    guesses = Guesses()
    guesses.right(HERE, MINE)
    guess_for(guesses, 100)
    now = 100.0
    assert guesses.wait_s(HERE, MINE, now) == 0
    assert guesses.wait_s(HERE, "ml_never-seen-here", now) > 0  # right or wrong: nobody learns
    assert guesses.wait_s(ELSEWHERE, "ml_never-seen-here", now) == 0
    list(guesses.wrong(HERE, MINE, now))  # revoked
    assert guesses.wait_s(HERE, MINE, now) > 0


def test_who_has_a_key_of_their_own_guesses_no_faster_with_it() -> None:
    guesses, looked_up = Guesses(), 0
    for tick in range(6000):
        guesses.right(HERE, MINE)
        looked_up += guess(guesses, f"{tick}-other", tick / 100)
    assert looked_up <= 40


def test_a_program_that_repeats_an_expired_key_locks_nobody_out() -> None:
    guesses = Guesses()
    tried = sum(guess(guesses, "ml_expired-yesterday", tick / 100) for tick in range(60_000))
    assert 6000 <= tried <= 6200  # ten a second in ten minutes
    assert guesses.wait_s(HERE, MINE, 600.0) == 0


def test_who_knows_how_a_key_begins_does_not_guess_the_rest_beside_its_owner() -> None:
    guesses = Guesses()
    guesses.right(HERE, MINE)
    guess_for(guesses, 100)
    for number in range(NEAR_TRIES):
        assert guesses.wait_s(HERE, f"{MINE[:7]}{number}", 100.0) > 0
    assert guesses.wait_s(HERE, MINE, 100.0) > 0  # until the address may try again


def test_a_beginning_that_is_guessed_from_everywhere_waits_everywhere() -> None:
    guesses, changes = Guesses(), list[Change]()
    guesses.right(HERE, MINE)
    for number in range(PREFIX_TRIES + 50):
        address, key = f"10.0.{number}.1", f"{MINE[:7]}{number}"
        if guesses.wait_s(address, key, 0.0) == 0:
            changes += guesses.wrong(address, key, 0.0)
    assert [(each.by, each.name, each.standing) for each in changes] == [("prefix", "", Standing.SLOWED)]
    assert guesses.wait_s("10.1.1.1", f"{MINE[:7]}x", 0.0) > 0
    assert guesses.wait_s("10.1.1.1", "another-beginning", 0.0) == 0
    assert guesses.wait_s(HERE, MINE, 0.0) == 0
    tried = sum(guess(guesses, f"{MINE[:7]}x{tick}", tick, f"10.2.{tick}.1") for tick in range(1, 36_000))
    assert tried < 620  # one a minute in ten hours, from 36,000 addresses
    assert guesses.wait_s(ELSEWHERE, MINE, 40_000.0) == 0


def test_who_was_quiet_for_long_is_forgotten() -> None:
    guesses = Guesses()
    guess_for(guesses, 7200)
    assert guesses.wait_s(HERE, "x", 7200.0) > 60
    assert guess_for_at(guesses, 5 * 3600.0) == ADDRESS_TRIES


def guess_for_at(guesses: Guesses, now: float) -> int:
    return sum(guess(guesses, f"again {number}", now) for number in range(1000))


def test_neither_memory_nor_anybodys_ban_gives_way_to_many_addresses() -> None:
    guesses = Guesses()
    guess_for(guesses, 100)
    for number in range(3 * SUSPECTS_LIMIT):
        list(guesses.wrong(f"address {number}", f"{number:06}-key", 100.0))
        guesses.right(f"address {number}", MINE)
    assert guesses.wait_s(HERE, "x", 100.0) > 0
    assert len(guesses) <= 2 * SUSPECTS_LIMIT + KNOWN_LIMIT + 2
