"""Messages between the server and the process of a voice (`pipeline.confinement.messages`).

Every head has `kind`; every head except that of READY has `number`, the number of the request.

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
    """The beginning of a word: the index of its first character in the text, and of its first sample."""

    position: int
    sample: int
