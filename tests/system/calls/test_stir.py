"""Calls that a signing service of ATIS-1000082 signs: what it is asked, what the carrier gets, and what
happens while it fails. Service and carriers are sockets, and the server is whole."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from mediaserver.calls.trunk_hunt import line_of
from mediaserver.server import Server
from sip.message.message import Request
from tests.support.hostile.rogue import udp
from tests.support.node.node import NUMBER, Site, place_call, running, until_final, write_site
from tests.support.sip.raw_carrier import RawCarrier, raw_carrier, says
from tests.support.sip.transfers import DESK, HANDS_ON, write_transfer_site
from tests.support.waiting import until
from tests.support.webrtc.web import answering
from tests.system.calls.test_trunk_hunt import SPARE, Carrier, carrier, hang_up

KEY = "of the signing service"


class Service:
    """A signing service. `asked`: the requests; `answer`: what it says instead of a signature."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.status = 200
        self.answer: Any = None
        self.takes_s = 0.0

    async def sign(self, request: web.Request) -> web.Response:
        asked = (await request.json())["signingRequest"]
        self.asked.append(asked)
        self.keys.append(request.headers["Authorization"])
        assert request.path == "/stir/v1/signing"
        await asyncio.sleep(self.takes_s)
        signed = {"signingResponse": {"identity": identity_of(asked)}}
        return web.json_response(signed if self.answer is None else self.answer, status=self.status)


def identity_of(claims: dict[str, Any]) -> str:
    """An Identity of the form that RFC 8224 and 8588 ask for, with a signature that nobody checks."""
    parts = ({"alg": "ES256", "ppt": "shaken", "typ": "passport"}, claims, {"signature": 1})
    token = ".".join(
        base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts
    )
    return f"{token};info=<https://cert.example.org/passport.cer>;alg=ES256;ppt=shaken"


@asynccontextmanager
async def service() -> AsyncIterator[Service]:
    here = Service()
    async with answering(here.sign) as here.url:
        yield here


def signed_by(here: Service, site: Site, *lines: str, attest: str = "A") -> Site:
    """The site, with its trunk "carrier" signed by the service."""
    url = f"{here.url.rstrip('/')}/stir/v1/signing"
    keys = (f'url = "{url}"', f'attest = "{attest}"', f'api_key = "{KEY}"', *lines)
    table = "\n".join(f"stir.{each}" if not each.startswith("send") else each for each in keys)
    return site.add('[[trunk]]\nid = "carrier"', table).reach_this_machine()


async def placed(site: Site) -> tuple[Request, str]:
    """A call whose carrier rings: its INVITE, and the status with which it ended."""
    async with raw_carrier(site.carrier, says(487)) as far, running(site) as (_, client):
        call_id = await place_call(client)
        await until(lambda: far.seen)
        await hang_up(client, call_id)
        report = await until_final(client, call_id)
        return far.seen[0], str(report["status"])


def unsigned(server: Server) -> float | None:
    labels = {"trunk": "carrier", "result": "unsigned"}
    return server.metrics.registry.get_sample_value("mediaserver_trunk_signatures_total", labels)


async def test_an_invite_has_the_signature_of_the_trunks_service(tmp_path: Path) -> None:
    async with service() as here:
        invite, _ = await placed(signed_by(here, write_site(tmp_path)))
    (asked,) = here.asked
    assert here.keys == [f"Bearer {KEY}"]
    assert asked.pop("origid").count("-") == 4
    assert abs(asked["iat"] - time.time()) < 60
    assert asked == {
        "attest": "A",
        "dest": {"tn": [NUMBER.removeprefix("+")]},
        "iat": asked["iat"],
        "orig": {"tn": "14155550100"},
    }
    (identity,) = invite.headers.get_all("Identity")
    claims = json.loads(base64.urlsafe_b64decode(identity.split(".")[1] + "=="))
    assert {name: claims[name] for name in asked} == asked
    assert identity.endswith(";info=<https://cert.example.org/passport.cer>;alg=ES256;ppt=shaken")
    assert parsedate_to_datetime(invite.header("Date") or "").timestamp() == asked["iat"]


