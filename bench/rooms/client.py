"""The participants of `python -m bench rooms`, in a process of their own: aiortc for ICE and DTLS, then
packets encoded beforehand, sent and received with minimal work.

`python -m bench.rooms.client URL PARTICIPANTS SECONDS LOSS` prints one line of JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import struct
import sys
import time
from typing import Any, Final

import aiohttp
import numpy as np
from aiortc import (
    RTCBundlePolicy,
    RTCConfiguration,
    RTCPeerConnection,
    RTCSessionDescription,
)

from pipeline.audio import Pcm
from pipeline.audio.opus import OpusDecoder, OpusEncoder

RATE_HZ: Final = 16_000
FRAME: Final = RATE_HZ // 50
LOUD: Final = 3000
BEEP_FRAMES: Final = 10
PERIOD_FRAMES: Final = 50


def speech(frames: int) -> Pcm:
    """Returns harmonics of 140 Hz under a syllable's envelope, with some noise, which cost a codec as much as
    speech."""
    at = np.arange(frames * FRAME) / RATE_HZ
    rng = np.random.default_rng(1)
    voice = sum(np.sin(2 * np.pi * 140 * k * at + k) / k for k in range(1, 20))
    wave = voice * np.clip(np.sin(2 * np.pi * 3 * at), 0.1, 1) + 0.02 * rng.standard_normal(at.size)
    return np.asarray(0.2 * 32767 * wave / np.abs(wave).max(), np.int16)


def tone(frames: int) -> Pcm:
    """Returns a tone of 440 Hz, well above `LOUD`."""
    at = np.arange(frames * FRAME) / RATE_HZ
    return np.asarray(12_000 * np.sin(2 * np.pi * 440 * at), np.int16)


def beeps() -> list[bytes]:
    """Returns the Opus packets of one second: a beep that begins with the first, then silence."""
    wave = tone(PERIOD_FRAMES)
    wave[BEEP_FRAMES * FRAME :] = 0
    encoder = OpusEncoder()
    frames = wave.reshape(PERIOD_FRAMES, FRAME)
    for frame in frames:  # the first second adapts the encoder; the second is sent
        encoder.encode(frame)
    return [encoder.encode(frame) for frame in frames]


SETTLE_S = 2.0
_QUIET_S = 0.1


class Caller:
    """One participant. `sent`: times of the beeps; `heard`: arrival of each answer's first packet; `gaps`:
    seconds between packets."""

    def __init__(self, number: int, *, loss: float, decode: bool) -> None:
        self.id = str(number)
        self.sent: list[float] = []
        self.heard: list[float] = []
        self.packets = 0
        self.gaps: list[float] = []
        self._arrived = 0.0
        self._peer = RTCPeerConnection(
            RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE)
        )
        self._rng = random.Random(number)
        self._loss = loss
        self._decoder = OpusDecoder() if decode else None
        self._loud = True
        self._dtls: Any = None
        self._ssrc = 0
        self._payload_type = 0
        self._sequence = number
        self._last = 0.0

    async def connect(self, http: aiohttp.ClientSession, url: str) -> None:
        """Joins; returns when packets can be sent."""
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        transceiver = self._peer.addTransceiver("audio", direction="sendrecv")
        sender = transceiver.sender

        async def receive(parameters: Any) -> None:
            return

        async def send(parameters: Any) -> None:
            if not ready.done():
                ready.set_result(parameters.codecs[0].payloadType)

        transceiver.receiver.receive = receive  # type: ignore[method-assign]
        sender.send = send  # type: ignore[method-assign]
        await self._peer.setLocalDescription(await self._peer.createOffer())
        async with http.post(
            f"{url}/offer", params={"id": self.id}, data=self._peer.localDescription.sdp
        ) as answer:
            description = RTCSessionDescription(sdp=await answer.text(), type="answer")
        await self._peer.setRemoteDescription(description)
        self._payload_type = await asyncio.wait_for(ready, 30)
        self._ssrc, self._dtls = sender._ssrc, sender.transport
        connection = self._dtls.transport._connection
        self._pair = connection._nominated[1]
        self._others = connection.data_received
        connection.data_received = self._received

    def tick(self, number: int, packets: list[bytes]) -> None:
        """Sends packet `number`; the first of each second begins a beep and is never dropped."""
        place = number % PERIOD_FRAMES
        self._sequence = (self._sequence + 1) & 0xFFFF
        if place == 0:
            self.sent.append(time.monotonic())
        elif self._rng.random() < self._loss:
            return
        header = struct.pack(
            "!BBHII", 0x80, self._payload_type, self._sequence, number * 960 & 0xFFFFFFFF, self._ssrc
        )
        data = self._dtls._tx_srtp.protect(header + packets[place])
        self._pair.protocol.transport.sendto(data, self._pair.remote_addr)

    def _received(self, data: bytes, component: int) -> None:
        if not 127 < data[0] < 192 or 192 <= data[1] < 224:
            self._others(data, component)
            return
        self.packets += 1
        before, self._arrived = self._arrived, time.monotonic()
        self.gaps.append(self._arrived - before)
        if self._decoder is None:
            return
        packet = self._dtls._rx_srtp.unprotect(data)
        start = 12 if not packet[0] & 0x10 else 16 + 4 * int.from_bytes(packet[14:16], "big")
        loud = int(np.abs(self._decoder.decode(packet[start:])).max()) > LOUD
        now = time.monotonic()
        if loud and (not self._loud or now - self._last > _QUIET_S):
            self.heard.append(now)
        self._loud, self._last = loud, now


async def run(url: str, participants: int, seconds: float, loss: float, *, decode: bool) -> dict[str, Any]:
    """Runs the whole measurement and returns the figures."""
    packets = beeps()
    callers = [Caller(number, loss=loss, decode=decode) for number in range(participants)]
    # The end of the process closes aiohttp's session: closing the peers would take longer than the
    # measurement.
    http = aiohttp.ClientSession()
    for caller in callers:
        await caller.connect(http, url)
    loop = asyncio.get_running_loop()
    start = loop.time() + 0.1
    spread = [number % 4 * 0.005 for number in range(participants)]
    measured: float | None = None
    for number in range(int((SETTLE_S + seconds) * 50)):
        for phase in range(4):
            await asyncio.sleep(max(0.0, start + number * 0.02 + phase * 0.005 - loop.time()))
            for caller, at in zip(callers, spread, strict=True):
                if round(at / 0.005) == phase:
                    caller.tick(number + int(caller.id) * 7, packets)
        if measured is None and number >= SETTLE_S * 50:
            measured = time.monotonic()
            for caller in callers:
                caller.sent.clear()
                caller.heard.clear()
                caller.packets = 0
                caller.gaps.clear()
            await (await http.post(f"{url}/reset")).release()
    async with http.get(f"{url}/figures") as answer:
        figures = await answer.json()
    wall = time.monotonic() - (measured or 0.0)
    figures["sent"] = {caller.id: caller.sent for caller in callers}
    figures["answered"] = {caller.id: caller.heard for caller in callers}
    gaps = sorted(gap for caller in callers for gap in caller.gaps) or [0.0]
    figures["gap_p99_ms"], figures["gap_p999_ms"] = (
        gaps[int(len(gaps) * share)] * 1000 for share in (0.99, 0.999)
    )
    figures["packets_per_s"] = [caller.packets / wall for caller in callers]
    await http.close()
    return dict(figures)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("participants", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("loss", type=float)
    parser.add_argument("--decode", action="store_true")
    arguments = parser.parse_args()
    figures = asyncio.run(
        run(arguments.url, arguments.participants, arguments.seconds, arguments.loss, decode=arguments.decode)
    )
    json.dump(figures, sys.stdout)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
