"""What a stream has to say: a ring of frames that Python fills and the plane empties, without a lock.

One word holds both ends of the ring, frames taken in its upper half and frames written in its lower, counted
over the whole stream. The plane takes a frame, and Python adds some or takes back all that were not taken, by
one compare-and-swap each: so Python knows at once, and to the frame, what will be heard.
"""

from __future__ import annotations

from typing import Any, Final

from pipeline.audio.compiled import compiled
from pipeline.plane.atomic import exchanged
from pipeline.plane.native import I64, T

_WORD: Final = T.int64[::1]
_LOW: Final = 0xFFFFFFFF


@compiled(I64(_WORD))
def claim(word: Any) -> int:
    """Takes the next frame: its number, or -1 where there is none."""
    address = word.ctypes.data
    while True:
        both = word[0]
        taken, limit = both >> 32, both & _LOW
        if taken >= limit:
            return -1
        if exchanged(address, both, both + (1 << 32)):
            return int(taken)


@compiled(I64(_WORD, I64))
def publish(word: Any, frames: int) -> int:
    """`frames` more are in the ring. How many waited before them."""
    address = word.ctypes.data
    while True:
        both = word[0]
        if exchanged(address, both, both + frames):
            return int((both & _LOW) - (both >> 32))


@compiled(I64(_WORD, I64))
def withdraw(word: Any, most: int) -> int:
    """Takes back up to `most` of the last frames that wait; how many."""
    address = word.ctypes.data
    while True:
        both = word[0]
        back = min(most, max(0, (both & _LOW) - (both >> 32)))
        if exchanged(address, both, both - back):
            return int(back)
