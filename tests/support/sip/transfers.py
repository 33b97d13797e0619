"""A site whose agents hand their caller on, by phone and from a browser."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sip.call import Call
from tests.support.node.node import Site, write_site
from tests.support.sip.carrier import carrier

HANDS_ON = "17e7e2a0-93a8-4a55-8f6c-9f5f3f5f1b01"
WEB_HANDS_ON = "17e7e2a0-93a8-4a55-8f6c-9f5f3f5f1b02"
LISTENS = "17e7e2a0-93a8-4a55-8f6c-9f5f3f5f1b03"
DESK = "+14155550188"
WEB_KEY = "desk-company-key"

AGENT = """
[[agent]]
id = "{id}"
company = "{company}"
trunk = "{trunk}"
{phone}
unreachable = "Nobody is there."
transfer_targets = {{{{ desk = "+14155550188", far = "+4930123456", any = "room:*" }}}}
transfer_ring_s = 20
{{engines}}
[agent.script]
start = "through"
[[agent.script.step]]
id = "through"
say = "One moment."
action = "transfer"
target = "{target}"
"""

MORE = """
[rooms]
udp_ports = "{first}-{last}"
addresses = ["127.0.0.1"]
api_secret = "a-secret-of-thirty-two-characters"
[[company]]
id = "desk"
name = "Desk"
web_calls = true
dial_prefixes = ["1415"]
country = "US"
[[company.key]]
key = "desk-company-key"
scopes = ["calls", "web-calls"]
[[trunk]]
id = "desk-carrier"
company = "desk"
uri = "sip:127.0.0.1:{carrier};transport=udp"
caller_id = "+14155550100"
[[agent]]
id = "17e7e2a0-93a8-4a55-8f6c-9f5f3f5f1b03"
company = "desk"
name = "Listens"
trunk = "desk-carrier"
{engines}
[agent.script]
start = "ask"
[[agent.script.step]]
id = "ask"
say = "Yes?"
expect = {{ kinds = ["yes_no"] }}
on = {{ yes = "ask", no = "ask" }}
silence = {{ say = "Yes?", max = 9, next = "ask" }}
"""


def write_transfer_site(
    directory: Path, *, target: str = "desk", carrier: int | None = None, more: str = ""
) -> Site:
    """A configuration with agents that say a word and hand their caller to `target`. `carrier`: the port of
    a telephone that runs already; `more`: further tables."""
    first = 34_000 + os.getpid() * 7 % 20_000
    phone = 'phone_number = "+14155550100"'
    tables = MORE + AGENT.format(id=HANDS_ON, company="acme", trunk="carrier", phone=phone, target=target)
    tables += AGENT.format(id=WEB_HANDS_ON, company="desk", trunk="desk-carrier", phone="", target=target)
    site = write_site(directory, more=tables + more, first=first, last=first + 60)
    if carrier is not None:
        site.send_to(carrier)
    return site


@dataclass
class People:
    """Telephones in this process; `calls` by the number that was called."""

    calls: dict[str, Call] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def answered(self, number: str) -> Call:
        """The call to `number`, once it is up."""
        async with asyncio.timeout(30):
            while number not in self.calls:
                self.news.clear()
                await self.news.wait()
            await self.calls[number].answered()
        return self.calls[number]


@asynccontextmanager
async def telephones(site: Site, **refused: int) -> AsyncIterator[People]:
    """Everybody on the trunk answers at once, but who is in `refused` (by "n" and the number's digits) with
    a status."""
    people = People()

    async def take(call: Call) -> None:
        code = refused.get("n" + call.local_number.removeprefix("+"))
        try:
            await call.ring()
            if code is not None:
                await call.reject(code)
            else:
                await call.answer()
        finally:
            people.calls[call.local_number] = call
            people.news.set()

    async with carrier(site, take):
        yield people


KINDS = {
    "blind": HANDS_ON,
    "attended": "17e7e2a0-93a8-4a55-8f6c-9f5f3f5f1b04",
    "warm": "17e7e2a0-93a8-4a55-8f6c-9f5f3f5f1b05",
}
"""The agents of a ladder's site, by how they hand callers on."""

ASKS = "17e7e2a0-93a8-4a55-8f6c-9f5f3f5f1b06"
"""An agent that asks and waits."""

ASKING = """
[[agent]]
id = "{id}"
company = "acme"
trunk = "carrier"
phone_number = "+14155550100"
transfer_targets = {{{{ desk = "+14155550188", far = "+4930123456" }}}}
transfer_ring_s = 5
{{engines}}
[agent.script]
start = "ask"
[[agent.script.step]]
id = "ask"
say = "Are you the one?"
expect = {{{{ kinds = ["yes_no"] }}}}
on = {{{{ yes = "ask", no = "ask" }}}}
silence = {{{{ say = "Are you there?", max = 9, next = "ask" }}}}
"""

ASKS_AND_HANDS_ON = "17e7e2a0-93a8-4a55-8f6c-9f5f3f5f1b07"
"""An agent that asks, and hands its caller on to the desk at the key 1, as often as it is pressed."""

HANDING_ON = """
[[agent.script.step]]
id = "through"
say = "One moment."
action = "transfer"
target = "desk"
failed = "ask"
[agent.transfer]
kind = "attended"
"""

COMES_BACK = """
failed = "back"
[[agent.script.step]]
id = "back"
say = "Nobody took it. Goodbye."
action = "hang_up"
disposition = "came_back"
[agent.transfer]
kind = "{kind}"
announce = "A call for the desk."
briefing = "It is about an order."
"""

INSISTS = """failed = "again"
[[agent.script.step]]
id = "again"
say = "Once more."
action = "transfer"
target = "+14155550188"
failed = "back\""""


def write_ladder_site(
    directory: Path, *, transfer: str = "auto", trunk: str = "", insists: bool = False, further: str = ""
) -> Site:
    """A transfer site with an agent of each kind, whose trunk allows these rungs and has these lines
    besides. `insists`: an agent whose transfer failed tries once more. `further`: more tables."""
    phone = 'phone_number = "+14155550100"'
    more = "".join(
        AGENT.format(id=agent, company="acme", trunk="carrier", phone=phone, target="desk")
        + (COMES_BACK.replace('failed = "back"', INSISTS) if insists else COMES_BACK).format(kind=kind)
        for kind, agent in KINDS.items()
        if kind != "blind"
    )
    hands_on = ASKING.replace('no = "ask"', 'no = "ask", 1 = "through"') + HANDING_ON
    asking = ASKING.format(id=ASKS) + hands_on.format(id=ASKS_AND_HANDS_ON)
    site = write_transfer_site(directory, more=more + asking + further)
    site.change("transfer_ring_s = 20", "transfer_ring_s = 5")
    return site.add('[[trunk]]\nid = "carrier"', f'transfer = "{transfer}"\n{trunk}')
