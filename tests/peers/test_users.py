"""Users of a company: their telephones register, call agents, and are called, all at once."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from sip.auth.challenge import Credentials
from sip.auth.digest import Authorizer
from sip.message.message import Request, Response, parse
from tests.support.node.node import KEY, Site, bearer, only_report, reached, running, until_final, write_site
from tests.support.sip.baresip import baresip
from tests.support.sip.raw_call import RawCall
from tests.support.waiting import until

pytestmark = pytest.mark.peer

PCMU = "PCMU/8000/1"
QUIET = np.zeros(8000 * 20, np.int16)
LINE = "users:acme"
REMINDER = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"
USERS = """
[[sip.user]]
name = "anna"
company = "acme"
password = "anna-password"

[[sip.user]]
name = "mute"
company = "acme"
password = "mute-password"
may_call = false
may_be_called = false

[[sip.user]]
name = "hash"
company = "acme"
ha1_sha256 = "HA1"
digest = ["SHA-256"]
"""


def users_site(directory: Path, *, more: str = "") -> Site:
    """The site with users; the front desk is their extension 1001, and its trunk takes the whole loopback."""
    ha1 = hashlib.sha256(b"hash:us.example:hash-password").hexdigest()
    site = write_site(directory, more=more)
    site.path.write_text(site.path.read_text() + USERS.replace("HA1", ha1))
    site.add("[sip]", 'register_min_s = 2\nrealm = "us.example"')
    return site.change('name = "Front desk"', 'name = "Front desk"\nphone_numbers = ["1001"]')


def account(site: Site, user: str = "anna", transport: str = "udp") -> str:
    at = f"sip:{user}@127.0.0.1:{site.sip};transport={transport}"
    return f"<{at}>;auth_user={user};auth_pass={user}-password;regint=60"


def folder(directory: Path) -> Path:
    directory.mkdir()
    return directory


@asynccontextmanager
async def telephone(
    directory: Path, site: Site, *, transport: str = "udp", command: str = ""
) -> AsyncIterator[None]:
    line = account(site, transport=transport)
    async with baresip(directory, PCMU, QUIET, 8000, account=line, command=command):
        yield


async def signed(peer: RawCall, method: str, user: str, password: str, *lines: str) -> Response:
    """The answer to a request with those credentials, after its challenge."""
    body = peer.offer if method == "INVITE" else ""
    lines = (*lines, "Content-Type: application/sdp") if body else lines
    peer.send(peer.request(method, *lines, body=body))
    challenge = await peer.final(method)
    assert challenge.status == 401
    if method == "INVITE":
        peer.take_tag(challenge)
        ack = cast("Request", parse(peer.request("ACK", cseq=peer._cseq)))
        peer.send(ack.to_bytes())
        peer._to = f"<sip:{peer._number}@127.0.0.1>"
    request = cast("Request", parse(peer.request(method, *lines, body=body)))
    authorizer = Authorizer(Credentials(user, password))
    authorizer.challenged(request, challenge)
    authorizer.sign(request)
    peer.send(request.to_bytes())
    return await peer.final(method)


async def call_user(client: Any, name: str = "anna") -> tuple[int, dict[str, Any]]:
    body = {"agentId": REMINDER, "phoneNumber": f"user:{name}", "promptVariables": {"name": "Anna"}}
    async with client.post("/api/v1/calls/outbound", json=body, headers=bearer(KEY)) as answer:
        return answer.status, await answer.json()


async def placed(client: Any) -> dict[str, Any]:
    status, told = await call_user(client)
    assert status == 200, told
    return dict(told["data"])


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_a_user_rings_an_agent_by_its_extension(tmp_path: Path, transport: str) -> None:
    site = users_site(tmp_path).change('allow_from = ["127.0.0.1/32"]\n', "")
    dial = f"/dial sip:1001@127.0.0.1:{site.sip};transport={transport}"
    async with (
        running(site) as (_, client),
        telephone(folder(tmp_path / "phone"), site, transport=transport, command=dial),
    ):
        report = await only_report(client)
    assert (report["status"], report["analysis"]["disposition"]) == ("COMPLETED", "greeted")
    assert report["phoneNumber"] == "user:anna"


async def test_every_telephone_of_a_user_rings_and_the_first_answer_has_the_call(tmp_path: Path) -> None:
    site = users_site(tmp_path)
    async with running(site) as (server, client), RawCall(site.sip, "anna") as second:
        line = server.endpoint.trunks[LINE]

        def bound() -> int:
            return len(server.endpoint.telephones(line, "anna"))

        assert (await signed(second, "REGISTER", "anna", "anna-password")).status == 200
        async with telephone(folder(tmp_path / "over-tcp"), site, transport="tcp"):
            await until(lambda: bound() == 2)
            told = await placed(client)
            rung = await second.asked("INVITE")
            second.reply(rung, 180)
            cancelled = await second.asked("CANCEL")
            second.reply(cancelled)
            second.reply(rung, 487)
            await reached(client, told["callTaskId"], "ANSWERED")
            async with client.post(f"/api/v1/calls/{told['callTaskId']}/hangup", headers=bearer(KEY)):
                report = await until_final(client, told["callTaskId"])
        await until(lambda: bound() == 1)  # the connection is gone, and the telephone with it
    assert rung.uri.user == "raw"
    assert "Call completed elsewhere" in (cancelled.header("Reason") or "")
    assert (report["status"], report["phoneNumber"]) == ("COMPLETED", "user:anna")


async def test_all_telephones_refuse_and_the_call_says_so_once(tmp_path: Path) -> None:
    site = users_site(tmp_path)
    async with (
        running(site) as (_, client),
        RawCall(site.sip, "anna") as first,
        RawCall(site.sip, "anna") as second,
    ):
        for each in (first, second):
            assert (await signed(each, "REGISTER", "anna", "anna-password")).status == 200
        told = await placed(client)
        rung = await first.asked("INVITE"), await second.asked("INVITE")
        assert rung[0].call_id == rung[1].call_id
        first.reply(rung[0], 480)
        second.reply(rung[1], 486)
        report = await until_final(client, told["callTaskId"])
    assert (report["status"], report["sipStatus"]) == ("BUSY", 486)


async def test_a_user_who_is_not_there_or_may_not_be_called(tmp_path: Path) -> None:
    async with running(users_site(tmp_path)) as (_, client):
        for unknown in ("nobody", "mute"):
            status, told = await call_user(client, unknown)
            assert (status, told["error"]) == (400, "No user of that name may be called by this agent")
        told = await placed(client)
        report = await until_final(client, told["callTaskId"])
    assert (report["status"], report["hangupCause"]) == ("FAILED", "no_answer")


async def test_a_user_is_who_its_password_says_and_no_trunk(tmp_path: Path) -> None:
    """The trunk takes calls from the whole loopback without a password: a registered telephone is asked for
    one all the same, and calls nothing but agents."""
    site = users_site(tmp_path)
    async with running(site) as (server, client):
        async with RawCall(site.sip, "anna", user="1001") as peer:
            assert (await signed(peer, "REGISTER", "anna", "anna-password")).status == 200
            peer._number, peer._caller = "1001", "<sip:+15550001@127.0.0.1>"
            peer._to = "<sip:1001@127.0.0.1>"
            answer = await signed(peer, "INVITE", "anna", "anna-password")
            assert answer.status == 200
            peer.take_answer(answer)
            peer.send(peer.request("ACK", cseq=peer._cseq))
            await peer.hang_up()
            report = await only_report(client)
        assert report["phoneNumber"] == "user:anna"
        for user, number, status in (("anna", "+15550001", 404), ("mute", "1001", 404), ("anna", "100", 404)):
            async with RawCall(site.sip, number) as peer:
                peer._to = f"<sip:{user}@127.0.0.1>"
                peer._user = user
                assert (await signed(peer, "REGISTER", user, f"{user}-password")).status == 200
                peer._user, peer._to = number, f"<sip:{number}@127.0.0.1>"
                assert (await signed(peer, "INVITE", user, f"{user}-password")).status == status
        assert server.endpoint.stats.calls == 0


async def test_registrations_are_refused_bounded_and_expire(tmp_path: Path) -> None:
    site = users_site(tmp_path)
    async with running(site) as (server, _):
        line = server.endpoint.trunks[LINE]
        async with RawCall(site.sip, "anna") as peer:
            assert (await signed(peer, "REGISTER", "anna", "guess-guess")).status == 401
            assert (await signed(peer, "REGISTER", "mute", "mute-password")).status == 403
            assert (await signed(peer, "REGISTER", "anna", "anna-password", "Expires: 1")).status == 423
            assert (await signed(peer, "REGISTER", "anna", "anna-password", "Expires: 2")).status == 200
            assert len(server.endpoint.telephones(line, "anna")) == 1
            await until(lambda: not server.endpoint.telephones(line, "anna"))
        async with RawCall(site.sip, "hash") as peer:  # HA1 of SHA-256 alone
            assert (await signed(peer, "REGISTER", "hash", "hash-password")).status == 200
        assert len(server.endpoint.telephones(line, "hash")) == 1
