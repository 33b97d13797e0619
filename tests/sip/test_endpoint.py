"""An endpoint from outside: who gets in, what strangers learn, floods, draining, closing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.plane.drive.planes import SPARE, Planes
from sip.admission_policy import AdmissionPolicy
from sip.auth.challenge import Credentials
from sip.auth.digest import Authorizer, Challenge, Verifier
from sip.call import Call
from sip.endpoint import Endpoint, EndpointSettings
from sip.errors import LocalError
from sip.message.message import Request, Response, parse
from sip.message.uri import Uri
from sip.stack.admission import Refused
from sip.states import CallState, HangupCause
from sip.telephones.registrar import Binding
from sip.transaction.hop import Hop
from sip.trunk import TrunkUnavailable
from sip.trunk_settings import TrunkSettings, User
from sip.wrong_passwords import TRIES
from tests.support.certificates import tls_of_localhost
from tests.support.sip.registrar import Registrar
from tests.support.sip.sip_phones import LOOPBACK, PATIENCE_S, Phones, address, phones, raw
from tests.support.udp import bound
from tests.support.waiting import until

SDP = (
    b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n"
    b"a=inactive\r\n"
)
LINE = TrunkSettings(id="in", uri="sip:127.0.0.1", allow_from=LOOPBACK)
STRICT = replace(LINE, allow_from=("192.0.2.0/24",))
WITH_PASSWORD = replace(STRICT, username="acme", password="secret")


def request(method: str, number: str = "100", *, branch: str = "1") -> bytes:
    head = (
        f"{method} sip:{number}@127.0.0.1 SIP/2.0\r\n"
        f"Via: SIP/2.0/UDP 127.0.0.1;branch=z9hG4bK{branch};rport\r\n"
        f"Max-Forwards: 70\r\nFrom: <sip:x@h>;tag=f\r\nTo: <sip:{number}@h>\r\nCall-ID: {branch}\r\n"
        f"CSeq: 1 {method}\r\nContact: <sip:x@127.0.0.1:9>\r\nContent-Type: application/sdp\r\n"
    )
    return f"{head}Content-Length: {len(SDP)}\r\n\r\n".encode() + SDP


def response(data: bytes) -> Response:
    parsed = parse(data)
    assert isinstance(parsed, Response)
    return parsed


async def ask(world: Phones, data: bytes) -> Response:
    """The final answer of `theirs` to one datagram."""
    async with raw(address(world.theirs)) as peer:
        peer.transport.sendto(data)
        while (answer := response(await peer.next())).status < 200:
            pass
        return answer


async def test_options_is_answered_to_a_trunk_and_nothing_is_told_to_a_stranger() -> None:
    async with phones(line=LINE) as world:
        assert (await ask(world, request("OPTIONS"))).status == 200
    async with phones(line=STRICT) as world:
        world.theirs.gate.trunk_for = lambda number, trunks: trunks[0] if number == "100" else None
        answers = [
            await ask(world, request(method, number))
            for method in ("INVITE", "OPTIONS", "REGISTER", "MESSAGE")
            for number in ("100", "999")
        ]
    assert {(each.status, each.reason, len(each.headers)) for each in answers} == {(404, "Not Found", 6)}


async def test_an_unknown_number_looks_like_an_unknown_peer() -> None:
    async with phones(line=LINE) as world:
        world.theirs.gate.trunk_for = lambda number, trunks: trunks[0] if number == "100" else None
        unknown = await ask(world, request("INVITE", "999"))
        assert (unknown.status, unknown.reason, len(unknown.headers)) == (404, "Not Found", 6)
        call = await world.trunk.call("100")
        assert (await world.offered()).local_number == "100"
        await call.hang_up()


async def test_strangers_are_challenged_the_same_for_every_number_where_a_trunk_has_a_password() -> None:
    async with phones(line=WITH_PASSWORD) as world:
        world.theirs.gate.trunk_for = lambda number, trunks: trunks[0] if number == "100" else None
        for number in ("100", "999"):
            answer = await ask(world, request("INVITE", number))
            assert answer.status == 401
            challenges = answer.headers.get_all("WWW-Authenticate")
            assert ["SHA-256" in challenges[0], "MD5" in challenges[1]] == [True, True]


@pytest.mark.parametrize(("password", "status"), [("secret", 480), ("wrong", 401)])
async def test_digest_lets_in_whoever_knows_the_password(password: str, status: int) -> None:
    trunk = TrunkSettings(id="out", uri="sip:127.0.0.1", username="acme", password=password)
    async with phones(trunk=trunk, line=WITH_PASSWORD) as world:
        call = await world.trunk.call("100")
        if status == 480:
            await (await world.offered()).reject(480)
        await asyncio.wait_for(call.ended(), PATIENCE_S)
        assert call.status == status
        assert call.cause is (HangupCause.NO_ANSWER if status == 480 else HangupCause.REJECTED)


async def test_guessed_passwords_are_soon_not_looked_at_any_more(caplog: pytest.LogCaptureFixture) -> None:
    """And a peer with the right one, that has been in before, is let in."""
    async with phones(line=WITH_PASSWORD) as world:
        statuses: list[int] = []
        assert (await tried(world, "secret", 0)).status != 503
        for number in range(1, TRIES + 6):
            statuses.append((await tried(world, f"guess-{number}", number, username="other")).status)
        refused = await tried(world, "secret", 100, username="yet another")
        assert (refused.status, int(refused.header("Retry-After") or 0) > 0) == (503, True)
        assert (await tried(world, "secret", 101)).status not in (401, 503)
        assert world.theirs.stats.wrong_passwords == TRIES + 6
    assert statuses == [401] * TRIES + [503] * 5
    assert [each.getMessage() for each in caplog.records] == ["wrong SIP passwords, further ones wait"]


async def test_made_up_nonces_are_no_guesses_and_tell_nothing() -> None:
    """A source address can be forged, and no answer comes back: nobody guesses in another's name."""
    async with phones(line=WITH_PASSWORD) as world:
        for password in ("secret", *["guess"] * (TRIES + 5)):
            message = parse(request("OPTIONS"))
            assert isinstance(message, Request)
            authorizer = Authorizer(Credentials("acme", password))
            elsewhere = await ask(world, message.to_bytes())
            realm = Challenge.parse(elsewhere.header("WWW-Authenticate") or "").realm
            elsewhere.headers.remove("WWW-Authenticate")
            for value in Verifier(realm).challenges(0.0):
                elsewhere.headers.add("WWW-Authenticate", value)
            assert authorizer.challenged(message, elsewhere)
            authorizer.sign(message)
            answer = await ask(world, message.to_bytes())
            assert answer.status == 401
            assert "stale=true" in (answer.header("WWW-Authenticate") or "")
        assert world.theirs.stats.wrong_passwords == 0
        assert (await tried(world, "secret", 1)).status not in (401, 503)


