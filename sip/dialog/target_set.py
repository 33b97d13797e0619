"""The targets of an INVITE, tried in turn, and what becomes of one that was passed over.

Nobody is called twice: once a server may have let the phone ring, the INVITE goes to no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from sip.dialog.client_request import ClientRequest
from sip.dialog.dialog import Dialog
from sip.dialog.session_timer import delta_seconds
from sip.dialog.usage import InviteUsage
from sip.message.headers import NameAddr
from sip.message.message import Response
from sip.message.uri import Uri
from sip.reason import Q850, reasons_of
from sip.states import HangupCause, cause_of
from sip.transaction.hop import SWITCH_S, Hop, hop_of
from sip.transaction.timers import GIVE_UP_S
from sip.transaction.transaction import ClientTransaction, FireAndForget

_GIVEN_TO_ANOTHER = str(Q850[HangupCause.CANCELLED])

ELSEWHERE = frozenset({500, 502, 503, 504})
"""Refusals of a server that cannot take the call, while another may (RFC 3263 4.3)."""

MAX_CONTACTS = 5
"""Contacts of one redirection that are tried."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where an INVITE may go: its Request-URI, and the hop that takes it there. `foreign`: a redirection
    named it, and its host is none of the trunk's."""

    uri: Uri
    hop: Hop
    foreign: bool = False

    @classmethod
    def of(cls, uri: Uri) -> Self:
        """Returns the target of a URI whose name is looked up when the request is sent."""
        return cls(uri, hop_of(uri))

    @property
    def protection(self) -> int:
        """2: TLS on every hop (sips), 1: TLS on the first, 0: none."""
        return 2 if self.uri.scheme == "sips" else int(self.hop.transport == "tls")


class TargetSet:
    """The targets of the call of `usage`, in order (RFC 3261 16.5). `rang`: a server said more than 100, so
    that the phone may ring."""

    def __init__(
        self,
        usage: InviteUsage,
        targets: Sequence[Target],
        *,
        routed: bool = False,
        after: TargetSet | None = None,
    ) -> None:
        """`routed`: the INVITE has a Route, so that every target is reached over the hop of the first.
        `after`: the targets of another trunk, which did not take the call."""
        self._usage = usage
        self._routed = routed
        self._targets = list(targets)
        self._place = 0
        self._redirects = 0
        self.rang = False
        self._passed_over: list[PassedOver] = [] if after is None else after._passed_over

    @property
    def first(self) -> Target:
        return self._targets[0]

    @property
    def current(self) -> Target:
        return self._targets[self._place]

    @property
    def silent(self) -> bool:
        """Whether a server that was passed over has not refused since: the phone may ring there."""
        return any(not each.refused for each in self._passed_over)

    @property
    def spare(self) -> bool:
        """Whether the INVITE may go to another target."""
        return not self.may_ring and self._place + 1 < len(self._targets)

    @property
    def elsewhere(self) -> bool:
        """Whether the call may go over another trunk."""
        return not self.may_ring and self._usage.settings.spare

    @property
    def may_ring(self) -> bool:
        """Whether a phone may ring, or has rung: where the INVITE is now, or late at a server that was passed
        over."""
        return self.rang or any(each.rang for each in self._passed_over)

    def advance(self) -> bool:
        """Moves to the next target. False: there is none, or the phone may ring."""
        if not self.spare:
            return False
        self._place += 1
        if self._usage.authorizer is not None:
            self._usage.authorizer.known_realms_only = self.current.foreign
        return True

    def watch(self, since: float, unanswered: Callable[[float], None]) -> None:
        """Calls `unanswered` after `failover_s` without any response, where there is another target or
        trunk."""
        if self.spare or self.elsewhere:
            self._usage.arm("silence", since + self._usage.settings.failover_s, unanswered)

    def overdue(
        self, transaction: ClientTransaction, now: float, unanswered: Callable[[float], None]
    ) -> bool:
        """Whether an INVITE has waited for `failover_s`; if it was sent later, after a challenge or over UDP
        after all, it is watched further."""
        since = transaction.started_at + (SWITCH_S if transaction.hop.switched else 0.0)
        if since + self._usage.settings.failover_s <= now:
            return True
        self.watch(since, unanswered)
        return False

    def redirect(self, response: Response) -> bool:
        """Puts the contacts of a redirection before the next target, by their q values (RFC 3261 8.1.3.4).
        False: no more are followed, or none is the same number, as well protected: whoever may be called, and
        who may listen, was decided before."""
        if self.may_ring or self._redirects >= self._usage.settings.follow_redirects:
            return False
        self._redirects += 1
        wanted = self.first.uri.user
        known = {str(target.uri) for target in self._targets}
        offered = [
            each
            for each in response.contacts
            if each.uri.scheme in ("sip", "sips") and each.uri.user == wanted
        ]
        offered.sort(key=_preference, reverse=True)
        uris = [each.uri.without_headers() for each in offered if str(each.uri) not in known]
        found = [self._contact(uri) for uri in uris]
        found = [each for each in found if each.protection >= self.first.protection][:MAX_CONTACTS]
        self._targets[self._place + 1 : self._place + 1] = found
        return bool(found)

    def _contact(self, uri: Uri) -> Target:
        own = (each for each in self._targets if not each.foreign)
        hosts = {host.lower() for each in own for host in (each.uri.host, each.hop.host, each.hop.domain)}
        hop = hop_of(uri)
        return Target(uri, self.current.hop if self._routed else hop, foreign=hop.host.lower() not in hosts)

    def pass_over(self, transaction: ClientTransaction) -> None:
        """Repeats an INVITE no more, because the next target got it."""
        passed = PassedOver(self._usage, transaction)
        self._passed_over.append(passed)
        transaction.stand_down(passed)

    def refused(self, response: Response, now: float, *, given_up: HangupCause | None) -> None:
        """Ends the call with the far end's refusal, or with the cause for which this side had `given_up`."""
        usage = self._usage
        if self.silent:
            usage.definite = False  # the phone may ring at the server that was passed over
        usage.elsewhere = response.status in ELSEWHERE and given_up is None and self.elsewhere
        usage.finish(
            given_up or cause_of(response.status),
            response.status,
            "local" if given_up is not None else "remote",
            now,
            retry_after_s=delta_seconds(response.header("Retry-After")),
            reasons=reasons_of(response.headers),
        )


