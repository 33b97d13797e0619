"""Writes to an agent with LiveKit's own Python SDK (`pip install livekit`) and prints what both say:
python livekit_client.py SERVER_URL PARTICIPANT_TOKEN "yes please"   # both from web-calls/connect"""

from __future__ import annotations

import asyncio
import sys

from livekit import rtc


async def talk(url: str, token: str, words: str) -> None:
    """Waits for the agent to listen (some never do), sends `words`, waits for the hang-up."""
    room, over, listening, turn = rtc.Room(), asyncio.Event(), asyncio.Event(), asyncio.Lock()

    async def show(reader: rtc.TextStreamReader, speaker: str) -> None:
        async with turn:  # one stream after another: the SDK keeps no order between them
            text = await reader.read_all()
            if (reader.info.attributes or {}).get("lk.transcription_final") == "true":
                print(f"{speaker}: {text}", flush=True)

    def state(changed: dict[str, str], who: rtc.Participant) -> None:
        if changed.get("lk.agent.state") == "listening":
            listening.set()

    showing: set[asyncio.Task[None]] = set()
    handler = room.register_text_stream_handler
    handler("lk.transcription", lambda *it: showing.add(asyncio.ensure_future(show(*it))))
    room.on("participant_attributes_changed", state)
    room.on("disconnected", lambda reason: over.set())
    await room.connect(url, token)
    waits = [asyncio.create_task(it.wait()) for it in (listening, over)]
    await asyncio.wait(waits, return_when="FIRST_COMPLETED")
    if not over.is_set():
        await room.local_participant.send_text(words, topic="lk.chat")
    await over.wait()
    await asyncio.gather(*showing)


asyncio.run(talk(*sys.argv[1:4]))
