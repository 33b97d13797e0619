"""What passes between the server and a process of PJSIP: each frame is a SIP message, or a JSON object.

One socket of datagrams that arrive in order carries both, so that a command never overtakes the message
before it. A command names its verb in "do", an event what happened in "event"; "call" is the call's key,
which is its Call-ID in PJSIP."""

from __future__ import annotations

import json
from typing import Any, Final

MAX_FRAME: Final = 1 << 16
"""Bytes of the largest frame, as of a datagram."""

CALLS_LIMIT: Final = 4
"""Calls of one process: PJSUA_MAX_CALLS of the wheel, which the library clips to in silence."""

BEAT_S: Final = 1.0
"""Seconds between two signs of life of a process."""


def command(verb: str, call: str = "", **fields: object) -> bytes:
    """Returns the frame of a command to the process."""
    return json.dumps({"do": verb, "call": call, **fields}).encode()


def event(name: str, call: str = "", **fields: object) -> bytes:
    """Returns the frame of an event of the process."""
    return json.dumps({"event": name, "call": call, **fields}).encode()


def read(frame: bytes) -> dict[str, Any] | None:
    """Returns a command or an event; None for a SIP message."""
    if not frame.startswith(b"{"):
        return None
    found = json.loads(frame)
    return found if isinstance(found, dict) else {}
