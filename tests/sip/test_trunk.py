"""A trunk's settings, and what may be dialled over it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sip.call import CallFailed
from sip.endpoint import Endpoint, EndpointSettings
from sip.errors import LocalError
from sip.message.uri import Uri
from sip.states import HangupCause
from sip.telephones.registrar import Binding
from sip.transaction.hop import Hop
from sip.trunk import Trunk, TrunkUnavailable
from sip.trunk_settings import TrunkSettings, User
from tests.support.hostile.rogue import rogue
from tests.support.sip.sip_phones import Phones, phones
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"uri": "carrier.example"}, "uri"),
        ({"uri": "tel:+123"}, "uri"),
        ({"backup_uris": ("sip:a@",)}, "uri"),
        ({"codecs": ("g729",)}, "codecs"),
        ({"codecs": ()}, "codecs"),
        ({"session_expires_s": 60}, "session_expires_s"),
    ],
)
def test_wrong_settings_name_the_key(wrong: dict[str, object], named: str) -> None:
    settings: dict[str, object] = {"id": "carrier", "uri": "sip:carrier.example"}
    with pytest.raises(LocalError, match=f"carrier: {named}"):
        TrunkSettings(**{**settings, **wrong})  # type: ignore[arg-type]


def test_a_bad_network_and_a_taken_id_are_refused_and_nothing_stays() -> None:
    phone = Endpoint(EndpointSettings(udp="127.0.0.1:0"))
    with pytest.raises(LocalError, match="allow_from"):
        phone.add_trunk(TrunkSettings(id="a", uri="sip:h", allow_from=("10.0.0.0/99",)))
    assert dict(phone.trunks) == {}
    phone.add_trunk(TrunkSettings(id="a", uri="sip:h"))
    with pytest.raises(LocalError, match="of that id"):
        phone.add_trunk(TrunkSettings(id="a", uri="sip:h"))
    phone.remove_trunk("a")
    with pytest.raises(KeyError):
        phone.remove_trunk("a")


@pytest.mark.parametrize(
    "number",
    [
        "",
        "1" * 65,
        "12 34",
        "1\r\nX: y",
        "1\n",
        "sip:bob@evil.example",
        "a@b",
        "1;lr",
        "1?X=y",
        "<1>",
        '"',
        "é",
    ],
)
async def test_a_number_that_is_none_is_never_sent(world: Phones, number: str) -> None:
    with pytest.raises(LocalError):
        await world.trunk.call(number)
    with pytest.raises(LocalError):
        await world.trunk.call("1", caller_id=number or "\r")
    assert world.ours.stats.transmitted == 0
    assert world.ours.stats.rtp_ports_used == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": "b\r\nVia: c"},
        {"X-A": "b\nc"},
        {"X A": "b"},
        {"X-A:": "b"},
        {"Via": "x"},
        {"call-id": "x"},
        {"v": "compact Via"},
        {"Content-Length": "0"},
        {"Replaces": "a;to-tag=b;from-tag=c"},
        {"Refer-To": "<sip:a@h>"},
        {"Path": "<sip:h;lr>"},
        {"Content-Encoding": "gzip"},
        {"Content-Disposition": "session"},
        {"Event": "presence"},
        {"X-A": "\ud800"},
    ],
)
async def test_a_header_that_would_break_the_invite_is_never_sent(
    world: Phones, headers: dict[str, str]
) -> None:
    with pytest.raises(LocalError):
        await world.trunk.call("1", headers=headers)
    assert world.ours.stats.transmitted == 0


async def test_what_is_dialled_is_what_arrives(world: Phones) -> None:
    call = await world.trunk.call(
        "+1*55#7", caller_id="0151234", headers={"P-Asserted-Identity": "<sip:x@h>"}, call_id="task-1"
    )
    offered = await world.offered()
    assert (offered.local_number, offered.remote_number) == ("+1*55#7", "0151234")
    assert (call.local_number, call.remote_number) == ("0151234", "+1*55#7")
    assert call.id == "task-1"
    assert world.ours.calls["task-1"] is call
    assert call.sip_call_id == offered.sip_call_id
    with pytest.raises(LocalError, match="of that id"):
        await world.trunk.call("2", call_id="task-1")
    await offered.reject(486)
    await call.ended()


async def test_no_call_leaves_a_full_draining_or_closed_endpoint(world: Phones) -> None:
    full = Endpoint(EndpointSettings(udp="127.0.0.1:0", max_calls=1, rtp_ports=(30000, 32999)))
    async with full:
        trunk: Trunk = full.add_trunk(world.trunk.settings)
        await trunk.call("1")
        with pytest.raises(TrunkUnavailable, match="all 1 calls"):
            await trunk.call("2")
    with pytest.raises(TrunkUnavailable):
        await trunk.call("3")
    world.ours.drain()
    with pytest.raises(TrunkUnavailable):
        await world.trunk.call("4")


async def test_a_trunk_of_a_telephone_calls_it_while_it_is_registered_and_nobody_else(world: Phones) -> None:
    async with rogue() as desk:
        desk.say(486)
        account = {"username": "desk", "password": "secret", "accept_register": True}
        line = world.ours.add_trunk(replace(world.trunk.settings, id="desk", **account))  # type: ignore[arg-type]
        now = asyncio.get_running_loop().time()
        hop = Hop("udp", "127.0.0.1", desk.sip.port)
        registrar = world.ours.gate.registrar
        for bound in ((), (Binding(Uri.parse("sip:desk@127.0.0.1"), hop, now - 1),)):
            registrar.bind(("desk", "desk"), bound, now)
            with pytest.raises(CallFailed) as failed:
                await line.call("1")
            assert (failed.value.code, failed.value.cause) == (480, HangupCause.NO_ANSWER)
        assert world.ours.stats.transmitted == 0
        registrar.bind(("desk", "desk"), [Binding(Uri.parse("sip:desk@127.0.0.1"), hop, now + 60)], now)
        call = await line.call("1")
        assert await asyncio.wait_for(call.ended(), 10) is HangupCause.BUSY
        assert [each.uri.user for each in desk.asked("INVITE")] == ["desk"]


async def test_a_call_that_the_telephone_of_a_trunk_did_not_take_goes_on_over_another() -> None:
    """The telephone, a PBX for one, says that it cannot take the call: nobody's has rung."""
    asked: list[int] = []

    async def go_on(status: int) -> bool:
        asked.append(status)
        return False

    async with phones() as world, rogue() as desk:
        desk.say(503)
        account = {"username": "desk", "password": "secret", "accept_register": True}
        line = world.ours.add_trunk(replace(world.trunk.settings, id="desk", **account))  # type: ignore[arg-type]
        now = asyncio.get_running_loop().time()
        hop = Hop("udp", "127.0.0.1", desk.sip.port)
        binding = Binding(Uri.parse("sip:desk@127.0.0.1"), hop, now + 60)
        world.ours.gate.registrar.bind(("desk", "desk"), [binding], now)
        call = await line.call("1", go_on=go_on)
        await asyncio.wait_for(call.ended(), 10)
    assert asked == [503]


