"""A service that speaks the OpenAI Realtime protocol on this machine. Each of its messages, and each that it
gets, is one of the `openai` package's types. Every word that it says is a level of its own for 400 ms."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from aiohttp import WSMsgType, web
from openai.types import realtime as types
from pydantic import BaseModel, TypeAdapter

from bench.support.codecs import from_ulaw, ulaw
from pipeline.audio import Pcm
from tests.support.webrtc.web import served

WORD_MS = 400
SHORTEST_MS = 100

_FROM_CLIENT: TypeAdapter[Any] = TypeAdapter(types.RealtimeClientEvent)
_FROM_SERVER: TypeAdapter[Any] = TypeAdapter(types.RealtimeServerEvent)


@dataclass(frozen=True)
class Call:
    """The model calls a tool."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """The server sends something else than it should."""

    data: str


@dataclass(frozen=True)
class Break:
    """The server's end of the socket goes away, as a process that is killed."""


@dataclass(frozen=True)
class Written:
    """The model writes its words instead of saying them."""

    text: str


Part: TypeAlias = str | float | Call | Raw | Break | Written
"""What an answer is made of: words that the model says, seconds of nothing, and what else happens."""

Script: TypeAlias = Callable[["Talk"], Sequence[Part]]


def strict(kind: TypeAdapter[Any], message: Any) -> Any:
    """A message as the package's type, which names all of its fields."""
    read = kind.validate_python(message)
    _check(read, str(message.get("type")))
    return read


def _check(value: Any, where: str) -> None:
    if isinstance(value, BaseModel):
        assert not value.model_extra, f"{where}: {sorted(value.model_extra or ())} is in no type"
        for name in value.model_fields_set:
            _check(getattr(value, name), f"{where}.{name}")
    elif isinstance(value, list):
        for each in value:
            _check(each, where)


