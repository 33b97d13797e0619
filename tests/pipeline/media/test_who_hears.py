"""Who hears whom, by ear: a tone for each participant, and what each of them is sent."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.media.bridge import Bridge
from pipeline.media.pacer import Pacer
from pipeline.media.patched_leg import PatchedLeg
from pipeline.media.playout import Playout
from pipeline.media.who_hears import HEARS, Role
from tests.support.speech.bridged import RATE_HZ, ByHand, FakeLeg
from tests.support.speech.leg import Listener
from tests.support.speech.tones import share_at, tone

FRAME = RATE_HZ // 50
HZ = {
    Role.CALLER: 400.0,
    Role.COLLEAGUE: 700.0,
    Role.MONITOR: 1100.0,
    Role.WHISPER: 1600.0,
    Role.BARGE: 2300.0,
    Role.TAKE_OVER: 3100.0,
    Role.AGENT: 250.0,
}

# By listener: whether they hear another of CALLER, COLLEAGUE, MONITOR, WHISPER, BARGE, TAKE_OVER; the agent.
MATRIX = """
caller       yes yes no  no  yes yes yes
colleague    yes yes no  yes yes yes yes
monitor      yes yes no  yes yes yes yes
whisper      yes yes no  yes yes yes yes
barge        yes yes no  yes yes yes yes
take_over    yes yes no  yes yes yes yes
agent        yes yes no  no  yes no  -
paused_agent no  no  no  no  no  no  -
"""
CELLS = [
    (Role(row.split()[0]), speaker, cell == "yes")
    for row in MATRIX.strip().splitlines()
    for speaker, cell in zip(HZ, row.split()[1:], strict=True)
    if cell != "-"
]


def heard_by(listener: Role, speaker: Role) -> Pcm:
    """Half a second of what `listener` is sent while everybody but `speaker` is silent."""
    clock, session, playout = ByHand(), Listener(), Playout(RATE_HZ)
    bridge = Bridge(Pacer(clock), rate_hz=RATE_HZ)
    legs = {role: FakeLeg() for role in HZ if role is not Role.AGENT}
    second = {role: FakeLeg() for role in legs}  # of each role another one, who is the listener
    for each in (legs, second):
        for role, leg in each.items():
            bridge.add(leg, role=role)
    bridge.attach(session, playout)
    if listener is Role.PAUSED_AGENT:
        bridge.role = Role.PAUSED_AGENT
    if speaker is Role.AGENT:
        playout.begin().begin_piece("x")
        playout.write(tone(HZ[speaker], 1.0, RATE_HZ))
    sound, quiet = tone(HZ[speaker], 1.0, RATE_HZ), np.zeros(FRAME, np.int16)
    sent: list[Pcm] = []
    for at in range(40):
        for role, leg in legs.items():
            leg.say(sound[at * FRAME : (at + 1) * FRAME] if role is speaker else quiet)
        clock.pass_frame()
        mine = second[listener].hear() if listener in second else None
        sent += [mine] if mine is not None else []
    frames = session.frames if listener in (Role.AGENT, Role.PAUSED_AGENT) else sent
    return np.concatenate([*frames[-25:], np.zeros(0, np.int16)])


@pytest.mark.parametrize(("listener", "speaker", "hears"), CELLS)
async def test_each_role_hears_whom_it_may(listener: Role, speaker: Role, hears: bool) -> None:
    heard = heard_by(listener, speaker)
    assert bool(len(heard) and share_at(heard, RATE_HZ, HZ[speaker]) > 0.8) is hears
    assert hears or not np.any(heard)


async def test_every_role_has_a_row() -> None:
    assert set(HEARS) == set(Role)
    assert {listener for listener, _, _ in CELLS} == set(Role)


async def test_an_agent_who_is_paused_is_heard_by_nobody() -> None:
    bridge, clock = _bridge()
    caller, boss, playout = FakeLeg(), FakeLeg(), Playout(RATE_HZ)
    bridge.add(caller)
    bridge.add(boss, role=Role.TAKE_OVER)
    bridge.role = Role.PAUSED_AGENT
    bridge.attach(Listener(), playout)
    playout.begin().begin_piece("x")
    playout.write(tone(250, 1.0, RATE_HZ))
    for _ in range(20):
        boss.say(tone(3100, 0.02, RATE_HZ))
        clock.pass_frame()
    heard = _waiting(caller)
    assert heard
    assert share_at(np.concatenate(heard), RATE_HZ, 3100) > 0.8


async def test_supervisors_alone_keep_no_call() -> None:
    bridge, _ = _bridge()
    caller, session = FakeLeg(), Listener()
    bridge.add(caller)
    for role in (Role.MONITOR, Role.WHISPER, Role.BARGE, Role.TAKE_OVER):
        bridge.add(FakeLeg(), role=role)
    bridge.attach(session, None)
    assert caller.listener is not None
    caller.listener.leg_ended("remote", 0.0)
    assert session.ended == ["remote"]


async def test_a_role_that_changes_is_heard_at_once() -> None:
    bridge, clock = _bridge()
    caller, boss = FakeLeg(), FakeLeg()
    bridge.add(caller)
    bridge.add(boss, role=Role.MONITOR)
    for role, audible in ((Role.MONITOR, False), (Role.BARGE, True), (Role.WHISPER, False)):
        bridge.change_role(boss, role)
        for _ in range(10):
            boss.say(tone(900, 0.02, RATE_HZ))
            clock.pass_frame()
            last = caller.hear()
        assert (last is not None and bool(np.any(last))) is audible


async def test_a_session_goes_on_when_others_are_patched_in() -> None:
    clock, alone, session, playout = ByHand(), FakeLeg(), Listener(), Playout(RATE_HZ)
    leg = PatchedLeg(alone, Pacer(clock), lambda: len(session.frames) * FRAME)
    leg.attach(session, playout)
    assert alone.listener is session  # nothing lies between
    assert alone.source is playout
    playout.begin().begin_piece("x")
    playout.write(tone(250, 1.0, RATE_HZ))
    said = []
    for _ in range(10):
        alone.say(tone(400, 0.02, RATE_HZ))
        said.append(alone.hear())
        playout.sent(clock.time())
    boss = FakeLeg()
    leg.patched().add(boss, role=Role.MONITOR)
    for _ in range(20):
        alone.say(tone(400, 0.02, RATE_HZ))
        clock.pass_frame()
        said.append(alone.hear())
    assert session.positions == sorted(set(session.positions))
    assert share_at(np.concatenate([frame for frame in said if frame is not None]), RATE_HZ, 250) > 0.9
    heard = _waiting(boss)
    assert share_at(heard[-1], RATE_HZ, 400) > 0.2
    assert session.ended == []


def _waiting(leg: FakeLeg) -> list[Pcm]:
    frames = []
    while (frame := leg.hear()) is not None:
        frames.append(frame)
    return frames


def _bridge() -> tuple[Bridge, ByHand]:
    clock = ByHand()
    return Bridge(Pacer(clock), rate_hz=RATE_HZ), clock
