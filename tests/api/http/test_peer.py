"""Who is at the other end, directly and behind proxies; and to whom /metrics answers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from api.app import build
from api.http.peer import Peers
from mediaserver.server import Server
from mediaserver.settings import load
from tests.support.node.node import write_site


def test_one_caller_is_an_ipv4_address_or_the_64_of_an_ipv6_subscriber() -> None:
    neighbourhood = Peers().neighbourhood
    assert neighbourhood("192.0.2.1") == "192.0.2.1"
    assert neighbourhood("::ffff:192.0.2.1") == "192.0.2.1"
    assert neighbourhood("2001:db8:1:2:3:4:5:6") == neighbourhood("2001:db8:1:2::1") == "2001:db8:1:2::/64"
    assert neighbourhood("fe80::1%eth0") == "fe80::/64"
    assert neighbourhood("") == ""


@pytest.mark.parametrize(
    ("connected", "forwarded_for", "client"),
    [
        ("192.0.2.1", ["203.0.113.9"], "192.0.2.1"),  # no proxy of ours: anybody can write that
        ("10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["198.51.100.7, 203.0.113.9"], "203.0.113.9"),  # the first is the client's own word
        ("10.0.0.1", ["198.51.100.7", "203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        ("10.0.0.1", ["203.0.113.9:4711"], "203.0.113.9"),
        ("10.0.0.1", ["[2001:db8::7]:4711"], "2001:db8::7"),
        ("::ffff:10.0.0.1", ["2001:db8::7"], "2001:db8::7"),
        ("10.0.0.1", ["unknown"], "None"),
        ("10.0.0.1", ["10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", [], "10.0.0.1"),
    ],
)
def test_behind_proxies_of_ours_it_is_the_last_address_that_is_none_of_theirs(
    connected: str, forwarded_for: list[str], client: str
) -> None:
    assert str(Peers(trusted=["10.0.0.0/24"]).client(connected, forwarded_for)) == client


@pytest.mark.parametrize(
    ("more", "headers", "status"),
    [
        ("", {}, 200),
        ("", {"X-Forwarded-For": "203.0.113.9"}, 403),  # a proxy on this machine passes strangers on
        ("", {"X-Forwarded-For": "127.0.0.1"}, 403),
        ("", {"Forwarded": "for=203.0.113.9"}, 403),
        ("", {"X-Real-IP": "203.0.113.9"}, 403),
        ("", {"Via": "1.1 proxy"}, 403),
        ('trusted_proxies = ["127.0.0.0/8"]', {"X-Forwarded-For": "203.0.113.9"}, 403),
        ('trusted_proxies = ["127.0.0.0/8"]', {"X-Forwarded-For": "127.0.0.1, 203.0.113.9"}, 403),
        ('trusted_proxies = ["127.0.0.0/8"]', {"X-Forwarded-For": "unknown"}, 403),
        ('trusted_proxies = ["127.0.0.0/8"]', {"X-Real-IP": "203.0.113.9"}, 403),  # which is not read
        ('trusted_proxies = ["127.0.0.0/8"]', {}, 200),
        (
            'trusted_proxies = ["127.0.0.0/8"]\nmetrics_networks = ["203.0.113.0/24"]',
            {"X-Forwarded-For": "203.0.113.9"},
            200,
        ),
        ('metrics_networks = ["203.0.113.0/24"]', {"X-Forwarded-For": "203.0.113.9"}, 403),
    ],
)
async def test_metrics_are_told_to_this_machine_and_the_networks_named(
    tmp_path: Path, more: str, headers: dict[str, str], status: int
) -> None:
    site = write_site(tmp_path)
    site.add("[server]", more)
    async with (
        TestClient(TestServer(build(Server(load(site.path))))) as client,
        client.get("/metrics", headers=headers) as answer,
    ):
        assert answer.status == status
        text = await answer.text()
    assert ("mediaserver_active_calls" in text) == (status == 200)


def own_address() -> str:
    """An address of this machine that others reach, "" where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))  # sends nothing
        except OSError:
            return ""
        return str(probe.getsockname()[0])


@pytest.mark.skipif(not own_address(), reason="this machine has no network")
@pytest.mark.parametrize(("networks", "status"), [("[]", 403), (f'["{own_address() or "::1"}"]', 200)])
async def test_metrics_are_not_told_to_the_network(tmp_path: Path, networks: str, status: int) -> None:
    site = write_site(tmp_path)
    more = f"[server]\nmetrics_networks = {networks}\n"
    site.change("[server]\n", more)
    app = build(Server(load(site.path)))
    async with (
        TestClient(TestServer(app, host=own_address())) as client,
        client.get("/metrics") as answer,
    ):
        assert answer.status == status
