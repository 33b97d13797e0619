"""SIPp asks for what carriers ask for: digest, registration, session timers, PRACK, UPDATE, routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sip.auth.digest import Verifier
from sip.call import Call, CallFailed
from sip.endpoint import Endpoint, EndpointSettings
from sip.states import CallState, HangupCause
from sip.trunk import Trunk
from sip.trunk_settings import TrunkSettings
from tests.support.ports import free_rtp_range
from tests.support.sip.sip_phones import address
from tests.support.sip.sipp import Sipp
from tests.support.speech.scenario import (
    as_called,
    expect,
    first,
    pause,
    recalled,
    recv,
    remember,
    reply,
    request,
    sdp,
    write,
)
from tests.support.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("engine")]

CHALLENGE = 'Digest realm="carrier", qop="auth", algorithm={}, nonce="{}"{}'
RSEQ = '<ereg regexp="[0-9]+" search_in="hdr" header="RSeq:" check_it="true" assign_to="rseq"/>'
READY_S = 0.3  # SIPp has no way to say that it listens


@pytest.fixture
async def phone() -> AsyncIterator[Endpoint]:
    async with Endpoint(
        EndpointSettings(udp="127.0.0.1:0", tcp="127.0.0.1:0", rtp_ports=free_rtp_range(200))
    ) as endpoint:
        yield endpoint


def trunk_to(phone: Endpoint, port: int, *, name: str = "peer", **settings: Any) -> Trunk:
    return phone.add_trunk(TrunkSettings(id=name, uri=f"sip:127.0.0.1:{port}", **settings))


async def offered(phone: Endpoint) -> Call:
    return await asyncio.wait_for(anext(phone.incoming()), 30)


async def call_and_end(phone: Endpoint, sipp: Sipp, **settings: Any) -> Call:
    """Places a call that SIPp answers, and hangs up."""
    await asyncio.sleep(READY_S)
    call = await trunk_to(phone, sipp.port, **settings).call("+14155550123")
    await call.answered()
    await call.hang_up()
    assert await call.ended() is HangupCause.NORMAL
    await sipp.passed()
    return call


# Digest -----------------------------------------------------------------------------------------------------


@pytest.mark.native("PJSIP sends credentials only when it is asked for them")
@pytest.mark.parametrize("algorithm", ["MD5", "SHA-256"])
async def test_a_nonce_that_has_gone_stale_is_replaced_and_the_next_request_counts_on(
    phone: Endpoint, tmp_path: Path, algorithm: str
) -> None:
    scenario = write(
        tmp_path,
        "stale",
        recv("INVITE"),
        first(reply(407, "Proxy-Authenticate: " + CHALLENGE.format(algorithm, "one", ""))),
        recv("ACK"),
        recv("INVITE", Proxy_Authorization=f"algorithm={algorithm}"),
        first(reply(407, "Proxy-Authenticate: " + CHALLENGE.format(algorithm, "two", ", stale=true"))),
        recv("ACK"),
        recv("INVITE", Proxy_Authorization='nonce="two".*nc=00000001'),
        first(reply(200, body=sdp())),
        recv("ACK", Proxy_Authorization='nonce="two"'),
        recv("BYE", Proxy_Authorization='nonce="two".*nc=00000002'),
        reply(200),
    )
    async with Sipp(scenario, tmp_path) as sipp:
        await call_and_end(phone, sipp, username="acme", password="secret")


async def test_sipp_proves_who_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """SIPp knows MD5 alone, and looks at the first challenge alone."""
    monkeypatch.setattr("sip.admission_policy.Verifier", partial(Verifier, algorithms=("MD5",)))
    scenario = write(
        tmp_path,
        "digest",
        request("INVITE", 1, body=sdp(), within=False),
        '<recv response="401" auth="true"/>',
        request("ACK", 1, within=False),
        request("INVITE", 2, "[authentication username=acme password=secret]", body=sdp(), within=False),
        expect(100, optional=True),
        expect(200, body="m=audio"),
        request("ACK", 2),
        pause(100),
        request("BYE", 3),
        expect(200),
    )
    settings = EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range(200))
    async with Endpoint(settings) as phone:
        phone.add_trunk(TrunkSettings(id="in", uri="sip:192.0.2.1", username="acme", password="secret"))
        port = address(phone)[1]
        options = ("-auth_uri", f"+14155550101@127.0.0.1:{port}")
        async with Sipp(scenario, tmp_path, target=port, options=options) as sipp:
            call = await offered(phone)
            await call.answer()
            assert await call.ended() is HangupCause.NORMAL
            await sipp.passed()


# Registration -----------------------------------------------------------------------------------------------


async def test_a_registration_is_refreshed_and_goes_to_the_next_registrar_after_an_error(
    phone: Endpoint, tmp_path: Path
) -> None:
    home, spare = tmp_path / "home", tmp_path / "spare"
    home.mkdir()
    spare.mkdir()
    first_registrar = write(
        home,
        "registrar",
        recv("REGISTER", Expires="3600"),
        first(reply(401, "WWW-Authenticate: " + CHALLENGE.format("SHA-256", "one", ""))),
        recv("REGISTER", Authorization="nc=00000001"),
        first(reply(200, "Expires: 2")),
        recv("REGISTER", Authorization="nc=00000002"),
        first(reply(200, "Expires: 2")),
        recv("REGISTER", Authorization="nc=00000003"),
        first(reply(503)),
    )
    second_registrar = write(
        spare, "registrar", recv("REGISTER"), first(reply(200, "Expires: 3600")),
            )  # fmt: skip
    async with Sipp(first_registrar, home) as main, Sipp(second_registrar, spare) as backup:
        await asyncio.sleep(READY_S)
        trunk = trunk_to(
            phone, main.port, username="acme", password="secret", register=True,
            backup_uris=(f"sip:127.0.0.1:{backup.port}",),
        )  # fmt: skip
        await until(lambda: trunk.registered)
        await main.passed()
        await until(lambda: trunk.registration is not None and trunk.registration.index == 1)
        assert trunk.registered
        await backup.passed()
    there = EndpointSettings(udp=f"127.0.0.1:{backup.port}", rtp_ports=free_rtp_range())
    async with Endpoint(there) as beyond:  # a call goes where we are registered
        beyond.add_trunk(TrunkSettings(id="in", uri="sip:192.0.2.1", allow_from=("127.0.0.1",)))
        call = await trunk.call("+14155550123")
        await (await offered(beyond)).reject(486)
        assert await call.ended() is HangupCause.BUSY
    phone.remove_trunk("peer")


# Refusals ---------------------------------------------------------------------------------------------------


async def test_a_far_end_says_when_to_try_again(phone: Endpoint, tmp_path: Path) -> None:
    scenario = write(
        tmp_path, "later", recv("INVITE"), first(reply(503, "Retry-After: 7 (busy)")), recv("ACK")
    )
    async with Sipp(scenario, tmp_path) as sipp:
        await asyncio.sleep(READY_S)
        call = await trunk_to(phone, sipp.port).call("+14155550123")
        with pytest.raises(CallFailed) as failed:
            await call.answered()
        assert (failed.value.code, failed.value.retry_after_s) == (503, 7)
        await sipp.passed()


# Provisional responses, UPDATE, routes ----------------------------------------------------------------------


async def test_reliable_early_media_is_acknowledged_and_an_early_update_answered(
    phone: Endpoint, tmp_path: Path
) -> None:
    scenario = write(
        tmp_path,
        "prack",
        remember(recv("INVITE", Supported="100rel")),
        first(reply(183, "Require: 100rel", "RSeq: 41", body=sdp())),
        recv("PRACK", RAck="41 1 INVITE"),
        reply(200),
        as_called(request("UPDATE", 900, body=sdp(8, version=2))),
        expect(200, body="PCMA/8000"),
        recalled(reply(200)),
        recv("ACK"),
        recv("BYE"),
        reply(200),
    )
    async with Sipp(scenario, tmp_path) as sipp:
        call = await call_and_end(phone, sipp)
        assert call.early_media


async def test_our_reliable_early_media_is_acknowledged_by_sipp(phone: Endpoint, tmp_path: Path) -> None:
    scenario = write(
        tmp_path,
        "reliable",
        request("INVITE", 1, "Supported: 100rel", body=sdp(), within=False),
        expect(100, optional=True),
        expect(183, Require="100rel", body="m=audio").replace("</action>", f"{RSEQ}</action>"),
        request("PRACK", 2, "RAck: [$rseq] 1 INVITE"),
        expect(200),
        request("UPDATE", 3, body=sdp(8)),
        expect(200, body="PCMA/8000"),
        expect(200, body="(m=audio)?"),
        request("ACK", 1),
        pause(100),
        request("UPDATE", 4, body=sdp(0)),
        expect(200, body="PCMU/8000"),
        request("BYE", 5),
        expect(200),
    )
    async with Sipp(scenario, tmp_path, target=address(phone)[1]) as sipp:
        phone.add_trunk(TrunkSettings(id="in", uri="sip:192.0.2.1", allow_from=("127.0.0.1",)))
        call = await offered(phone)
        await call.ring(early_media=True)
        await until(lambda: call.early_media)
        await asyncio.sleep(0.5)
        await call.answer()
        assert await call.ended() is HangupCause.NORMAL
        await sipp.passed()


async def test_a_strict_router_is_put_into_the_request_line(phone: Endpoint, tmp_path: Path) -> None:
    route = "Record-Route: &lt;sip:[local_ip]:[local_port];strict>".replace("&lt;", "<")
    scenario = write(
        tmp_path,
        "strict",
        recv("INVITE"),
        first(reply(200, route, body=sdp())),
        recv("ACK", Route="transport=UDP").replace(
            "<action>", '<action><ereg regexp="^ACK sip:[^ ]*;strict SIP" search_in="msg" check_it="true" '
            'assign_to="line"/>',
        ) + '<Reference variables="line"/>',
        recv("BYE", Route="transport=UDP"),
        reply(200),
    )  # fmt: skip
    async with Sipp(scenario, tmp_path) as sipp:
        await call_and_end(phone, sipp)


async def test_an_offer_may_come_late_within_the_call(phone: Endpoint, tmp_path: Path) -> None:
    scenario = write(
        tmp_path,
        "late",
        request("INVITE", 1, within=False),
        expect(100, optional=True),
        expect(200, body="m=audio"),
        request("ACK", 1, body=sdp(8)),
        pause(100),
        request("INVITE", 2),
        expect(100, optional=True),
        expect(200, body="m=audio"),
        request("ACK", 2, body=sdp(0, "sendonly", 2)),
        pause(200),
        request("BYE", 3),
        expect(200),
    )
    async with Sipp(scenario, tmp_path, target=address(phone)[1]) as sipp:
        phone.add_trunk(TrunkSettings(id="in", uri="sip:192.0.2.1", allow_from=("127.0.0.1",)))
        call = await offered(phone)
        await call.answer()
        assert not call.held
        await until(lambda: call.held or call.state is CallState.ENDED)
        assert call.held
        assert await call.ended() is HangupCause.NORMAL
        await sipp.passed()


# Session timers ---------------------------------------------------------------------------------------------


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Session intervals of seconds, where RFC 4028 wants a minute and a half at least."""
    monkeypatch.setattr("sip.dialog.session_timer.ABSOLUTE_MIN_S", 2)


