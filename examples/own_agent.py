"""Answers calls with an agent of one's own: python own_agent.py 127.0.0.1:5070"""

import asyncio
import sys
from collections.abc import AsyncIterator

from pipeline.agent import AgentAct, AgentEvent, AgentReport, Expect, HangUp, Say, UserSaid
from pipeline.session.session import Session
from pipeline.speech import Expected
from pipeline.stt.pocketsphinx import PocketSphinx
from pipeline.tts.espeak import Espeak
from sip.endpoint import Endpoint, EndpointSettings
from sip.trunk_settings import TrunkSettings


class Barista:  # takes one order
    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        if isinstance(event, UserSaid) and event.text:
            yield Say(f"One {event.text}, coming up. Goodbye!")
            yield HangUp()
        else:
            yield Expect(Expected(phrases=("coffee", "tea", "orange juice")))
            yield Say("Coffee, tea or orange juice?")

    def report(self) -> AgentReport:
        return AgentReport()


async def main(listen: str) -> None:
    await asyncio.gather((ears := PocketSphinx()).start(), (voice := Espeak()).start())
    async with Endpoint(EndpointSettings(udp=listen)) as phone:
        phone.add_trunk(TrunkSettings(id="anyone", uri="sip:127.0.0.1", allow_from=("127.0.0.0/8",)))
        print("listening on", phone.udp_address, flush=True)
        async for call in phone.incoming():
            await call.answer()
            result = await Session(leg=call, agent=Barista(), stt=ears, tts=voice).run()
            print(*(f"{entry.role}: {entry.text}\n" for entry in result.transcript), flush=True)


asyncio.run(main(sys.argv[1]))