async def tried(world: Phones, password: str, number: int, *, username: str = "acme") -> Response:
    """What an OPTIONS with that password is told, after its challenge."""
    message = parse(request("OPTIONS", branch=f"first-{number}"))
    assert isinstance(message, Request)
    authorizer = Authorizer(Credentials(username, password))
    assert authorizer.challenged(message, await ask(world, message.to_bytes()))
    authorizer.sign(message)
    message.headers.set("Via", f"SIP/2.0/UDP 127.0.0.1;branch=z9hG4bKsecond-{number};rport")
    return await ask(world, message.to_bytes())


async def test_a_captured_digest_does_not_open_the_door_again() -> None:
    async with phones(line=WITH_PASSWORD) as world:
        first = parse(request("INVITE"))
        assert isinstance(first, Request)
        authorizer = Authorizer(Credentials("acme", "secret"))
        assert authorizer.challenged(first, await ask(world, request("INVITE")))
        authorizer.sign(first)
        async with raw(address(world.theirs)) as peer:
            peer.transport.sendto(first.to_bytes())
            assert response(await peer.next()).status == 100
            first.headers.set("Via", "SIP/2.0/UDP 127.0.0.1;branch=z9hG4bKreplay;rport")
            first.headers.set("Call-ID", "replay")
            peer.transport.sendto(first.to_bytes())
            replayed = response(await peer.next())
        assert replayed.status == 401
        assert "stale=true" in (replayed.header("WWW-Authenticate") or "")


