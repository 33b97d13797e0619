"""Calls a number and plays a WAV file: python call_and_play.py sip:127.0.0.1:5070 +15551234 hello.wav"""

import asyncio
import sys
import wave

import numpy as np

from sip.call import CallFailed
from sip.endpoint import Endpoint, EndpointSettings
from sip.trunk_settings import TrunkSettings


async def main(uri: str, number: str, path: str) -> None:
    with wave.open(path) as file:  # mono, 16 bits
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        rate_hz = file.getframerate()
    async with Endpoint(EndpointSettings(udp="0.0.0.0:0")) as phone:
        carrier = phone.add_trunk(TrunkSettings(id="carrier", uri=uri, caller_id="+15550100"))
        call = await carrier.call(number)
        try:
            await call.answered()
        except CallFailed as failed:
            sys.exit(f"{number}: {failed.cause} ({failed.code})")
        await call.play(samples, rate_hz)
        await asyncio.sleep(0.2)  # the last packets are still on their way
        await call.hang_up()
        print(f"{await call.ended()}: {call.stats.packets_sent} sent, {call.stats.packets_received} heard")


asyncio.run(main(*sys.argv[1:]))
