"""URLs that a stranger chose: no spelling of an inner address is connected to, however it is resolved."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from pipeline.errors import RequestFailed, TargetRefused
from pipeline.net.egress import EgressPolicy
from pipeline.net.http import ANSWER_LIMIT, GuardedHttpClient, HttpAnswer


class Trap:
    """A service inside the network that must not be reached."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Counts who got here."""
        self.connections += 1
        if request.path == "/moved":
            raise web.HTTPFound("/inside")
        if request.path == "/long":
            return web.Response(body=b"x" * (ANSWER_LIMIT + 1))
        if request.path == "/full":
            return web.Response(body=b"x" * ANSWER_LIMIT)
        if request.path == "/late":
            await asyncio.sleep(60)
        return web.Response(text=f"inside {await request.text()}")


@asynccontextmanager
async def trap() -> AsyncIterator[Trap]:
    inside = Trap()
    runner = web.ServerRunner(web.Server(inside.serve), shutdown_timeout=0.1)
    await runner.setup()
    sockets = [socket.create_server(("127.0.0.1", 0))]
    inside.port = sockets[0].getsockname()[1]
    for family, host in ((socket.AF_INET6, "::1"),):
        try:
            sockets.append(socket.create_server((host, inside.port), family=family))
        except OSError:
            continue
    for listening in sockets:
        await web.SockSite(runner, listening).start()
    try:
        yield inside
    finally:
        await runner.cleanup()


class Names(AbstractResolver):
    """A name server under a stranger's control: each answer in turn, the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """What aiohttp asks."""
        addresses = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=0,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing to close."""


def client(networks: Iterable[str] = (), **options: Any) -> GuardedHttpClient:
    return GuardedHttpClient(EgressPolicy(networks), **options)


async def post(
    http: GuardedHttpClient, url: str, body: bytes = b"{}", headers: Mapping[str, str] | None = None
) -> HttpAnswer:
    return await http.request("POST", url, headers=headers or {}, body=body)


INNER = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "0",
    "0.0.0.0",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::]",
    "user@127.0.0.1",
    "example.com@127.0.0.1",
    "①②⑦.0.0.1",
    "127。0。0。1",
    "１２７.0.0.1",
    "127．0．0．1",
    "ⓛocalhost",
    "127.000.000.001",
    "127.0.0.1.",
    "0x7f.0x0.0x0.0x1",
    "0177.0x0.1",
    "0x7f.0.1",
    "00000177.0.0.1",
    "%31%32%37.0.0.1",
    "127.0.0.2",
    "127.127.127.127",
    "4294967295",
    "255.255.255.255",
    "0.0.0.1",
    "[::ffff:0:127.0.0.1]",
    "[::ffff:127.0.0.2]",
    "[0:0:0:0:0:ffff:7f00:0001]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "[::1%25lo]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b:1::7f00:1]",
    "[2001:0:7f00:1::1]",
    "[fe80::1]",
    "[ff02::1]",
    "user:password@127.0.0.1",
    "127.0.0.1%00.example.com",
    # A cloud's metadata, and what else is inside.
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[fd00:ec2::254]",
    "169.254.170.2",
    "192.0.0.192",
    "100.100.100.200",
    "168.63.129.16",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "100.64.0.1",
]


def test_the_table_is_long() -> None:
    assert len(set(INNER)) == len(INNER) >= 60


@pytest.mark.parametrize("host", INNER)
async def test_no_spelling_of_this_machine_is_connected_to(host: str) -> None:
    async with trap() as inside, client(timeout_s=2) as http:
        with pytest.raises((TargetRefused, RequestFailed)):
            await post(http, f"http://{host}:{inside.port}/")
        assert inside.connections == 0


async def test_the_trap_would_have_noticed() -> None:
    async with trap() as inside, client(["127.0.0.0/8"]) as http:
        answer = await post(http, f"http://127.0.0.1:{inside.port}/", b"hello", {"x-test": "1"})
        assert (answer.status, answer.body) == (200, b"inside hello")
        assert inside.connections == 1


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "gopher://127.0.0.1/",
        "http://",
        "//x",
        "",
        "http://[",
        "http://a b/",
    ],
)
async def test_what_is_no_http_url_is_refused(url: str) -> None:
    async with client(["127.0.0.0/8"]) as http:
        with pytest.raises((TargetRefused, RequestFailed)):
            await post(http, url)


