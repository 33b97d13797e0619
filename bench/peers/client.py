"""Callers of the peers: `python -m bench.peers.client KIND FIRST_PORT SESSIONS SECONDS`.

KIND is the protocol on the websocket: "pipecat" (its `frames.proto`) or "pcm" (20 ms of int16 at 8 kHz). Each
caller says a recording of a person (those of `bench.call.people`), waits for the answer, hears it and pauses.
Prints `begin` and `end` around the measured time, then the response times in milliseconds as one line of
JSON: from the last frame of the recording being sent to the first loud one."""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from bench.call.impaired_line import linear
from bench.call.people import utterances
from bench.peers.stubs import LINE_HZ

FRAME_S: Final = 0.02
SETTLE_S: Final = 6.0
WAIT_S: Final = 4.0
LOUD: Final = 500

Code = Callable[[bytes], bytes]


@cache
def voices() -> list[list[bytes]]:
    """Returns the frames of each recording, int16 at 8 kHz."""
    return [
        [linear()[np.frombuffer(each, np.uint8)].astype("<i2").tobytes() for each in said]
        for said in utterances()
    ]


class Caller:
    """One caller on one websocket."""

    def __init__(self, encode: Code, decode: Code, seed: int) -> None:
        self.responses_ms: list[float] = []
        self.missed = 0
        self.recording = False
        self._encode, self._decode = encode, decode
        self._rng = random.Random(seed)
        self._waiting_since = self._heard_at = 0.0

    async def run(self, url: str) -> None:
        """Calls until it is cancelled."""
        async with connect(url, max_size=None, compression=None) as socket, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hear(socket))
            tasks.create_task(self._talk(socket))

    async def _talk(self, socket: ClientConnection) -> None:
        due, silence = time.monotonic() + self._rng.random(), bytes(320)
        frames: Iterator[bytes] = iter(())
        talking, begins_at = False, due + 1.0
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due += FRAME_S
            now = time.monotonic()
            if not talking and not self._waiting_since and now > begins_at:
                talking, frames = True, iter(self._rng.choice(voices()))
            frame = next(frames, None) if talking else None
            await socket.send(self._encode(frame or silence))
            if talking and frame is None:
                talking, self._waiting_since = False, now - FRAME_S
            if self._waiting_since and now - self._waiting_since > WAIT_S:
                self.missed += self.recording
                self._waiting_since = 0.0
            if self._waiting_since or now - self._heard_at < 0.3:
                begins_at = now + self._rng.uniform(1.0, 2.5)

    async def _hear(self, socket: ClientConnection) -> None:
        async for message in socket:
            samples = np.frombuffer(self._decode(bytes(message)), "<i2")
            if not samples.size or np.abs(samples.astype(np.int32)).mean() < LOUD:
                continue
            self._heard_at = time.monotonic()
            if self._waiting_since:
                if self.recording:
                    self.responses_ms.append((self._heard_at - self._waiting_since) * 1000)
                self._waiting_since = 0.0


def codes(kind: str) -> tuple[Code, Code]:
    """Returns what encodes and decodes the messages of a protocol."""
    if kind == "pcm":
        return (lambda pcm: pcm), (lambda message: message)
    frames_pb2: Any = importlib.import_module("pipecat.frames.protobufs.frames_pb2")  # pcm needs no Pipecat

    def encode(pcm: bytes) -> bytes:
        frame: Any = frames_pb2.Frame()
        frame.audio.audio, frame.audio.sample_rate, frame.audio.num_channels = pcm, LINE_HZ, 1
        return bytes(frame.SerializeToString())

    def decode(message: bytes) -> bytes:
        frame: Any = frames_pb2.Frame.FromString(message)
        return bytes(frame.audio.audio) if frame.WhichOneof("frame") == "audio" else b""

    return encode, decode


async def call(kind: str, first_port: int, sessions: int, seconds: float) -> dict[str, Any]:
    """Runs the callers, and returns their response times and missed answers."""
    callers = [Caller(*codes(kind), seed=number) for number in range(sessions)]
    calls = [
        asyncio.create_task(each.run(f"ws://127.0.0.1:{first_port + number}"))
        for number, each in enumerate(callers)
    ]
    for wanted, event, wait_s in ((True, "begin", SETTLE_S), (False, "end", seconds)):
        await asyncio.sleep(wait_s)
        for each in callers:
            each.recording = wanted
        print(event, flush=True)
    failed = sum(task.done() for task in calls)
    for task in calls:
        task.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    responses = [ms for each in callers for ms in each.responses_ms]
    return {"responses_ms": responses, "missed": sum(each.missed for each in callers), "failed": failed}


if __name__ == "__main__":
    arguments = sys.argv[1:]
    result = asyncio.run(call(arguments[0], int(arguments[1]), int(arguments[2]), float(arguments[3])))
    print(json.dumps(result), flush=True)
