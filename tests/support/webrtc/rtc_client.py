"""An aiortc client in a process of its own: offers audio over WHIP-like exchange on stdin/stdout, sends a
file's audio or a tone as its microphone, and reports what it heard.

    python -m tests.support.webrtc.rtc_client < one line of JSON options

Lines of JSON both ways: it writes {"offer": sdp}, reads {"answer": sdp}, then writes {"event": ...} lines,
and ends on {"end": true} or at end of input, after {"report": ...}.
"""

from __future__ import annotations

import asyncio
import fractions
import json
import struct
import sys
import time
import wave
from typing import Any

import av
import numpy as np
from aioice import ice
from aiortc import (
    MediaStreamTrack,
    RTCBundlePolicy,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError

RATE_HZ = 48000
FRAME = RATE_HZ // 50


class Microphone(MediaStreamTrack):
    """`samples` once, then silence; starts over after `say` is called."""

    kind = "audio"

    def __init__(self, samples: np.ndarray[Any, np.dtype[np.int16]], *, loop_it: bool) -> None:
        super().__init__()
        self._samples = samples
        self._loop_it = loop_it
        self._at = 0
        self._count = 0
        self._start: float | None = None

    def say(self, samples: np.ndarray[Any, np.dtype[np.int16]]) -> None:
        """`samples` from now on."""
        self._samples, self._at = samples, 0

    async def recv(self) -> av.AudioFrame:
        """The next 20 ms, on the clock."""
        now = time.monotonic()
        if self._start is None:
            self._start = now
        due = self._start + self._count * 0.02
        if due > now:
            await asyncio.sleep(due - now)
        piece = np.zeros(FRAME, np.int16)
        if self._at >= len(self._samples) and self._loop_it:
            self._at = 0
        taken = self._samples[self._at : self._at + FRAME]
        piece[: len(taken)] = taken
        self._at += FRAME
        frame = av.AudioFrame.from_ndarray(piece.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = (
            RATE_HZ,
            self._count * FRAME,
            fractions.Fraction(1, RATE_HZ),
        )
        self._count += 1
        return frame


def load(path: str) -> np.ndarray[Any, np.dtype[np.int16]]:
    """A mono WAV of 16 bits at any rate that divides 48 kHz, at 48 kHz."""
    with wave.open(path) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        return np.repeat(samples, RATE_HZ // file.getframerate())


def tone(hz: float, seconds: float) -> np.ndarray[Any, np.dtype[np.int16]]:
    """A tone at a third of full scale."""
    return (10000 * np.sin(2 * np.pi * hz * np.arange(int(RATE_HZ * seconds)) / RATE_HZ)).astype(np.int16)


def say(**line: Any) -> None:
    """One line for whoever started us."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def listen(track: Any, heard: list[np.ndarray[Any, np.dtype[np.int16]]]) -> None:
    """Keeps what arrives, as mono; says when the first sound did and when it fell silent."""
    loud = False
    try:
        while True:
            frame = await track.recv()
            samples = frame.to_ndarray().reshape(-1)
            mono = samples[:: len(frame.layout.channels)].copy()
            heard.append(mono)
            level = float(np.sqrt(np.mean(mono.astype(np.float64) ** 2)))
            if (level > 300) != loud:
                loud = level > 300
                say(event="sound" if loud else "quiet", at=time.time())
    except MediaStreamError:
        say(event="track ended")


async def flood(pc: RTCPeerConnection, count: int) -> None:
    """Sends `count` RTP packets and `count` reports, each of a source of its own, encrypted as all others."""
    transport = pc.getSenders()[0].transport
    for ssrc in range(1, count + 1):
        await transport._send_rtp(struct.pack("!BBHII", 0x80, 96, 1, 0, ssrc) + bytes(40))
        await transport._send_rtp(struct.pack("!BBHI", 0x80, 201, 1, count + ssrc))
        await asyncio.sleep(0.001)
    say(event="flooded")


def note(pc: RTCPeerConnection, packets: list[tuple[bool, int, int]]) -> None:
    """Keeps marker, number and timestamp of each packet that arrives and is authentic."""
    transport: Any = pc.getSenders()[0].transport
    handle = transport._handle_rtp_data

    async def noted(data: bytes, arrival_time_ms: int) -> None:
        _, second, sequence, timestamp = struct.unpack_from("!BBHI", data)
        packets.append((bool(second & 0x80), sequence, timestamp))
        await handle(data, arrival_time_ms=arrival_time_ms)

    transport._handle_rtp_data = noted


async def fulfil(
    wish: dict[str, Any], pc: RTCPeerConnection, microphone: Microphone, channel: RTCDataChannel
) -> None:
    """Does what one line asks for."""
    if "wav" in wish:
        microphone.say(load(wish["wav"]))
    if "message" in wish:
        channel.send(wish["message"])
    if "flood" in wish:
        await flood(pc, wish["flood"])


async def main() -> None:
    """One session, as the options say."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    options = json.loads(await lines.readline())
    if "hosts" in options:
        ice.get_host_addresses = lambda use_ipv4, use_ipv6: list(options["hosts"])
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
    heard: list[np.ndarray[Any, np.dtype[np.int16]]] = []
    listening: list[asyncio.Task[None]] = []
    source = load(options["wav"]) if "wav" in options else tone(options.get("tone", 440), 1.0)
    microphone = Microphone(source, loop_it=options.get("loop", "wav" not in options))
    pc.addTrack(microphone)
    if options.get("video"):
        pc.addTransceiver("video", direction="sendonly")
    channel = pc.createDataChannel("events")
    channel.on("message", lambda message: say(event="message", text=message, at=time.time()))
    channel.on("open", lambda: say(event="channel"))
    pc.on("track", lambda track: listening.append(asyncio.create_task(listen(track, heard))))
    pc.on("connectionstatechange", lambda: say(event=pc.connectionState, at=time.time()))
    await pc.setLocalDescription(await pc.createOffer())
    packets: list[tuple[bool, int, int]] = []
    if "packets" in options:
        note(pc, packets)
    say(offer=pc.localDescription.sdp)
    answer = json.loads(await lines.readline())["answer"]
    await pc.setRemoteDescription(RTCSessionDescription(sdp=answer, type="answer"))
    while line := await lines.readline():
        wish = json.loads(line)
        if wish.get("end"):
            break
        await fulfil(wish, pc, microphone, channel)
    if "keep" in options and heard:
        with wave.open(options["keep"], "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE_HZ)
            file.writeframes(np.concatenate(heard).tobytes())
    levels = [float(np.sqrt(np.mean(each.astype(np.float64) ** 2))) for each in heard]
    say(report={"frames": len(heard), "loudest": max(levels, default=0.0), "packets": packets})
    await pc.close()


if __name__ == "__main__":
    asyncio.run(main())
