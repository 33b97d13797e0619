"""A bare asyncio voice agent over RTP, the floor that the server is compared with.

`python -m bench.call.bare PORT`. One datagram endpoint per call, G.711 decoded and encoded by Python's C
library, 20 ms paced with `call_at`, an energy threshold for turn-taking, a tone for an answer. No reordering,
no concealment, no RTCP, no recording, no transcript, no SIP transactions, no store."""

from __future__ import annotations

import asyncio
import math
import random
import re
import struct
import sys
import warnings
from typing import Final

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import audioop  # in Python until 3.12

ENDPOINT_S: Final = 0.5
BARGE_IN_FRAMES: Final = 12
SENTENCE_FRAMES: Final = 75
LOUD: Final = 500

_PCM: Final = struct.Struct("<160h")
_TONE: Final = [
    _PCM.pack(*(round(8192 * math.sin(2 * math.pi * 400 * n / 8000)) for n in range(160)))
    for _ in range(SENTENCE_FRAMES)
]
_SILENCE: Final = bytes(320)


class BareCall(asyncio.DatagramProtocol):
    """The RTP of one call."""

    def __init__(self, remote: tuple[str, int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._remote = remote
        self._transport: asyncio.DatagramTransport | None = None
        self._sequence = random.getrandbits(16)
        self._timestamp = random.getrandbits(32)
        self._left = SENTENCE_FRAMES
        self._voiced = 0
        self._due = self._loop.time()
        self._endpoint: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        """Begins to send packets."""
        self._transport = transport
        self._tick()

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Takes a packet of the caller."""
        pcm = audioop.ulaw2lin(data[12:], 2)
        if audioop.rms(pcm, 2) < LOUD:
            return
        self._voiced += 1
        if self._left and self._voiced >= BARGE_IN_FRAMES:
            self._left = 0
        if self._endpoint is not None:
            self._endpoint.cancel()
        self._endpoint = self._loop.call_later(ENDPOINT_S, self._answer)

    def close(self) -> None:
        """Stops sending and closes the socket."""
        for timer in (self._timer, self._endpoint):
            if timer is not None:
                timer.cancel()
        if self._transport is not None:
            self._transport.close()

    def _answer(self) -> None:
        self._voiced = 0
        self._left = SENTENCE_FRAMES
        if self._timer is not None:
            self._timer.cancel()
        self._due = self._loop.time()
        self._tick()

    def _tick(self) -> None:
        if self._left:
            self._left -= 1
            pcm = _TONE[self._left]
        else:
            pcm = _SILENCE
        payload = audioop.lin2ulaw(pcm, 2)
        header = struct.pack("!BBHII", 0x80, 0, self._sequence, self._timestamp, 1)
        assert self._transport is not None
        self._transport.sendto(header + payload, self._remote)
        self._sequence = (self._sequence + 1) & 0xFFFF
        self._timestamp = (self._timestamp + 160) & 0xFFFFFFFF
        self._due += 0.02
        self._timer = self._loop.call_at(self._due, self._tick)


class BarePhone(asyncio.DatagramProtocol):
    """The minimum of SIP for the generator: answers INVITE and BYE with 200."""

    def __init__(self) -> None:
        self._calls: dict[str, BareCall] = {}
        self._answers: dict[str, asyncio.Task[None]] = {}
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        """Keeps the bound socket."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answers a SIP message."""
        message = data.decode()
        call_id = _found(r"^Call-ID: (\S+)", message)
        if message.startswith("INVITE ") and call_id not in self._answers:
            self._answers[call_id] = asyncio.create_task(self._invited(message, call_id, addr))
        elif message.startswith("BYE "):
            call = self._calls.pop(call_id, None)
            if call is not None:
                call.close()
            self._reply(message, addr, "")

    async def _invited(self, message: str, call_id: str, addr: tuple[str, int]) -> None:
        remote = _found(r"^c=IN IP4 (\S+)", message), int(_found(r"^m=audio (\d+)", message))
        transport, call = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: BareCall(remote), local_addr=("127.0.0.1", 0)
        )
        self._calls[call_id] = call
        port = transport.get_extra_info("sockname")[1]
        lines = ("v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=-", "c=IN IP4 127.0.0.1", "t=0 0")
        sdp = "\r\n".join((*lines, f"m=audio {port} RTP/AVP 0", ""))
        self._reply(message, addr, sdp)

    def _reply(self, message: str, addr: tuple[str, int], body: str) -> None:
        copied = [line for line in message.split("\r\n") if re.match("Via:|From:|To:|Call-ID:|CSeq:", line)]
        tagged = [
            f"{line};tag=b" if line.startswith("To:") and "tag=" not in line else line for line in copied
        ]
        lines = ["SIP/2.0 200 OK", *tagged, "Content-Type: application/sdp", f"Content-Length: {len(body)}"]
        assert self._transport is not None
        self._transport.sendto(("\r\n".join(lines) + f"\r\n\r\n{body}").encode(), addr)


def _found(pattern: str, message: str) -> str:
    found = re.search(pattern, message, re.MULTILINE)
    return found.group(1) if found else ""


async def serve(port: int) -> None:
    """Answers calls until the process is killed."""
    await asyncio.get_running_loop().create_datagram_endpoint(BarePhone, local_addr=("127.0.0.1", port))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
