"""One answer of a model that hears and speaks, as its messages come."""

from __future__ import annotations

import asyncio
from binascii import Error as NotBase64
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from pipeline.agents.llm.history import ToolCall
from pipeline.agents.llm.realtime.spoken import Cutter, SpokenItem
from pipeline.errors import EngineError
from pipeline.net.socket_service import at

Part: TypeAlias = str | ToolCall | SpokenItem
"""A part of an answer: text for the agent's own voice, a call of a tool, or what the model says itself."""

_MAX_CALLS: Final = 20
_MAX_ARGUMENTS: Final = 20_000


class Response:
    """One answer, asked for as `number`. `id`: the service's; `came_at`: loop time at which anything of it
    came last; `begun`: a part has come; `stopped`: nobody wants the rest; `offered`: what the model says in
    it, in order, as far as there is sound."""

    __slots__ = (
        "_calls", "_items", "_line", "_unheard", "begun", "came_at", "id", "number", "offered", "parts",
        "stopped",
    )  # fmt: skip

    def __init__(self, line: Cutter, number: str, now: float) -> None:
        self.number = number
        self.id = ""
        self.came_at = now
        self.begun = self.stopped = False
        self.parts: asyncio.Queue[Part | EngineError | None] = asyncio.Queue()
        self.offered: list[SpokenItem] = []
        self._line = line
        self._items: dict[str, SpokenItem] = {}
        self._unheard: list[str] = []  # the service's messages
        self._calls = 0

    def created(self, message: Mapping[str, Any], now: float) -> None:
        """Takes the message that an answer has begun, which may be another."""
        if not self.id and at(message, "response.metadata.turn") in (None, self.number):
            self.id, self.came_at = text_at(message, "response.id"), now

    def take(self, message: Mapping[str, Any], now: float) -> None:
        """Takes a message that may be about this answer. Raises `EngineError`."""
        kind = text_at(message, "type")
        if kind in _TAKEN and self.id and text_at(message, "response_id") == self.id:
            self.came_at = now
            _TAKEN[kind](self, message)

    def stop(self) -> None:
        """Notes that nobody wants the rest."""
        self.stopped = True
        self.finish()

    def finish(self, failure: EngineError | None = None) -> None:
        """Ends what the model says in it; `failure`: in the middle."""
        for item in self._items.values():
            item.finish(broke_off=failure is not None and not self.stopped)

    def silent_items(self) -> list[str]:
        """The ids of messages of which no sound has come."""
        sounded = {item.item_id for item in self.offered}
        return [item_id for item_id in self._unheard if item_id not in sounded]

    # By kind of message -------------------------------------------------------------------------------------

    def _added(self, message: Mapping[str, Any]) -> None:
        if at(message, "item.type") == "message" and text_at(message, "item.id"):
            self._unheard.append(text_at(message, "item.id"))

    def _item(self, message: Mapping[str, Any]) -> SpokenItem:
        item_id = text_at(message, "item_id")
        if item_id not in self._items:
            place = message.get("content_index")
            content_index = place if isinstance(place, int) else 0
            self._items[item_id] = SpokenItem(self._line, item_id, content_index=content_index)
        return self._items[item_id]

    def _sound(self, message: Mapping[str, Any]) -> None:
        if self.stopped:
            return
        try:
            octets = a2b_base64(text_at(message, "delta").encode(), strict_mode=True)
        except (NotBase64, ValueError):
            raise EngineError("the model sent no sound", retryable=True) from None
        item = self._item(message)
        item.sounds(octets)
        if octets and item not in self.offered:
            self.offered.append(item)
            self._give(item)

    def _words(self, message: Mapping[str, Any]) -> None:
        self._item(message).reads(text_at(message, "delta"))

    def _written(self, message: Mapping[str, Any]) -> None:
        if text_at(message, "delta"):
            self._give(text_at(message, "delta"))

    def _item_done(self, message: Mapping[str, Any]) -> None:
        item = self._items.get(text_at(message, "item.id"))
        if item is not None:
            item.finish()
        if at(message, "item.type") != "function_call":
            return
        self._calls += 1
        if self._calls > _MAX_CALLS:
            raise EngineError("the model calls too many tools", retryable=False)
        names = ("item.call_id", "item.name", "item.arguments")
        self._give(ToolCall(*(text_at(message, name)[:_MAX_ARGUMENTS] for name in names)))

    def _goes_on(self, message: Mapping[str, Any]) -> None:
        """Takes a sign of life."""

    def _give(self, part: Part) -> None:
        self.begun = True
        self.parts.put_nowait(part)


def text_at(message: Mapping[str, Any], path: str) -> str:
    """The text at a path; "" for none."""
    found = at(message, path)
    return found if isinstance(found, str) else ""


_TAKEN: Final[Mapping[str, Callable[[Response, Mapping[str, Any]], None]]] = MappingProxyType(
    {
        "response.output_item.added": Response._added,
        "response.output_audio.delta": Response._sound,
        "response.output_audio_transcript.delta": Response._words,
        "response.output_text.delta": Response._written,
        "response.function_call_arguments.delta": Response._goes_on,
        "response.output_item.done": Response._item_done,
    }
)
