"""Decides which requests are admitted: by the trunks' addresses and credentials, and by free capacity."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from math import ceil
from typing import Self

from sip.auth.digest import Verdict, Verifier
from sip.called_number import called_numbers
from sip.egress import canonical
from sip.message.message import Request
from sip.registrar import registered
from sip.stack.admission import Admitted, Refused, RefusedRequest
from sip.stack.driver import EndpointSettings
from sip.strangers import Strangers, Treatment
from sip.transaction.hop import Hop
from sip.trunk import Trunk
from sip.wrong_passwords import WrongPasswords

logger = logging.getLogger(__name__)

Network = IPv4Network | IPv6Network

TrunkChoice = Callable[[str, Sequence[Trunk]], Trunk | None]
"""Returns the trunk on which a called number is answered, of those that the caller's address belongs to; None
where the number is nobody's."""

RETRY_AFTER_S = 10
GUESSED = frozenset({400, 401, 403, 404, 405, 501})
"""Statuses by which a scanner learns what is here; of others none is a reason to ban an address."""

SERVERS_S = 1.0
"""Seconds for which the addresses of the trunks' servers are taken together once: of 1,000 trunks it takes
2 ms, and it is asked for every refused request."""

UNKNOWN = Refused(404)
"""The answer to a stranger, and for a number that no agent serves: the same, so that neither can be
probed."""