BRIEF: dict[str, Any] = {"min_session_expires_s": 2}


@pytest.mark.usefixtures("brief")
@pytest.mark.native("PJSIP has no session interval below 90 s")
async def test_we_refresh_the_session_of_a_call_that_we_placed(phone: Endpoint, tmp_path: Path) -> None:
    scenario = write(
        tmp_path,
        "refreshed",
        recv("INVITE", Session_Expires="^ *2", Supported="timer"),
        first(reply(422, "Min-SE: 3")),
        recv("ACK"),
        recv("INVITE", Session_Expires="^ *3", Min_SE="3"),
        first(
            reply(
                200, "Allow: INVITE, UPDATE", "Require: timer", "Session-Expires: 3;refresher=uac", body=sdp()
            )
        ),
        recv("ACK"),
        recv("UPDATE", Session_Expires="3;refresher=uac"),
        reply(200, "Require: timer", "Session-Expires: 3;refresher=uac"),
        recv("UPDATE", Session_Expires="3;refresher=uac"),
        reply(200, "Require: timer", "Session-Expires: 3;refresher=uac"),
        recv("BYE"),
        reply(200),
    )
    async with Sipp(scenario, tmp_path) as sipp:
        await asyncio.sleep(READY_S)
        call = await trunk_to(phone, sipp.port, session_expires_s=2, **BRIEF).call("+14155550123")
        await call.answered()
        await asyncio.sleep(3.6)
        await call.hang_up()
        await sipp.passed()


@pytest.mark.usefixtures("brief")
@pytest.mark.native("PJSIP has no session interval below 90 s")
async def test_a_far_end_that_stops_refreshing_is_hung_up_on(phone: Endpoint, tmp_path: Path) -> None:
    timer = ("Supported: timer", "Session-Expires: 3;refresher=uac")
    scenario = write(
        tmp_path,
        "dies",
        request("INVITE", 1, *timer, body=sdp(), within=False),
        expect(100, optional=True),
        expect(200, Session_Expires="3;refresher=uac", Require="timer"),
        request("ACK", 1),
        pause(1500),
        request("UPDATE", 2, *timer),
        expect(200, Session_Expires="3;refresher=uac"),
        recv("BYE"),
        reply(200),
    )
    async with Sipp(scenario, tmp_path, target=address(phone)[1]) as sipp:
        phone.add_trunk(
            TrunkSettings(
                id="in", uri="sip:192.0.2.1", allow_from=("127.0.0.1",), session_expires_s=3, **BRIEF
            )
        )
        call = await offered(phone)
        await call.answer()
        assert await call.ended() is HangupCause.SESSION_EXPIRED
        await sipp.passed()
