"""RPC methods of a room's agent that are about who is heard: `mute_agent` and `push_to_talk`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial

from mediaserver.rooms.errors import RoomError
from mediaserver.rooms.participant import Participant
from mediaserver.rooms.room import Room
from pipeline.media.bridge import Bridge
from pipeline.net.untrusted import NotJson, read_json

Method = Callable[[Participant, str], str]
"""Payload in, payload out; raises `RoomError`."""


def methods_of(room: Room, bridge: Bridge) -> Mapping[str, Method]:
    """Gives the methods of the agent in `room`, whose legs are in `bridge`."""
    return {"mute_agent": partial(_mute_agent, room, bridge), "push_to_talk": partial(_push_to_talk, room)}


def _mute_agent(room: Room, bridge: Bridge, who: Participant, payload: str) -> str:
    """Sets whether the agent's voice is heard in the room; its words are shown at the same pace all the
    same."""
    muted = _wanted(who, payload, "muted")
    bridge.mute_source(muted)
    room.mute(room.agent, room.agent_track.sid, muted, _now())
    return json.dumps({"muted": muted})


def _push_to_talk(room: Room, who: Participant, payload: str) -> str:
    """Sets whether the participant who calls holds the key: without it nobody hears them."""
    pressed = _wanted(who, payload, "pressed")
    who.key_released = not pressed
    room.changed(who, _now())
    return json.dumps({"pressed": pressed})


def _wanted(who: Participant, payload: str, name: str) -> bool:
    """Returns the boolean `name` of a JSON payload. Raises `RoomError`."""
    if not who.permissions.publish:
        raise RoomError("only who takes part may do that")
    try:
        wanted = read_json(payload.encode())
    except NotJson:
        wanted = None
    value = wanted.get(name) if isinstance(wanted, dict) else None
    if not isinstance(value, bool):
        raise RoomError(f'the payload is {{"{name}": true}} or {{"{name}": false}}')
    return value


def _now() -> float:
    return asyncio.get_running_loop().time()