@pytest.mark.parametrize("why", ["full", "draining"])
async def test_two_hundred_invites_at_once_are_refused_with_retry_after_and_leave_nothing(why: str) -> None:
    async with phones(line=LINE, max_calls=0 if why == "full" else 1000) as world:
        if why == "draining":
            world.theirs.drain()
        async with raw(address(world.theirs)) as peer:
            for number in range(200):
                peer.transport.sendto(request("INVITE", branch=f"b{number}"))
            answers = [response(await peer.next()) for _ in range(200)]
        assert {each.status for each in answers} == {503}
        assert {each.header("Retry-After") for each in answers} == {"10"}
        stats = world.theirs.stats
        assert (stats.calls, stats.transactions, stats.dialogs, stats.rtp_ports_used) == (0, 0, 0, 0)


async def test_draining_leaves_calls_alone(world: Phones) -> None:
    call, _ = await world.up()
    world.theirs.drain()
    refused = await world.trunk.call("2")
    assert await asyncio.wait_for(refused.ended(), PATIENCE_S) is HangupCause.UNREACHABLE
    assert (refused.status, refused.retry_after_s) == (503, 10)
    await asyncio.wait_for(call.hold(), PATIENCE_S)
    assert call.held


async def test_closing_hangs_up_on_everybody_and_ends_the_iteration(world: Phones) -> None:
    call, offered = await world.up()
    ringing = await world.trunk.call("2")
    waiting = await world.offered()
    await waiting.ring()
    await world.ours.close()
    assert await call.ended() is HangupCause.SHUTDOWN
    assert await ringing.ended() is HangupCause.SHUTDOWN
    assert await asyncio.wait_for(offered.ended(), PATIENCE_S) is HangupCause.NORMAL
    assert await asyncio.wait_for(waiting.ended(), PATIENCE_S) is HangupCause.CANCELLED
    assert [each async for each in world.ours.incoming()] == []
    await world.ours.close()


async def test_closing_right_after_an_answer_waits_for_the_ack_and_says_bye(world: Phones) -> None:
    call = await world.trunk.call("1")
    offered = await world.offered()
    answering = asyncio.ensure_future(offered.answer())
    await asyncio.sleep(0)
    await world.theirs.close()
    await asyncio.wait_for(answering, PATIENCE_S)
    assert await asyncio.wait_for(call.ended(), PATIENCE_S) is HangupCause.NORMAL
    assert await offered.ended() is HangupCause.SHUTDOWN


async def test_a_call_over_tls_checks_the_certificate(tmp_path: Path) -> None:
    ours_tls, certificate = await tls_of_localhost(tmp_path)
    trusting = ssl.create_default_context(cafile=certificate)
    settings = EndpointSettings(udp="127.0.0.1:0", tls="127.0.0.1:0", rtp_ports=(30000, 32999))
    server = Endpoint(replace(settings, tls_server=ours_tls))
    client = Endpoint(replace(settings, tls=None, tls_client=trusting))
    doubting = Endpoint(replace(settings, tls=None))
    async with server, client, doubting:
        server.add_trunk(LINE)
        assert server.tls_address is not None
        out = TrunkSettings(id="out", uri=f"sips:localhost:{server.tls_address[1]}")
        call = await client.add_trunk(out).call("1")
        offered = await asyncio.wait_for(anext(server.incoming()), PATIENCE_S)
        await offered.answer()
        await asyncio.wait_for(call.answered(), PATIENCE_S)
        await offered.hang_up()  # on the connection that the caller opened
        assert await asyncio.wait_for(call.ended(), PATIENCE_S) is HangupCause.NORMAL
        refused = await doubting.add_trunk(out).call("1")
        assert await asyncio.wait_for(refused.ended(), PATIENCE_S) is HangupCause.UNREACHABLE


async def test_a_call_that_ended_before_anybody_took_it_is_not_offered(world: Phones) -> None:
    call = await world.trunk.call("1")
    async with asyncio.timeout(PATIENCE_S):
        while not world.theirs.calls:
            await asyncio.sleep(0.005)
        await call.hang_up()
        await call.ended()
    second = await world.trunk.call("2")
    assert (await world.offered()).local_number == "2"
    await second.hang_up()


