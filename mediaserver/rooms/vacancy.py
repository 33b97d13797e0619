"""A web call's place among the calls of its company, from the moment that somebody joins its room.

The conversation is written with the first media, which may be seconds later; the place is held for so long:
of several who join at once nobody is put out again.
"""

from __future__ import annotations

from mediaserver.calls.services import CallServices
from mediaserver.errors import StoreError, Unavailable
from mediaserver.rooms.errors import RoomFull
from mediaserver.rooms.open_room import OpenRoom


async def hold_place(floor: CallServices, opened: OpenRoom) -> None:
    """Holds it until the conversation is written or the place is given back. Raises `RoomFull`,
    `Unavailable`."""
    try:
        verdict = await floor.store.hold_place(opened.company_id, opened.room.name)
    except StoreError as error:
        raise Unavailable("Service temporarily unavailable") from error
    if verdict.rule is not None:
        raise RoomFull(verdict.reason)


def give_place_back(floor: CallServices, opened: OpenRoom) -> None:
    """The room is closed, or its conversation could not begin. Nothing where no place is held."""
    store, name = floor.store, opened.room.name
    floor.journal.note(name, "place left", lambda: store.leave_leg(name))
