"""A server whose trunk climbs the transfer ladder, against a carrier that treats a REFER in eight ways."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.node.node import Node, place_call, running, until_final
from tests.support.ports import free_rtp_ports
from tests.support.sip.referring_carrier import (
    BEHAVIOURS,
    ReferringCarrier,
    Telephone,
    notified_end,
    referring_carrier,
)
from tests.support.sip.transfers import DESK, HANDS_ON, write_ladder_site
from tests.support.waiting import until

COPIES = 3
"""Callers of each kind of carrier."""

CALLERS = {
    f"+1415555{1000 + 10 * copy + place}": treat
    for copy in range(COPIES)
    for place, treat in enumerate(BEHAVIOURS.values())
}
NUMBERS = dict(zip(BEHAVIOURS, CALLERS, strict=False))
"""The first caller of each, by the carrier's behaviour."""

ALL_NUMBERS = [
    (name, number) for number, treat in CALLERS.items() for name in BEHAVIOURS if BEHAVIOURS[name] is treat
]


class Ladder(NamedTuple):
    """A server whose carrier is a script."""

    node: Node
    carrier: ReferringCarrier

    async def transferred(
        self, number: str, agent: str = HANDS_ON, *, patience_s: float = 60
    ) -> tuple[dict[str, Any], Telephone]:
        """The report of a call to `number` that its agent transferred, and the caller's telephone."""
        call_id = await place_call(self.node.client, agent, number=number)
        await until(lambda: number in self.carrier.dialled)
        caller = self.carrier.call_to(number)
        await until(lambda: caller.hung_up_by != "", patience_s)
        return await until_final(self.node.client, call_id, timeout_s=patience_s), caller


@asynccontextmanager
async def ladder(
    directory: Path, *, refused: Mapping[str, int] | None = None, wide: bool = False, **options: Any
) -> AsyncIterator[Ladder]:
    """Starts server and carrier; `refused`: numbers that do not answer, `wide`: for 200 calls at once."""
    site = write_ladder_site(directory, **options)
    if wide:
        site.add('[[trunk]]\nid = "carrier"', "media_timeout_s = 600")  # the carrier sends no audio
        site.change("transfer_ring_s = 5", "transfer_ring_s = 12")
        site.add("[server]", "requests_per_minute = 1000000")  # the tests ask for each call's end
        site.limit("acme", 200).change("max_calls = 20", "max_calls = 200")
        text = site.path.read_text()
        site.path.write_text(re.sub(r'rtp_ports = ".*"', f'rtp_ports = "{free_rtp_ports(240)}"', text))
    ends = {"+14155552486": notified_end(486), "+14155552302": notified_end(302)}
    async with (
        referring_carrier(site.carrier, {**CALLERS, **ends}, refused=refused) as carrier,
        running(site) as node,
    ):
        yield Ladder(node, carrier)


async def at_the_desk(carrier: ReferringCarrier, bridged: int) -> None:
    """Presses 1 at each call to the desk, lets people talk for a moment, and hangs up `bridged` calls."""
    done, taking = 0, set[str]()
    while done < bridged:
        for call in list(carrier.calls.values()):
            if call.number != DESK or call.hung_up_by:
                continue
            if call.ear.packets > 100 and call.invite.call_id not in taking:
                taking.add(call.invite.call_id)
                call.key("1")
            if call.ear.packets > 300:
                call.bye()
                done += 1
        await asyncio.sleep(0.05)


REFUSED: dict[str, list[tuple[str, str, int]]] = {
    "603": [("refer_replaces", "refused", 603)],
    "405": [("refer_replaces", "refused", 405)],
    "3xx": [("refer_replaces", "refused", 302)],
}
Tried = list[tuple[str, str, int]]
EXPECTED: dict[str, dict[str, tuple[str, str | None, Tried | None]]] = {
    "blind": {
        "202+NOTIFY": ("answered", "refer", [("refer", "answered", 200)]),
        "603": ("answered", "bridge", [("refer", "refused", 603), ("refer_replaces", "refused", 603)]),
        "405": ("answered", "bridge", [("refer", "refused", 405)]),
        "no NOTIFY": ("unknown", None, [("refer", "unknown", 202)]),
        "early BYE": ("answered", "refer", [("refer", "answered", 200)]),
        "tel:": ("answered", "refer", [("refer", "answered", 200)]),
        "BYE on 202": ("referred", "refer", [("refer", "referred", 202)]),
        "3xx": ("answered", "bridge", [("refer", "refused", 302), ("refer_replaces", "refused", 302)]),
    },
    "attended": {
        name: (
            "answered",
            "bridge" if name in REFUSED or name == "no NOTIFY" else "refer_replaces",
            REFUSED.get(name),
        )
        for name in BEHAVIOURS
    },
}
EXPECTED["warm"] = EXPECTED["attended"]
"""Outcome, rung that served, and what was tried (None: as it comes), by kind and the carrier's behaviour."""
