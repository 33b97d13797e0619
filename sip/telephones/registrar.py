"""Registers telephones (RFC 3261 section 10.3, Path by RFC 3327, flows by RFC 5626).

Only a REGISTER with the digest credentials of its account comes here. A contact is bound to the flow that it
came by, the address of a datagram or a connection: a telephone behind a NAT, or in a browser, names a contact
that nobody reaches. A contact ends with its connection.

Bindings are kept in memory. After a restart connections are gone, and whoever had one opens another and
registers; telephones over UDP are back within the longest time that a binding lasts. A binding that was
written to a disk would name NAT entries and connections that are no more."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sip.dialog.session_timer import delta_seconds
from sip.egress import canonical
from sip.message.headers import NameAddr, format_params
from sip.message.message import Request
from sip.message.uri import Uri
from sip.stack.admission import HeaderLines, Refused
from sip.transaction.hop import Hop
from sip.trunk_settings import TELEPHONES_LIMIT

logger = logging.getLogger(__name__)

SHORTEST_S: Final = 60
LONGEST_S: Final = 600
"""Bounds of a binding's life in seconds."""

NAT_S: Final = 60
"""The longest life of a binding over UDP whose contact is not the address that it came from: refreshing it
keeps the NAT open, which may forget it after two minutes (RFC 4787 4.3)."""

HOSTS_LIMIT: Final = 20_000
"""Addresses remembered as those of telephones; expired ones are dropped beyond."""

Account = tuple[str, str]
"""A trunk's id and the name of an account there."""

