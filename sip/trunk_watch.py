"""What a trunk does without calls: it registers, and asks its servers whether they live."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sip.dialog.options_ping import OptionsPing, ServerHealth
from sip.dialog.registration import Registration
from sip.egress import Egress
from sip.stack.driver import Driver
from sip.trunk import Trunk

logger = logging.getLogger(__name__)

LOOK_UP_S = 60.0
"""Seconds between two look-ups of a trunk's names; answers whose TTL is longer are kept by the resolver."""


def registration_of(driver: Driver, trunk: Trunk, *, refused: Callable[[str], None]) -> Registration:
    """Returns the registration of a trunk, not started. `refused` is called with each address that is closed
    to the trunk."""
    name = trunk.settings.id
    return Registration(
        driver.stack,
        registrars=trunk.uris,
        aor=trunk.aor,
        username=trunk.settings.username,
        password=trunk.settings.password,
        egress=Egress(trunk.egress, on_refused=lambda address, now: refused(address)),
        on_change=lambda registered, now: logger.info(
            "trunk registration changed", extra={"trunk": name, "registered": registered}
        ),
    )


async def watch(driver: Driver, trunk: Trunk, *, is_current: Callable[[Trunk], bool]) -> None:
    """Asks the trunk's servers, wherever its names lead by then, until the trunk is removed."""

    def changed(server: ServerHealth) -> None:
        named = {"trunk": trunk.settings.id, "peer": server.hop.host, "port": server.hop.port}
        logger.info("server of a trunk changed", extra=named | {"health": server.health})

    trunk.ping = ping = OptionsPing(
        driver.stack,
        every_s=trunk.settings.options_ping_s,
        caller=trunk.caller,
        egress=Egress(trunk.egress),
        route=() if trunk.proxy is None else (trunk.proxy,),
        changed=changed,
    )
    while is_current(trunk):
        try:
            targets = await driver.router.targets(trunk.uris, proxy=trunk.proxy)
        except OSError:
            logger.warning("trunk has no address", extra={"trunk": trunk.settings.id})
        else:
            if not is_current(trunk):
                return
            ping.look_at(targets, driver.loop.time())
            driver.flush()
        await asyncio.sleep(LOOK_UP_S)
