"""Calls with SIPp scenarios, both directions: what carriers' equipment does, message by message."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.net.egress import EgressPolicy
from sip.endpoint import Endpoint, EndpointSettings
from sip.states import HangupCause
from sip.trunk import Trunk
from sip.trunk_settings import TrunkSettings
from tests.support.ports import free_rtp_range
from tests.support.sip.sip_phones import address
from tests.support.sip.sipp import Sipp
from tests.support.speech.leg import Listener
from tests.support.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("engine")]


@pytest.fixture
async def phone() -> AsyncIterator[Endpoint]:
    async with Endpoint(
        EndpointSettings(udp="127.0.0.1:0", tcp="127.0.0.1:0", rtp_ports=free_rtp_range(200), max_calls=20)
    ) as endpoint:
        yield endpoint


def add_trunk(phone: Endpoint, port: int, **settings: Any) -> Trunk:
    return phone.add_trunk(
        TrunkSettings(
            id="peer",
            uri=f"sip:127.0.0.1:{port}",
            caller_id="+14155550100",
            allow_from=("127.0.0.1/32",),
            egress=EgressPolicy(["127.0.0.1/32"]),
            **settings,
        )
    )


async def answer_all(phone: Endpoint, digits: Listener) -> None:
    async for call in phone.incoming():
        await call.ring()
        await call.answer()
        call.attach(digits, None)


async def nothing_left(phone: Endpoint) -> None:
    await until(lambda: not phone.calls)


@pytest.mark.parametrize("scenario", ["uac_call", "uac_late_offer", "uac_reinvite"])
@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_sipp_calls_us(phone: Endpoint, tmp_path: Path, scenario: str, transport: str) -> None:
    options = ("-t", "t1") if transport == "tcp" else ()
    digits = Listener()
    async with asyncio.TaskGroup() as tasks:
        answering = tasks.create_task(answer_all(phone, digits))
        async with Sipp(scenario, tmp_path, target=address(phone, transport)[1], options=options) as sipp:
            add_trunk(phone, sipp.port)
            await sipp.passed()
        await nothing_left(phone)
        answering.cancel()
    assert digits.keyed == ("7" if scenario == "uac_reinvite" else "")


async def test_twenty_calls_at_once(phone: Endpoint, tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks:
        answering = tasks.create_task(answer_all(phone, Listener()))
        async with Sipp(
            "uac_call", tmp_path, target=address(phone)[1], calls=20, options=("-r", "100")
        ) as sipp:
            add_trunk(phone, sipp.port)
            await sipp.passed()
        await nothing_left(phone)
        answering.cancel()


async def test_the_caller_gives_up(phone: Endpoint, tmp_path: Path) -> None:
    async with Sipp("uac_cancel", tmp_path, target=address(phone)[1]) as sipp:
        add_trunk(phone, sipp.port)
        call = await anext(phone.incoming())
        await call.ring()
        assert await call.ended() is HangupCause.CANCELLED
        await sipp.passed()
    await nothing_left(phone)


async def test_an_unknown_extension_is_named(phone: Endpoint, tmp_path: Path) -> None:
    async with Sipp("uac_require", tmp_path, target=address(phone)[1]) as sipp:
        add_trunk(phone, sipp.port)
        await sipp.passed()
    assert not phone.calls


async def test_draining_refuses_with_retry_after(phone: Endpoint, tmp_path: Path) -> None:
    phone.drain()
    async with Sipp(
        "uac_refused", tmp_path, target=address(phone)[1], calls=50, options=("-r", "200")
    ) as sipp:
        add_trunk(phone, sipp.port)
        await sipp.passed()
    assert not phone.calls


@pytest.mark.parametrize(
    ("scenario", "transport"),
    [
        *itertools.product(("uas_early_media", "uas_digest", "uas_record_route"), ("udp", "tcp")),
        ("uas_forks", "udp"),  # one TCP connection cannot fork
    ],
)
async def test_we_call_sipp(phone: Endpoint, tmp_path: Path, scenario: str, transport: str) -> None:
    options = ("-t", "t1") if transport == "tcp" else ()
    async with Sipp(scenario, tmp_path, options=options) as sipp:
        trunk = phone.add_trunk(
            TrunkSettings(
                id="peer",
                uri=f"sip:127.0.0.1:{sipp.port};transport={transport}",
                username="acme",
                password="secret",
            )
        )
        await asyncio.sleep(0.3)  # SIPp has no way to say that it listens
        call = await trunk.call("+14155550123")
        await call.answered()
        await asyncio.sleep(0.3)
        await call.hang_up()
        assert await call.ended() is HangupCause.NORMAL
        await sipp.passed()
    await nothing_left(phone)


async def test_sipp_hangs_up(phone: Endpoint, tmp_path: Path) -> None:
    async with Sipp("uas_hangs_up", tmp_path, target=address(phone)[1]) as sipp:
        await asyncio.sleep(0.3)
        call = await add_trunk(phone, sipp.port).call("+14155550123")
        await call.answered()
        assert await call.ended() is HangupCause.NORMAL
        assert call.ended_by == "remote"
        await sipp.passed()
    await nothing_left(phone)