@asynccontextmanager
async def full(world: Phones, small: Endpoint) -> AsyncIterator[Call]:
    """The call that is refused by `small`, which has room for one, while it has one; then the next works."""
    small.add_trunk(replace(LINE, id="in"))
    uri = f"sip:127.0.0.1:{address(small)[1]};transport=udp"
    trunk = world.ours.add_trunk(TrunkSettings(id="small", uri=uri))
    first = await trunk.call("1")
    offered = await asyncio.wait_for(anext(small.incoming()), PATIENCE_S)
    await offered.answer()
    second = await trunk.call("2")
    await asyncio.wait_for(second.ended(), PATIENCE_S)
    yield second
    await first.hang_up()
    await offered.ended()
    await asyncio.sleep(0.3)  # until what was told of the row has been read
    third = await trunk.call("3")
    assert (await asyncio.wait_for(anext(small.incoming()), PATIENCE_S)).local_number == "3"
    await third.hang_up()


async def test_without_rtp_ports_a_call_is_refused_and_the_next_one_works(world: Phones) -> None:
    settings = EndpointSettings(udp="127.0.0.1:0", rtp_ports=(33000, 33001))
    async with Endpoint(settings) as small, full(world, small) as refused:
        assert refused.status == 503


async def test_without_a_row_of_the_media_plane_a_call_is_put_off_and_the_next_one_works(
    world: Phones,
) -> None:
    settings = EndpointSettings(udp="127.0.0.1:0", rtp_ports=(33002, 33099))
    async with Endpoint(settings) as small:
        small.media.planes.close()
        small.media.planes = Planes(asyncio.get_running_loop(), capacity=1 - SPARE)
        async with full(world, small) as refused:
            assert (refused.status, refused.retry_after_s) == (503, 10)
            back = small.add_trunk(TrunkSettings(id="out", uri=f"sip:127.0.0.1:{address(world.ours)[1]}"))
            with pytest.raises(TrunkUnavailable):
                await back.call("4")


async def test_registration_is_made_kept_and_taken_back(world: Phones) -> None:
    async with bound(Registrar()) as carrier:
        uri = f"sip:127.0.0.1:{carrier.port};transport=udp"
        trunk = world.ours.add_trunk(TrunkSettings(id="reg", uri=uri, username="acme", register=True))
        await until(lambda: trunk.registered)
        world.ours.remove_trunk("reg")
        await until(lambda: len(carrier.expires) >= 2)
        assert carrier.expires == ["3600", "0"]
        assert not trunk.registered


@pytest.mark.parametrize("bad", ["nowhere", "127.0.0.1:99999", "[::1", ""])
async def test_an_address_that_is_none_is_refused(bad: str) -> None:
    with pytest.raises((LocalError, OSError)):
        await Endpoint(EndpointSettings(udp=bad)).start()


async def test_a_port_that_is_taken_is_an_error_and_nothing_stays_open(world: Phones) -> None:
    taken = f"127.0.0.1:{address(world.ours, 'tcp')[1]}"
    with pytest.raises(OSError, match="in use"):
        await Endpoint(EndpointSettings(udp="127.0.0.1:0", tcp=taken)).start()


def test_two_trunks_at_one_address_share_by_number() -> None:
    phone = Endpoint(EndpointSettings(udp="127.0.0.1:0"))
    phone.add_trunk(replace(LINE, id="a"))
    phone.add_trunk(replace(LINE, id="b"))
    gate: AdmissionPolicy = phone._gate
    phone.gate.trunk_for = lambda number, trunks: trunks[("1", "2").index(number)]
    for number, expected in (("1", "a"), ("2", "b")):
        message = parse(request("INVITE", number))
        assert isinstance(message, Request)
        admitted = gate.admit(message, source_hop(), 0.0)
        assert getattr(admitted, "trunk_id", None) == expected


def test_a_call_that_the_inflow_let_in_is_not_refused_for_want_of_time() -> None:
    phone = Endpoint(EndpointSettings(udp="127.0.0.1:0"))
    phone.add_trunk(replace(LINE, id="a"))
    phone.gate.overload = lambda: 2
    message = parse(request("INVITE", "1"))
    assert isinstance(message, Request)
    admitted = phone.gate.admit(message, source_hop(), 0.0)
    assert getattr(admitted, "trunk_id", None) == "a"