async def test_numbers_are_signed_as_e164_whatever_the_carrier_is_sent(tmp_path: Path) -> None:
    async with service() as here:
        site = signed_by(here, write_site(tmp_path), f'origid = "{"0d8f2f0f-7a11-4e0f-9a63-2f1c1a346f3e"}"')
        site.change('accepts = "^\\\\+1415555\\\\d{4}$"', 'accepts = ".*"\nnumber_format = "00{e164}"')
        invite, _ = await placed(site)
    assert invite.uri.user == NUMBER.replace("+", "00")
    assert here.asked[0]["dest"] == {"tn": [NUMBER.removeprefix("+")]}
    assert here.asked[0]["orig"] == {"tn": "14155550100"}
    assert here.asked[0]["origid"] == "0d8f2f0f-7a11-4e0f-9a63-2f1c1a346f3e"


async def test_a_silent_service_delays_a_call_no_longer_than_the_trunk_says(tmp_path: Path) -> None:
    async with service() as here:
        here.takes_s = 300
        invite, _ = await placed(signed_by(here, write_site(tmp_path), "timeout_s = 0.2"))
    assert not invite.headers.get_all("Identity")


UNUSABLE: tuple[tuple[int, Any], ...] = (
    (503, {}),
    (200, {"requestError": {"serviceException": {"messageId": "SVC4000", "text": "Missing JSON body"}}}),
    (200, {"signingResponse": {"identity": "a.b.c;info=<https://x.test>\r\nX-Evil: 1"}}),
    (200, {"signingResponse": {"identity": "a.b.c;info=<https://x.test>;" + "a" * 9000}}),
    (200, []),
)


async def test_without_a_signature_calls_are_placed_and_the_log_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    site = write_site(tmp_path)
    async with (
        service() as here,
        raw_carrier(site.carrier, says(487)) as far,
        running(signed_by(here, site)) as (server, client),
    ):
        for here.status, here.answer in UNUSABLE:
            await _placed_and_over(far, client)
        assert unsigned(server) == len(UNUSABLE)
        here.status, here.answer = 200, None
        await _placed_and_over(far, client)
        assert unsigned(server) == len(UNUSABLE)
    *bare, signed = [each for each in far.seen if each.method == "INVITE"]
    for each in bare:
        assert not any(each.header(name) for name in ("Identity", "Date", "X-Evil"))
    assert signed.header("Identity")
    told = [each for each in caplog.records if "are signed" in each.message or "not signed" in each.message]
    assert [each.message for each in told] == [
        "calls of the trunk are not signed",
        "calls of the trunk are signed again",
    ]
    for record in told:
        for secret in ("415555", KEY):
            assert secret not in str(record.__dict__)


async def _placed_and_over(far: RawCarrier, client: Any) -> None:
    before = far.methods().count("INVITE")
    call_id = await place_call(client)
    await until(lambda: far.methods().count("INVITE") > before)
    await hang_up(client, call_id)
    await until_final(client, call_id)


