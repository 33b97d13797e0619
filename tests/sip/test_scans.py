"""Scanners as svmap, svwar and svcrack are: sockets that ask an endpoint for what is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial

import pytest

from sip.auth.challenge import Challenge, Credentials, digest_response
from sip.call import Call
from sip.endpoint import Endpoint, EndpointSettings
from sip.message.message import Response, parse
from sip.trunk_settings import TrunkSettings
from tests.support.sip.sip_phones import address
from tests.support.udp import UdpServer, bound
from tests.support.waiting import until

SCANNER, CARRIER, OFFICE = "127.0.0.66", "127.0.0.9", "127.0.0.77"
TRIES = 10


class Socket(UdpServer):
    """A UDP socket of one address; counts bytes both ways, and keeps what comes."""

    def __init__(self, server: int) -> None:
        self.server = ("127.0.0.1", server)
        self.came: list[Response] = []
        self.bytes_in = self.bytes_out = 0
        self._number = 0

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.bytes_in += len(data)
        message = parse(data)
        assert isinstance(message, Response)
        self.came.append(message)

    def send(self, data: bytes) -> None:
        self.bytes_out += len(data)
        self.transport.sendto(data, self.server)

    def ask(self, method: str, user: str = "100", *lines: str, number: int = 0) -> int:
        """Sends a request outside any dialog, as sipvicious writes it; returns its number."""
        self._number = number = number or self._number + 1
        head = [
            f"{method} sip:{user}@{self.server[0]}:{self.server[1]} SIP/2.0",
            f"Via: SIP/2.0/UDP {self.host}:{self.port};branch=z9hG4bK-{self._number};rport",
            f"From: <sip:{user}@{self.host}>;tag=f{self._number}",
            f"To: <sip:{user}@{self.server[0]}>",
            f"Call-ID: {self._number}-{method}",
            f"CSeq: 1 {method}",
            "Max-Forwards: 70",
            f"Contact: <sip:{user}@{self.host}:{self.port}>",
            *lines,
            "Content-Length: 0",
        ]
        self.send("\r\n".join([*head, "", ""]).encode())
        return number


def socket_at(host: str, phone: Endpoint) -> AbstractAsyncContextManager[Socket]:
    return bound(Socket(address(phone)[1]), host)


@asynccontextmanager
async def endpoint(*, password: str = "", ban_s: float = 600.0, tcp: bool = False) -> AsyncIterator[Endpoint]:
    """An endpoint with a carrier's trunk, whose customers have a password where one is given."""
    settings = EndpointSettings(
        udp="127.0.0.1:0",
        tcp="127.0.0.1:0" if tcp else None,
        rtp_ports=(25000, 25099),
        ban_after=TRIES,
        ban_s=ban_s,
        never_ban=(),
    )
    async with Endpoint(settings) as phone:
        phone.add_trunk(
            TrunkSettings(
                id="carrier",
                uri="sip:192.0.2.1",
                allow_from=(f"{CARRIER}/32",),
                username="office" if password else "",
                password=password,
            )
        )
        yield phone


def sweep(socket: Socket, method: str, times: int, *lines: str) -> None:
    for extension in range(100, 100 + times):
        socket.ask(method, str(extension), *lines)


LONG = ("User-Agent: friendly-scanner", "Accept: application/sdp", "Allow: INVITE, ACK, CANCEL, BYE, OPTIONS")


