"""The benchmark of orders measures orders that are really dialled, beside calls that are really up."""

from __future__ import annotations

import os
import socket

import pytest

from bench.post import BusyCarrier, measure, rows
from tests.support.paths import ROOT


def test_the_carrier_is_busy_for_every_call_and_counts_each_once() -> None:
    carrier = BusyCarrier()
    invite = "\r\n".join(
        (
            "INVITE sip:+14152000001@127.0.0.1 SIP/2.0",
            "Via: SIP/2.0/UDP 127.0.0.1:5999;branch=z9hG4bK1",
            "From: <sip:a@127.0.0.1>;tag=a",
            "To: <sip:b@127.0.0.1>",
            "Call-ID: one",
            "CSeq: 1 INVITE",
            "",
            "",
        )
    )
    try:
        with socket.socket(type=socket.SOCK_DGRAM) as phone:
            phone.settimeout(30)
            for _ in range(2):
                phone.sendto(invite.encode(), ("127.0.0.1", carrier.port))
                answer = phone.recv(65_536).decode().split("\r\n")
        assert answer[0] == "SIP/2.0 486 Busy Here"
        assert "Call-ID: one" in answer
        assert "To: <sip:b@127.0.0.1>;tag=busy" in answer
        assert carrier.invited == 1
    finally:
        carrier.close()


@pytest.mark.nightly("ci")
@pytest.mark.slow
def test_orders_come_in_while_calls_are_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    figures = measure(calls=2, seconds=3.0, rate_per_s=5.0, rounds=1)
    assert figures["refused"] == 0
    assert figures["post_ms"]["count"] == figures["dialled"] >= 10
    for name in ("with", "without"):
        assert figures[name]["up_at_end"] == 2
        assert figures[name]["generator_lost"] == 0
    assert [row[3] in ("met", "missed") for row in rows(figures)] == [True, True, False]