async def test_a_trunk_that_insists_places_no_call_unsigned(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    async with service() as here, raw_carrier(site.carrier, says(487)) as far:
        here.status = 500
        async with running(signed_by(here, site, "required = true")) as (_, client):
            report = await until_final(client, await place_call(client))
    assert report["status"] == "FAILED"
    assert report["hangupCause"] == "unreachable"
    assert far.seen == []


async def test_a_call_goes_over_the_next_trunk_where_one_insists_on_a_signature(tmp_path: Path) -> None:
    async with service() as here, carrier(100, 503) as first, carrier(180, 200) as second:
        here.status = 500
        site = write_site(tmp_path, more=SPARE, spare=second.port, keys="").send_to(first.port)
        site.add('name = "Reminder"', 'trunks = ["spare"]')
        async with running(signed_by(here, site, "required = true")) as (_, client):
            call_id = await place_call(client)
            await until(lambda: second.of("ACK"))
            await hang_up(client, call_id)
            await until_final(client, call_id)
    assert first.asked == []
    assert not second.of("INVITE")[0].headers.get_all("Identity")


async def test_each_trunk_that_a_call_goes_over_signs_anew(tmp_path: Path) -> None:
    async with service() as here, service() as other, carrier(100, 503) as first, carrier(180, 200) as second:
        url = f"{other.url.rstrip('/')}/stir/v1/signing"
        keys = f'stir = {{ url = "{url}", attest = "B", api_key = "{KEY}" }}'
        site = write_site(tmp_path, more=SPARE, spare=second.port, keys=keys).send_to(first.port)
        site.add('name = "Reminder"', 'trunks = ["spare"]')
        async with running(signed_by(here, site)) as (_, client):
            call_id = await place_call(client)
            await until(lambda: second.of("ACK"))
            await hang_up(client, call_id)
            await until_final(client, call_id)
    assert [each["attest"] for each in (*here.asked, *other.asked)] == ["A", "B"]
    signatures = [each.of("INVITE")[0].headers.get_all("Identity") for each in (first, second)]
    assert [len(each) for each in signatures] == [1, 1]
    assert signatures[0] != signatures[1]


async def test_a_call_that_is_hung_up_while_it_waits_for_its_signature_never_leaves(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    async with service() as here, raw_carrier(site.carrier, says(487)) as far:
        here.takes_s = 0.5
        async with running(signed_by(here, site)) as (_, client):
            call_id = await place_call(client)
            await until(lambda: here.asked)
            await hang_up(client, call_id)
            report = await until_final(client, call_id)
    assert report["status"] == "CANCELLED"
    assert far.seen == []


async def test_a_person_is_not_called_for_a_caller_who_left_before_the_signature(tmp_path: Path) -> None:
    async with service() as here, udp("127.0.0.1") as bound:
        far = Carrier(bound, lambda request: [180, 200])
        site = signed_by(here, write_transfer_site(tmp_path, carrier=far.port), "timeout_s = 5.0")
        async with running(site) as (_, client):
            call_id = await place_call(client, HANDS_ON)
            await until(lambda: len(far.of("ACK")) == 1, timeout_s=20.0)
            here.takes_s = 0.7
            await until(lambda: len(here.asked) == 2, timeout_s=20.0)
            await hang_up(client, call_id)
            await until_final(client, call_id)
            await asyncio.sleep(1.0)
    assert [each.uri.user for each in far.of("INVITE")] == [NUMBER]


@pytest.mark.parametrize(
    ("shown", "country", "signed"),
    [("33612", "FR", ""), ("1001", "DE", ""), ("4155550100", "US", "+14155550100")],
)
def test_a_caller_id_is_signed_where_it_is_a_number_in_use(shown: str, country: str, signed: str) -> None:
    """And not an extension that reads like one."""
    agent: Any = SimpleNamespace(phone_number=None, company="acme", id="agent")
    trunk: Any = SimpleNamespace(id="carrier", caller_id=shown)
    directory: Any = SimpleNamespace(company=lambda name: SimpleNamespace(country=country))
    assert line_of(directory, agent, trunk, number=NUMBER, dial_number=NUMBER).caller == signed


async def test_a_withheld_number_is_not_signed(tmp_path: Path) -> None:
    async with service() as here:
        site = signed_by(here, write_site(tmp_path))
        invite, _ = await placed(site.add('[[trunk]]\nid = "carrier"', "withhold_number = true"))
    assert here.asked == []
    assert not invite.headers.get_all("Identity")


async def test_whom_a_call_is_handed_to_is_called_with_a_signature_of_that_call(tmp_path: Path) -> None:
    async with service() as here, udp("127.0.0.1") as bound:
        far = Carrier(bound, lambda request: [180, 200])
        site = signed_by(here, write_transfer_site(tmp_path, carrier=far.port))
        async with running(site) as (_, client):
            call_id = await place_call(client, HANDS_ON)
            await until(lambda: len(far.of("ACK")) == 2, timeout_s=20.0)
            await hang_up(client, call_id)
            await until_final(client, call_id)
    assert [each["dest"]["tn"] for each in here.asked] == [[NUMBER[1:]], [DESK[1:]]]
    signatures = [each.header("Identity") for each in far.of("INVITE")]
    assert signatures == [identity_of(each) for each in here.asked]


async def test_an_identity_that_is_passed_on_is_left_alone(tmp_path: Path) -> None:
    async with service() as here:
        site = signed_by(here, write_site(tmp_path), 'send_headers = { "Identity" = "name" }')
        invite, _ = await placed(site)
    assert here.asked == []
    assert len(invite.headers.get_all("Identity")) == 1
