"""What the server and the process of a Whisper model say to each other, over stream sockets.

There is a socket for each thread of the process, with one request on it at a time; the greeting comes on
the first. A message is the length of its head (4 bytes, big-endian), the length of its samples (4 bytes), the
head (JSON) and the samples (float32, 16 kHz, one utterance after another).

| direction | head | samples |
|---|---|---|
| to the server, once | multilingual: whether the model knows more than English; or failed, or absent | |
| to the process | lengths (samples of each utterance), language, hotwords, window_s, most | all utterances |
| to the server | texts: the fields of `Decoded`, for each; or failed: what kind of error it was | |
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

LENGTHS: Final = struct.Struct("!II")

HEAD_LIMIT: Final = 1 << 20
"""No honest answer comes near it; a longer one means that the stream is out of step."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the model makes of one utterance; named as faster-whisper's segments name it. `whole`: it came to
    its end within the tokens that it was given."""

    text: str
    avg_logprob: float
    no_speech_prob: float
    whole: bool = True

    @property
    def confidence(self) -> float:
        """The geometric mean of the probabilities of its tokens."""
        return math.exp(min(0.0, self.avg_logprob))


def pack(head: Mapping[str, Any], samples: bytes = b"") -> bytes:
    """One message."""
    text = json.dumps(head).encode()
    return LENGTHS.pack(len(text), len(samples)) + text + samples


def receive(read: Callable[[int], bytes]) -> tuple[dict[str, Any], bytes]:
    """One message, from `read`, which gives so many bytes, or fewer at the end. Raises EOFError there, and
    ValueError for what is no message."""
    length, size = LENGTHS.unpack(_whole(read, LENGTHS.size))
    if length > HEAD_LIMIT:
        raise ValueError("the messages of a recogniser are out of step")
    head: dict[str, Any] = json.loads(_whole(read, length))
    return head, _whole(read, size) if size else b""


def _whole(read: Callable[[int], bytes], size: int) -> bytes:
    data = read(size)
    if len(data) < size:
        raise EOFError
    return data
