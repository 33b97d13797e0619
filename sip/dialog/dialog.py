"""A dialog (RFC 3261 section 12): its identity, its route, and the order of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network
from typing import NamedTuple, Protocol

from sip.egress import ANYWHERE, Egress, is_address
from sip.message.headers import CSeq, Headers, NameAddr
from sip.message.message import Request, Response
from sip.message.uri import Uri
from sip.transaction.hop import Hop, hop_of
from sip.transaction.transaction import ServerTransaction


class DialogId(NamedTuple):
    """Identifies a dialog on this side (RFC 3261 section 12)."""

    call_id: str
    local_tag: str
    remote_tag: str


class DialogSetId(NamedTuple):
    """Identifies an INVITE on this side, and the dialogs that its responses create. `local_tag` is made here:
    the Call-ID alone is not enough, as a proxy may route an INVITE back to its sender."""

    call_id: str
    local_tag: str


class DialogUser(Protocol):
    """The user of a dialog, which receives its requests."""

    @property
    def allow_from(self) -> Sequence[IPv4Network | IPv6Network]:
        """Networks whose requests are accepted within the dialog, whatever its route set is."""

    def request_received(self, transaction: ServerTransaction, now: float) -> None:
        """Receives a request within the dialog, ACK excepted."""

    def ack_received(self, ack: Request, now: float) -> None:
        """Receives an ACK that belongs to no transaction: that of a 2xx."""


class Dialog:
    """State that the requests of one dialog share. Made by `as_caller` or `as_called`."""

    def __init__(self, *, call_id: str, local: NameAddr, remote: NameAddr, contact: str) -> None:
        self.call_id = call_id
        self.local = local
        self.remote = remote
        self.contact = contact
        self.route_set: Sequence[NameAddr] = ()
        self.remote_target: Uri = remote.uri
        self.local_cseq = 0
        self.remote_cseq: int | None = None
        self.flow: Hop | None = None  # the source of the far end's INVITE, or of a telephone's response
        self.carrier: Hop | None = None  # the same, or the source of the response to an INVITE sent here
        self.egress = ANYWHERE

    @classmethod
    def as_caller(
        cls,
        request: Request,
        response: Response,
        *,
        source: Hop | None = None,
        egress: Egress = ANYWHERE,
    ) -> Dialog:
        """Creates the dialog of a response with a To tag to `request`, which was sent here (RFC 3261 12.1.2).
        `source`: the hop that the response came from."""
        contact = request.headers.get("Contact") or ""
        dialog = cls(call_id=request.call_id, local=request.from_, remote=response.to, contact=contact)
        dialog.route_set = tuple(reversed(response.record_routes))
        dialog.local_cseq = request.cseq.number
        dialog.carrier, dialog.egress = source, egress
        dialog.flow = source if egress.keeps_flow else None
        dialog.refresh_target(response)
        return dialog

    @classmethod
    def as_called(
        cls, request: Request, *, local_tag: str, contact: str, source: Hop, egress: Egress = ANYWHERE
    ) -> Dialog:
        """Creates the dialog of a response to `request`, which was received (RFC 3261 12.1.1)."""
        local = request.to.with_tag(local_tag)
        dialog = cls(call_id=request.call_id, local=local, remote=request.from_, contact=contact)
        dialog.route_set = tuple(request.record_routes)
        dialog.remote_cseq = request.cseq.number
        dialog.carrier, dialog.egress = source, egress
        dialog.flow = source
        dialog.refresh_target(request)
        return dialog

    @property
    def id(self) -> DialogId:
        return DialogId(self.call_id, self.local.tag or "", self.remote.tag or "")

    @property
    def hosts(self) -> frozenset[str]:
        """Hosts that the far end's requests may come from: those of the route set and of the remote
        target; none where they come from the flow alone."""
        if self.egress.keeps_flow:
            return frozenset()
        uris = [self.remote_target, *(route.uri for route in self.route_set)]
        return frozenset(hop_of(uri).host for uri in uris) - {""}

    def refresh_target(self, message: Request | Response) -> None:
        """Takes the remote target of a target refresh (INVITE, UPDATE and their 2xx; RFC 3261 12.2.1.2)."""
        contacts = message.contacts
        if contacts and contacts[0].uri.scheme in ("sip", "sips"):
            self.remote_target = contacts[0].uri

    def update_routes(self, response: Response) -> None:
        """Takes the route set of the 2xx that confirms an early dialog (RFC 3261 13.2.2.4)."""
        self.route_set = tuple(reversed(response.record_routes))

    def in_order(self, request: Request) -> bool:
        """Notes the request's CSeq. False: it is not above the last one (answer 500)."""
        number = request.cseq.number
        if self.remote_cseq is not None and number <= self.remote_cseq:
            return False
        self.remote_cseq = number
        return True

    def next_cseq(self) -> int:
        self.local_cseq += 1
        return self.local_cseq

    def request(self, method: str, *, cseq: int | None = None) -> Request:
        """Creates a request within the dialog, without Via (RFC 3261 12.2.1.1). An ACK repeats the `cseq` of
        its INVITE."""
        uri, routes = self._path()
        headers = Headers()
        for route in routes:
            headers.add("Route", str(route))
        headers.add("Max-Forwards", "70")
        headers.add("From", str(self.local))
        headers.add("To", str(self.remote))
        headers.add("Call-ID", self.call_id)
        headers.add("CSeq", str(CSeq(self.next_cseq() if cseq is None else cseq, method)))
        if method in ("INVITE", "UPDATE"):
            headers.add("Contact", self.contact)
        return Request(method, uri, headers)

    def ack(self, invite: Request) -> Request:
        """Creates the ACK of the 2xx to `invite`, with the same credentials (RFC 3261 13.2.2.4)."""
        ack = self.request("ACK", cseq=invite.cseq.number)
        for name in ("Authorization", "Proxy-Authorization"):
            for value in invite.headers.get_all(name):
                ack.headers.add(name, value)
        return ack

    def next_hop(self) -> Hop:
        """Returns the hop of requests within the dialog: the first route, or the remote target.

        Requests to a far end that called go back to the source of its INVITE while no route says otherwise:
        on its stream or, over UDP, if its contact is an address closed to the trunk, since a contact behind a
        NAT cannot be reached (compare RFC 5626). Those to a user's telephone always go there."""
        if self.flow is not None and self.egress.keeps_flow:
            return replace(self.flow, egress=self.egress)
        uri = self.route_set[0].uri if self.route_set else self.remote_target
        target = hop_of(uri, egress=self.egress)
        flow = self.flow
        if flow is None or flow.transport != target.transport:
            return target
        if flow.reliable:
            return replace(target, connection=flow.connection)
        closed = is_address(target.host) and not self.egress.allows(target.host)
        return replace(flow, egress=self.egress) if closed and not self.route_set else target

    def _path(self) -> tuple[Uri, Sequence[NameAddr]]:
        """Returns Request-URI and Route: loose routing, or the strict routing of RFC 2543 elements."""
        if not self.route_set or "lr" in self.route_set[0].uri.params:
            return self.remote_target, self.route_set
        first = self.route_set[0].uri
        return first.without_headers(), (*self.route_set[1:], NameAddr(self.remote_target))
