"""Messages between the server and the process of a voice (`pipeline.confinement.messages`).

Every head has `kind`; every head but that of READY has `number`, the request's.

| kind | direction | also in the head | payload |
|---|---|---|---|
| speak | to the voice | request: what is asked for; its `due`: when (monotonic) it is to be heard | |
| cancel | to the voice | stop or skip that request (it still ends with done) | |
| ready | to the server | rate_hz; once | |
| chunk | to the server | words: position and sample of each | samples (s16le) |
| done | to the server | the request is over | |
| failed | to the server | reason; the request is over; instead of ready: it cannot start | |
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Kind(enum.StrEnum):
    """Kinds of messages, as in the table of this module."""

    SPEAK = "speak"
    CANCEL = "cancel"
    READY = "ready"
    CHUNK = "chunk"
    DONE = "done"
    FAILED = "failed"


class Word(NamedTuple):
    """A word begins at character `position` of the text and at `sample` of the speech."""

    position: int
    sample: int
