"""Callers who are handed to a user of the company: every telephone that the user has registered rings."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.peers.test_users import signed
from tests.support.node.node import NUMBER, Site, place_call, running, until_final
from tests.support.sip.ladder import NUMBERS, ladder
from tests.support.sip.raw_call import RawCall
from tests.support.sip.transfers import ASKING, HANDS_ON, telephones, write_transfer_site
from tests.support.waiting import until
from tests.system.transfers.test_accepted_refer import OBEYS, talking, told

ASKS_FOR_USERS = "17e7e2a0-93a8-4a55-8f6c-9f5f3f5f1b09"
ANNA = """
[[sip.user]]
name = "anna"
company = "acme"
password = "anna-password"
[[sip.user]]
name = "mute"
company = "acme"
password = "mute-password"
"""
REALM = 'realm = "us.example"'


def users_site(directory: Path) -> Site:
    site = write_transfer_site(directory, target="anna", more=ANNA).add("[sip]", REALM)
    text = site.path.read_text()
    site.path.write_text(text.replace('any = "room:*"', 'any = "room:*", anna = "user:anna"'))
    return site


async def registered(phone: RawCall, name: str = "anna") -> None:
    assert (await signed(phone, "REGISTER", name, f"{name}-password")).status == 200


async def test_a_caller_is_handed_to_a_users_telephones(tmp_path: Path) -> None:
    site = users_site(tmp_path)
    async with (
        running(site) as (server, client),
        telephones(site) as people,
        RawCall(site.sip, "anna") as phone,
        RawCall(site.sip, "anna") as other,
    ):
        await registered(phone)
        await registered(other)
        call_id = await place_call(client, HANDS_ON)
        caller = await people.answered(NUMBER)
        invite = await phone.asked("INVITE")
        rung = await other.asked("INVITE")
        other.reply(rung, 180)
        assert rung.call_id == invite.call_id
        assert invite.from_.uri.user == "+14155550100"
        phone.reply(invite, 180)
        phone.reply(invite, 200, body=phone.offer)
        other.reply(await other.asked("CANCEL"))
        other.reply(rung, 487)
        assert (await phone.asked("ACK")).call_id == invite.call_id
        async with asyncio.timeout(10):
            await phone.rtp.arrived.get()
        await caller.hang_up()
        phone.reply(await phone.asked("BYE"))
        report = await until_final(client, call_id)
        transfer = report["analysis"]["transfer"]
        assert server.endpoint.stats.rtp_ports_used == 0
    assert (transfer["target"], transfer["outcome"], transfer["endedBy"]) == ("anna", "answered", "caller")
    assert transfer["rung"] == "bridge"


async def test_a_user_who_is_not_there_is_not_reached(tmp_path: Path) -> None:
    site = users_site(tmp_path)
    async with running(site) as (_, client), telephones(site) as people:
        call_id = await place_call(client, HANDS_ON)
        await people.answered(NUMBER)
        report = await until_final(client, call_id)
    assert report["analysis"]["transfer"]["outcome"] == "no_answer"


async def test_a_far_end_refers_the_agent_to_a_user(tmp_path: Path) -> None:
    asking = ASKING.format(id=ASKS_FOR_USERS).replace('desk = "+14155550188"', 'anna = "user:anna"')
    async with ladder(tmp_path, trunk=OBEYS, further=ANNA + asking) as line:
        address = line.node.server.endpoint.udp_address
        assert address is not None
        async with RawCall(address[1], "anna") as phone:
            await registered(phone)
            _, caller = await talking(line, ASKS_FOR_USERS)
            caller.refer("sip:mute@127.0.0.1")
            await until(lambda: told(caller)[-1:] == ["603 terminated"])
            caller.refer("sip:anna@elsewhere.example")  # another's
            await until(lambda: told(caller).count("603 terminated") == 2)
            caller.refer("sip:anna@127.0.0.1")
            invite = await phone.asked("INVITE")
            phone.reply(invite, 200, body=phone.offer)
            await until(lambda: told(caller)[-1:] == ["200 terminated"])
            await until(lambda: caller.hung_up_by == "server")
            async with asyncio.timeout(10):
                await phone.rtp.arrived.get()
            assert line.carrier.dialled == [NUMBERS["405"]]
