"""An agent with several trunks: which one a number goes over, and where a call goes that a trunk does not
take. The carriers are sockets, and the server is whole."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mediaserver.server import Server
from sip.call import Call, CallFailed
from sip.message.message import Request, parse
from sip.states import CallState, HangupCause
from tests.support.hostile.rogue import Socket, udp
from tests.support.node.node import (
    KEY,
    NUMBER,
    OUTBOUND,
    Client,
    Site,
    bearer,
    database_on,
    place_call,
    rows_of,
    running,
    until_final,
    write_site,
)
from tests.support.sip.raw_carrier import SDP
from tests.support.sip.transfers import DESK, HANDS_ON, write_transfer_site
from tests.support.waiting import until

SPARE = """
[[trunk]]
id = "spare"
company = "acme"
uri = "sip:127.0.0.1:{spare};transport=udp"
number_format = "00{{e164}}"
username = "acme"
password = "of the spare"
send_headers = {{ "X-Name" = "name" }}
codecs = ["pcma"]
{keys}
"""

Reply = Callable[[Request], list[int]]


class Carrier:
    """A carrier made of one socket: to each INVITE it gives the answers of `reply`, in order."""

    def __init__(self, bound: Socket, reply: Reply) -> None:
        self.port = bound.port
        self.asked: list[Request] = []
        self._bound = bound
        self._reply = reply
        self._known: set[str] = set()
        bound.on_datagram = self._took

    def of(self, method: str) -> list[Request]:
        """The requests of one method, repetitions left out."""
        return [each for each in self.asked if each.method == method]

    def say(self, request: Request, status: int) -> None:
        """Answers a request; 200 to an INVITE has an answer to its offer."""
        takes = status == 200 and request.method == "INVITE"
        body = SDP.format(port=9).replace("AVP 0", "AVP 8") if takes else ""
        said = [f"SIP/2.0 {status} Said"]
        for name in ("Via", "From", "Call-ID", "CSeq"):
            said += [f"{name}: {value}" for value in request.headers.get_all(name)]
        tag = ";tag=far" if status > 100 and not request.to.tag else ""
        said += [f"To: {request.header('To')}{tag}", f"Contact: <sip:far@127.0.0.1:{self.port}>"]
        said += ['WWW-Authenticate: Digest realm="far", nonce="n"'] if status == 401 else []
        said += ["Content-Type: application/sdp"] if body else []
        data = "\r\n".join([*said, f"Content-Length: {len(body)}", "", ""]) + body
        self._bound.transport.sendto(data.encode(), self._from)

    def _took(self, data: bytes, source: tuple[str, int]) -> None:
        request = parse(data)
        if not isinstance(request, Request):
            return
        self._from = source
        key = f"{request.method} {request.via.branch}"
        if key in self._known:
            return
        self._known.add(key)
        self.asked.append(request)
        if request.method == "INVITE":
            for status in self._reply(request):
                self.say(request, status)
        elif request.method != "ACK":
            self.say(request, 200)


@asynccontextmanager
async def carrier(*statuses: int) -> AsyncIterator[Carrier]:
    async with udp("127.0.0.1") as bound:
        yield Carrier(bound, lambda request: list(statuses))


def unreachable() -> int:
    """A port at which nobody listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@contextmanager
def site_with(
    tmp_path: Path, first: int, spare: int, *, keys: str = "", database: str = ""
) -> Iterator[Site]:
    site = write_site(tmp_path, more=SPARE, spare=spare, keys=keys, database=database).send_to(first)
    site.add('name = "Reminder"', 'trunks = ["spare"]')
    site.add('[[trunk]]\nid = "carrier"', "failover_s = 0.5\nmax_concurrent_calls = 5")
    yield site


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly("ci"))])
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    with database_on(request.param) as url:
        yield url


async def test_a_call_that_a_trunk_does_not_take_goes_over_the_next(tmp_path: Path, database: str) -> None:
    async with carrier(100, 503) as first, carrier(100, 180, 200) as second:
        with site_with(tmp_path, first.port, second.port, database=database) as site:
            async with running(site) as (server, client):
                call_id = await place_call(client)
                await until(lambda: second.of("ACK"))
                (call,) = server.endpoint.calls.values()
                assert (call.id, call.trunk_id, call.state) == (call_id, "spare", CallState.ANSWERED)
                second.asked.clear()
                await hang_up(client, call_id)
                report = await until_final(client, call_id)
                assert len(second.of("BYE")) == 1
                figures = server.metrics.registry.get_sample_value
                for trunk, code in (("carrier", "503"), ("spare", "200")):
                    labels = {"trunk": trunk, "direction": "outbound", "code": code}
                    assert figures("mediaserver_trunk_calls_total", labels) == 1, trunk
                assert server.endpoint.stats.rtp_ports_used == 0
            rows = await rows_of(site, "SELECT trunk_id, dial_number FROM calls")
    assert len(first.of("INVITE")) == 1
    assert report["status"] == "COMPLETED"
    assert report["sip"]["passedOver"] == [{"trunkId": "carrier", "status": 503}]
    (attempt,) = report["attempts"]
    assert (attempt["trunkId"], attempt["dialedNumber"]) == ("spare", "0014155550123")
    assert rows == [{"trunk_id": "spare", "dial_number": "0014155550123"}]


