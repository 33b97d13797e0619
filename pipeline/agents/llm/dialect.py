"""The dialect of the chat API of one model's server, learned from its refusals.

Reasoning models need `max_completion_tokens` where all others know `max_tokens`, and refuse a `temperature`
(OpenAI, Azure). Neither a model's name nor its server's shows which."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from types import MappingProxyType
from typing import Any, Final

from pipeline.agents.llm.attempt import ChatEndpoint
from pipeline.engines.aio import closing
from pipeline.errors import EngineRefused

log = logging.getLogger(__name__)

INSTEAD: Final[Mapping[str, str]] = MappingProxyType(
    {"max_tokens": "max_completion_tokens", "temperature": ""}
)
"""Fields of a request that a server may not know, and what is sent in their place; "" for nothing."""


class Dialect:
    """A `ChatEndpoint` that repeats a refused request without the fields that were refused, and leaves those
    out of all later requests."""

    def __init__(self, endpoint: ChatEndpoint) -> None:
        self._endpoint = endpoint
        self._unknown: frozenset[str] = frozenset()

    async def stream_sse(
        self, path: str, body: Mapping[str, Any], *, first_s: float, stall_s: float
    ) -> AsyncGenerator[str, None]:
        """Posts `body` without refused fields; yields the data of each event. `first_s` bounds all attempts
        together. Raises `EngineError`."""
        unknown, begun = self._unknown, False
        until = _now() + first_s
        while True:
            left_s = until - _now()
            events = self._endpoint.stream_sse(path, _put(body, unknown), first_s=left_s, stall_s=stall_s)
            try:
                async with closing(events):
                    async for data in events:
                        self._learn(unknown, body.get("model"))
                        begun = True
                        yield data
                return
            except EngineRefused as refusal:
                if begun or not (more := _unsupported(refusal, body) - unknown):
                    raise
                unknown |= more

    async def post_json(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> Any:
        """Posts `body` without refused fields; returns the JSON of the answer. `timeout_s` bounds all
        attempts together. Raises `EngineError`."""
        unknown = self._unknown
        until = None if timeout_s is None else _now() + timeout_s
        while True:
            left_s = None if until is None else until - _now()
            try:
                answer = await self._endpoint.post_json(path, _put(body, unknown), timeout_s=left_s)
            except EngineRefused as refusal:
                if not (more := _unsupported(refusal, body) - unknown):
                    raise
                unknown |= more
            else:
                self._learn(unknown, body.get("model"))
                return answer

    async def close(self) -> None:
        """Closes the connections of the endpoint."""
        await self._endpoint.close()

    def _learn(self, unknown: frozenset[str], model: object) -> None:
        for name in sorted(unknown - self._unknown):
            log.warning("model does not take a setting", extra={"model": model, "field": name})
        self._unknown |= unknown


def _now() -> float:
    return asyncio.get_running_loop().time()


def _unsupported(refusal: EngineRefused, body: Mapping[str, Any]) -> frozenset[str]:
    """Returns the refused fields for which `INSTEAD` has a replacement."""
    return refusal.unsupported & INSTEAD.keys() & body.keys()


def _put(body: Mapping[str, Any], unknown: frozenset[str]) -> dict[str, Any]:
    """Returns `body` with the fields that the server does not know replaced or left out."""
    put = {name: value for name, value in body.items() if name not in unknown}
    return put | {INSTEAD[name]: body[name] for name in unknown & body.keys() if INSTEAD[name]}
