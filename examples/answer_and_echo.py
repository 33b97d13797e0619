"""Answers every call and plays the caller's own voice back: python answer_and_echo.py 127.0.0.1:5070"""

import asyncio
import collections
import sys

from pipeline.audio import Pcm
from sip.endpoint import Endpoint, EndpointSettings
from sip.trunk_settings import TrunkSettings


class Echo:
    """Plays every received frame back: listener and source of a call in one."""

    def __init__(self) -> None:
        self.frames: collections.deque[Pcm] = collections.deque(maxlen=10)

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        self.frames.append(frame.copy())

    def read(self) -> Pcm | None:
        return self.frames.popleft() if self.frames else None

    def digit_received(self, digit: str, now: float) -> None: ...
    def leg_ended(self, reason: str, now: float) -> None: ...
    def on_ready(self, wake: object) -> None: ...
    def sent(self, now: float) -> None: ...


async def main(listen: str) -> None:
    async with Endpoint(EndpointSettings(udp=listen)) as phone:
        phone.add_trunk(TrunkSettings(id="anyone", uri="sip:127.0.0.1", allow_from=("127.0.0.0/8",)))
        print("listening on", phone.udp_address, flush=True)
        async for call in phone.incoming():
            await call.answer()
            echo = Echo()
            call.attach(echo, echo)


asyncio.run(main(sys.argv[1]))
