"""The forks of an outgoing INVITE: one early dialog for each target that a proxy lets ring (RFC 3261 13.2.2).

Each fork is acknowledged on its own, its reliable provisional responses too (RFC 3262 section 4); a fork that
is not used is closed."""

from __future__ import annotations

from dataclasses import dataclass

from sip.dialog.dialog import Dialog, DialogUser
from sip.dialog.events import MediaAgreed
from sip.dialog.session_timer import delta_seconds
from sip.dialog.usage import InviteUsage
from sip.errors import RemoteError
from sip.message.body import session_description
from sip.message.message import Request, Response
from sip.transaction.hop import Hop
from sip.transaction.transaction import ClientTransaction


@dataclass(slots=True)
class Fork:
    """One fork: an early dialog, or the dialog of a 2xx."""

    dialog: Dialog
    rseq: int | None = None  # of the last reliable provisional response
    ack: Request | None = None
    ack_hop: Hop | None = None


class Forks:
    """The forks of one INVITE by the To tag of their responses."""

    def __init__(self, usage: InviteUsage) -> None:
        self._usage = usage
        self._by_tag: dict[str, Fork] = {}
        self._settled_with: str | None = None  # the fork whose reliable response answered the offer

    def progressed(self, response: Response, transaction: ClientTransaction, user: DialogUser) -> Fork:
        """Returns the fork of a provisional response to the INVITE of `transaction`, with its remote target
        refreshed. The requests of a new fork go to `user`."""
        fork = self._by_tag.get(response.to.tag or "")
        if fork is None:
            return self._add(response, transaction, user)
        fork.dialog.refresh_target(response)
        return fork

    def answered(self, response: Response, transaction: ClientTransaction, user: DialogUser) -> Fork:
        """Returns the fork of a 2xx."""
        return self._by_tag.get(response.to.tag or "") or self._add(response, transaction, user)

    def dialog_of(self, tag: str) -> Dialog | None:
        """Returns the dialog of the fork with this To tag."""
        fork = self._by_tag.get(tag)
        return fork.dialog if fork is not None else None

    def acknowledge(self, fork: Fork, response: Response, transaction: ClientTransaction) -> bool:
        """Sends the ACK of a 2xx, the same ACK for each repetition (RFC 3261 13.2.2.4). True: the 2xx is the
        first."""
        first = fork.ack is None
        if fork.ack is None:
            fork.dialog.refresh_target(response)
            fork.dialog.update_routes(response)
            fork.ack = fork.dialog.ack(transaction.request)
            fork.ack_hop = fork.dialog.next_hop()
        assert fork.ack_hop is not None
        self._usage.core.send_ack(fork.ack, fork.ack_hop)
        return first

    def acknowledge_provisional(self, fork: Fork, response: Response, now: float) -> bool:
        """Sends PRACK for a reliable provisional response (RFC 3262 section 4). False: the response is
        repeated or out of order."""
        rseq = delta_seconds(response.header("RSeq"))
        if rseq is None or (fork.rseq is not None and rseq != fork.rseq + 1):
            return False
        fork.rseq = rseq
        prack = fork.dialog.request("PRACK")
        prack.headers.add("RAck", f"{rseq} {response.cseq}")
        self._usage.send_and_forget(fork.dialog, prack, now)
        return True

    def early_media(self, response: Response) -> bool:
        """Whether a provisional response has a valid SDP answer, which is taken. In a reliable response it is
        the final answer of that fork (RFC 3262 section 5): no other follows, and one that cannot be used
        raises `RemoteError`."""
        usage, reliable = self._usage, "100rel" in response.require
        try:
            if not (body := session_description(response)):
                return False
            self.turn_to(response)
            plan = usage.negotiation.settle(body) if reliable else usage.negotiation.preview(body)
        except RemoteError:
            if reliable:
                raise
            return False
        if reliable:
            self._settled_with = response.to.tag
        if plan is not None:
            usage.core.emit(MediaAgreed(usage.dialog_set, plan))
        return True

    def turn_to(self, response: Response) -> None:
        """Reopens the offer where another fork answers it: every fork answers the one offer, and the last
        that does receives the media."""
        if self._settled_with is not None and self._settled_with != response.to.tag:
            self._settled_with = None
            self._usage.negotiation.reopen()

    def decline(self, fork: Fork, now: float) -> None:
        """Closes a fork's dialog by BYE, because another fork was answered or the call was given up."""
        self._usage.core.close_dialog(fork.dialog.id)
        self._usage.send_and_forget(fork.dialog, fork.dialog.request("BYE"), now)

    def close(self, *, but: Fork | None = None) -> None:
        """Closes the dialog of every fork except `but`."""
        for fork in self._by_tag.values():
            if fork is not but:
                self._usage.core.close_dialog(fork.dialog.id)

    def forget(self) -> None:
        """Drops all forks, because the INVITE is sent again."""
        self.close()
        self._by_tag = {}
        self._settled_with = None
        self._usage.dialog = None

    def _add(self, response: Response, transaction: ClientTransaction, user: DialogUser) -> Fork:
        dialog = Dialog.as_caller(
            transaction.request, response, source=transaction.source, egress=self._usage.egress
        )
        fork = self._by_tag[response.to.tag or ""] = Fork(dialog)
        self._usage.dialog = self._usage.dialog or dialog
        self._usage.core.open_dialog(dialog, user)
        return fork