def _preference(contact: NameAddr) -> float:
    try:
        return float(contact.params.get("q") or 1.0)
    except ValueError:
        return 1.0


class PassedOver:
    """The user of an INVITE that was sent elsewhere because nobody answered it: a server that answers late is
    told to stop, by CANCEL or BYE. `rang`: it said more than 100, late, so that the phone may have rung."""

    def __init__(self, usage: InviteUsage, transaction: ClientTransaction) -> None:
        self._core = usage.core
        self._transaction = transaction
        self._authorizer = usage.authorizer
        self._egress = usage.egress
        self._cancelled = False
        self.refused = self.rang = False
        self._acks: dict[str, tuple[bytes, Hop]] = {}

    def response_received(self, response: Response, now: float) -> None:
        """Cancels at the first provisional response; acknowledges and hangs up a 2xx."""
        self.rang = self.rang or 100 < response.status < 300
        if response.status < 200:
            if not self._cancelled:
                self._cancelled = True
                self._core.send_cancel(self._transaction, FireAndForget(), now, _GIVEN_TO_ANOTHER)
                self._core.clock.at(now + GIVE_UP_S, self._transaction.abandon)
        elif response.status < 300:
            self._decline(response, now)
        else:
            self.refused = True

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """Does nothing: silence is why the INVITE went elsewhere."""

    def _decline(self, response: Response, now: float) -> None:
        tag = response.to.tag or ""
        if tag in self._acks:
            self._core.transmit(*self._acks[tag], "")
            return
        invite = self._transaction.request
        dialog = Dialog.as_caller(invite, response, source=self._transaction.source, egress=self._egress)
        ack, hop = dialog.ack(invite), dialog.next_hop()
        self._core.send_ack(ack, hop)
        self._acks[tag] = ack.to_bytes(), hop
        client = ClientRequest(self._core, next_cseq=dialog.next_cseq, authorizer=self._authorizer)
        client.send(dialog.request("BYE"), hop, FireAndForget(), now)