@dataclass
class RealtimeServer:
    """`script`: what it answers. `pace`: seconds that a word takes to be
    made; `statuses`: what the next handshakes are refused with; `refuses`: the code with which sessions are;
    `mute`: it answers nothing; `opening_s`, `thinking_s`: until it confirms a session, and speaks."""

    script: Script
    url: str = ""
    pace: float = 0.01
    statuses: list[int] = field(default_factory=list)
    refuses: str = ""
    mute: bool = False
    opening_s: float = 0.0
    thinking_s: float = 0.0
    talks: list[Talk] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)
    levels: dict[str, int] = field(default_factory=dict)
    open: int = 0

    def level(self, word: str) -> int:
        """The level of a word's samples."""
        return self.levels.setdefault(word, 600 + 350 * (len(self.levels) % 40))

    def said(self, samples: Pcm) -> list[str]:
        """The words of which at least 70 ms are in `samples`, which are at 8 kHz."""
        if not self.levels:
            return []
        frames = samples[: samples.size // 80 * 80].reshape(-1, 80).astype(int)
        heard: list[str] = []
        last, length = "", 0
        for frame in frames:
            word = min(self.levels, key=lambda each: abs(self.levels[each] - int(np.median(frame))))
            word = word if np.abs(frame - self.levels[word]).max() < 100 else ""
            last, length = word, length + 1 if word == last else 1
            if word and length == 7:
                heard.append(word)
        return heard

    @property
    def errors(self) -> list[str]:
        """The codes of all errors that clients were told."""
        return [code for talk in self.talks for code in talk.errors]


@asynccontextmanager
async def realtime_server(script: Script) -> AsyncIterator[RealtimeServer]:
    """A running service."""
    server = RealtimeServer(script)

    async def take(request: web.Request) -> web.StreamResponse:
        server.requests.append(request)
        if server.statuses:
            return web.Response(status=server.statuses.pop(0))
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        server.open += 1
        try:
            await Talk(server, socket).run()
        finally:
            server.open -= 1
        return socket

    app = web.Application()
    app.router.add_get("/v1/realtime", take)
    async with served(app) as url:
        server.url = url.replace("http", "ws", 1) + "/v1/realtime"
        yield server


@dataclass
class Item:
    """An item of the conversation. `audio_ms`: of its sound; `cut_ms`: what was left of that, -1 for all."""

    id: str
    kind: str
    role: str = ""
    text: str = ""
    audio_ms: int = 0
    cut_ms: int = -1
    call_id: str = ""


class Talk:
    """One session. `got`: the messages of the client; `items`: the conversation as the model has it; `audio`:
    what the caller said, of each item."""

    def __init__(self, server: RealtimeServer, socket: web.WebSocketResponse) -> None:
        self.server = server
        self.socket = socket
        self.got: list[Any] = []
        self.got_at: list[tuple[float, float]] = []  # loop time, and CPU time of this process
        self.sound_at: list[float] = []  # loop times of an answer's first sound, or of its end by `Break`
        self.errors: list[str] = []
        self.items: dict[str, Item] = {}
        self.audio: list[Pcm] = []
        self.session: Any = None
        self.cancelled = 0
        self._ids = itertools.count(1)
        self._buffer = b""
        self._answer: asyncio.Task[None] | None = None
        self._answer_id = ""
        server.talks.append(self)

    def of(self, kind: str) -> list[Any]:
        """The messages of a kind that have come."""
        return [each for each in self.got if each.type == kind]

    def told(self) -> list[str]:
        """The conversation, an item a line."""
        return [f"{each.role or each.kind}: {each.text}" for each in self.items.values()]

    @property
    def last(self) -> str:
        """What the model answers to: what the caller or this server said, or the tool that has answered."""
        *_, item = self.items.values()
        if item.kind != "result":
            return item.text
        calls = (each for each in self.items.values() if each.kind == "call")
        return next(each.text for each in calls if each.call_id == item.call_id)

    @property
    def narrow(self) -> bool:
        """Whether the sound of the session is µ-law."""
        return bool(self.session.audio.output.format.type == "audio/pcmu")

    async def run(self) -> None:
        """Talks until the socket is closed."""
        await self.tell("session.created", session={"type": "realtime"})
        try:
            async for message in self.socket:
                if message.type is WSMsgType.TEXT:
                    await self.take(json.loads(message.data))
        finally:
            if self._answer is not None:
                self._answer.cancel()
                await asyncio.gather(self._answer, return_exceptions=True)

    def id(self, kind: str) -> str:
        """A new id."""
        return f"{kind}_{next(self._ids)}"

    async def tell(self, kind: str, **fields: Any) -> None:
        """Sends a message, which is one of the package's types."""
        message = {"type": kind, "event_id": self.id("event"), **fields}
        strict(_FROM_SERVER, message)
        with suppress(ConnectionError):
            await self.socket.send_json(message)

    async def error(self, code: str, about: Any) -> None:
        """Tells the client what it did wrong."""
        self.errors.append(code)
        error = {"message": code, "type": "invalid_request_error", "code": code}
        await self.tell("error", error={**error, "event_id": about.event_id})

    # From the client ----------------------------------------------------------------------------------------

    async def take(self, message: Any) -> None:
        event = strict(_FROM_CLIENT, message)
        self.got.append(event)
        self.got_at.append((asyncio.get_running_loop().time(), time.process_time()))
        take = getattr(self, "on_" + event.type.replace(".", "_"))
        await take(event)

    async def on_session_update(self, event: Any) -> None:
        if self.server.refuses:
            await self.error(self.server.refuses, event)
            return
        self.session = event.session
        await asyncio.sleep(self.server.opening_s)
        await self.tell("session.updated", session=event.session.model_dump(mode="json", exclude_unset=True))

    async def on_input_audio_buffer_append(self, event: Any) -> None:
        self._buffer += base64.b64decode(event.audio, validate=True)

    async def on_input_audio_buffer_clear(self, event: Any) -> None:
        self._buffer = b""
        await self.tell("input_audio_buffer.cleared")

    async def on_input_audio_buffer_commit(self, event: Any) -> None:
        narrow = self.session.audio.input.format.type == "audio/pcmu"
        ms = len(self._buffer) // (8 if narrow else 48)
        if ms < SHORTEST_MS:
            await self.error("input_audio_buffer_commit_empty", event)
            return
        samples = from_ulaw(self._buffer) if narrow else np.frombuffer(self._buffer, "<i2")
        self.audio.append(samples)
        self._buffer = b""
        item = self.add(Item(self.id("item"), "message", "user", f"<audio {len(self.audio)}>", ms))
        await self.tell("input_audio_buffer.committed", item_id=item.id)

    def add(self, item: Item) -> Item:
        self.items[item.id] = item
        return item

    async def on_conversation_item_create(self, event: Any) -> None:
        made = event.item
        if made.type == "message":
            text = " ".join(part.text for part in made.content)
            self.add(Item(made.id or self.id("item"), "message", made.role, text))
        elif made.type == "function_call":
            self.add(Item(self.id("item"), "call", "", made.name, call_id=made.call_id))
        elif any(each.call_id == made.call_id for each in self.items.values() if each.kind == "call"):
            self.add(Item(self.id("item"), "result", "", made.output, call_id=made.call_id))
        else:
            await self.error("invalid_tool_call_id", event)

    async def on_conversation_item_delete(self, event: Any) -> None:
        if self.items.pop(event.item_id, None) is None:
            await self.error("item_delete_invalid_item_id", event)

    async def on_conversation_item_truncate(self, event: Any) -> None:
        item = self.items.get(event.item_id)
        if item is None or item.role != "assistant":
            await self.error("item_truncate_invalid_item_id", event)
        elif event.audio_end_ms > item.audio_ms:
            await self.error("invalid_value", event)
        else:
            item.cut_ms = event.audio_end_ms
            await self.tell(
                "conversation.item.truncated",
                item_id=item.id,
                content_index=event.content_index,
                audio_end_ms=event.audio_end_ms,
            )

    async def on_response_cancel(self, event: Any) -> None:
        if self._answer is None or self._answer.done():
            await self.error("response_cancel_not_active", event)
            return
        self.cancelled += 1
        self._answer.cancel()
        await asyncio.gather(self._answer, return_exceptions=True)
        await self.done("cancelled")

    async def on_response_create(self, event: Any) -> None:
        if self._answer is not None and not self._answer.done():
            await self.error("conversation_already_has_active_response", event)
            return
        if self.server.mute:
            return
        self._answer_id = self.id("resp")
        parts = self.server.script(self)
        self._answer = asyncio.create_task(self.answer(parts, event.response))

    # Answers ------------------------------------------------------------------------------------------------

    async def done(self, status: str) -> None:
        """Ends the answer."""
        usage = {"input_tokens": 10, "output_tokens": 20, "total_tokens": 30}
        response = {"id": self._answer_id, "status": status, "usage": usage}
        await self.tell("response.done", response=response)

    async def answer(self, parts: Sequence[Part], asked: Any) -> None:
        """Makes an answer of `parts`."""
        await asyncio.sleep(self.server.thinking_s)
        response = {"id": self._answer_id, "status": "in_progress", "metadata": asked.metadata}
        await self.tell("response.created", response=response)
        for index, part in enumerate(parts):
            match part:
                case float():
                    await asyncio.sleep(part)
                case Raw():
                    await self.socket.send_str(part.data)
                case Break():
                    self.sound_at.append(asyncio.get_running_loop().time())
                    assert self.socket._req is not None
                    assert self.socket._req.transport is not None
                    self.socket._req.transport.abort()
                    return
                case Call():
                    await self.call(index, part)
                case Written():
                    await self.write(index, part.text)
                case _:
                    await self.say(index, part)
        await self.done("completed")

    async def item_of(self, kind: str, index: int, item: Mapping[str, Any]) -> None:
        """Tells that an item begins or is complete."""
        await self.tell(
            f"response.output_item.{kind}", item=item, response_id=self._answer_id, output_index=index
        )

    def message(self, index: int, text: str) -> tuple[Item, dict[str, Any], dict[str, Any]]:
        """A message of the model's: it, how it is shown, and what is said of each part of it."""
        item = self.add(Item(self.id("item"), "message", "assistant", text))
        shown = {"type": "message", "role": "assistant", "id": item.id, "content": []}
        where = {"item_id": item.id, "content_index": 0}
        return item, shown, {**where, "response_id": self._answer_id, "output_index": index}

    async def say(self, index: int, text: str) -> None:
        """Says words."""
        item, shown, where = self.message(index, text)
        await self.item_of("added", index, shown)
        for place, word in enumerate(text.split()):
            await asyncio.sleep(self.server.pace)
            spaced = f"{' ' * (place > 0)}{word}"
            await self.tell("response.output_audio_transcript.delta", delta=spaced, **where)
            if place == 0:
                self.sound_at.append(asyncio.get_running_loop().time())
            item.audio_ms += WORD_MS
            await self.tell("response.output_audio.delta", delta=self.sound(word), **where)
        await self.item_of("done", index, shown)

    def sound(self, word: str) -> str:
        """A word's sound."""
        size = (8 if self.narrow else 24) * WORD_MS
        samples = np.full(size, self.server.level(word), np.int16)
        return base64.b64encode(ulaw(samples) if self.narrow else samples.astype("<i2").tobytes()).decode()

    async def write(self, index: int, text: str) -> None:
        """Writes words."""
        _, shown, where = self.message(index, text)
        await self.item_of("added", index, shown)
        await self.tell("response.output_text.delta", delta=text, **where)
        await self.item_of("done", index, shown)

    async def call(self, index: int, call: Call) -> None:
        """Calls a tool."""
        item = self.add(Item(self.id("item"), "call", "", call.name, call_id=self.id("call")))
        shown = {"type": "function_call", "id": item.id, "call_id": item.call_id, "name": call.name}
        await self.item_of("added", index, {**shown, "arguments": ""})
        await self.item_of("done", index, {**shown, "arguments": json.dumps(call.arguments)})
