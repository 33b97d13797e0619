"""The listener of `bench.rooms.words`, in a process of its own, with LiveKit's unmodified Python SDK.

`python -m bench.rooms.words_client URL AGENT KEY FILE` joins, listens until the agent hangs up, writes what
it heard to FILE (int16, mono, 16 kHz) and prints one line of JSON: when each frame of 10 ms was heard, and
when each piece of the agent's text came."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np
from livekit import rtc

RATE_HZ: Final = 16000


class Listener:
    """One session."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.frames: list[tuple[float, bytes]] = []
        self.texts: list[tuple[float, str, str, bool]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = rtc.Room()
        self._room.on("track_subscribed", lambda track, *_: self._keep(self._listen(track)))
        self._room.on("transcription_received", self._told)
        self._room.on("disconnected", lambda reason: self.over.set())

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, track: Any) -> None:
        async for event in rtc.AudioStream(track, sample_rate=RATE_HZ, num_channels=1):
            self.frames.append((time.perf_counter(), bytes(event.frame.data)))

    def _told(self, segments: Any, *_: Any) -> None:
        now = time.perf_counter()
        self.texts += [(now, each.id, each.text, each.final) for each in segments]

    async def listen(self, session: dict[str, str]) -> None:
        """Joins with an open microphone that is silent, and listens until the room is over."""
        options = rtc.RoomOptions(auto_subscribe=True, single_peer_connection=True)
        await self._room.connect(session["serverUrl"], session["participantToken"], options)
        microphone = rtc.LocalAudioTrack.create_audio_track("mic", rtc.AudioSource(48000, 1))
        wish = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
        await self._room.local_participant.publish_track(microphone, wish)
        await asyncio.wait_for(self.over.wait(), 120)


async def _client(url: str, agent: str, key: str, file: str) -> None:
    async with aiohttp.ClientSession() as http:
        headers = {"Authorization": f"Bearer {key}"}
        connect = f"{url}/api/v1/web-calls/connect"
        async with http.post(connect, json={"agentId": agent}, headers=headers) as answer:
            session = await answer.json()
    listener = Listener()
    await listener.listen(session)
    samples = np.concatenate([np.frombuffer(frame, np.int16) for _, frame in listener.frames])
    await asyncio.to_thread(Path(file).write_bytes, samples.tobytes())
    print(json.dumps({"frames": [at for at, _ in listener.frames], "texts": listener.texts}), flush=True)
    os._exit(0)  # the SDK's native library may panic on an orderly exit


if __name__ == "__main__":
    asyncio.run(_client(*sys.argv[1:5]))
