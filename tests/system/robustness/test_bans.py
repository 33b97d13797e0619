"""Bans of SIP strangers on a whole server: listed, lifted, over in time; and whom a restart still knows."""

from __future__ import annotations

import asyncio
import logging
import stat
from pathlib import Path
from urllib.parse import quote

import pytest
from yarl import URL

from sip.auth.challenge import Challenge, Credentials, digest_response
from sip.message.message import Response, parse
from tests.support.command_line import mediaserver
from tests.support.hostile.rogue import Socket, udp
from tests.support.http.api_site import SERVER_KEY, write_api_site
from tests.support.node.node import Client, Site, bearer, rows_of, running
from tests.support.ports import free_port

SCANNER, OFFICE = "127.0.0.66", "127.0.0.77"
BANS = "/api/v1/sip/bans"
TRIES = 3


def site_with(tmp_path: Path, *, ban_s: int = 600, http: int | None = None) -> Site:
    site = write_api_site(tmp_path)
    site.add("[sip]", f"ban_after = {TRIES}\nban_s = {ban_s}\nnever_ban = []")
    site.change('allow_from = ["127.0.0.1/32"]', 'allow_from = []\nusername = "office"\npassword = "secret"')
    return (
        site if http is None else site.change(f'http = "127.0.0.1:{site.http}"', f'http = "127.0.0.1:{http}"')
    )


class Caller:
    """A socket of one address that asks the site's server."""

    def __init__(self, site: Site, bound: Socket) -> None:
        self._server = ("127.0.0.1", site.sip)
        self._bound = bound
        self._asked = 0

    async def ask(self, *lines: str, waits_s: float = 1.0) -> Response | None:
        """The answer to an OPTIONS; None for silence."""
        self._asked += 1
        before = len(self._bound.arrived)
        host = self._bound.transport.get_extra_info("sockname")[0]
        head = [
            "OPTIONS sip:100@127.0.0.1 SIP/2.0",
            f"Via: SIP/2.0/UDP {host}:{self._bound.port};branch=z9hG4bK{id(self)}{self._asked};rport",
            f"From: <sip:100@{host}>;tag=a{self._asked}",
            "To: <sip:100@127.0.0.1>",
            f"Call-ID: {id(self)}-{self._asked}",
            "CSeq: 1 OPTIONS",
            f"User-Agent: {'x' * 300}",
            *lines,
        ]
        self._bound.transport.sendto("\r\n".join([*head, "Content-Length: 0", "", ""]).encode(), self._server)
        for _ in range(int(waits_s / 0.02)):
            if len(self._bound.arrived) > before:
                said = parse(self._bound.arrived[-1][0])
                assert isinstance(said, Response)
                return said
            await asyncio.sleep(0.02)
        return None

    async def scan(self) -> None:
        """Asks until there is no answer."""
        for _ in range(TRIES):
            assert (said := await self.ask()) is not None
            assert said.status == 401
        assert await self.ask() is None

    async def authenticate(self) -> None:
        """Comes in with the trunk's password."""
        challenged = await self.ask()
        assert challenged is not None
        text = next(line for line in challenged.headers.get_all("WWW-Authenticate") if "MD5" in line)
        challenge, uri = Challenge.parse(text), "sip:100@127.0.0.1"
        who = Credentials("office", "secret")
        response = digest_response(who, challenge, method="OPTIONS", uri=uri, qop="auth", cnonce="c")
        said = await self.ask(
            f'Authorization: Digest username="office", realm="{challenge.realm}", nonce="{challenge.nonce}", '
            f'uri="{uri}", response="{response}", algorithm=MD5, qop=auth, nc=00000001, cnonce="c"'
        )
        assert said is not None
        assert said.status == 200


async def listed(client: Client) -> list[tuple[str, str]]:
    async with client.get(BANS, headers=bearer(SERVER_KEY)) as answer:
        assert answer.status == 200
        bans = (await answer.json())["bans"]
    assert all(0 < each["leftS"] <= 600 for each in bans)
    return [(each["address"], each["transport"]) for each in bans]


