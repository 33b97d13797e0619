"""Agents with a language model, and customers' systems that answer at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.agent import AgentAct, Say
from pipeline.agents.llm.agent import Llm
from pipeline.agents.llm.settings import read_settings
from pipeline.net.http import HttpAnswer, IsWhole
from tests.support.http.chat import FakeChat

BASE = {"base_url": "http://models.example/v1", "model": "m", "prompt": "You remind {{name}} of {{event}}."}

DAY = {"properties": {"day": {"type": "string", "maxLength": 20}}, "required": ["day"]}
BOOK = {
    "name": "book",
    "description": "Book a day.",
    "url": "https://crm.example/days/{day}",
    "parameters": DAY,
}
SPARE = [{"base_url": "http://spare.example/v1", "model": "spare"}]
LOOK = {"name": "look", "description": "Look up.", "method": "GET", "url": "https://crm.example/find"}


class FakeWeb:
    """Tools that answer `ok` after `takes_s`."""

    def __init__(self, *, takes_s: float = 0.0, status: int = 200, body: bytes = b"ok") -> None:
        self.takes_s, self.status, self.body = takes_s, status, body
        self.asked: list[tuple[str, str, Mapping[str, str], bytes | None]] = []
        self.finished = 0

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None,
        timeout_s: float | None = None,
        is_whole: IsWhole | None = None, is_read: bool = True,
    ) -> HttpAnswer:  # fmt: skip
        self.asked.append((method, url, headers, body))
        await asyncio.sleep(self.takes_s)
        self.finished += 1
        return HttpAnswer(self.status, {}, self.body)

    async def close(self) -> None: ...


def agent(chat: FakeChat, web: FakeWeb | None = None, *others: FakeChat, **settings: Any) -> Llm:
    """`others` are the models behind the first, where the settings have such."""
    return Llm(read_settings({**BASE, **settings}), [chat, *others], web or FakeWeb())


def words(acts: Sequence[AgentAct]) -> str:
    """What the agent says in `acts`."""
    return " ".join(act.text for act in acts if isinstance(act, Say))
