"""Live events over HTTP: a real call is told as it goes, to its company, and from where a reader stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api import live_events
from api.schemas.live import LiveEvent
from mediaserver.settings import load
from tests.support.command_line import mediaserver
from tests.support.node.node import (
    ASKING_NUMBER,
    INBOUND,
    KEY,
    OTHER_KEY,
    SPEECH_KEY,
    Client,
    asking_agent,
    bearer,
    running,
    write_site,
)
from tests.support.sip.raw_call import RawCall
from tests.support.speech.media import speech_like

EVENTS = "/api/v1/events"
PATIENCE_S = 20.0


class Stream:
    """The events of one connection; `last` is the id of the newest that was read."""

    def __init__(self, content: Any) -> None:
        self._content = content
        self.last = ""

    async def next(self) -> dict[str, Any]:
        """The next event, which is as the schema says."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE_S):
            while True:
                line = (await self._content.readline()).decode().rstrip("\n")
                if line.startswith(":") or (not line and not fields):
                    continue
                if not line:
                    break
                name, _, value = line.partition(": ")
                fields[name] = value
        self.last = fields.get("id", self.last)
        told: dict[str, Any] = json.loads(fields["data"])
        LiveEvent.model_validate(told)
        assert fields["event"] == told["type"]
        return told

    async def until(self, kind: str) -> list[dict[str, Any]]:
        """The events up to the next of that kind."""
        found = [await self.next()]
        while found[-1]["type"] != kind:
            found.append(await self.next())
        return found


@asynccontextmanager
async def streaming(
    client: Client, key: str = KEY, query: str = "", after: str = ""
) -> AsyncIterator[Stream]:
    headers = bearer(key) | ({"Last-Event-ID": after} if after else {})
    async with client.get(EVENTS + query, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"
        await answer.content.readline()  # the reader is there
        yield Stream(answer.content)


async def talk(port: int) -> None:
    """A call in which the caller answers the agent's one question."""
    quiet = np.zeros(8000, np.int16)
    async with RawCall(port, ASKING_NUMBER) as call:
        await call.answered()
        await call.play(np.concatenate([quiet, quiet, speech_like(8000), quiet, quiet]))
        call.reply(await call.asked("BYE"))


async def test_a_call_is_told_from_its_start_to_its_end_and_again_after_a_break(tmp_path: Path) -> None:
    site = write_site(tmp_path, more=asking_agent("Would you like it?"))
    async with running(site) as (server, client):
        async with (
            streaming(client) as mine,
            streaming(client, OTHER_KEY) as others,
            streaming(client, query=f"?agentId={INBOUND}") as anothers,
        ):
            await talk(site.sip)
            told = await mine.until("call.ended")
            last = mine.last
            server.call_api.live_events.tell("call.state", _claim(told, "other"), 1, {"state": "listening"})
            assert (await others.next())["data"] == {"state": "listening"}, "nothing of acme's before it"
            server.call_api.live_events.tell(
                "call.state", _claim(told, "acme", INBOUND), 1, {"state": "hearing"}
            )
            assert (await anothers.next())["data"] == {"state": "hearing"}
        kinds = [each["type"] for each in told]
        assert kinds[:2] == ["call.started", "call.answered"]
        assert told[0]["data"]["direction"] == "inbound"
        states = {each["data"]["state"] for each in told if each["type"] == "call.state"}
        assert {"speaking", "listening", "hearing"} <= states
        words = [each["data"] for each in told if each["type"] == "call.words"]
        assert [(line["role"], line["text"]) for line in words[:2]] == [
            ("agent", "Would you like it?"),
            ("caller", "yes"),
        ]
        [turn] = [each["data"] for each in told if each["type"] == "call.turn"]
        assert turn["latencyMs"] > 0
        assert told[-1]["data"]["status"] == "COMPLETED"
        run, _, number = last.rpartition("-")
        back = int(number) - 3
        async with streaming(client, after=f"{run}-{back}") as again:
            assert [await again.next() for _ in range(3)] == told[-3:]
        async with streaming(client, after="of-another-run-7") as lost:
            assert await lost.next() == {
                "type": "lost",
                "at": None,
                "callTaskId": None,
                "agentId": None,
                "data": {"count": None},
            }


def _claim(told: list[dict[str, Any]], company_id: str, agent_id: str = "") -> Any:
    class Of:
        pass

    of: Any = Of()
    of.call_id, of.company_id, of.agent_id = told[0]["callTaskId"], company_id, agent_id
    return of


async def test_a_revoked_key_reads_no_more_however_much_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_events, "BEAT_S", 0.2)
    site = write_site(tmp_path)
    async with running(site) as (server, client):
        made = await asyncio.to_thread(
            mediaserver, "keys", "create", "--config", site.path, "--company", "acme", "--scope", "calls"
        )
        live, claim = server.call_api.live_events, _claim([{"callTaskId": "one"}], "acme")
        async with client.get(EVENTS, headers=bearer(made.stdout.strip())) as answer:
            await answer.content.readline()
            live.tell("call.words", claim, 1, {"text": "half a pair: \ud83d"})
            async with asyncio.timeout(PATIENCE_S):
                assert b"half a pair: \\ud83d" in await answer.content.readuntil(b"}\n")
            listed = await asyncio.to_thread(mediaserver, "keys", "list", "--config", site.path)
            [own] = [row.split()[0] for row in listed.stdout.splitlines() if "  API  " in row]
            await asyncio.to_thread(mediaserver, "keys", "revoke", "--config", site.path, own)
            reading = asyncio.create_task(answer.content.read())
            async with asyncio.timeout(PATIENCE_S):
                while not reading.done():
                    live.tell("call.state", claim, 1, {"state": "listening"})
                    await asyncio.sleep(0.05)


async def test_a_key_that_may_no_longer_read_calls_reads_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_events, "BEAT_S", 0.2)
    site = write_site(tmp_path)
    async with running(site) as (server, client), client.get(EVENTS, headers=bearer(KEY)) as answer:
        await answer.content.readline()
        site.change(f'key = "{KEY}"\nscopes = ["calls"]', f'key = "{KEY}"\nscopes = ["speech"]')
        await server.reload(load(site.path))
        async with asyncio.timeout(PATIENCE_S):
            await answer.content.read()
        async with client.get(EVENTS, headers=bearer(KEY)) as again:
            assert again.status == 403


async def test_the_stream_is_closed_to_other_keys_and_ends_with_the_server(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    async with running(site) as (server, client):
        async with client.get(EVENTS, headers=bearer(SPEECH_KEY)) as answer:
            assert answer.status == 403
        async with client.get(f"{EVENTS}?agent=x", headers=bearer(KEY)) as answer:
            assert (answer.status, await answer.json()) == (400, {"error": "agent: unknown field"})
        async with client.get(EVENTS, headers=bearer(KEY)) as answer:
            await answer.content.readline()
            server.call_api.live_events.close()
            async with asyncio.timeout(PATIENCE_S):
                await answer.content.read()
        async with client.get(EVENTS, headers=bearer(KEY)) as answer:
            assert answer.status == 503
