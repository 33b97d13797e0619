"""The conversations of this node, whatever carries them: found by id, and ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from mediaserver.calls.detail_record import CallDetailRecord


class Holder(Protocol):
    """A part of the server that holds conversations: `ActiveCalls` for the phone, `RoomRegistry` for the
    rooms."""

    def find(self, call_id: str, /) -> CallDetailRecord | None:
        """The record of the conversation of that id."""

    async def hang_up(self, call_ids: Iterable[str], /) -> None:
        """Ends those of the named conversations that this holder has."""


class Held:
    """The conversations of every holder on this node."""

    def __init__(self) -> None:
        self._holders: list[Holder] = []

    def add(self, holder: Holder) -> None:
        """Adds a holder of conversations."""
        self._holders.append(holder)

    def find(self, call_id: str) -> CallDetailRecord | None:
        """The record of the conversation of that id, if this node has it."""
        found = (holder.find(call_id) for holder in self._holders)
        return next((each for each in found if each is not None), None)

    def holds(self, call_id: str) -> bool:
        """Whether this node has the conversation `call_id`."""
        return self.find(call_id) is not None

    async def hang_up(self, call_ids: Iterable[str]) -> None:
        """Ends the conversations named, those that this node has."""
        call_ids = tuple(call_ids)
        for holder in self._holders:
            await holder.hang_up(call_ids)
