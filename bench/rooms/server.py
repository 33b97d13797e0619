"""The server side of `python -m bench rooms`, in a process of its own: this server's WebRTC, or stock aiortc.

Both run the same application: a loud frame after silence is answered with 200 ms of speech ("answer"), or the
agent speaks all the time ("speak"), or never ("silent"), or all the time while Python stands still for
`STILL_S` of each second ("stall"). HTTP: POST /offer, GET /figures, POST /reset."""

from __future__ import annotations

import argparse
import asyncio
import fractions
import os
import time
from collections import deque
from typing import Any

import av
import numpy as np
from aiohttp import web
from aiortc import (
    MediaStreamTrack,
    RTCBundlePolicy,
    RTCConfiguration,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError

from bench.rooms.client import FRAME, LOUD, PERIOD_FRAMES, RATE_HZ, speech, tone
from mediaserver.rooms.participant import Participant
from mediaserver.rooms.participant_leg import ParticipantLeg
from mediaserver.rooms.webrtc.udp_mux import MediaPort
from pipeline.audio import Pcm, kernels
from pipeline.media.playout import Playout, PlayoutListener
from pipeline.media.utterance import Utterance
from pipeline.plane.drive.plane import Plane

ANSWER_FRAMES = 10
ANSWER: list[Pcm] = list(tone(PERIOD_FRAMES).reshape(PERIOD_FRAMES, FRAME))
"""Loud from its first sample, so that the time of an answer does not depend on where a syllable begins."""

STILL_S = 0.2

SPEECH: list[Pcm] = list(speech(50).reshape(50, FRAME))


class Conversation:
    """The application of one participant: listens for a beep, and says the answer."""

    def __init__(self, mode: str, heard: list[float]) -> None:
        self._heard = heard
        self._loud = True
        self.says = Says(mode)

    def hear(self, frame: Pcm) -> None:
        """Takes a frame of the microphone."""
        loud = int(np.abs(frame).max()) > LOUD
        if loud and not self._loud:
            self._heard.append(time.monotonic())
            self.says.answer()
        self._loud = loud

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        """Takes a frame of the microphone (`LegListener`)."""
        self.hear(frame)

    def digit_received(self, digit: str, now: float) -> None:
        """Ignores digits."""

    def leg_ended(self, reason: str, now: float) -> None:
        """Does nothing; part of `LegListener`."""


class Says(PlayoutListener):
    """What the application says, in the playout that the server's conversations use: an answer of 200 ms when
    asked, or speech all the time, a second at a time as a voice gives it."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self.playout = Playout(RATE_HZ, self)
        self._speaks = mode in ("speak", "stall")
        if self._speaks:
            self._speak()
            self._speak()

    def answer(self) -> None:
        """Answers, where the mode is to."""
        if self._mode == "answer":
            self._say(ANSWER[:ANSWER_FRAMES])

    def utterance_finished(self, utterance: Utterance, now: float) -> None:
        """Goes on speaking."""
        if self._speaks:
            self._speak()

    def utterance_started(self, utterance: Utterance, now: float) -> None:
        """Does nothing; part of `PlayoutListener`."""

    def playout_filled(self) -> None:
        """Does nothing; part of `PlayoutListener`."""

    def playout_ran_out(self, now: float) -> None:
        """Does nothing; part of `PlayoutListener`."""

    def _speak(self) -> None:
        self._say(SPEECH)

    def _say(self, frames: list[Pcm]) -> None:
        self.playout.begin().begin_piece("speech")
        self.playout.write(np.concatenate(frames))
        self.playout.end()


class Ours:
    """Participants on this server's own WebRTC transport."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        plane = Plane(asyncio.get_running_loop())
        self._port = MediaPort.open(plane, (34_000, 39_000), addresses=["127.0.0.1"])
        self._people: list[ParticipantLeg] = []

    async def answer(self, offer: str, heard: list[float]) -> str:
        """Answers the offer of a participant."""
        person = ParticipantLeg(Participant("p"), self._port, stream="a", track="b")
        conversation = Conversation(self._mode, heard)
        person.attach(conversation, conversation.says.playout)
        self._people.append(person)
        return await person.new_peer().answer(offer)


class Stock:
    """Participants on stock aiortc, with its own tracks."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._peers: list[RTCPeerConnection] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def answer(self, offer: str, heard: list[float]) -> str:
        """Answers the offer of a participant."""
        peer = RTCPeerConnection(RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
        self._peers.append(peer)
        conversation = Conversation(self._mode, heard)
        peer.on("track", lambda track: self._tasks.append(asyncio.create_task(_listen(track, conversation))))
        peer.addTrack(_Voice(conversation))
        await peer.setRemoteDescription(RTCSessionDescription(sdp=offer, type="offer"))
        await peer.setLocalDescription(await peer.createAnswer())
        return str(peer.localDescription.sdp)


class _Voice(MediaStreamTrack):
    """A track as applications on aiortc write it to speak: frames at 48 kHz on its own clock."""

    kind = "audio"

    def __init__(self, conversation: Conversation) -> None:
        super().__init__()
        self._playout = conversation.says.playout
        self._start = time.monotonic()
        self._count = 0

    async def recv(self) -> av.AudioFrame:
        due = self._start + self._count * 0.02
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        samples = self._playout.read()
        if samples is None:
            samples = np.zeros(FRAME, np.int16)
        else:
            self._playout.sent(time.monotonic())
        frame = av.AudioFrame.from_ndarray(np.repeat(samples, 3).reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.pts = 48_000, self._count * 960
        frame.time_base = fractions.Fraction(1, 48_000)
        self._count += 1
        return frame


async def _listen(track: Any, conversation: Conversation) -> None:
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE_HZ)
    try:
        while True:
            for piece in resampler.resample(await track.recv()):
                conversation.hear(piece.to_ndarray().reshape(-1).astype(np.int16, copy=False))
    except MediaStreamError:
        return


class Bench:
    """The HTTP interface of one of the two sides."""

    def __init__(self, side: Ours | Stock) -> None:
        self._side = side
        self._heard: dict[str, list[float]] = {}
        self._began = (time.monotonic(), time.process_time())
        self._late: deque[float] = deque(maxlen=100_000)

    async def offer(self, request: web.Request) -> web.Response:
        """Adds a participant."""
        heard = self._heard.setdefault(request.query["id"], [])
        return web.Response(text=await self._side.answer(await request.text(), heard))

    async def reset(self, request: web.Request) -> web.Response:
        """Restarts the measurement."""
        for heard in self._heard.values():
            heard.clear()
        self._began = (time.monotonic(), time.process_time())
        self._late.clear()
        return web.Response()

    async def figures(self, request: web.Request) -> web.Response:
        """Answers the figures since the last reset."""
        wall, cpu = time.monotonic() - self._began[0], time.process_time() - self._began[1]
        late = sorted(self._late) or [0.0]
        return web.json_response(
            {
                "wall_s": wall,
                "cpu_s": cpu,
                "heard": self._heard,
                "lag_p99_ms": late[len(late) * 99 // 100] * 1000,
            }
        )

    async def watch(self) -> None:
        """Measures the lateness of the event loop."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.01)
            self._late.append(loop.time() - before - 0.01)


async def stand_still() -> None:
    """Lets no Python run for a fifth of each second: one that computes keeps the GIL like this."""
    while True:
        await asyncio.sleep(1.0 - STILL_S)
        over = time.monotonic() + STILL_S
        while time.monotonic() < over:
            pass


async def serve(kind: str, mode: str) -> None:
    """Serves until killed; prints its port on stdout."""
    bench = Bench(Ours(mode) if kind == "ours" else Stock(mode))
    app = web.Application()
    app.add_routes(
        [web.post("/offer", bench.offer), web.post("/reset", bench.reset), web.get("/figures", bench.figures)]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.gather(bench.watch(), *([stand_still()] if mode == "stall" else []))


def main() -> None:
    """Runs `python -m bench.rooms.server ours|stock answer|speak|silent|stall [--core N]`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["ours", "stock"])
    parser.add_argument("mode", choices=["answer", "speak", "silent", "stall"])
    parser.add_argument("--core", type=int, default=-1)
    arguments = parser.parse_args()
    if arguments.core >= 0:
        os.sched_setaffinity(0, {arguments.core})
    if arguments.kind == "ours":
        kernels.warm()
    asyncio.run(serve(arguments.kind, arguments.mode))


if __name__ == "__main__":
    main()
