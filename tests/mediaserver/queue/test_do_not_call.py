"""Who asks an agent never to be called again is never called again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.support.stub import Stub
from pipeline import registry
from pipeline.agent import AgentAct, AgentContext, AgentEvent, AgentReport, DoNotCall, HangUp
from tests.support.node.node import KEY, OUTBOUND, bearer, running, write_site
from tests.support.node.store import ENGINES, Clock, company, on_engine, opened, settings
from tests.support.sip.raw_call import RawCall

FRONT_DESK = "+14155550101"


REASONS = [
    ("asked not to be called", "asked not to be called"),
    ("told \0 me \ud83d", "told \ufffd me \ufffd"),
]
"""What an agent says, and what is written; the second is what models make of half an emoji."""


class Obliging(Stub):
    """An agent that has heard enough."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def join(self, context: AgentContext) -> Obliging:
        return self

    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        yield DoNotCall(self.reason)
        yield HangUp("as you wish")

    def report(self) -> AgentReport:
        return AgentReport(
            answers={"why": self.reason}, extracted={"score": float("nan"), "why": self.reason}
        )


@contextmanager
def obliging(reason: str) -> Iterator[None]:
    registry.register("agent", "script", lambda options: Obliging(reason))
    try:
        yield
    finally:
        registry.unregister("agent", "script")


@pytest.mark.parametrize(("reason", "written"), REASONS, ids=["plain", "odd"])
async def test_the_number_of_who_asked_is_on_the_list_and_not_dialled_again(
    tmp_path: Path, reason: str, written: str
) -> None:
    site = write_site(tmp_path)
    with obliging(reason):
        async with running(site) as (_, client):
            async with RawCall(site.sip, FRONT_DESK) as call:
                await call.answered()
                call.reply(await call.asked("BYE", patience_s=30))
            headers = bearer(KEY)
            numbers: list[dict[str, str]] = []
            async with asyncio.timeout(30):
                while not numbers:
                    async with client.get("/api/v1/do-not-call", headers=headers) as answer:
                        numbers = (await answer.json())["numbers"]
            (listed,) = numbers
            assert (listed["phoneNumber"], listed["reason"]) == ("+14155550177", written)
            body = {"agentId": OUTBOUND, "phoneNumber": "4155550177", "promptVariables": {"name": "Bo"}}
            async with client.post("/api/v1/calls/outbound", json=body, headers=headers) as answer:
                assert answer.status == 400
                assert "do-not-call" in (await answer.json())["error"]
            (call_id,) = await finished(client)
            async with client.get(f"/api/v1/calls/{call_id}", headers=headers) as answer:
                analysis = (await answer.json())["analysis"]
            assert analysis["answers"] == {"why": written}
            assert analysis["extracted"] == {"score": None, "why": written}


async def finished(client: Any) -> list[str]:
    """The ids of the calls that are over, once there is one."""
    async with asyncio.timeout(30):
        while True:
            query = {"status": "COMPLETED"}
            async with client.get("/api/v1/calls", params=query, headers=bearer(KEY)) as answer:
                calls = (await answer.json())["calls"]
            if calls:
                return [call["callTaskId"] for call in calls]


@pytest.mark.parametrize("engine", ENGINES)
async def test_numbers_are_listed_as_they_are_dialled_however_a_trunk_spells_them(
    tmp_path: Path, engine: str
) -> None:
    with on_engine(engine, tmp_path):
        async with opened(tmp_path, Clock(), settings(company("acme"))) as store:
            assert await store.opt_out("acme", "0500000001", reason="asked")
            assert not await store.opt_out("acme", "+966 50 000 0001")
            assert not await store.opt_out("acme", "anonymous")
            assert not await store.opt_out("acme", "")
            assert not await store.opt_out("nobody", "ann")
            listed = (await store.do_not_call("acme")).items
    assert [(each.phone_number, each.reason) for each in listed] == [("+966500000001", "asked")]