@pytest.mark.parametrize("password", ["", "secret"])
@pytest.mark.parametrize("method", ["OPTIONS", "REGISTER", "INVITE", "SUBSCRIBE", "PROPFIND"])
async def test_a_scanner_gets_silence_after_a_few_tries(
    method: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with endpoint(password=password) as phone, socket_at(SCANNER, phone) as scanner:
        for extension in range(100, 160):
            scanner.ask(method, str(extension), *LONG)
            await asyncio.sleep(0.002)
        await until(lambda: phone.stats.silenced + len(scanner.came) == 60)
        before = len(scanner.came)
        sweep(scanner, method, 40, *LONG)
        await until(lambda: phone.stats.silenced + len(scanner.came) == 100)
        assert len(scanner.came) == before <= TRIES
        assert {each.status for each in scanner.came} <= {401, 404, 405, 501}
        assert (phone.stats.bans, phone.stats.silenced) == (1, 100 - before)
        assert phone.stats.calls == phone.stats.transactions == 0
        assert scanner.bytes_in <= scanner.bytes_out
    told = [record for record in caplog.records if record.message == "address banned from SIP"]
    assert [getattr(record, "address", "") for record in told] == [SCANNER]


async def test_a_ban_expires() -> None:
    async with endpoint(ban_s=0.5) as phone, socket_at(SCANNER, phone) as scanner:
        sweep(scanner, "OPTIONS", 40, *LONG)
        await until(lambda: phone.stats.banned == 1)
        await until(lambda: phone.stats.banned == 0)
        before = len(scanner.came)
        scanner.ask("OPTIONS", "100", *LONG)
        await until(lambda: len(scanner.came) == before + 1)


async def test_what_is_no_sip_at_all_and_what_is_malformed_is_banned_too() -> None:
    async with endpoint() as phone, socket_at(SCANNER, phone) as scanner:
        for _ in range(40):
            scanner.ask("OPTIONS", "100", "CSeq: 7 BYE", "Expires: never", *LONG)
            scanner.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.sleep(0.002)
        await until(lambda: phone.stats.banned == 1)
        assert len(scanner.came) <= TRIES
        assert {each.status for each in scanner.came} <= {400}


async def test_a_trunks_own_addresses_are_never_banned() -> None:
    async with endpoint() as phone, socket_at(CARRIER, phone) as carrier:
        sweep(carrier, "SUBSCRIBE", 50, *LONG)
        sweep(carrier, "OPTIONS", 20)
        await until(lambda: len(carrier.came) == 70)
        assert (phone.stats.banned, phone.stats.silenced) == (0, 0)


async def test_who_has_authenticated_is_never_banned_and_a_ban_hits_nobody_else() -> None:
    async with endpoint(password="secret") as phone, socket_at(OFFICE, phone) as office:
        office.ask("OPTIONS", "100", *LONG)
        office.ask("OPTIONS", "100", *LONG, number=1)
        await until(lambda: office.came)
        office.ask("OPTIONS", "100", *LONG, authorization(office))
        await until(lambda: office.came[-1].status == 200)
        async with socket_at(SCANNER, phone) as scanner:
            sweep(scanner, "REGISTER", 40, *LONG)
            await until(lambda: phone.stats.banned == 1)
        count = len(office.came)
        sweep(office, "OPTIONS", 40)
        await until(lambda: len(office.came) == count + 40)
        assert (phone.stats.banned, phone.stats.bans) == (1, 1)


def authorization(socket: Socket) -> str:
    challenge = Challenge.parse(socket.came[-1].headers.get_all("WWW-Authenticate")[-1])
    who, uri = Credentials("office", "secret"), f"sip:100@{socket.server[0]}:{socket.server[1]}"
    said = digest_response(who, challenge, method="OPTIONS", uri=uri, qop="auth", cnonce="c")
    return (
        f'Authorization: Digest username="office", realm="{challenge.realm}", nonce="{challenge.nonce}", '
        f'uri="{uri}", response="{said}", algorithm={challenge.algorithm}, qop=auth, nc=00000001, cnonce="c"'
    )


@pytest.mark.parametrize("method", ["REGISTER", "OPTIONS", "INVITE", "SUBSCRIBE"])
async def test_no_answer_to_a_stranger_is_longer_than_what_it_sent(method: str) -> None:
    """The shortest request that is one; its repetition is answered, as a telephone's is."""
    async with endpoint(password="secret") as phone, socket_at(SCANNER, phone) as short:
        for _ in range(4):
            short.ask(method, "1", number=1)
            await asyncio.sleep(0.1)
            assert short.bytes_in <= short.bytes_out
        assert short.came
        assert phone.stats.banned == 0


async def test_calls_that_are_up_and_answers_to_ours_are_not_hit_by_a_ban() -> None:
    """The scanner shares the address of somebody who is called from here."""
    async with endpoint() as phone, endpoint() as other, socket_at("127.0.0.1", phone) as scanner:
        host, port = address(other)
        other.add_trunk(TrunkSettings(id="in", uri="sip:192.0.2.1", allow_from=("127.0.0.1/32",)))
        sweep(scanner, "OPTIONS", 40, *LONG)
        await until(lambda: phone.stats.banned == 1)
        trunk = phone.add_trunk(TrunkSettings(id="out", uri=f"sip:{host}:{port};transport=udp"))
        call, answered = await asyncio.gather(trunk.call("100"), _answer(other))
        await call.answered()
        await answered.hang_up()
        await call.ended()


async def _answer(phone: Endpoint) -> Call:
    call = await anext(phone.incoming())
    await call.answer()
    return call


async def test_an_office_of_telephones_that_start_together_gets_in() -> None:
    """The power is back: each asks before any has had its challenge, and more than a stranger has tries."""
    async with endpoint(password="secret") as phone, AsyncExitStack() as office:
        phones = [await office.enter_async_context(socket_at(OFFICE, phone)) for _ in range(30)]
        for each in phones:
            each.ask("OPTIONS", "100", *LONG)
        await until(lambda: phone.stats.banned == 1)
        challenged = [each for each in phones if each.came]
        for each in challenged:
            each.ask("OPTIONS", "100", *LONG, authorization(each))
        await until(lambda: all(each.came[-1].status == 200 for each in challenged))
        assert phone.stats.banned == 0
        for each in phones:
            count = len(each.came)
            each.ask("OPTIONS", "100", *LONG)
            await until(partial(_more_than, each, count))


def _more_than(socket: Socket, count: int) -> bool:
    return len(socket.came) > count


async def test_who_answers_a_challenge_wrongly_stays_banned() -> None:
    async with endpoint(password="secret") as phone, socket_at(SCANNER, phone) as scanner:
        sweep(scanner, "OPTIONS", 40, *LONG)
        await until(lambda: phone.stats.silenced + len(scanner.came) == 40)
        guess = authorization(scanner).replace('response="', 'response="0')
        before, silenced = len(scanner.came), phone.stats.silenced
        sweep(scanner, "OPTIONS", 40, *LONG, guess)
        await until(lambda: phone.stats.silenced >= silenced + 40)
        assert (len(scanner.came), phone.stats.banned) == (before, 1)


async def test_datagrams_in_the_name_of_somebody_do_not_silence_their_connection() -> None:
    async with endpoint(tcp=True) as phone, socket_at(SCANNER, phone) as forger:
        sweep(forger, "OPTIONS", 40, *LONG)
        await until(lambda: phone.stats.banned == 1)
        reader, writer = await asyncio.open_connection(*address(phone, "tcp"), local_addr=(SCANNER, 0))
        forger.send = writer.write  # type: ignore[method-assign]
        forger.ask("OPTIONS", "100", *LONG)
        async with asyncio.timeout(2):
            assert (await reader.readline()).startswith(b"SIP/2.0 404")
        writer.close()


async def test_a_refused_request_does_not_ask_every_trunk_where_its_servers_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with endpoint() as phone, socket_at(SCANNER, phone) as scanner:
        for number in range(100):
            phone.add_trunk(TrunkSettings(id=f"t{number}", uri=f"sip:192.0.2.{number}"))
        asked: list[str] = []

        def addresses_of(host: str) -> tuple[str, ...]:
            asked.append(host)
            return (host,)

        monkeypatch.setattr(phone, "addresses_of", addresses_of)
        sweep(scanner, "OPTIONS", 60, *LONG)
        await until(lambda: phone.stats.silenced == 60 - TRIES)
        assert 0 < len(asked) <= 2 * 101
