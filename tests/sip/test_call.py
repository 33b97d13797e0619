"""A call as an application has it, over real sockets: verbs, states, audio, and how it ends."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from sip.call import MOVES, Call, CallFailed
from sip.errors import LocalError, RemoteError
from sip.states import CallState, HangupCause
from sip.trunk_settings import TrunkSettings
from tests.support.sip.sip_phones import PATIENCE_S, Phones, phones
from tests.support.speech.leg import Listener
from tests.support.waiting import until

SETTINGS = TrunkSettings(id="x", uri="sip:127.0.0.1")


async def over(*calls: Call) -> list[HangupCause]:
    return [await asyncio.wait_for(call.ended(), PATIENCE_S) for call in calls]


def test_every_state_has_its_moves_and_the_end_has_none() -> None:
    assert set(MOVES) == set(CallState)
    assert MOVES[CallState.ENDED] == frozenset()
    assert all(CallState.ENDED in MOVES[state] for state in CallState if state is not CallState.ENDED)


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_a_call_from_dialling_to_hanging_up(transport: str) -> None:
    async with phones(transport=transport) as world:
        states: list[tuple[str, CallState]] = []
        call = await world.trunk.call("+15551234")
        call.on_state(lambda call, state, now: states.append(("caller", state)))
        assert call.state is CallState.DIALING
        offered = await world.offered()
        offered.on_state(lambda call, state, now: states.append(("called", state)))
        assert offered.state is CallState.OFFERED
        listener = Listener()
        offered.attach(listener, None)
        await offered.ring()
        await offered.answer()
        await asyncio.wait_for(call.answered(), PATIENCE_S)
        assert call.rate_hz == offered.rate_hz == 8000
        await call.play((np.sin(np.arange(8000) * 0.3) * 8000).astype(np.int16), 16000)
        await call.hang_up()
        assert await over(call, offered) == [HangupCause.NORMAL, HangupCause.NORMAL]
        assert (call.ended_by, offered.ended_by) == ("local", "remote")
        assert (call.status, offered.status) == (200, 200)
        assert listener.ended == ["normal"]
        assert sum(np.abs(frame).max() > 4000 for frame in listener.frames) >= 20
        order = [CallState.RINGING, CallState.ANSWERED, CallState.ENDED]
        assert [state for who, state in states if who == "called"] == order
        assert [state for who, state in states if who == "caller"] == order
        assert world.ours.stats.rtp_ports_used == world.theirs.stats.rtp_ports_used == 0
        assert dict(world.ours.calls) == dict(world.theirs.calls) == {}
        await call.hang_up()  # once more is nothing


async def test_a_refusal_reaches_whoever_waits_for_the_answer(world: Phones) -> None:
    call = await world.trunk.call("1")
    await (await world.offered()).reject(486)
    with pytest.raises(CallFailed) as failed:
        await asyncio.wait_for(call.answered(), PATIENCE_S)
    assert (failed.value.cause, failed.value.code) == (HangupCause.BUSY, 486)
    assert (call.cause, call.status, call.ended_by) == (HangupCause.BUSY, 486, "remote")


async def test_hanging_up_while_it_rings_cancels(world: Phones) -> None:
    call = await world.trunk.call("1")
    offered = await world.offered()
    await offered.ring()
    await call.hang_up()
    assert await over(call, offered) == [HangupCause.CANCELLED, HangupCause.CANCELLED]
    assert (call.ended_by, offered.ended_by) == ("local", "remote")
    with pytest.raises(LocalError):
        await offered.answer()


async def test_nobody_answers_in_time(world: Phones) -> None:
    call = await world.trunk.call("1", ring_timeout_s=0.2)
    offered = await world.offered()
    await offered.ring()
    assert await over(call, offered) == [HangupCause.NO_ANSWER, HangupCause.CANCELLED]


async def test_early_media_is_heard_before_the_answer(world: Phones) -> None:
    call = await world.trunk.call("1")
    listener = Listener()
    call.attach(listener, None)
    offered = await world.offered()
    await offered.ring(early_media=True)
    await offered.play((np.sin(np.arange(3200) * 0.3) * 8000).astype(np.int16), 8000)
    assert offered.early_media
    assert call.early_media
    assert call.state is CallState.RINGING
    assert any(np.abs(frame).max() > 4000 for frame in listener.frames)
    await offered.answer()
    await asyncio.wait_for(call.answered(), PATIENCE_S)


async def test_hold_and_resume_from_either_side(world: Phones) -> None:
    call, offered = await world.up()
    for one, other in ((call, offered), (offered, call)):
        await asyncio.wait_for(one.hold(), PATIENCE_S)
        assert one.held
        assert other.held
        await asyncio.wait_for(one.resume(), PATIENCE_S)
        assert not one.held
        assert not other.held


async def test_a_hold_cut_short_by_the_end_says_so(world: Phones) -> None:
    call, offered = await world.up()
    holding = asyncio.ensure_future(call.hold())
    await asyncio.sleep(0)
    await call.hang_up()
    with pytest.raises(RemoteError):
        await asyncio.wait_for(holding, PATIENCE_S)
    with pytest.raises(LocalError):
        await call.hold()
    await over(offered)


async def test_digits_arrive(world: Phones) -> None:
    call, offered = await world.up()
    listener = Listener()
    offered.attach(listener, None)
    await call.send_dtmf("1*#")
    await until(lambda: listener.digits == ["1", "*", "#"])
    with pytest.raises(ValueError, match="x"):
        await call.send_dtmf("x")


async def test_a_far_end_without_media_is_hung_up_on() -> None:
    settings = TrunkSettings(id="x", uri="sip:127.0.0.1", media_timeout_s=0.3)
    async with phones(trunk=settings) as world:
        call, offered = await world.up()
        offered._stream.close()  # it sends nothing any more
        assert await over(call) == [HangupCause.MEDIA_TIMEOUT]
        assert call.ended_by == "local"
        assert await over(offered) == [HangupCause.NORMAL]


async def test_no_codec_in_common_is_incompatible() -> None:
    line = TrunkSettings(id="x", uri="sip:127.0.0.1", codecs=("opus",), allow_from=("127.0.0.1",))
    trunk = TrunkSettings(id="x", uri="sip:127.0.0.1", codecs=("pcmu",))
    async with phones(trunk=trunk, line=line) as world:
        call = await world.trunk.call("1")
        assert await over(call) == [HangupCause.INCOMPATIBLE]
        assert call.status == 488
        assert world.theirs.stats.rtp_ports_used == 0


async def test_verbs_that_are_not_for_this_call_are_refused(world: Phones) -> None:
    call = await world.trunk.call("1")
    offered = await world.offered()
    for verb in (call.answer, call.ring, call.reject, call.hold, offered.hold):
        with pytest.raises(LocalError):
            await verb()
    with pytest.raises(LocalError):
        await offered.reject(200)
    with pytest.raises(LocalError):
        call.rate_hz  # noqa: B018  # nothing agreed on yet
    await offered.answer()
    with pytest.raises(LocalError):
        await offered.answer()


async def test_whoever_attaches_after_the_end_is_told(world: Phones) -> None:
    call, _ = await world.up()
    await call.hang_up()
    listener = Listener()
    call.attach(listener, None)
    assert listener.ended == ["normal"]


async def test_a_callback_that_raises_harms_only_itself(
    world: Phones, caplog: pytest.LogCaptureFixture
) -> None:
    call = await world.trunk.call("1")

    def fail(call: Call, state: CallState, now: float) -> None:
        raise RuntimeError("application")

    call.on_state(fail)
    offered = await world.offered()
    await offered.ring()
    other = await world.trunk.call("2")
    second = await world.offered()
    await second.answer()
    await asyncio.wait_for(other.answered(), PATIENCE_S)
    assert any(record.exc_info for record in caplog.records)