@pytest.mark.parametrize(
    ("method", "number", "host", "algorithms"),
    [
        ("REGISTER", "desk", "192.0.2.9", ["MD5"]),
        ("REGISTER", "acme", "192.0.2.9", ["SHA-256", "MD5"]),
        ("INVITE", "100", "192.0.2.8", ["MD5"]),
        ("INVITE", "100", "192.0.2.9", ["SHA-256", "MD5"]),
        ("INVITE", "100", "192.0.2.7", ["SHA-256", "MD5"]),
        ("INVITE", "desk", "192.0.2.9", ["SHA-256", "MD5"]),  # which anybody may call
    ],
)
def test_only_telephones_are_challenged_with_md5_alone(
    method: str, number: str, host: str, algorithms: list[str]
) -> None:
    phone = Endpoint(EndpointSettings(udp="127.0.0.1:0"))
    phone.add_trunk(replace(LINE, id="other", allow_from=(), username="acme", password="secret"))
    account = replace(LINE, allow_from=(), username="desk", password="secret", accept_register=True)
    for id, bound_to, expires_at in (("up", "192.0.2.8", 60.0), ("gone", "192.0.2.7", -1.0)):
        phone.add_trunk(replace(account, id=id))
        binding = Binding(Uri.parse("sip:desk@h"), Hop("udp", bound_to, 5060), expires_at)
        phone.gate.registrar.bind((id, "desk"), [binding], 0.0)
    message = parse(request(method, number))
    assert isinstance(message, Request)
    answer = phone.gate.admit(message, Hop("udp", host, 5060), 0.0)
    assert isinstance(answer, Refused)
    assert [Challenge.parse(value).algorithm for _, value in answer.headers] == algorithms


def source_hop() -> Hop:
    return Hop("udp", "::ffff:127.0.0.1", 5060)  # as a dual-stack socket shows an IPv4 peer


@pytest.mark.virtual_clock
async def test_fifty_calls_at_once_come_up_and_go_down(world: Phones) -> None:
    async def answer_all() -> None:
        async for call in world.theirs.incoming():
            await call.answer()

    answering = asyncio.ensure_future(answer_all())
    calls = [await world.trunk.call(f"1{number}") for number in range(50)]
    await asyncio.wait_for(asyncio.gather(*(call.answered() for call in calls)), PATIENCE_S)
    assert len(world.theirs.calls) == 50
    for call in calls:
        await call.hang_up()
    await until(lambda: not world.theirs.calls)
    answering.cancel()
    assert world.ours.stats.rtp_ports_used == world.theirs.stats.rtp_ports_used == 0


async def test_both_ends_of_a_call_to_ourselves_are_told_apart_by_more_than_the_call_id() -> None:
    async with Endpoint(EndpointSettings(udp="127.0.0.1:0", rtp_ports=(30000, 32999))) as phone:
        uri = f"sip:127.0.0.1:{address(phone)[1]}"
        trunk = phone.add_trunk(TrunkSettings(id="loop", uri=uri, allow_from=LOOPBACK))
        placed = await trunk.call("+15551234")
        offered = await asyncio.wait_for(anext(phone.incoming()), PATIENCE_S)
        assert (offered.sip_call_id, offered.state) == (placed.sip_call_id, CallState.OFFERED)
        await offered.answer()
        await asyncio.wait_for(placed.answered(), PATIENCE_S)
        await placed.hang_up()
        await asyncio.wait_for(offered.ended(), PATIENCE_S)
        assert (placed.ended_by, offered.ended_by) == ("local", "remote")
        assert phone.stats.calls == 0


@pytest.mark.parametrize(
    ("changed", "telephones"), [({"may_call": False}, 1), ({"password": "another-password"}, 0)]
)
def test_a_telephone_is_registered_no_longer_than_its_password_is_right(
    changed: dict[str, Any], telephones: int
) -> None:
    phone, anna = Endpoint(EndpointSettings(udp="127.0.0.1:0")), User(name="anna", password="anna-password")
    line = TrunkSettings(id="users:acme", uri="sip:users.invalid", users=(anna,))
    phone.add_trunk(line)
    phone.gate.forget_unknown()
    binding = Binding(Uri.parse("sip:anna@h"), Hop("udp", "192.0.2.8", 5060), 60.0)
    phone.gate.registrar.bind(("users:acme", "anna"), [binding], 0.0)
    phone.gate.forget_unknown()
    phone.remove_trunk("users:acme")
    phone.add_trunk(replace(line, users=(replace(anna, **changed),)))
    phone.gate.forget_unknown()
    assert len(phone.gate.registrar.bound(("users:acme", "anna"), 1.0)) == telephones
