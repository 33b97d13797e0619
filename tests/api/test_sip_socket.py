"""SIP over WebSocket (RFC 7118) as a client writes it, frame by frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSServerHandshakeError
from aiohttp.test_utils import TestClient

from sip.auth.challenge import Credentials
from sip.auth.digest import Authorizer
from sip.message.message import Request, Response, parse
from tests.support.node.node import FAKE_ENGINES, REAL_ENGINES, Site, running, server_of, write_site
from tests.support.ports import free_port
from tests.support.waiting import until

LINE = "users:acme"
USER = '\n[[sip.user]]\nname = "anna"\ncompany = "acme"\npassword = "anna-password"\n'


def socket_site(directory: Path, engines: str = FAKE_ENGINES) -> Site:
    site = write_site(directory, engines=engines)
    site.path.write_text(site.path.read_text() + USER)
    return site


def request(method: str, cseq: int, to: str = "anna", *lines: str) -> Request:
    """A request of a browser's, whose host is made up."""
    extra = "".join(f"{line}\r\n" for line in lines)
    text = (
        f"{method} sip:us.example SIP/2.0\r\nVia: SIP/2.0/WS x7.invalid;branch=z9hG4bK{method}{cseq}\r\n"
        f"Max-Forwards: 70\r\nFrom: <sip:anna@us.example>;tag=f\r\nTo: <sip:{to}@us.example>\r\n"
        f"Call-ID: one\r\nCSeq: {cseq} {method}\r\nContact: <sip:a@x7.invalid;transport=ws>;expires=60\r\n"
        f"{extra}\r\n"
    )
    made = parse(text.encode())
    assert isinstance(made, Request)
    return made


async def answered(socket: ClientWebSocketResponse, sent: Request) -> Response:
    await socket.send_str(sent.to_bytes().decode())
    got = parse((await socket.receive_str(timeout=5)).encode())
    assert isinstance(got, Response)
    return got


async def registered(socket: ClientWebSocketResponse) -> Response:
    challenge = await answered(socket, request("REGISTER", 1))
    assert challenge.status == 401
    again = request("REGISTER", 2)
    authorizer = Authorizer(Credentials("anna", "anna-password"))
    authorizer.challenged(again, challenge)
    authorizer.sign(again)
    return await answered(socket, again)


async def refusal(client: TestClient[Any, Any], **options: Any) -> int:
    with pytest.raises(WSServerHandshakeError) as refused:
        await client.ws_connect("/sip", **options)
    return refused.value.status


async def test_a_browser_registers_and_its_registration_ends_with_its_connection(tmp_path: Path) -> None:
    async with running(socket_site(tmp_path)) as (server, client):
        line = server.endpoint.trunks[LINE]
        async with client.ws_connect("/sip", protocols=("sip",)) as socket:
            assert socket.protocol == "sip"
            answer = await registered(socket)
            assert answer.status == 200
            assert "received=127.0.0.1" in (answer.header("Via") or "")
            (bound,) = server.endpoint.telephones(line, "anna")
            assert (bound.hop.transport, bound.contact.host) == ("ws", "x7.invalid")
            await socket.send_str("\r\n\r\n")
            assert await socket.receive_str(timeout=5) == "\r\n"
            await socket.send_str("not SIP at all")
            await socket.send_bytes(b"\xff\xfe\r\n\r\n")
            assert (await answered(socket, request("INVITE", 3, "+14155550101"))).status == 401
        await until(lambda: not server.endpoint.telephones(line, "anna"))


async def test_a_message_beyond_the_limit_ends_the_connection(tmp_path: Path) -> None:
    async with (
        running(socket_site(tmp_path)) as (_, client),
        client.ws_connect("/sip", protocols=("sip",)) as socket,
    ):
        await socket.send_str("x" * 70_000)
        await socket.receive(timeout=5)
        assert socket.close_code == 1009


async def test_who_may_connect(tmp_path: Path) -> None:
    site = socket_site(tmp_path).add("[sip]", 'ws_origins = ["https://phone.example.com"]')
    async with running(site) as (_, client):
        assert await refusal(client) == 400  # another subprotocol
        evil = {"Origin": "https://evil.example.com"}
        assert await refusal(client, protocols=("sip",), headers=evil) == 403
        own = {"Origin": "https://phone.example.com"}
        async with client.ws_connect("/sip", protocols=("sip",), headers=own) as socket:
            assert (await registered(socket)).status == 200


async def test_without_users_there_is_nothing_to_connect_to(tmp_path: Path) -> None:
    async with running(write_site(tmp_path)) as (_, client):
        assert await refusal(client, protocols=("sip",)) == 404


async def test_an_address_of_its_own_speaks_sip_at_any_path(tmp_path: Path) -> None:
    port = free_port()
    site = socket_site(tmp_path, REAL_ENGINES).add("[sip]", f'ws = "127.0.0.1:{port}"')
    async with server_of(site), ClientSession() as http:
        for path in ("", "/", "/ws"):
            url = f"ws://127.0.0.1:{port}{path}"
            async with http.ws_connect(url, protocols=("sip",)) as socket:
                assert (await registered(socket)).status == 200
        async with http.get(f"http://127.0.0.1:{port}/api/v1/calls") as nothing_else:
            assert nothing_else.status == 400


async def test_a_client_whose_address_the_proxy_does_not_tell_is_refused(tmp_path: Path) -> None:
    """Bans and limits go by the address."""
    site = socket_site(tmp_path).add("[server]", 'trusted_proxies = ["127.0.0.1/32"]')
    async with running(site) as (_, client):
        unnamed = {"X-Forwarded-For": "unknown"}
        assert await refusal(client, protocols=("sip",), headers=unnamed) == 400
        named = {"X-Forwarded-For": "198.51.100.7"}
        async with client.ws_connect("/sip", protocols=("sip",), headers=named) as socket:
            assert "received=198.51.100.7" in ((await registered(socket)).header("Via") or "")
