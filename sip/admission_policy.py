"""Decides which requests are admitted: by the trunks' addresses, by credentials, and by free capacity."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from math import ceil
from typing import Self

from sip.auth.digest import Verdict, Verifier
from sip.called_number import called_numbers
from sip.egress import canonical
from sip.message.message import Request
from sip.stack.admission import Admitted, Refused, RefusedRequest
from sip.stack.driver import EndpointSettings
from sip.strangers import Strangers, Treatment
from sip.telephones.registrar import Registrar
from sip.transaction.hop import Hop
from sip.trunk import Trunk
from sip.trunk_settings import User
from sip.wrong_passwords import WrongPasswords

logger = logging.getLogger(__name__)

Network = IPv4Network | IPv6Network

TrunkChoice = Callable[[str, Sequence[Trunk]], Trunk | None]
"""Returns the trunk on which a called number is answered, of those that the caller's address belongs to; None
where the number is nobody's."""

Reaches = Callable[[str, str, Trunk], bool]
"""Whether a user's call, by the user's name, to a number is answered by an agent that the user may call."""

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
    200. Several trunks may share addresses: `trunk_for` chooses by the called number.

    A request with the credentials of a company's user, or over the flow of a telephone that the user has
    registered, is that user's, whatever address it comes from: it needs digest, and `user_reaches` says whom
    it may call. A WebSocket carries nothing else."""

    def __init__(
        self,
        trunks: Mapping[str, Trunk],
        realm: str,
        *,
        room: Callable[[], bool],
        strangers: Strangers | None = None,
        never_ban: Sequence[str] = (),
        registrar: Registrar | None = None,
    ) -> None:
        self.registrar = registrar or Registrar()
        self.trunk_for: TrunkChoice = lambda number, trunks: trunks[0]
        self.user_reaches: Reaches = lambda name, number, trunk: True
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
        self._accounts: dict[str, tuple[User, Trunk]] = {}
        self._bound: frozenset[tuple[str, str]] = frozenset()  # accounts of users, by trunk and name
        self._registrable = False  # by some account
        self._secrets: dict[tuple[str, str], str | Mapping[str, str] | None] = {}
        self._servers: frozenset[str] = frozenset()
        self._servers_until = 0.0

    @classmethod
    def of(cls, settings: EndpointSettings, trunks: Mapping[str, Trunk], *, room: Callable[[], bool]) -> Self:
        """Makes the policy of an endpoint. Raises ValueError for a malformed network."""
        strangers = Strangers(tries=settings.ban_after, ban_s=settings.ban_s)
        return cls(
            trunks,
            settings.realm or settings.public_address or "sip",
            room=room,
            strangers=strangers,
            never_ban=settings.never_ban,
            registrar=Registrar(shortest_s=settings.register_min_s, longest_s=settings.register_max_s),
        )

    def trunks_changed(self) -> None:
        """Rebuilds the tables of networks and credentials; call it after the mapping of trunks has
        changed."""
        networks: list[tuple[Network, Trunk]] = []
        accounts: dict[str, tuple[User, Trunk]] = {}
        for trunk in sorted(self._trunks.values(), key=lambda each: not each.settings.users):
            networks += [(each, trunk) for each in trunk.invite_settings.allow_from]
            for user in trunk.accounts:
                accounts.setdefault(user.name, (user, trunk))
        self._networks, self._accounts, self._servers_until = networks, accounts, 0.0
        self._registering = [trunk for trunk in self._trunks.values() if trunk.settings.register]
        self._registrable = any(user.telephones for user, _ in accounts.values())
        lines = [trunk for trunk in self._trunks.values() if trunk.settings.users]
        self._bound = frozenset((line.settings.id, user.name) for line in lines for user in line.accounts)

    def telephones(self) -> Mapping[str, int]:
        """Returns how many telephones are registered now, by trunk."""
        return self.registrar.count(asyncio.get_running_loop().time())

    def forget_unknown(self) -> None:
        """Removes the telephones of accounts that are no more, or have another password than before."""
        secrets = {(line.settings.id, user.name): user.secret for user, line in self._accounts.values()}
        before, self._secrets = self._secrets, secrets
        self.registrar.keep({each for each, secret in secrets.items() if before.get(each) == secret})

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
        if self._at(host) or self.strangers.known(host, now) or self.registrar.at(host, now):
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
        if request.method == "REGISTER" and self._registrable:
            return self._registered(request, source, now)
        if self._asks_as_user(request, source, now):
            return self._of_user(request, source, now)
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
        verified = self._verified(request, source, now)
        if isinstance(verified, Refused):
            return verified
        user, trunk = verified
        if not user.telephones:
            return Admitted(trunk.settings.id, trunk.invite_settings)  # answered 405
        account = (trunk.settings.id, user.name)
        return self.registrar.register(request, account, source, now, most=user.telephones)

    def _asks_as_user(self, request: Request, source: Hop, now: float) -> bool:
        """Whether a request is judged as a user's, and not by its address."""
        if source.transport == "ws":
            return True
        _, line = self._accounts.get(self._verifier.claimed(request) or "", (None, None))
        if line is not None and line.settings.users:
            return True
        return bool(self._bound) and self.registrar.of_flow(source, self._bound, now)

    def _of_user(self, request: Request, source: Hop, now: float) -> Admitted | Refused:
        """Decides on a request, other than REGISTER, of a user, whoever claims to be one."""
        verified = self._verified(request, source, now) if self._accounts else UNKNOWN
        if isinstance(verified, Refused):
            return verified
        user, line = verified
        if not line.settings.users:
            return UNKNOWN
        if request.method != "INVITE":
            return Admitted(line.settings.id, line.invite_settings)
        if pause_s := self.full():
            return Refused(503, (("Retry-After", str(pause_s)),))
        number = request.uri.number
        if not user.may_call or not self.user_reaches(user.name, number, line):
            return UNKNOWN
        return Admitted(line.settings.id, line.invite_settings, number, user=user.name)

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
        if trunks or not self._accounts:
            return trunks or UNKNOWN
        verified = self._verified(request, source, now)
        return verified if isinstance(verified, Refused) else [verified[1]]

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

    def _verified(self, request: Request, source: Hop, now: float) -> tuple[User, Trunk] | Refused:
        host, claimed = source.host, self._verifier.claimed(request) or ""
        if claimed and (wait_s := self.wrong_passwords.wait_s(host, claimed, now)):
            return Refused(503, (("Retry-After", str(ceil(wait_s))),))
        verdict, username = self._verifier.verify(request, self._secret_of, now, host=host)
        if verdict is Verdict.OK and username is not None:
            self.wrong_passwords.right(host, username)
            self.strangers.came_in(host, now)
            return self._accounts[username]
        if verdict is Verdict.WRONG and self.wrong_passwords.wrong(host, claimed, now):
            logger.warning("wrong SIP passwords, further ones wait", extra={"address": host})
        stale = verdict is Verdict.STALE
        only = self._hashes_for(request, claimed, source, now)
        challenges = self._verifier.challenges(now, host=host, stale=stale, only=only)
        return Refused(401, tuple(("WWW-Authenticate", value) for value in challenges))

    def _hashes_for(self, request: Request, claimed: str, source: Hop, now: float) -> Sequence[str] | None:
        """Returns the hashes that a telephone is challenged with: those of its account, and MD5 from where
        one is registered. Telephones in use give up at a challenge of SHA-256 beside that of MD5 (baresip 1.0
        for one). None: all."""
        named = request.to if request.method == "REGISTER" else request.from_
        for name in (claimed, named.uri.number):
            user, _ = self._accounts.get(name, (None, None))
            if user is not None and user.telephones:
                return user.digest
        unknown = (
            self._bound and named.uri.number not in self._accounts
        )  # nobody finds out who has an account
        return (
            ("MD5",) if unknown or source.transport == "ws" or self.registrar.at(source.host, now) else None
        )

    def _secret_of(self, username: str) -> str | Mapping[str, str] | None:
        user, _ = self._accounts.get(username, (None, None))
        return user.secret if user is not None else None