async def test_a_name_that_leads_inside_is_refused() -> None:
    async with trap() as inside, client(resolver=Names(["127.0.0.1"])) as http:
        with pytest.raises(TargetRefused):
            await post(http, f"http://hooks.example.com:{inside.port}/")
        assert inside.connections == 0


async def test_a_name_that_changes_its_mind_is_refused_when_it_does() -> None:
    """DNS rebinding: what counts is the address that is connected to, not one looked up before."""
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    async with trap() as inside, client(["127.0.0.1/32"], resolver=names) as http:
        answer = await post(http, f"http://hooks.example.com:{inside.port}/")
        assert answer.status == 200
        async with client(["127.0.0.1/32"], resolver=names) as later:
            with pytest.raises(TargetRefused):
                await post(later, f"http://hooks.example.com:{inside.port}/")
        assert inside.connections == 1


async def test_of_several_addresses_only_the_allowed_one_is_used() -> None:
    names = Names(["127.0.0.2", "127.0.0.1"])
    async with trap() as inside, client(["127.0.0.1/32"], resolver=names) as http:
        answer = await post(http, f"http://hooks.example.com:{inside.port}/")
        assert answer.status == 200


async def test_a_redirect_is_not_followed() -> None:
    async with trap() as inside, client(["127.0.0.0/8"]) as http:
        answer = await post(http, f"http://127.0.0.1:{inside.port}/moved")
        assert answer.status == 302
        assert inside.connections == 1


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with trap() as inside:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{inside.port}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{inside.port}")
        async with client(["127.0.0.0/8"]) as http:
            with pytest.raises(RequestFailed, match="cannot connect"):
                await post(http, "http://127.0.0.1:1/")
        assert inside.connections == 0


async def test_answers_are_bounded_in_length_and_time() -> None:
    async with trap() as inside, client(["127.0.0.0/8"], timeout_s=0.3) as http:
        base = f"http://127.0.0.1:{inside.port}"
        assert len((await post(http, f"{base}/full")).body) == ANSWER_LIMIT
        with pytest.raises(RequestFailed, match="longer than 256 KiB"):
            await post(http, f"{base}/long")
        with pytest.raises(RequestFailed, match="in time"):
            await post(http, f"{base}/late")


async def test_a_closed_client_says_so() -> None:
    async with client() as http:
        pass
    with pytest.raises(RequestFailed, match="closed"):
        await post(http, "http://example.com/")


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("8.8.8.8", True),
        ("1.1.1.1", True),
        ("2606:4700:4700::1111", True),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::8.8.8.8", True),
        ("10.0.0.1", False),
        ("10.255.255.255", False),
        ("172.16.0.1", False),
        ("172.31.255.255", False),
        ("172.32.0.1", True),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::169.254.169.254", False),
        ("::ffff:0:169.254.169.254", False),
        ("::ffff:0:127.0.0.1", False),
        ("168.63.129.16", False),
        ("64:ff9b::10.0.0.1", False),
        ("2002:a9fe:a9fe::", False),
        ("2002:a00:1::", False),
        ("2001:0:a00:1::1", False),
        ("fd00:ec2::254", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("fec0::1", False),
        ("fc00::1", False),
        ("ff02::1", False),
        ("::", False),
        ("::1", False),
        ("::10.0.0.1", False),
        ("0.0.0.0", False),
        ("0.1.2.3", False),
        ("100.64.0.1", False),
        ("100.100.100.200", False),
        ("192.0.0.192", False),
        ("192.0.2.1", False),
        ("192.88.99.1", False),
        ("198.18.0.1", False),
        ("198.51.100.1", False),
        ("203.0.113.1", False),
        ("224.0.0.1", False),
        ("239.255.255.255", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("2001:db8::1", False),
        ("100::1", False),
        ("not an address", False),
        ("", False),
    ],
)
def test_public_addresses_only(address: str, allowed: bool) -> None:
    assert EgressPolicy().allows(address) is allowed


def test_allowed_networks_open_what_they_name_and_no_more() -> None:
    egress = EgressPolicy(["10.1.0.0/16", "fd00::/64"])
    assert egress.allows("10.1.2.3")
    assert egress.allows("::ffff:10.1.2.3")
    assert egress.allows("fd00::5")
    assert not egress.allows("10.2.0.1")
    assert not egress.allows("fd00:0:0:1::5")
    assert egress.allows("8.8.8.8")
