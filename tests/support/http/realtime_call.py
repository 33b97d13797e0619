"""A caller on the line with an agent that hears and speaks by itself: the whole server, its models, and a
telephone made of two sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pipeline.audio import Pcm
from tests.support.http.chat import FakeChat, serving_chat
from tests.support.http.models import Recognizer, Voice, fake_models
from tests.support.http.realtime_server import Part, RealtimeServer, Talk, realtime_server
from tests.support.http.shop import Shop, shop
from tests.support.node.node import KEY, Client, Site, bearer, running, until_final, write_site
from tests.support.sip.raw_call import FRAME, RawCall
from tests.support.speech.conversation import voice

NUMBER = "+14155550108"

AGENT = """
[[agent]]
id = "7b0f7e7e-4f5a-4b8e-9f43-5f0f2c3f9f88"
company = "acme"
name = "Speaks"
direction = "inbound"
trunk = "carrier"
phone_number = "+14155550108"
transfer_targets = {{ desk = "+14155550188" }}
{engines}
[agent.realtime]
url = "{realtime}"
model = "gpt-realtime"
api_key = "canary-key"
voice = "marin"
{settings}
[agent.llm]
base_url = "{chat}"
model = "test"
prompt = "You are kind."
[[agent.llm.tool]]
name = "find_order"
description = "Where the order is."
method = "GET"
url = "{shop}/orders/{{number}}"
parameters = {{ properties = {{ number = {{ type = "integer" }} }}, required = ["number"] }}
[[agent.llm.tool]]
name = "cancel_order"
description = "Cancel the order."
url = "{shop}/cancel"
confirm = "Shall i cancel the order?"
[[agent.llm.ask]]
name = "card"
description = "the number of the card"
digits = 4
mask = true
"""


OPENED = "[The caller is on the line. You speak first.]"
GREETING: tuple[Part, ...] = ("good morning caller",)

Answers: TypeAlias = Mapping[str, Sequence[Part]]
"""What the model answers to the caller's words, to what it is told, and to what a tool has answered."""


@dataclass
class Scene:
    """A call in progress: the service, the cascade's model and voice, the caller's telephone."""

    service: RealtimeServer
    chat: FakeChat
    ears: Recognizer
    voice: Voice
    shop: Shop
    site: Site
    client: Client
    call: RawCall
    frames: list[tuple[float, Pcm]] = field(default_factory=list)

    async def says(self, words: str, *, for_s: float = 1.0) -> float:
        """The caller says something; loop time of its last sound."""
        self.ears.answer = words
        await self.play(voice(for_s))
        return asyncio.get_running_loop().time()

    async def play(self, samples: Pcm) -> None:
        for frame in samples[: samples.size // FRAME * FRAME].reshape(-1, FRAME):
            await self.call.play(frame)
            self.frames += self.call.heard()

    async def hears(self, wanted: Callable[[], bool], *, patience_s: float = 15.0) -> None:
        """The caller is silent until something is so."""
        due = asyncio.get_running_loop().time() + patience_s
        while not wanted():
            await self.play(np.zeros(5 * FRAME, np.int16))
            assert asyncio.get_running_loop().time() < due, self.story()

    async def quiet(self, seconds: float = 0.5) -> None:
        """The caller is silent until the agent has been for so long."""
        await self.hears(lambda: self.is_quiet(seconds))

    def is_quiet(self, seconds: float) -> bool:
        frames = [frame for _, frame in self.frames[-round(seconds * 50) :]]
        heard = any(np.abs(frame.astype(int)).max() > 300 for _, frame in self.frames)
        return heard and all(np.abs(frame.astype(int)).max() <= 300 for frame in frames)

    @property
    def told(self) -> list[str]:
        """The words of the service's that the caller has heard."""
        return self.service.said(np.concatenate([frame for _, frame in self.frames]))

    def story(self) -> str:
        """What has happened, for a test that fails."""
        talks = [f"{each.told()}, {[one.type for one in each.got]}" for each in self.service.talks]
        return f"heard {self.told}; said {self.voice.said}; {talks}; {self.chat.requests}"

    @property
    def talk(self) -> Any:
        return self.service.talks[-1]

    async def record(self) -> dict[str, Any]:
        """Hangs up; the call's record."""
        await self.call.hang_up()
        async with self.client.get("/api/v1/calls", headers=bearer(KEY)) as listed:
            (found,) = (await listed.json())["calls"]
        return await until_final(self.client, found["callTaskId"])


@asynccontextmanager
async def scene(
    tmp_path: Path,
    answers: Answers,
    *,
    chat: FakeChat | None = None,
    settings: str = "",
    before: Callable[[RealtimeServer], None] = lambda service: None,
) -> AsyncIterator[Scene]:
    """A server with the agent, its models, and a caller who is on the line with it."""
    chat = chat or FakeChat()
    recognizer = Recognizer()

    def script(talk: Talk) -> Sequence[Part]:
        said = recognizer.answer if talk.last.startswith("<audio") else talk.last
        return answers.get(said, ["pardon me"])

    async with realtime_server(script) as service, serving_chat(chat) as completions, shop() as orders:
        before(service)
        values = {"realtime": service.url, "chat": completions.base_url, "shop": orders.url}
        site = write_site(tmp_path, more=AGENT, settings=settings, **values)
        site.reach_this_machine()
        with fake_models(recognizer) as (ears, voice_of_cascade):
            async with running(site) as (_, client), RawCall(site.sip, NUMBER) as call:
                await call.answered()
                yield Scene(service, chat, ears, voice_of_cascade, orders, site, client, call)
