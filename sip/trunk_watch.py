"""What a trunk does without calls: it registers, and asks its servers whether they live."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sip.dialog.options_ping import OptionsPing, ServerHealth
from sip.dialog.registration import Registration
from sip.egress import Egress
from sip.stack.driver import Driver
from sip.stack.keep_alive import KeepAlive
from sip.stack.stun import mapped_address
from sip.transaction.hop import hop_of
from sip.trunk import Trunk

logger = logging.getLogger(__name__)

LOOK_UP_S = 60.0
"""Seconds between two look-ups of a trunk's names; answers whose TTL is longer are kept by the resolver."""


def begin(
    driver: Driver,
    trunk: Trunk,
    *,
    is_current: Callable[[Trunk], bool],
    refused: Callable[[Trunk, str], None],
) -> None:
    """Begins what a trunk does without calls, until it is removed. `refused` is called with each address that
    is closed to the trunk's registration."""

    def register() -> None:
        if trunk.settings.register:
            trunk.registration = registration_of(driver, trunk, refused=lambda to: refused(trunk, to))
            trunk.registration.start(driver.loop.time())
            driver.flush()
            driver.transport.run(keep_alive(driver, trunk, trunk.registration, is_current=is_current))

    def moved(address: str) -> None:
        if trunk.registration is not None:
            trunk.registration.stop(driver.loop.time())  # with the contact of the old address
            driver.flush()
        trunk.public.now = address
        register()

    if trunk.settings.options_ping_s:
        driver.transport.run(watch(driver, trunk, is_current=is_current))
    if trunk.public.server is None:
        register()
    else:  # registers with the address that is found
        driver.transport.run(watch_address(driver, trunk, is_current=is_current, moved=moved))


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


async def keep_alive(
    driver: Driver, trunk: Trunk, registration: Registration, *, is_current: Callable[[Trunk], bool]
) -> None:
    """Keeps the flow of a trunk's registration open, until that is another or the trunk is removed."""

    def renew() -> None:
        logger.warning("flow of a registration is gone", extra={"trunk": trunk.settings.id})
        registration.start(driver.loop.time())
        driver.flush()

    pings = KeepAlive(
        driver.transport,
        registration,
        every_s=trunk.settings.keep_alive_s,
        random=driver.stack.random,
        renew=renew,
    )
    await pings.run(lambda: is_current(trunk) and trunk.registration is registration)


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


async def watch_address(
    driver: Driver, trunk: Trunk, *, is_current: Callable[[Trunk], bool], moved: Callable[[str], None]
) -> None:
    """Asks the trunk's STUN server for its public address, until the trunk is removed. `moved` is called with
    each new address, and with "" where the server does not answer at the start. While it does not answer,
    what it said last counts."""
    public, named, first = trunk.public, {"trunk": trunk.settings.id}, True
    while public.server is not None and is_current(trunk):
        address, reason = public.now, ""
        try:
            address = await _seen_at(driver, trunk, *public.server)
        except OSError as error:
            reason = str(error)
        if not is_current(trunk):
            return
        if reason and not public.failed:
            logger.warning("public address of a trunk is not told", extra=named | {"reason": reason})
        if address != public.now:
            logger.info("public address of a trunk changed", extra=named | {"address": address})
        public.failed = bool(reason)
        if first or address != public.now:
            moved(address)
        first = False
        await asyncio.sleep(trunk.settings.stun_every_s)


async def _seen_at(driver: Driver, trunk: Trunk, host: str, port: int) -> str:
    """Returns the address from which the STUN server sees this machine, of the family in which the trunk's
    peers are reached. Raises OSError, for an address that is closed to the trunk too."""
    egress, reached = Egress(trunk.egress), driver.local.host(hop_of(trunk.proxy or trunk.uris[0]))
    try:
        async with asyncio.timeout(LOOK_UP_S):
            found = await driver.transport.names.all_of(host)
    except UnicodeError as error:
        raise OSError(f"{host} is no name") from error
    failed = OSError("the STUN server's address is of another family, or closed to the trunk")
    for address in found:
        if (":" in address) is (":" in reached) and egress.allows(address, host=host):
            try:
                return await mapped_address(address, port)
            except OSError as error:
                failed = error
    raise failed