async def hang_up(client: Client, call_id: str) -> None:
    async with client.post(f"/api/v1/calls/{call_id}/hangup", headers=bearer(KEY)) as answer:
        assert answer.status == 200


async def test_the_next_trunk_gets_an_invite_of_its_own(tmp_path: Path) -> None:
    """Number format, codecs, credentials, header fields and identity are those of the trunk it goes over."""
    async with carrier(500) as first, carrier(401) as second:
        with site_with(tmp_path, first.port, second.port, keys='identity = "pai"') as site:
            async with running(site) as (_, client):
                await until_final(client, await place_call(client))
    (one,) = first.of("INVITE")
    plain, again = second.of("INVITE")
    assert (one.uri.user, plain.uri.user) == (NUMBER, "0014155550123")
    assert (one.call_id == plain.call_id, one.from_.tag == plain.from_.tag) == (True, False)
    assert (one.header("X-Name"), plain.header("X-Name")) == (None, "Bo")
    assert (one.header("P-Asserted-Identity") is None, plain.header("P-Asserted-Identity") is None) == (
        True,
        False,
    )
    assert b"PCMU" in one.body
    assert b"PCMU" not in plain.body
    assert 'username="acme"' in (again.header("Authorization") or "")


@pytest.mark.parametrize("statuses", [(), None])
async def test_silence_and_a_port_where_nobody_listens_lead_to_the_next_trunk(
    tmp_path: Path, statuses: tuple[int, ...] | None
) -> None:
    async with carrier(*(statuses or ())) as first, carrier(486) as second:
        port = first.port if statuses is not None else unreachable()
        with site_with(tmp_path, port, second.port) as site:
            async with running(site) as (_, client):
                report = await until_final(client, await place_call(client))
    assert (report["status"], len(second.of("INVITE"))) == ("BUSY", 1)
    (passed,) = report["sip"]["passedOver"]
    assert passed == {"trunkId": "carrier", "status": 408 if statuses is not None else 503}


async def test_a_late_answer_of_the_trunk_that_was_passed_over_is_hung_up(tmp_path: Path) -> None:
    """The called person talks on one trunk only."""
    async with carrier() as first, carrier(100, 180, 200) as second:
        with site_with(tmp_path, first.port, second.port) as site:
            async with running(site) as (_, client):
                call_id = await place_call(client)
                await until(lambda: second.of("ACK"))
                first.say(first.of("INVITE")[0], 200)
                await until(lambda: first.of("BYE"))
                assert second.of("BYE") == []
                await hang_up(client, call_id)
                await until_final(client, call_id)


@pytest.mark.parametrize("statuses", [(180, 503), (183, 500), (486,), (404,), (603,), (480,)])
async def test_nobody_is_called_twice(tmp_path: Path, statuses: tuple[int, ...]) -> None:
    async with carrier(*statuses) as first, carrier(200) as second:
        with site_with(tmp_path, first.port, second.port) as site:
            async with running(site) as (_, client):
                report = await until_final(client, await place_call(client))
    assert (len(first.of("INVITE")), second.asked) == (1, [])
    assert (report["sipStatus"], report["sip"]["passedOver"]) == (statuses[-1], [])


async def test_a_call_that_is_hung_up_between_two_trunks_calls_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with carrier(503) as first, carrier(200) as second:
        with site_with(tmp_path, first.port, second.port) as site:
            async with running(site) as (server, client):
                asked, goes_on = hold_back(server, monkeypatch)
                call_id = await place_call(client)
                await asked.wait()
                hanging = asyncio.create_task(hang_up(client, call_id))
                await asyncio.sleep(0.1)
                goes_on.set()
                await hanging
                report = await until_final(client, call_id)
                assert server.endpoint.calls == {}
    assert (report["status"], second.asked) == ("CANCELLED", [])


@pytest.mark.parametrize("moved", [False, True])
async def test_a_call_that_is_hung_up_before_any_trunk_could_be_dialled_calls_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    """The first trunk's name has no address; the hang-up comes before or after the store moves the call."""
    async with carrier(486) as second:
        with site_with(tmp_path, unreachable(), second.port) as site:
            async with running(site) as (server, client):
                trunk = server.endpoint.trunks["carrier"]

                async def nowhere(*args: Any, **kwargs: Any) -> Call:
                    raise CallFailed("the trunk's name has no address", 503, HangupCause.UNREACHABLE)

                monkeypatch.setattr(trunk, "call", nowhere)
                asked, goes_on = hold_back(server, monkeypatch, moved=moved)
                call_id = await place_call(client)
                await asked.wait()
                await hang_up(client, call_id)
                await asyncio.sleep(0.2)
                goes_on.set()
                report = await until_final(client, call_id)
    assert (report["status"], second.asked) == ("CANCELLED", [])


