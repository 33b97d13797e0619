"""The participant of `bench.rooms.join`, in a process of its own, with LiveKit's unmodified Python SDK.

`python -m bench.rooms.join_client URL AGENT KEY` prints one line of JSON: milliseconds of each join's steps.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any, Final

import aiohttp
import numpy as np
from livekit import rtc

LOUD: Final = 300.0
ROUNDS: Final = 12
WARM: Final = 2
"""The first joins load the SDK's native library."""


async def _join(http: aiohttp.ClientSession, url: str, agent: str, key: str) -> dict[str, float]:
    """Joins once; returns milliseconds from the request to the token, to the room, to the sound."""
    heard: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    room, tasks = rtc.Room(), set()

    async def listen(track: Any) -> None:
        async for event in rtc.AudioStream(track, sample_rate=16000, num_channels=1):
            samples = np.frombuffer(event.frame.data, np.int16).astype(np.float64)
            if np.sqrt(np.mean(samples**2)) > LOUD and not heard.done():
                heard.set_result(time.perf_counter())

    room.on("track_subscribed", lambda track, *_: tasks.add(asyncio.ensure_future(listen(track))))
    began = time.perf_counter()
    async with http.post(
        f"{url}/api/v1/web-calls/connect",
        json={"agentId": agent},
        headers={"Authorization": f"Bearer {key}"},
    ) as answer:
        session = await answer.json()
    token = time.perf_counter()
    options = rtc.RoomOptions(auto_subscribe=True, single_peer_connection=True)
    await room.connect(session["serverUrl"], session["participantToken"], options)
    joined = time.perf_counter()
    source = rtc.AudioSource(48000, 1)
    microphone = rtc.LocalAudioTrack.create_audio_track("mic", source)
    wish = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
    publishing = asyncio.ensure_future(room.local_participant.publish_track(microphone, wish))
    sound = await asyncio.wait_for(heard, 20)
    await publishing
    await room.disconnect()
    return {
        name: (at - began) * 1000 for name, at in (("token", token), ("joined", joined), ("sound", sound))
    }


async def _client(url: str, agent: str, key: str) -> None:
    async with aiohttp.ClientSession() as http:
        joins = [await _join(http, url, agent, key) for _ in range(WARM + ROUNDS)]
    print(json.dumps(joins[WARM:]), flush=True)
    os._exit(0)  # the SDK's native library may panic on an orderly exit


if __name__ == "__main__":
    asyncio.run(_client(*sys.argv[1:4]))
