"""The LiveKit Python SDK, unmodified, in a process of its own: joins a room and does what it is told.

    python -m tests.support.webrtc.sdk_client < lines of JSON

First line: {"url", "token", "single": true|false, "wav": path | "tone": hz,
"encrypt": true|false}. Then wishes, one a line, until
{"end": true} or the end of input. It writes {"event": ...} lines, and a {"report": ...} at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import wave
from typing import Any

import numpy as np
from livekit import rtc

RATE_HZ = 48000
FRAME = RATE_HZ // 100

Samples = np.ndarray[Any, np.dtype[np.int16]]


def say(**line: Any) -> None:
    """One line for whoever started us."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def load(path: str) -> Samples:
    """A mono WAV of 16 bits at a rate that divides 48 kHz."""
    with wave.open(path) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        return np.repeat(samples, RATE_HZ // file.getframerate())


class Client:
    """One session."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.room = rtc.Room()
        self.heard: list[Samples] = []
        self._options = options
        self._tasks: set[asyncio.Task[None]] = set()
        self._source = rtc.AudioSource(RATE_HZ, 1)
        self._samples = np.zeros(0, np.int16)
        self._track = rtc.LocalAudioTrack.create_audio_track("mic", self._source)
        self._publication: rtc.LocalTrackPublication | None = None

    def keep(self, work: Any) -> None:
        """Runs `work` beside the rest."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def watch(self) -> None:
        """Writes a line for everything the room tells."""
        room = self.room
        room.on("track_subscribed", lambda track, _, who: self.keep(self._listen(track, who.identity)))
        room.on("track_unpublished", lambda it, who: say(event="unpublished", by=who.identity))
        room.on("track_published", lambda it, who: say(event="published", by=who.identity))
        room.on("track_muted", lambda who, it: say(event="muted", by=who.identity))
        room.on("local_track_subscribed", lambda it: say(event="listened to"))
        room.on("data_received", self._data)
        room.on("transcription_received", self._transcription)
        room.on("active_speakers_changed", lambda who: say(event="speakers", who=[p.identity for p in who]))
        room.on(
            "participant_attributes_changed",
            lambda a, who: say(event="attributes", changed=a, who=who.identity),
        )
        room.on("participant_connected", lambda who: say(event="came", who=who.identity))
        room.on("participant_disconnected", lambda who: say(event="left", who=who.identity))
        room.on("disconnected", lambda reason: say(event="disconnected", reason=int(reason), at=time.time()))
        room.on("reconnecting", lambda: say(event="reconnecting"))
        room.on("reconnected", lambda: say(event="reconnected"))
        room.register_text_stream_handler("lk.transcription", lambda r, who: self.keep(self._stream(r, who)))
        room.register_text_stream_handler("lk.chat", lambda r, who: self.keep(self._stream(r, who)))

    async def join(self) -> None:
        """Connects and publishes the microphone."""
        began = time.time()
        single = self._options.get("single", True)
        keys = rtc.KeyProviderOptions(shared_key=b"known to the people")
        encryption = rtc.E2EEOptions(key_provider_options=keys) if self._options.get("encrypt") else None
        pending_hangups = rtc.RoomOptions(True, single_peer_connection=single, encryption=encryption)
        await self.room.connect(self._options["url"], self._options["token"], pending_hangups)
        self.room.local_participant.register_rpc_method("locate", self._locate)
        others = {
            who.identity: {"kind": int(who.kind), "attributes": dict(who.attributes)}
            for who in self.room.remote_participants.values()
        }
        say(event="connected", others=others, took=time.time() - began, sid=self.room.local_participant.sid)
        self.keep(self._speak())
        if self._options.get("publish", True):
            await self.publish()

    async def publish(self) -> None:
        """The microphone."""
        options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
        self._publication = await self.room.local_participant.publish_track(self._track, options)
        say(event="microphone", sid=self._publication.sid)

    async def wish(self, wish: dict[str, Any]) -> None:
        """One line of ours: its first key says what, the others how."""
        name, value = next(iter(wish.items()))
        me = self.room.local_participant
        if name == "rpc":
            await self._call(value, wish.get("payload", ""), wish["to"])
        elif name == "data":
            await me.publish_data(value, topic="t", destination_identities=wish.get("to", []))
        elif name == "text":
            await me.send_text(value, topic="lk.chat")
        elif name == "attributes":
            began = time.monotonic()
            await me.set_attributes(value)
            say(event="attributes set", took=time.monotonic() - began)
        else:
            await self._track_wish(name, value)

    async def _track_wish(self, name: str, value: Any) -> None:
        if name == "wav":
            self._samples = load(value)
        elif name == "mute":
            (self._track.mute if value else self._track.unmute)()
        elif name == "publish":
            await self.publish()
        elif name == "unpublish" and self._publication is not None:
            await self.room.local_participant.unpublish_track(self._publication.sid)

    async def _call(self, method: str, payload: str, to: str) -> None:
        me = self.room.local_participant
        try:
            answer = await me.perform_rpc(destination_identity=to, method=method, payload=payload)
            say(event="rpc", answer=answer)
        except rtc.RpcError as error:
            say(event="rpc", code=error.code, message=error.message)

    async def _locate(self, invocation: rtc.RpcInvocationData) -> str:
        if invocation.payload == "fail":
            raise rtc.RpcError(42, "no idea")
        return json.dumps({"asked": invocation.payload, "by": invocation.caller_identity})

    async def _listen(self, track: Any, who: str) -> None:
        say(event="subscribed", to=who)
        loud = False
        async for event in rtc.AudioStream(track, sample_rate=RATE_HZ, num_channels=1):
            samples = np.frombuffer(event.frame.data, np.int16)
            self.heard.append(samples.copy())
            level = float(np.sqrt(np.mean(samples.astype(np.float64) ** 2)))
            if (level > 300) != loud:
                loud = level > 300
                say(event="sound" if loud else "quiet", at=time.time())

    async def _speak(self) -> None:
        """10 ms after the other, paced by the source."""
        at = 0
        tone = self._options.get("tone")
        if "wav" in self._options:
            self._samples = load(self._options["wav"])
        current = self._samples
        while True:
            if self._samples is not current:
                current, at = self._samples, 0
            piece = np.zeros(FRAME, np.int16)
            if tone:
                turns = 2 * np.pi * tone * (at + np.arange(FRAME)) / RATE_HZ
                piece[:] = 8000 * np.sin(turns)
            else:
                taken = current[at : at + FRAME]
                piece[: len(taken)] = taken
            at += FRAME
            await self._source.capture_frame(rtc.AudioFrame(piece.tobytes(), RATE_HZ, 1, FRAME))

    async def _stream(self, reader: Any, who: str) -> None:
        text = await reader.read_all()
        say(
            event="stream",
            topic=reader.info.topic,
            text=text,
            who=who,
            attributes=dict(reader.info.attributes or {}),
        )

    def _data(self, packet: rtc.DataPacket) -> None:
        who = packet.participant.identity if packet.participant else ""
        say(event="data", text=packet.data.decode(), topic=packet.topic, who=who)

    def _transcription(self, segments: Any, who: Any, publication: Any) -> None:
        for each in segments:
            say(
                event="segment", id=each.id, text=each.text, final=each.final, who=who.identity if who else ""
            )


async def main() -> None:
    """One session, as the lines say."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    client = Client(json.loads(await lines.readline()))
    client.watch()
    try:
        await client.join()
    except rtc.ConnectError as error:
        say(event="refused", message=str(error))
    else:
        while (line := await lines.readline()) and not (wish := json.loads(line)).get("end"):
            await client.wish(wish)
    levels = [float(np.sqrt(np.mean(each.astype(np.float64) ** 2))) for each in client.heard]
    if "keep" in client._options and client.heard:
        with wave.open(client._options["keep"], "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE_HZ)
            file.writeframes(np.concatenate(client.heard).tobytes())
    await client.room.disconnect()
    say(report={"frames": len(levels), "loudest": max(levels, default=0.0)})
    os._exit(0)  # the SDK's native half takes its time to end, and may panic over it


if __name__ == "__main__":
    asyncio.run(main())
