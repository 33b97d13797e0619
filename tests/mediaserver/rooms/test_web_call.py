"""A web call that is ended before its conversation has begun."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from mediaserver.calls.journal import Journal
from mediaserver.calls.services import CallProfile, CallServices
from mediaserver.queue.records import CallStatus, Outcome
from mediaserver.rooms.participant import Kind, Participant
from mediaserver.rooms.room import Room
from mediaserver.rooms.web_call import WebCall
from mediaserver.settings.tools import PreCallTool
from mediaserver.store.store import Store
from mediaserver.telemetry.metrics import Metrics
from pipeline.agent import AgentContext
from pipeline.audio.opus import RATE_HZ
from pipeline.media.bridge import Bridge
from pipeline.media.pacer import Pacer
from pipeline.media.recording import RecordingWriter
from pipeline.net.http import HttpClient
from tests.support.claims import claim

CLAIM = claim(trunk_id="", phone_number="", dial_number="")


class SlowTool:
    """Answers no request before `answers` is set."""

    def __init__(self) -> None:
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def request(self, method: str, url: str, **options: Any) -> Any:
        self.asked.set()
        await self.answers.wait()
        return type("Answer", (), {"status": 204})


class Agent:
    """Notes that it has joined a call."""

    def __init__(self) -> None:
        self.agent, self.joined = self, False

    def join(self, context: AgentContext) -> Any:
        self.joined = True
        raise AssertionError("the agent joins a call that is over")


async def test_a_call_that_is_ended_while_a_tool_is_asked_never_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool, agent, outcomes = SlowTool(), Agent(), list[Outcome]()
    async with await Store.open("", tmp_path) as store:
        services = CallServices(
            store=store,
            journal=Journal(),
            metrics=Metrics(),
            recorder=RecordingWriter(),
            recordings=tmp_path,
            lease_ms=1000,
            http=cast(HttpClient, tool),
        )
        profile = CallProfile(
            engines=cast(Any, agent),
            language="en",
            greeting="",
            records=False,
            tools=(PreCallTool(name="crm", url="http://127.0.0.1/"),),
        )
        room = Room("call-1", agent=Participant("agent", kind=Kind.AGENT), now=0.0)
        bridge = Bridge(Pacer(asyncio.get_running_loop()), rate_hz=RATE_HZ)
        call = WebCall(CLAIM, profile, services, room=room, bridge=bridge, dialled=set())

        def finish(outcome: Outcome, direction: str) -> None:
            outcomes.append(outcome)
            call.cdr.settle()

        monkeypatch.setattr(call.cdr, "finish", finish)
        running = asyncio.create_task(call.run())
        await tool.asked.wait()
        call.hang_up()
        tool.answers.set()
        await asyncio.wait_for(running, 30)
    assert not agent.joined
    assert [(each.status, each.cause, each.ended_by) for each in outcomes] == [
        (CallStatus.COMPLETED, "normal", "local")
    ]
