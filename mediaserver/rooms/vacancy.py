"""Reserves a web call's place among its company's concurrent calls, from the moment that a participant joins.

The conversation is stored when the first media is up, which may be seconds later. The reservation lasts until
then, so that of several who join at once nobody is removed again."""

from __future__ import annotations

from mediaserver.calls.services import CallServices
from mediaserver.errors import StoreError, Unavailable
from mediaserver.rooms.errors import RoomFull
from mediaserver.rooms.open_room import OpenRoom


async def hold_place(services: CallServices, opened: OpenRoom) -> None:
    """Reserves the place until the conversation is stored or `give_place_back` is called. Raises `RoomFull`,
    `Unavailable`."""
    try:
        verdict = await services.store.hold_place(opened.company_id, opened.room.name)
    except StoreError as error:
        raise Unavailable("Service temporarily unavailable") from error
    if verdict.rule is not None:
        raise RoomFull(verdict.reason)


def give_place_back(services: CallServices, opened: OpenRoom) -> None:
    """Releases the place of a room that closed, or whose conversation could not begin. Does nothing where no
    place is held."""
    store, name = services.store, opened.room.name
    services.journal.note(name, "place left", lambda: store.leave_leg(name), at_once=True)
