"""What a stream has to say: a ring of frames that Python fills and the plane empties, without a lock.

One word holds both ends of the ring, frames taken in its upper half and frames written in its lower, counted
over the whole stream. The plane takes a frame, and Python adds some or takes back all that were not taken, by
one compare-and-swap each: so Python knows at once, and to the frame, what will be heard.
"""

from __future__ import annotations

from typing import Any, Final

from pipeline.plane.atomic import exchanged
from pipeline.plane.native import I64, T, native

_WORDS: Final = T.int64[::1]
_LOW: Final = 0xFFFFFFFF


@native(I64, _WORDS, I64, called_by_python=True)
def claim(words: Any, number: int) -> int:
    """Takes the next frame: its number, or -1 where there is none."""
    address = words.ctypes.data + 8 * number
    while True:
        word = words[number]
        taken, limit = word >> 32, word & _LOW
        if taken >= limit:
            return -1
        if exchanged(address, word, word + (1 << 32)):
            return int(taken)


@native(I64, _WORDS, I64, I64, called_by_python=True)
def publish(words: Any, number: int, frames: int) -> int:
    """`frames` more are in the ring. How many waited before them."""
    address = words.ctypes.data + 8 * number
    while True:
        word = words[number]
        if exchanged(address, word, word + frames):
            return int((word & _LOW) - (word >> 32))


@native(I64, _WORDS, I64, I64, called_by_python=True)
def withdraw(words: Any, number: int, kept: int) -> int:
    """Takes back the frames behind the first `kept` of those that wait; how many."""
    address = words.ctypes.data + 8 * number
    while True:
        word = words[number]
        taken, limit = word >> 32, word & _LOW
        back = max(0, limit - taken - kept)
        if exchanged(address, word, word - back):
            return int(back)
