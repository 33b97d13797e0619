"""Servers of models that lie, flood and hang: what all calls of the process notice of one such server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from aiohttp import web

from pipeline import registry
from pipeline.errors import EngineRefused
from pipeline.net.egress import EgressPolicy, egress_policy
from pipeline.net.model_endpoint import AT_ONCE, ModelEndpoint
from pipeline.net.web_socket import SocketEndpoint
from pipeline.speech import LONGEST_TEXT, Hypothesis
from tests.support.hostile.wild import wild_server
from tests.support.speech.conversation import voice
from tests.support.webrtc import web as site

pytestmark = pytest.mark.virtual_clock

HERE: Final = EgressPolicy(["127.0.0.0/8"])


@asynccontextmanager
async def served(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """The URL of a server that answers everything so."""
    app = web.Application()
    app.router.add_route("*", "/v1/{tail:.*}", answer)
    async with site.served(app) as url:
        yield f"{url}/v1"


class Turns:
    """Turns of the event loop; `longest`: the most things that were `seen` in one of them."""

    def __init__(self) -> None:
        self.count = self.longest = self._seen = self._at = 0

    def seen(self) -> None:
        self._seen = self._seen + 1 if self._at == self.count else 1
        self._at, self.longest = self.count, max(self.longest, self._seen)


@asynccontextmanager
async def counted() -> AsyncIterator[Turns]:
    turns = Turns()

    async def count() -> None:
        while True:
            turns.count += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count())
    try:
        yield turns
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("unit", [b"data:\n\n", b"\n", b": ping\n\n"], ids=["events", "lines", "pings"])
async def test_a_flood_of_events_does_not_keep_the_loop_from_calls(unit: bytes) -> None:
    flood = unit * (700_000 // len(unit))

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b"data: one\n\n" + flood, content_type="text/event-stream")

    async with served(answer) as base_url:
        endpoint = ModelEndpoint(base_url, allowed=HERE)
        async with counted() as turns:
            events = []
            async for data in endpoint.stream_sse("chat", {}, first_s=10, stall_s=10):
                turns.seen()
                events.append(data)
        await endpoint.close()
    assert len(events) == 1 + flood.count(b"data")
    assert turns.longest <= 2 * (AT_ONCE // len(unit) + 1)
    assert turns.count >= len(flood) // AT_ONCE // 2


@pytest.mark.parametrize("other", ["{}", "[]", "no JSON"])
async def test_a_flood_of_messages_does_not_keep_the_loop_from_calls(other: str) -> None:
    async def answer(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for _ in range(5000):
            await socket.send_str(other)
        await socket.send_str('{"last": 1}')
        await socket.receive()
        return socket

    async with served(answer) as base_url:
        endpoint = SocketEndpoint("here", headers={}, allowed=HERE)
        async with endpoint.opened(f"{base_url}/chat", {}) as socket, counted() as turns:
            message: Any = {}
            while "last" not in message:
                message = await socket.receive()
                turns.seen()
        await endpoint.close()
    assert turns.longest <= 2
    assert turns.count >= 5000


async def test_a_refusal_whose_body_does_not_come_is_one() -> None:
    """And not a late answer, which would keep the next callers from asking."""
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n"
    async with wild_server([head, b'{"error": ', 30.0]) as server:
        endpoint = ModelEndpoint(server.base_url, allowed=HERE)
        with pytest.raises(EngineRefused, match="400"):
            await endpoint.post_json("chat", {}, timeout_s=5.0)
        await endpoint.close()


async def heard_by(engine: str, options: dict[str, Any]) -> Hypothesis:
    with egress_policy(HERE):
        ears = registry.load("stt", engine, options)
    listening = ears.listen(rate_hz=8000, language="en", expected=None)
    try:
        listening.push(voice(1.0))
        heard: Hypothesis = await listening.result()
    finally:
        listening.close()
        await ears.close()
    return heard


WORDS = {"text": "Yes, please.", "words": [{"word": "yes"}, {"word": "please", "start": 0.5, "end": 0.9}]}
NEVER = [1e306, -1.0, 10**90]


@pytest.mark.parametrize("start", NEVER, ids=str)
async def test_a_word_at_a_time_that_cannot_be_costs_the_text_nothing(start: float) -> None:
    async def answer(request: web.Request) -> web.Response:
        yes = {"word": "yes", "start": start, "end": start}
        return web.json_response({**WORDS, "words": [yes, *WORDS["words"][1:]]})

    async with served(answer) as base_url:
        heard = await heard_by("openai", {"base_url": base_url})
    assert heard.text == "yes please"
    assert [(word.text, word.start_ms) for word in heard.words] == [("please", 500)]


STREAMS: Final[dict[str, Any]] = {
    "rate_hz": 8000,
    "final": {"when": {"final": True}, "text": "text", "words": "words"},
    "partial": {"when": {"final": False}, "text": "text", "adds": True},
    "finalise": {"finalise": True},
    "finalised": {"finalised": True},
    "finalise_s": 5.0,
}


@asynccontextmanager
async def streaming(*messages: dict[str, Any], times: int = 1) -> AsyncIterator[dict[str, Any]]:
    """The options of a recogniser that sends messages, each so many times, when it is asked for the words."""

    async def answer(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for each in socket:
            if each.type is web.WSMsgType.TEXT:
                for message in messages:
                    for _ in range(times):
                        await socket.send_json(message)
                await socket.send_json({"finalised": True})
        return socket

    async with served(answer) as base_url:
        yield {**STREAMS, "url": f"{base_url.replace('http', 'ws', 1)}/chat"}


@pytest.mark.parametrize("start", NEVER, ids=str)
async def test_a_streamed_word_at_a_time_that_cannot_be_costs_the_text_nothing(start: float) -> None:
    word = {"word": "yes", "start": start, "end": start}
    async with streaming({"final": True, "text": "Yes.", "words": [word]}) as options:
        heard = await heard_by("websocket", options)
    assert (heard.text, heard.words) == ("yes", ())


@pytest.mark.parametrize("final", [True, False])
async def test_a_recogniser_that_does_not_stop_fills_no_memory(final: bool) -> None:
    word = {"word": "yes", "start": 0.1, "end": 0.2}
    message = {"final": final, "text": "yes " * 100, "words": [word] * 100}
    async with streaming(message, times=300) as options:
        heard = await heard_by("websocket", options)
    assert "yes yes" in heard.text
    assert len(heard.text) <= 2 * LONGEST_TEXT
    assert len(heard.words) <= len(heard.text.split())