@pytest.mark.parametrize("late", [180, 200])
async def test_whose_phone_rings_late_between_two_trunks_is_not_called_over_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """The trunk that said nothing says that the phone rings while the next one is asked for a place."""
    async with carrier() as first, carrier(486) as second:
        with site_with(tmp_path, first.port, second.port) as site:
            async with running(site) as (server, client):
                asked, goes_on = hold_back(server, monkeypatch)
                call_id = await place_call(client)
                await asked.wait()
                first.say(first.of("INVITE")[0], late)
                await until(lambda: first.of("CANCEL" if late == 180 else "BYE"))
                goes_on.set()
                report = await until_final(client, call_id)
                assert server.endpoint.calls == {}
                assert server.endpoint.stats.rtp_ports_used == 0
    assert second.asked == []
    assert (report["status"], len(report["attempts"])) == ("FAILED", 1)


def hold_back(
    server: Server, monkeypatch: pytest.MonkeyPatch, *, moved: bool = False
) -> tuple[asyncio.Event, asyncio.Event]:
    """Has the store keep whoever asks for another trunk waiting: asked, goes on. `moved`: the store has moved
    the call by then."""
    asked, goes_on = asyncio.Event(), asyncio.Event()
    reroute = server.store.reroute

    async def later(*args: Any, **kwargs: Any) -> bool:
        went = moved and await reroute(*args, **kwargs)
        asked.set()
        await goes_on.wait()
        return went or await reroute(*args, **kwargs)

    monkeypatch.setattr(server.store, "reroute", later)
    return asked, goes_on


async def test_a_trunk_that_is_full_is_not_gone_over(tmp_path: Path) -> None:
    async with carrier(503) as first, carrier(100, 180) as second:
        with site_with(tmp_path, first.port, second.port, keys="max_concurrent_calls = 1") as site:
            async with running(site) as (_, client):
                one = await place_call(client)
                await until(lambda: second.of("INVITE"))
                refused = await until_final(client, await place_call(client, name="Ann"))
                await hang_up(client, one)
    assert (refused["status"], refused["sipStatus"]) == ("FAILED", 503)
    assert len(second.of("INVITE")) == 1


async def test_prefixes_choose_the_trunk(tmp_path: Path) -> None:
    """The first trunk in the agent's order that carries the number."""
    async with carrier(486) as first, carrier(486) as second:
        with site_with(tmp_path, first.port, second.port) as site:
            site.add('[[trunk]]\nid = "carrier"', 'dial_prefixes = ["1212", "44"]')
            async with running(site) as (_, client):
                report = await until_final(client, await place_call(client))
                assert (first.asked, len(second.of("INVITE"))) == ([], 1)
                assert report["attempts"][0]["trunkId"] == "spare"
            site.change('number_format = "00{e164}"', 'number_format = "00{e164}"\ndial_prefixes = ["1213"]')
            async with running(site) as (_, client):
                body = {"agentId": OUTBOUND, "phoneNumber": NUMBER, "promptVariables": {"name": "Bo"}}
                async with client.post("/api/v1/calls/outbound", json=body, headers=bearer(KEY)) as answer:
                    said = (await answer.json())["error"]
                    assert (answer.status, said) == (
                        400,
                        "Phone number format does not match SIP trunk configuration",
                    )


async def test_whom_a_call_is_handed_to_is_called_over_the_next_trunk_too(tmp_path: Path) -> None:
    async with udp("127.0.0.1") as bound, carrier(100, 180, 200) as second:
        first = Carrier(bound, lambda request: [200] if request.uri.user == NUMBER else [100, 503])
        spare = SPARE.replace("{spare}", str(second.port)).replace("{keys}", "")
        site = write_transfer_site(tmp_path, carrier=first.port, more=spare)
        site.add(f'[[agent]]\nid = "{HANDS_ON}"', 'trunks = ["spare"]')
        async with running(site) as (_, client):
            call_id = await place_call(client, HANDS_ON)
            await until(lambda: second.of("ACK"), timeout_s=20.0)
            legs = await rows_of(site, "SELECT trunk_id FROM legs")
            await hang_up(client, call_id)
            report = await until_final(client, call_id)
        assert [each.uri.user for each in first.of("INVITE")] == [NUMBER, DESK]
        assert [each.uri.user for each in second.of("INVITE")] == [DESK.replace("+", "00")]
    assert legs == [{"trunk_id": "spare"}]
    assert report["analysis"]["transfer"]["outcome"] == "answered"
