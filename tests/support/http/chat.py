"""A chat model that says what the test says it says, in this process or behind HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aiohttp import web

from pipeline.agent import AgentAct, AgentContext, AgentEvent, Conversation
from pipeline.errors import EngineError, EngineTimeout
from tests.support.webrtc.web import served


@dataclass(frozen=True)
class Call:
    """The model asks for a tool."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)


@dataclass(frozen=True)
class Thought:
    """What the model thinks, where its server keeps that apart from the words."""

    text: str


Part: TypeAlias = str | Thought | Call | float | Exception
"""Words, thoughts, a call, seconds of nothing, or what goes wrong."""

Form: TypeAlias = str | float | Exception
Script: TypeAlias = Callable[[Mapping[str, Any]], Sequence[Part]]


def chunks(parts: Sequence[Part]) -> list[str | float | Exception]:
    """The parts as the events of a stream: words in pieces of five characters, arguments in two pieces."""
    out: list[str | float | Exception] = []
    calls = 0
    for part in parts:
        if isinstance(part, str):
            out += [_chunk({"content": part[at : at + 5]}) for at in range(0, len(part), 5)]
        elif isinstance(part, Thought):
            out.append(_chunk({"reasoning_content": part.text}))
        elif isinstance(part, Call):
            text = part.arguments if isinstance(part.arguments, str) else json.dumps(part.arguments)
            half = len(text) // 2
            head = {"index": calls, "id": f"c{calls}", "type": "function"}
            out.append(_call({**head, "function": {"name": part.name, "arguments": text[:half]}}))
            out.append(_call({"index": calls, "function": {"arguments": text[half:]}}))
            calls += 1
        else:
            out.append(part)
    out.append(_chunk({}, "tool_calls" if calls else "stop"))
    return out


def _chunk(delta: Mapping[str, Any], reason: str | None = None) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def _call(call: Mapping[str, Any]) -> str:
    return _chunk({"tool_calls": [call]})


class FakeChat:
    """A model in this process. Answers each request with the next of `answers`, or with what `script` makes
    of it. `forms` are what it says to requests that are not streamed; after so many seconds nothing."""

    def __init__(
        self, *answers: Sequence[Part], script: Script | None = None, forms: Sequence[Form] = ()
    ) -> None:
        self.answers = list(answers)
        self.script = script
        self.forms = list(forms)
        self.requests: list[dict[str, Any]] = []

    def answer(self, body: Mapping[str, Any]) -> Sequence[Part]:
        self.requests.append(json.loads(json.dumps(body)))
        if self.script is not None:
            return self.script(body)
        return self.answers.pop(0) if self.answers else ["I have nothing to add."]

    async def stream_sse(
        self, path: str, body: Mapping[str, Any], *, first_s: float, stall_s: float
    ) -> AsyncIterator[str]:
        for event in chunks(self.answer(body)):
            if isinstance(event, Exception):
                raise event
            if isinstance(event, float):
                await asyncio.sleep(event)
            else:
                yield event
        yield "[DONE]"

    async def post_json(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> Any:
        self.requests.append(json.loads(json.dumps(body)))
        form = self.forms.pop(0)
        if isinstance(form, float):
            await asyncio.sleep(min(form, timeout_s or form))
            raise EngineTimeout("late")
        if isinstance(form, Exception):
            raise form
        return {"choices": [{"message": {"content": form}}]}

    async def close(self) -> None: ...

    @property
    def last(self) -> list[dict[str, Any]]:
        """The messages of the last request."""
        messages: list[dict[str, Any]] = self.requests[-1]["messages"]
        return messages


async def acts_of(conversation: Conversation, event: AgentEvent, *, most: int = 1000) -> list[AgentAct]:
    """What the agent does about an event; after `most` acts the iterator is closed."""
    acts: list[AgentAct] = []
    stream: Any = conversation.respond(event)
    try:
        async for act in stream:
            acts.append(act)
            if len(acts) >= most:
                break
    finally:
        await stream.aclose()
    return acts


def context(**changes: Any) -> AgentContext:
    """A call."""
    about: dict[str, Any] = {
        "call_id": "call-1",
        "language": "en",
        "greeting": "",
        "variables": {"name": "Sara", "date": "2026-03-04"},
        "metadata": {},
    }
    return AgentContext(**(about | changes))


# Behind HTTP ------------------------------------------------------------------------------------------------


@dataclass
class ChatServer:
    """An OpenAI-compatible server on this machine; `base_url` is what a configuration names."""

    chat: FakeChat
    base_url: str
    statuses: list[int] = field(default_factory=list)
    """What the next requests are refused with."""


@asynccontextmanager
async def serving_chat(chat: FakeChat) -> AsyncIterator[ChatServer]:
    """`chat` at a URL."""
    server = ChatServer(chat, "")

    async def completions(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if server.statuses:
            return web.json_response({"error": {"message": "no"}}, status=server.statuses.pop(0))
        if not body.get("stream"):
            try:
                return web.json_response(await chat.post_json("", body))
            except EngineError:
                return web.json_response({"error": "no"}, status=400)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        try:
            async for event in chat.stream_sse("", body, first_s=0, stall_s=0):
                await answer.write(f"data: {event}\n\n".encode())
        except EngineError:
            if request.transport is not None:
                request.transport.abort()
        return answer

    app = web.Application()
    app.router.add_post("/v1/chat/completions", completions)
    async with served(app) as url:
        server.base_url = f"{url}/v1"
        yield server
