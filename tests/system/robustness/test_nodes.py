"""Two nodes of one database, in processes of their own: what must be counted once is counted once."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.support.hostile.trap import Trap
from tests.support.node import postgres
from tests.support.node.node import KEY, OUTBOUND, ServerProcess, bearer
from tests.support.node.nodes import nodes_of, write_nodes
from tests.support.node.races import Race, among
from tests.support.sip.raw_call import RawCall
from tests.support.udp import bound
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.peer]

SERVER_KEY = "the-servers-own-admin-key"
FRONT_DESK = "+14155550101"

PLACE = "/api/v1/calls/outbound"
COMPANY = "contact_limit = { calls = 3, per_minutes = 60 }\nmax_concurrent_calls = 100\n"


class Nodes:
    """The servers, a client of each, and the carrier of both."""

    def __init__(
        self, processes: list[ServerProcess], sessions: list[aiohttp.ClientSession], trap: Trap
    ) -> None:
        self.processes = processes
        self.sessions = sessions
        self.trap = trap

    async def place(self, node: int, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
        """Asks one of them."""
        session = self.sessions[node % len(self.sessions)]
        async with session.post(PLACE, json=body, headers=bearer(KEY) | headers) as answer:
            return answer.status, await answer.json()

    async def ask(
        self, node: int, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        """Asks one of them as the server's administrator."""
        everything = bearer(SERVER_KEY) | headers
        async with self.sessions[node].request(method, path, json=body, headers=everything) as answer:
            content = await answer.read()
            return answer.status, json.loads(content) if answer.content_type.endswith("json") else content


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        database = stack.enter_context(postgres.database())
        sites = write_nodes(tmp_path_factory.mktemp("nodes"), database, company=COMPANY)
        trap = await stack.enter_async_context(bound(Trap(), port=sites[0].carrier))
        processes = stack.enter_context(nodes_of(sites))
        sessions = [
            await stack.enter_async_context(aiohttp.ClientSession(f"http://127.0.0.1:{site.http}"))
            for site in sites
        ]
        yield Nodes(processes, sessions, trap)


def to(number: str) -> dict[str, Any]:
    return {"agentId": OUTBOUND, "phoneNumber": number, "promptVariables": {"name": "Bo"}}


async def test_a_call_that_is_cancelled_at_one_node_is_not_dialled_by_the_other(nodes: Nodes) -> None:
    race = Race(among(*nodes.sessions))
    await race.run([f"+1415555{place:04d}" for place in range(200)])
    await race.settled()
    race.check(nodes.trap)


async def test_the_contact_limit_counts_what_both_nodes_are_asked_at_once(nodes: Nodes) -> None:
    number = "+14155559001"
    answers = await asyncio.gather(*(nodes.place(node, to(number)) for node in range(12)))
    refused = [body["error"] for status, body in answers if status == 429]
    assert [status for status, _ in answers].count(200) == 3
    assert len(refused) == 9
    now = datetime.now(UTC)
    assert all(datetime.fromisoformat(reason.split()[-1]) > now for reason in refused)
    batch = {"agentId": OUTBOUND, "calls": [{"phoneNumber": number, "promptVariables": {"name": "Bo"}}]}
    for node in range(2):
        status, body = await nodes.place(node, batch)
        assert (status, body["success"], body["data"]["items"][0]["action"]) == (200, False, "failed")
    await until(lambda: len(nodes.trap.invites.get(number, {})) >= 3)


async def test_a_request_that_comes_to_both_nodes_at_once_is_one_call(nodes: Nodes) -> None:
    number = "+14155559002"
    asked = (nodes.place(node, to(number), **{"Idempotency-Key": "at-once"}) for node in range(8))
    answers = await asyncio.gather(*asked)
    assert [status for status, _ in answers] == [200] * 8
    assert len({body["data"]["callTaskId"] for _, body in answers}) == 1


async def test_spaced_and_deduped_are_for_one_request_whoever_answers_it(nodes: Nodes) -> None:
    number = "+14155559003"
    calls = [{"phoneNumber": number, "promptVariables": {"name": "Bo"}}] * 2
    asked = (nodes.place(node, {"agentId": OUTBOUND, "calls": calls}) for node in range(2))
    answers = await asyncio.gather(*asked)
    for status, body in answers:
        actions = [item["action"] for item in body["data"]["items"]]
        assert (status, actions) == (200, ["queued_now", "deduped"])


async def test_what_is_made_at_one_node_is_known_to_the_other(nodes: Nodes) -> None:
    script = {"start": "bye", "step": [{"id": "bye", "say": "Goodbye.", "action": "hang_up"}]}
    engines = {"stt": {"engine": "pocketsphinx"}, "tts": {"engine": "espeak-ng"}}
    agent = {"name": "Made", "script": script, "trunk": "carrier", "phoneNumber": "+14155550100", **engines}
    status, made = await nodes.ask(0, "POST", "/api/v1/agents?company=acme", agent)
    assert status == 201, made
    status, key = await nodes.ask(0, "POST", "/api/v1/keys?company=acme", {"scopes": ["calls"]})
    assert status == 201, key
    body = to("+14155559004") | {"agentId": made["id"]}
    async with asyncio.timeout(30):
        while (await nodes.place(1, body, Authorization=f"Bearer {key['key']}"))[0] != 200:
            await asyncio.sleep(0.1)
    status, _ = await nodes.ask(1, "DELETE", f"/api/v1/keys/{key['id']}?company=acme")
    assert status == 200
    assert (await nodes.place(0, body, Authorization=f"Bearer {key['key']}"))[0] == 401


async def test_a_recording_is_had_from_every_node(nodes: Nodes) -> None:
    async with RawCall(nodes.processes[0].site.sip, FRONT_DESK) as call:
        await call.answered()
        call.reply(await call.asked("BYE", patience_s=30))
    recorded = "/api/v1/calls?company=acme&status=COMPLETED"
    async with asyncio.timeout(30):
        while not (calls := (await nodes.ask(1, "GET", recorded))[1]["calls"]):
            await asyncio.sleep(0.05)
    path = f"/api/v1/calls/{calls[0]['callTaskId']}/recording?company=acme"
    (_, here), (status, there) = [await nodes.ask(node, "GET", path) for node in (0, 1)]
    assert (status, there[:4], there) == (200, b"RIFF", here)
    status, part = await nodes.ask(1, "GET", path, Range="bytes=8-11")
    assert (status, part) == (206, b"WAVE")
    assert (await nodes.ask(1, "GET", path, Range="bytes=999999999-"))[0] == 416
    status, refused = await nodes.ask(1, "GET", path.replace("acme", "other"))
    assert (status, refused) == (404, {"error": "Call not found"})

    # The last test: the node that has the file goes away.
    await asyncio.to_thread(nodes.processes[0].stop, signal_number=signal.SIGTERM)
    status, refused = await nodes.ask(1, "GET", path)
    assert (status, refused) == (503, {"error": "The node that has this recording does not answer"})