class AdmissionPolicy:
    """Implements `sip.stack.admission.AdmissionControl` for the trunks of one endpoint.

    A request belongs to a trunk when its source address is in the trunk's `allow_from`, when it comes from
    the trunk's registrar for the contact that the trunk has registered there, or when it carries digest
    credentials of the trunk. Strangers are challenged (401, the same for every number) if any trunk
    has credentials, and are answered 404 otherwise. A source that repeats wrong credentials is answered 503
    before these are checked. OPTIONS follows the same rule: monitoring from a trunk's addresses is answered
    200. Several trunks may share addresses: `trunk_for` chooses by the called number."""

    def __init__(
        self,
        trunks: Mapping[str, Trunk],
        realm: str,
        *,
        room: Callable[[], bool],
        strangers: Strangers | None = None,
        never_ban: Sequence[str] = (),
    ) -> None:
        self.trunk_for: TrunkChoice = lambda number, trunks: trunks[0]
        self.draining = False
        self.overload: Callable[[], int] = lambda: 0
        """Seconds until new requests are admitted again, because the event loop is late; 0: now."""
        self.undecided: Callable[[], int] = lambda: 0
        """Counts the calls that were offered to the application and that it has not taken yet."""
        self._trunks = trunks
        self._room = room
        self.wrong_passwords = WrongPasswords()
        self.strangers = strangers or Strangers()
        self._never_ban = [ip_network(each, strict=False) for each in never_ban]
        self._verifier = Verifier(realm)
        self._networks: list[tuple[Network, Trunk]] = []
        self._registering: list[Trunk] = []
        self._accepting: list[Trunk] = []
        self._passwords: dict[str, tuple[str, Trunk]] = {}
        self._servers: frozenset[str] = frozenset()
        self._servers_until = 0.0

    @classmethod
    def of(cls, settings: EndpointSettings, trunks: Mapping[str, Trunk], *, room: Callable[[], bool]) -> Self:
        """Makes the policy of an endpoint. Raises ValueError for a malformed network."""
        strangers = Strangers(tries=settings.ban_after, ban_s=settings.ban_s)
        realm, never_ban = settings.public_address or "sip", settings.never_ban
        return cls(trunks, realm, room=room, strangers=strangers, never_ban=never_ban)

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
        self._networks, self._passwords, self._servers_until = networks, passwords, 0.0
        self._registering = [trunk for trunk in self._trunks.values() if trunk.settings.register]
        self._accepting = [trunk for trunk in self._trunks.values() if trunk.settings.accept_register]

    def busy(self) -> int:
        """Returns the seconds after which a new request may be sent again, by `overload`; 0: now."""
        return self.overload()

    def full(self) -> int:
        """Returns the seconds after which a new call may be offered again, while the endpoint drains or has
        no free call; 0: now."""
        return RETRY_AFTER_S if self.draining or not self._room() else 0

    def of_a_trunk(self, host: str) -> bool:
        """Whether the address `host` belongs to a trunk."""
        address = canonical(host)
        return bool(self._at(host)) or any(trunk.registered_at(address) for trunk in self._registering)

    def silent(self, source: Hop, now: float, nonce: str) -> bool:
        """Whether a request from `source` outside any dialog gets no answer: the address is banned, no peer
        of ours since, and the request answers no challenge that it was sent just before, as one of many
        telephones behind that address does."""
        host = source.host
        if not self.strangers.silent(host, now, proven=source.reliable) or self._peer(host, now):
            return False
        if nonce and self._verifier.asked(nonce, host, now):
            return False
        self.strangers.silenced += 1
        return True

    def answers(self, refused: RefusedRequest, now: float) -> bool:
        """Whether a refused request is answered; counts it, where it is a stranger's."""
        host = refused.source.host
        if self._peer(host, now):
            return True
        treatment = self.strangers.refused(
            host, now, guess=refused.status in GUESSED, received=refused.received, sent=refused.sent
        )
        if treatment is Treatment.BAN:
            logger.warning("address banned from SIP", extra={"address": host, "status": refused.status})
        return treatment is Treatment.ANSWER

    def _peer(self, host: str, now: float) -> bool:
        """Whether `host` is no stranger: listed by a trunk or one of its servers, a telephone's, or one from
        which somebody has come in."""
        if self._at(host) or self.strangers.known(host, now) or self._telephone_at(host, now):
            return True
        address = canonical(host)
        if now >= self._servers_until:
            self._servers = frozenset(each for trunk in self._trunks.values() for each in trunk.addresses)
            self._servers_until = now + SERVERS_S
        if address in self._servers:
            return True
        return any(ip_address(address) in network for network in self._never_ban)

    def admit(self, request: Request, source: Hop, now: float) -> Admitted | Refused:
        """Finds the trunk that sent `request`, by its address or its credentials, and for an INVITE decides
        whether the call is taken."""
        if request.method == "REGISTER" and self._accepting:
            return self._registered(request, source, now)
        trunks = self._trunks_of(request, source, now)
        if isinstance(trunks, Refused):
            return trunks
        if request.method != "INVITE":
            return Admitted(trunks[0].settings.id, trunks[0].invite_settings)
        if pause_s := self.full():
            return Refused(503, (("Retry-After", str(pause_s)),))
        return self._put_through(request, trunks)

    def _registered(self, request: Request, source: Hop, now: float) -> Admitted | Refused:
        """Answers the REGISTER of a telephone: with a password, whatever address it comes from."""
        verified = self._verified(request, source.host, now)
        if isinstance(verified, Refused):
            return verified
        if not verified.settings.accept_register:
            return Admitted(verified.settings.id, verified.invite_settings)  # answered 405
        verified.binding, answer = registered(request, verified.account, source, now, verified.binding)
        return answer

    def _put_through(self, request: Request, trunks: Sequence[Trunk]) -> Admitted | Refused:
        """Finds the number that an INVITE is for, and of the trunks of its sender that of this number."""
        numbers: dict[str, list[Trunk]] = {}
        for trunk in trunks:
            for number in called_numbers(request, trunk.account, trunk.settings.called_number_headers):
                numbers.setdefault(number, []).append(trunk)
        for number, candidates in numbers.items():
            found = self.trunk_for(number, candidates)
            if found is not None:
                return Admitted(found.settings.id, found.invite_settings, number)
        return UNKNOWN

    def _trunks_of(self, request: Request, source: Hop, now: float) -> Sequence[Trunk] | Refused:
        """Returns the trunks that the sender of `request` may be, at least one."""
        trunks = self._called_by_registrar(request, source.host) or self._at(source.host)
        if trunks or not self._passwords:
            return trunks or UNKNOWN
        verified = self._verified(request, source.host, now)
        return verified if isinstance(verified, Refused) else [verified]

    def _called_by_registrar(self, request: Request, host: str) -> list[Trunk]:
        """Returns the trunks whose registered contact the Request-URI is: nobody else's, whoever shares the
        registrar's address."""
        mine = [trunk for trunk in self._registering if trunk.account == request.uri.number]
        if not mine:
            return []
        listed, address = self._at(host), canonical(host)
        return [trunk for trunk in mine if trunk in listed or trunk.registered_at(address)]

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
            self.strangers.came_in(host, now)
            return self._passwords[username][1]
        if verdict is Verdict.WRONG and self.wrong_passwords.wrong(host, claimed, now):
            logger.warning("wrong SIP passwords, further ones wait", extra={"address": host})
        stale = verdict is Verdict.STALE
        # Telephones in use give up at a challenge of SHA-256 beside that of MD5 (baresip 1.0 for one).
        only = "MD5" if self._of_a_telephone(request, claimed, host, now) else None
        challenges = self._verifier.challenges(now, host=host, stale=stale, only=only)
        return Refused(401, tuple(("WWW-Authenticate", value) for value in challenges))

    def _of_a_telephone(self, request: Request, claimed: str, host: str, now: float) -> bool:
        """Whether a request is that of a telephone's account, or comes from where one is registered."""
        named = request.to if request.method == "REGISTER" else request.from_
        if any(trunk.account in (claimed, named.uri.number) for trunk in self._accepting):
            return True
        return self._telephone_at(host, now)

    def _telephone_at(self, host: str, now: float) -> bool:
        address = canonical(host)
        bindings = [trunk.binding for trunk in self._accepting if trunk.binding is not None]
        return any(each.expires_at > now and canonical(each.hop.host) == address for each in bindings)

    def _password_of(self, username: str) -> str | None:
        known = self._passwords.get(username)
        return known[0] if known is not None else None
