"""Decides which requests are admitted: by the trunks' addresses and credentials, and by free capacity."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address
from math import ceil

from sip.auth.digest import Verdict, Verifier
from sip.egress import canonical
from sip.message.message import Request
from sip.stack.admission import Admitted, Refused
from sip.transaction.hop import Hop
from sip.trunk import Trunk
from sip.wrong_passwords import WrongPasswords

logger = logging.getLogger(__name__)

Network = IPv4Network | IPv6Network

RETRY_AFTER_S = 10
UNKNOWN = Refused(404)
"""The answer to a stranger, and for a number that no agent serves: the same, so that neither can be
probed."""


class AdmissionPolicy:
    """Implements `sip.stack.admission.AdmissionControl` for the trunks of one endpoint.

    A request belongs to a trunk when its source address is in the trunk's `allow_from`, or when it carries
    digest credentials of the trunk. Strangers are challenged (401, the same for every number) if any trunk
    has credentials, and are answered 404 otherwise. A source that repeats wrong credentials is answered 503
    before these are checked. OPTIONS follows the same rule: monitoring from a trunk's addresses is answered
    200. Several trunks may share addresses: the first that serves the called number takes the call."""

    def __init__(self, trunks: Mapping[str, Trunk], realm: str, *, room: Callable[[], bool]) -> None:
        self.serves: Callable[[str, Trunk], bool] | None = None
        self.draining = False
        self.overload: Callable[[], int] = lambda: 0
        """Seconds until new requests are admitted again, because the event loop is late; 0: now."""
        self.undecided: Callable[[], int] = lambda: 0
        """Counts the calls that were offered to the application and that it has not taken yet."""
        self._trunks = trunks
        self._room = room
        self.wrong_passwords = WrongPasswords()
        self._verifier = Verifier(realm)
        self._networks: list[tuple[Network, Trunk]] = []
        self._passwords: dict[str, tuple[str, Trunk]] = {}

    def trunks_changed(self) -> None:
        """Rebuilds the tables of networks and credentials; call it after the mapping of trunks has
        changed."""
        networks: list[tuple[Network, Trunk]] = []
        passwords: dict[str, tuple[str, Trunk]] = {}
        for trunk in self._trunks.values():
            settings = trunk.settings
            networks += [(each, trunk) for each in trunk.invite_settings.allow_from]
            if settings.username and settings.password:
                passwords.setdefault(settings.username, (settings.password, trunk))
        self._networks, self._passwords = networks, passwords

    def busy(self) -> int:
        """Returns the seconds after which a new request may be sent again, by `overload`; 0: now."""
        return self.overload()

    def full(self) -> int:
        """Returns the seconds after which a new call may be offered again, while the endpoint drains or has
        no free call; 0: now."""
        return RETRY_AFTER_S if self.draining or not self._room() else 0

    def of_a_trunk(self, host: str) -> bool:
        """Whether the address `host` belongs to a trunk."""
        return bool(self._at(host))

    def admit(self, request: Request, source: Hop, now: float) -> Admitted | Refused:
        """Finds the trunk that sent `request`, by its address or its credentials, and for an INVITE decides
        whether the call is taken."""
        trunks = self._at(source.host)
        if not trunks and self._passwords:
            verified = self._verified(request, source.host, now)
            if isinstance(verified, Refused):
                return verified
            trunks = [verified]
        if not trunks:
            return UNKNOWN
        if request.method != "INVITE":
            return Admitted(trunks[0].settings.id, trunks[0].invite_settings)
        if pause_s := self.full():
            return Refused(503, (("Retry-After", str(pause_s)),))
        number = request.uri.user
        trunk = next((each for each in trunks if self.serves is None or self.serves(number, each)), None)
        return UNKNOWN if trunk is None else Admitted(trunk.settings.id, trunk.invite_settings)

    def _at(self, host: str) -> list[Trunk]:
        try:
            address = ip_address(canonical(host))
        except ValueError:
            return []
        found = [trunk for network, trunk in self._networks if address in network]
        return list(dict.fromkeys(found))

    def _verified(self, request: Request, host: str, now: float) -> Trunk | Refused:
        claimed = self._verifier.claimed(request) or ""
        if claimed and (wait_s := self.wrong_passwords.wait_s(host, claimed, now)):
            return Refused(503, (("Retry-After", str(ceil(wait_s))),))
        verdict, username = self._verifier.verify(request, self._password_of, now, host=host)
        if verdict is Verdict.OK and username is not None:
            self.wrong_passwords.right(host, username)
            return self._passwords[username][1]
        if verdict is Verdict.WRONG and self.wrong_passwords.wrong(host, claimed, now):
            logger.warning("wrong SIP passwords, further ones wait", extra={"address": host})
        stale = verdict is Verdict.STALE
        challenges = self._verifier.challenges(now, host=host, stale=stale)
        return Refused(401, tuple(("WWW-Authenticate", value) for value in challenges))

    def _password_of(self, username: str) -> str | None:
        known = self._passwords.get(username)
        return known[0] if known is not None else None
