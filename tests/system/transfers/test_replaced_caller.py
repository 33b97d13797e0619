"""An INVITE with Replaces (RFC 3891): whoever was asked to takes the far end's place at the agent, where the
trunk lets the far end lead the agent elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mediaserver.calls.transfers.moved_caller import MovedCaller
from sip.call import Call
from tests.support.node.node import KEY, bearer, until_final
from tests.support.sip.ladder import Ladder, ladder
from tests.support.sip.raw_call import RawCall
from tests.support.sip.referring_carrier import Telephone
from tests.support.sip.transfers import ASKS_AND_HANDS_ON, DESK
from tests.support.waiting import until
from tests.system.transfers.test_accepted_refer import OBEYS, talking

PERSON = "+14155550188"
FRONT_DESK = "+14155550101"
"""Another agent's number, which an INVITE without Replaces would reach."""


@pytest.fixture(params=["native", pytest.param("pjsua2", marks=pytest.mark.nightly("ci"))])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "pjsua2":
        pytest.importorskip("pjsua2")
    return str(request.param)


def replaces(caller: Telephone, *params: str, to_tag: str = "", from_tag: str = "") -> str:
    """A Replaces of the call of `caller`, as its server knows it."""
    local = to_tag or caller.invite.from_.tag
    tags = (f"to-tag={local}", f"from-tag={from_tag or caller.tag}", *params)
    return f"Replaces: {';'.join((caller.invite.call_id, *tags))}"


def person(line: Ladder, *lines: str) -> RawCall:
    """Somebody who calls the server."""
    address = line.node.server.endpoint.udp_address
    assert address is not None
    return RawCall(address[1], FRONT_DESK, lines=lines)


async def refusal(line: Ladder, *lines: str) -> int:
    async with person(line, *lines) as other:
        other.invite()
        return (await other.final()).status


async def test_who_replaces_the_far_end_goes_on_with_the_agent(tmp_path: Path, engine: str) -> None:
    async with ladder(tmp_path, trunk=f'{OBEYS}\nengine = "{engine}"') as line:
        call_id, caller = await talking(line)
        assert "replaces" in caller.invite.supported
        lines = (replaces(caller), "Require: replaces")
        async with person(line, *lines) as other:
            await other.answered()
            await until(lambda: caller.hung_up_by == "server")
            async with asyncio.timeout(10):
                await other.rtp.arrived.get()  # the agent is heard, and asks whether anybody is there
            async with line.node.client.get(f"/api/v1/calls/{call_id}", headers=bearer(KEY)) as answer:
                assert (await answer.json())["status"] == "ANSWERED"
            # The ended dialog is known: 603; a second one takes its place from the new far end.
            assert await refusal(line, replaces(caller)) == 603
            await other.hang_up()
            report = await until_final(line.node.client, call_id)
        assert line.node.server.endpoint.stats.rtp_ports_used == 0
    assert (report["status"], report["endedBy"]) == ("COMPLETED", "remote")


async def test_what_names_no_call_that_may_be_replaced_is_refused(tmp_path: Path) -> None:
    async with ladder(tmp_path, trunk=OBEYS) as line:
        _, caller = await talking(line)
        assert await refusal(line, replaces(caller, "early-only")) == 486
        assert await refusal(line, replaces(caller, to_tag="other")) == 481
        assert await refusal(line, replaces(caller, from_tag="other")) == 481
        assert await refusal(line, "Replaces: nothing") == 481
        assert await refusal(line, replaces(caller), replaces(caller)) == 400
        heard = caller.ear.packets
        await until(lambda: caller.ear.packets > heard)  # the call goes on
        assert line.node.server.endpoint.stats.rtp_ports_used == 1
        caller.bye()
        await asyncio.sleep(0.2)


async def test_while_a_refer_is_obeyed_nobody_takes_the_place(tmp_path: Path) -> None:
    async with ladder(tmp_path, trunk=OBEYS, refused={PERSON: 0}) as line:
        _, caller = await talking(line)
        caller.refer(f"sip:{PERSON}@127.0.0.1")
        await until(lambda: PERSON in line.carrier.dialled)
        assert await refusal(line, replaces(caller)) == 491
        caller.bye()
        await asyncio.sleep(0.2)


async def test_while_the_agent_transfers_nobody_takes_the_place_and_afterwards_somebody_may(
    tmp_path: Path,
) -> None:
    async with ladder(tmp_path, trunk=OBEYS, refused={DESK: 0}) as line:
        call_id, caller = await talking(line, ASKS_AND_HANDS_ON)
        caller.key("1")
        await until(lambda: DESK in line.carrier.dialled)
        assert await refusal(line, replaces(caller)) == 491
        caller.bye()
        await until_final(line.node.client, call_id)
    (again := tmp_path / "again").mkdir()
    async with ladder(again, trunk=OBEYS, refused={DESK: 486}) as line:
        call_id, caller = await talking(line, ASKS_AND_HANDS_ON)
        caller.key("1")
        await until(lambda: DESK in line.carrier.dialled)
        await asyncio.sleep(2.0)  # the agent is back
        async with person(line, replaces(caller)) as other:
            await other.answered()
            await until(lambda: caller.hung_up_by == "server")
            await other.hang_up()
            await until_final(line.node.client, call_id)


async def test_an_invite_that_comes_as_the_agent_goes_is_answered_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced, closing = MovedCaller._replaced, set()

    def just_before(moved: MovedCaller, old: Call, new: Call) -> int:
        closing.add(asyncio.create_task(moved.close()))
        return replaced(moved, old, new)

    monkeypatch.setattr(MovedCaller, "_replaced", just_before)
    async with ladder(tmp_path, trunk=OBEYS) as line:
        _, caller = await talking(line)
        assert await refusal(line, replaces(caller))
        caller.bye()
        await asyncio.sleep(0.2)


async def test_without_the_trunks_word_nobody_replaces_a_call(tmp_path: Path) -> None:
    """The field says nothing then: the INVITE is a call like any other, and 420 where it insists."""
    async with ladder(tmp_path, trunk="media_timeout_s = 600") as line:
        _, caller = await talking(line)
        assert "replaces" not in caller.invite.supported
        assert await refusal(line, replaces(caller), "Require: replaces") == 420
        assert await refusal(line, replaces(caller)) == 200
        assert caller.hung_up_by == ""
        caller.bye()
        await asyncio.sleep(0.2)
