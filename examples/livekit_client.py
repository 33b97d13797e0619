"""Writes to an agent with LiveKit's own Python SDK (`pip install livekit`) and prints what both say:
python livekit_client.py SERVER_URL PARTICIPANT_TOKEN "yes please"   # both from web-calls/connect"""

from __future__ import annotations

import asyncio
import sys

from livekit import rtc


async def talk(url: str, token: str, words: str) -> None:
    """Waits for the agent to listen (some never do), sends `words`, waits for the hang-up."""
    room, over, listening = rtc.Room(), asyncio.Event(), asyncio.Event()
    streams: asyncio.Queue[tuple[rtc.TextStreamReader, str] | None] = asyncio.Queue()

    async def show() -> None:
        while opened := await streams.get():  # one after another: the SDK keeps no order between streams
            reader, speaker = opened
            text = await reader.read_all()
            if (reader.info.attributes or {}).get("lk.transcription_final") == "true":
                print(f"{speaker}: {text}", flush=True)

    def state(changed: dict[str, str], who: rtc.Participant) -> None:
        if changed.get("lk.agent.state") == "listening":
            listening.set()

    showing = asyncio.create_task(show())
    room.register_text_stream_handler("lk.transcription", lambda *opened: streams.put_nowait(opened))
    room.on("participant_attributes_changed", state)
    room.on("disconnected", lambda reason: over.set())
    await room.connect(url, token)
    await asyncio.wait(
        [asyncio.create_task(it.wait()) for it in (listening, over)], return_when="FIRST_COMPLETED"
    )
    if not over.is_set():
        await room.local_participant.send_text(words, topic="lk.chat")
    await over.wait()
    streams.put_nowait(None)
    await showing


asyncio.run(talk(*sys.argv[1:4]))