USERS = TrunkSettings(
    id="users:acme", uri="sip:users.invalid", users=(User(name="anna", password="anna-password"),)
)


@pytest.mark.parametrize("second", [200, 603])
async def test_of_several_telephones_one_has_the_call_whatever_the_others_say(
    world: Phones, second: int
) -> None:
    """Both answer at once: one is hung up. One declines for all of them: the other is cancelled."""
    async with rogue() as one, rogue() as two:
        if second == 200:
            one.say(200, one.contact, body=one.media)
            two.say(200, two.contact, body=two.media)
        else:
            one.say(180, one.contact)
            two.say(603)
        line = world.ours.add_trunk(USERS)
        now = asyncio.get_running_loop().time()
        bindings = [
            Binding(
                Uri.parse(f"sip:anna@10.0.0.{number}:5070"), Hop("udp", "127.0.0.1", each.sip.port), now + 60
            )
            for number, each in enumerate((one, two))
        ]
        world.ours.gate.registrar.bind(("users:acme", "anna"), bindings, now)
        call = await line.call("anna")
        if second == 200:
            await asyncio.wait_for(call.answered(), 10)
            await until(lambda: len(one.asked("BYE")) + len(two.asked("BYE")) == 1)
            assert one.asked("ACK")
            assert two.asked("ACK")
            await call.hang_up()
        else:
            await asyncio.wait_for(call.ended(), 10)
            assert (call.status, len(one.asked("CANCEL")), two.asked("CANCEL")) == (603, 1, [])
        await asyncio.wait_for(call.ended(), 10)
        assert world.ours.stats.rtp_ports_used == 0
        assert not world.ours._invites