Flow = int | tuple[str, str, int]
"""A connection's number; over UDP transport, address and port."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A telephone's contact and the flow that it is reached by, until `expires_at` on the loop's clock.
    `instance`: the telephone and which of its flows (RFC 5626), "" where it does not tell; `path`: proxies on
    the way to it; `call_id` and `cseq` of the REGISTER."""

    contact: Uri
    hop: Hop
    expires_at: float
    instance: str = ""
    path: tuple[Uri, ...] = ()
    call_id: str = ""
    cseq: int = 0

    def replaces(self, other: Binding) -> bool:
        """Whether this binding is the newer one of the same telephone."""
        return self.contact == other.contact or (self.instance != "" and self.instance == other.instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a binding's life in seconds, and the `most` contacts of an account."""

    shortest_s: int = SHORTEST_S
    longest_s: int = LONGEST_S
    most: int = TELEPHONES_LIMIT


class Registrar:
    """The telephones of all accounts. Times are passed in."""

    def __init__(self, *, shortest_s: int = SHORTEST_S, longest_s: int = LONGEST_S) -> None:
        self._shortest_s, self._longest_s = shortest_s, longest_s
        self._bindings: dict[Account, tuple[Binding, ...]] = {}
        self._flows: dict[Flow, set[Account]] = {}  # who is bound to each
        self._hosts: dict[str, float] = {}  # until when a telephone is there

    def register(self, request: Request, account: Account, source: Hop, now: float, *, most: int) -> Refused:
        """Takes a REGISTER for `account`; returns the answer."""
        before = self.bound(account, now)
        limits = Limits(shortest_s=self._shortest_s, longest_s=self._longest_s, most=most)
        after, answer = registered(request, account[1], source, now, before=before, limits=limits)
        self.bind(account, after, now)
        if bool(after) != bool(before):
            told = {"trunk": account[0], "user": account[1], "telephones": len(after)}
            logger.info("telephones of a user changed", extra=told)
        return answer

    def bind(self, account: Account, bindings: Iterable[Binding], now: float) -> None:
        """Replaces the telephones of `account`."""
        for each in self._bindings.pop(account, ()):
            there = self._flows.get(flow_of(each.hop), set())
            there.discard(account)
            if not there:
                self._flows.pop(flow_of(each.hop), None)
        bound = tuple(bindings)
        if bound:
            self._bindings[account] = bound
        for each in bound:
            self._flows.setdefault(flow_of(each.hop), set()).add(account)
            host = canonical(each.hop.host)
            self._hosts[host] = max(each.expires_at, self._hosts.get(host, 0.0))
        if len(self._hosts) > HOSTS_LIMIT:
            self._hosts = {host: until for host, until in self._hosts.items() if until > now}

    def bound(self, account: Account, now: float) -> tuple[Binding, ...]:
        """Returns the telephones of `account`, the latest last."""
        return tuple(each for each in self._bindings.get(account, ()) if each.expires_at > now)

    def count(self, now: float) -> dict[str, int]:
        """Returns how many telephones are registered, by trunk."""
        counts: dict[str, int] = {}
        for account in self._bindings:
            counts[account[0]] = counts.get(account[0], 0) + len(self.bound(account, now))
        return counts

    def at(self, host: str, now: float) -> bool:
        """Whether a telephone has registered from the address `host`, and would be bound still."""
        return self._hosts.get(canonical(host), 0.0) > now

    def of_flow(self, source: Hop, names: Collection[Account], now: float) -> bool:
        """Whether one of the accounts has registered over the very flow that `source` is."""
        flow = flow_of(source)
        return any(
            flow_of(each.hop) == flow
            for name in self._flows.get(flow, ())
            if name in names
            for each in self.bound(name, now)
        )

    def flow_closed(self, connection: int) -> None:
        """Removes the telephones that came by a connection which is closed."""
        for account in tuple(self._flows.get(connection, ())):
            left = [each for each in self._bindings[account] if each.hop.connection != connection]
            self.bind(account, left, 0.0)

    def keep(self, accounts: Collection[Account]) -> None:
        """Removes the telephones of all other accounts."""
        for account in [each for each in self._bindings if each not in accounts]:
            self.bind(account, (), 0.0)


def flow_of(hop: Hop) -> Flow:
    """Returns what is the same for all messages of a connection or, over UDP, of an address and port."""
    return hop.connection or (hop.transport, canonical(hop.host), hop.port)


_ANY: Final = Limits()


def registered(
    request: Request,
    account: str,
    source: Hop,
    now: float,
    *,
    before: Sequence[Binding] = (),
    limits: Limits = _ANY,
) -> tuple[tuple[Binding, ...], Refused]:
    """Takes a REGISTER for `account` from `source`. Returns the bindings from now on, and the answer: 200
    with what is bound, or the refusal, which leaves the bindings as they were."""
    bound, contacts = tuple(before), request.contacts
    refused = _refusal(request, account, bound, limits)
    if refused is not None:
        return bound, refused
    if any(each.is_wildcard for each in contacts):
        return (), _answer(request, (), source, now)
    for contact in contacts:
        wanted_s = _wanted_s(request, contact, limits)
        new = _binding(request, contact, source, now + min(wanted_s, _longest_s(contact.uri, source, limits)))
        bound = tuple(each for each in bound if not new.replaces(each)) + ((new,) if wanted_s else ())
    bound = bound[-limits.most :]
    return bound, _answer(request, bound, source, now)


def _refusal(request: Request, account: str, bound: Sequence[Binding], limits: Limits) -> Refused | None:
    """Returns why a REGISTER is refused, None where it is not."""
    contacts = request.contacts
    status = 0
    if request.to.uri.number != account:
        status = 403
    elif any(each.call_id == request.call_id and each.cseq > request.cseq.number for each in bound):
        status = 500  # an older request that was overtaken (RFC 3261 10.3, step 7)
    elif any(each.is_wildcard for each in contacts):
        removes = len(contacts) == 1 and delta_seconds(request.header("Expires")) == 0
        status = 0 if removes else 400
    elif len(contacts) > limits.most or any(each.uri.scheme not in ("sip", "sips") for each in contacts):
        status = 400
    elif any(0 < _wanted_s(request, each, limits) < limits.shortest_s for each in contacts):
        return Refused(423, (("Min-Expires", str(limits.shortest_s)),))
    return Refused(status) if status else None


def _binding(request: Request, contact: NameAddr, source: Hop, expires_at: float) -> Binding:
    instance, flow = contact.params.get("+sip.instance") or "", contact.params.get("reg-id") or ""
    path = tuple(each.uri for each in NameAddr.parse_list(request.headers.get_all("Path")))
    return Binding(
        contact.uri.without_headers(),
        source,
        expires_at,
        instance=f"{instance} {flow}" if instance else "",
        path=path,
        call_id=request.call_id,
        cseq=request.cseq.number,
    )


def _wanted_s(request: Request, contact: NameAddr, limits: Limits) -> int:
    for value in (contact.params.get("expires"), request.header("Expires")):
        if (wanted_s := delta_seconds(value)) is not None:
            return wanted_s
    return limits.longest_s


def _longest_s(contact: Uri, source: Hop, limits: Limits) -> int:
    behind_nat = source.transport == "udp" and canonical(contact.host) != canonical(source.host)
    return min(limits.longest_s, max(NAT_S, limits.shortest_s)) if behind_nat else limits.longest_s


def _answer(request: Request, bound: Sequence[Binding], source: Hop, now: float) -> Refused:
    lines: HeaderLines = tuple(
        ("Contact", f"<{each.contact}>;expires={int(each.expires_at - now)}{_flow_of(each)}")
        for each in bound
    )
    lines += tuple(("Path", value) for value in request.headers.get_all("Path"))
    outbound = source.reliable and "outbound" in request.supported
    if outbound and any(each.instance and each.hop == source for each in bound):
        lines += (("Require", "outbound"),)  # CRLF keeps the flow alive; over UDP that would need STUN
    return Refused(200, lines)


def _flow_of(binding: Binding) -> str:
    instance, _, flow = binding.instance.rpartition(" ")
    return format_params({"+sip.instance": instance, "reg-id": flow}) if instance and flow else ""