async def test_a_ban_is_listed_and_lifted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site = site_with(tmp_path)
    async with running(site) as (_, client), udp(SCANNER) as bound:
        scanner = Caller(site, bound)
        assert await listed(client) == []
        await scanner.scan()
        assert await listed(client) == [(SCANNER, "udp")]
        async with client.delete(f"{BANS}/{SCANNER}", headers=bearer(SERVER_KEY)) as answer:
            assert answer.status == 200
        assert await listed(client) == []
        await scanner.scan()  # all of its tries again
        for address in ("192.0.2.1", "nonsense"):
            async with client.delete(f"{BANS}/{address}", headers=bearer(SERVER_KEY)) as answer:
                assert answer.status == 404
    (line,) = [each for each in caplog.records if each.message == "SIP ban lifted"]
    assert line.__dict__["address"] == SCANNER
    noted = await rows_of(site, "SELECT operation, subject FROM audit WHERE operation = 'liftBan'")
    assert noted == [{"operation": "liftBan", "subject": SCANNER}]


async def test_a_ban_is_over_after_ban_s(tmp_path: Path) -> None:
    site = site_with(tmp_path, ban_s=2)
    async with running(site) as (_, client), udp(SCANNER) as bound:
        scanner = Caller(site, bound)
        await scanner.scan()
        await asyncio.sleep(2.1)
        assert await listed(client) == []
        assert await scanner.ask() is not None


async def test_the_command_line_lists_and_lifts_bans(tmp_path: Path) -> None:
    http = free_port()
    site = site_with(tmp_path, http=http)
    async with running(site) as (_, client), udp(SCANNER) as bound:
        site.change(f'http = "127.0.0.1:{http}"', f'http = "127.0.0.1:{client.port}"')  # where it listens

        async def said(*words: str) -> tuple[int, str]:
            done = await asyncio.to_thread(mediaserver, "bans", words[0], "--config", site.path, *words[1:])
            return done.returncode, done.stdout + done.stderr

        assert await said("list") == (0, "no address is banned\n")
        await Caller(site, bound).scan()
        code, text = await said("list")
        assert (code, text.startswith(f"{SCANNER}  datagrams  ")) == (0, True)
        assert await said("lift", SCANNER) == (0, f"{SCANNER} is banned no more\n")
        assert await said("lift", SCANNER) == (1, "Error: That address is not banned on this node\n")
        assert await said("list") == (0, "no address is banned\n")


async def test_forged_datagrams_do_not_silence_whom_the_server_knew_before_its_restart(
    tmp_path: Path,
) -> None:
    """The office's telephones, by the same address as somebody who forges it."""
    site = site_with(tmp_path)
    async with running(site), udp(OFFICE) as bound:
        await Caller(site, bound).authenticate()
    kept = site.data_dir / "sip-known.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    async with running(site) as (_, client), udp(OFFICE) as office, udp(SCANNER) as elsewhere:
        for _ in range(3 * TRIES):  # in the office's name: without its password
            assert await Caller(site, office).ask() is not None
        await Caller(site, elsewhere).scan()
        assert await listed(client) == [(SCANNER, "udp")]


SPOILT = (
    "",
    "[]",
    "{",
    '{"127.0.0.77": "soon"}',
    '{"127.0.0.77": null}',
    '{"127.0.0.77": [1]}',
    f'{{"127.0.0.77": 1{"0" * 400}}}',
    "[" * 200_000,
)


@pytest.mark.parametrize("text", SPOILT, ids=range(len(SPOILT)))
async def test_a_spoilt_file_of_known_addresses_keeps_no_server_from_starting(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = site_with(tmp_path)
    site.data_dir.mkdir(exist_ok=True)
    (site.data_dir / "sip-known.json").write_text(text)
    async with running(site) as (_, client), client.get("/readyz") as answer:
        assert answer.status == 200
    assert "known SIP addresses cannot be read" in caplog.messages


async def test_a_ban_of_ipv6_is_lifted_by_what_is_listed(tmp_path: Path) -> None:
    async with running(site_with(tmp_path)) as (server, client):
        for lifted in ("2001:db8::/64", "2001:db8::7"):
            for _ in range(TRIES + 1):
                now = asyncio.get_running_loop().time()
                server.endpoint.gate.strangers.refused(
                    "2001:db8::9", now, guess=True, received=None, sent=None
                )
            assert await listed(client) == [("2001:db8::/64", "stream")]
            path = URL(f"{BANS}/{quote(lifted, safe='')}", encoded=True)
            async with client.delete(path, headers=bearer(SERVER_KEY)) as answer:
                assert answer.status == 200
            assert await listed(client) == []
