"""Whom the benchmark calls, and whom it does not."""

from __future__ import annotations

import pytest

from mediaserver.benchmark.target import CallTargetRefused, target


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sip:bob@127.0.0.1", "sip:bob@127.0.0.1;transport=udp"),
        ("sip:bob7@198.51.100.7;transport=TCP", "sip:bob7@198.51.100.7;transport=tcp"),
        ("sip:front.desk@[::1]:5070", "sip:front.desk@[::1]:5070;transport=udp"),
        # Nothing but the host says where the call goes.
        ("sip:bob@127.0.0.1;maddr=198.51.100.7", "sip:bob@127.0.0.1;transport=udp"),
    ],
)
async def test_who_is_called(text: str, shown: str) -> None:
    assert str(await target(text)) == shown


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("bob", "URI without a scheme"),
        ("tel:+14155550101", "only sip:"),
        ("sips:bob@127.0.0.1", "only sip:"),
        ("sip:bob@127.0.0.1;transport=tls", "only sip:"),
        ("sip:127.0.0.1", "before the @"),
        ("sip:b%0d%0aob@127.0.0.1", "before the @"),
        ("sip:bob@nowhere.invalid", "nowhere.invalid"),
    ],
)
async def test_what_is_no_address(text: str, reason: str) -> None:
    with pytest.raises(CallTargetRefused, match=reason):
        await target(text, sure=True)


@pytest.mark.parametrize(
    "user", ["+14155550101", "14155550101", "+1-415-555.0101", "004915155550101", "600", "7", "*31#600"]
)
@pytest.mark.parametrize("host", ["127.0.0.1", "198.51.100.7"])
async def test_a_number_is_called_when_somebody_is_sure(user: str, host: str) -> None:
    """At this machine too: an exchange here may have a line to the public network."""
    text = f"sip:{user}@{host}"
    with pytest.raises(CallTargetRefused, match="--yes"):
        await target(text)
    assert (await target(text, sure=True)).is_telephone


@pytest.mark.parametrize(
    "user",
    [
        "911",
        "112",
        "+112",
        "9-1-1",
        "999",
        "110",
        "118",
        "119",
        "15",
        "17",
        "190",
        "0112",
        "9911",
        "9_1_1",
        "*112#",
    ],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "198.51.100.7"])
async def test_emergency_numbers_are_never_called(user: str, host: str) -> None:
    with pytest.raises(CallTargetRefused, match="emergency"):
        await target(f"sip:{user}@{host}", sure=True)
