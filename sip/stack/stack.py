"""The SIP stack without I/O: bytes, addresses and the time go in; bytes, addresses and events come out.

    stack.receive(data, source, now)     # a datagram; receive_message for a message of a stream
    stack.handle_timer(now)              # when stack.timer_at() has come
    for each in stack.transmissions(): socket.send(each.data, each.hop)
    for event in stack.events(): ...     # sip.stack.events

The owner must drain both after every call. A request outside any dialog is checked in the order of RFC 3261
8.2: its sender (`Gate`), the method, the headers, the content.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import replace
from random import Random, SystemRandom

from sip.dialog.dialog import Dialog, DialogId, DialogUser
from sip.dialog.invite import Offered, OfferedBy
from sip.dialog.uas import IncomingInvite
from sip.errors import MalformedMessage
from sip.message.framing import is_keepalive
from sip.message.headers import Via
from sip.message.message import MalformedRequest, Request, Response, parse, response_to
from sip.message.uri import Uri, format_hostport
from sip.stack.admission import (
    CAPABLE,
    Admitted,
    Answers,
    Gate,
    HeaderLines,
    Refused,
    RefusedRequest,
    refusal,
    unanswerable,
    unknown_method,
    unsupported,
)
from sip.stack.client_transactions import ClientTransactions
from sip.stack.counts import StackCounts
from sip.stack.dialogs import NO_DIALOG, Dialogs, carried, listed
from sip.stack.events import InviteReceived, StackEvent
from sip.transaction.hop import Hop, Transmission, response_hop
from sip.transaction.timers import Clock
from sip.transaction.transaction import (
    ClientTransaction,
    ServerTransaction,
    Transaction,
    TransactionUser,
    cancel_of,
)

MTU_LIMIT = 1300
"""Bytes; larger requests are sent over TCP unless UDP was asked for (RFC 3261 18.1.1)."""
MAGIC = "z9hG4bK"


class Stack:
    """All transactions and dialogs of one endpoint (implements `sip.dialog.ua_core.Core`)."""

    def __init__(
        self,
        gate: Gate,
        local_address: Callable[[Hop], tuple[str, int]],
        *,
        addresses_of: Callable[[str], Collection[str] | None] = lambda host: (host,),
        answers: Answers = lambda refused, now: True,
        user_agent: str = "",
        streams: bool = False,
        random: Random | None = None,
    ) -> None:
        """`local_address`: host and port under which the other end of a hop reaches this endpoint;
        `addresses_of`: as in `Dialogs`; `answers`: of requests that are refused; `streams`: large requests
        may use TCP; `random`: seeded in tests."""
        self.clock = Clock()
        self.user_agent, self.random = user_agent, random or SystemRandom()
        self.counts = StackCounts()
        self._gate, self._answers = gate, answers
        self._read = 0  # bytes of the datagram that is handled
        self._local_address = local_address
        self._streams = streams
        self._secret = secrets.token_bytes(16)
        self.clients = ClientTransactions()
        self._servers: dict[str, ServerTransaction] = {}
        self.serves: Callable[[str], bool] = self._servers.__contains__  # by `server_key`
        self._initial: dict[str, str] = {}  # request identity to transaction: finds merged requests
        self.offered_by: OfferedBy = IncomingInvite
        self._invited: dict[str, Offered] = {}  # by the transaction of its INVITE: finds CANCELs
        self.within = Dialogs(addresses_of, self.counts)
        self._transmissions: list[Transmission] = []
        self._events: list[StackEvent] = []

    # Output -----------------------------------------------------------------------------------------------

    def transmissions(self) -> list[Transmission]:
        """Returns the messages to send now, in order; each once."""
        waiting, self._transmissions = self._transmissions, []
        return waiting

    def events(self) -> list[StackEvent]:
        """Returns the events since the last call, in order; each once."""
        waiting, self._events = self._events, []
        return waiting

    def timer_at(self) -> float | None:
        """Returns when `handle_timer` must be called; None without a timer."""
        return self.clock.next_at()

    @property
    def transactions(self) -> int:
        """The number of transactions that have not terminated."""
        return len(self.clients) + len(self._servers)

    @property
    def unanswered(self) -> int:
        """Requests sent that have no final response yet."""
        return self.clients.unanswered

    @property
    def dialogs(self) -> int:
        """The number of dialogs that are open."""
        return len(self.within)

    # Input ------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, source: Hop, now: float) -> None:
        """Takes one datagram from `source`: a SIP message, or a keep-alive, which is ignored."""
        if is_keepalive(data):
            return
        try:
            message: Request | Response | MalformedMessage = parse(data)
        except MalformedMessage as fault:
            message = fault
        self._read = len(data)
        self.receive_message(message, source, now)

    def receive_message(
        self, message: Request | Response | MalformedMessage, source: Hop, now: float
    ) -> None:
        """Takes one message, or the fault of a malformed one, of a datagram or a stream."""
        self.counts.received += 1
        if isinstance(message, MalformedMessage):
            request = message.request if isinstance(message, MalformedRequest) else None
            self._malformed(message, request, source, now)
            return
        try:
            if isinstance(message, Response):
                self._response(message, source, now)
            else:
                self._request(message, source, now)
        except MalformedMessage as fault:
            # Header fields that the parser does not check are parsed where they are used.
            self._malformed(fault, message if isinstance(message, Request) else None, source, now)

    def handle_timer(self, now: float) -> None:
        """Runs every timer that is due at `now`."""
        self.clock.run(now)

    def transmission_failed(self, transmission: Transmission, now: float) -> None:
        """Reports to the transaction that a transmission could not be sent, because its connection failed."""
        self.clients.failed(transmission, now)

    def transmission_refused(self, transmission: Transmission, address: str, now: float) -> None:
        """Reports that a transmission was not sent, because its hop's `address` is closed to the trunk."""
        if transmission.hop.egress is not None:
            transmission.hop.egress.refused(address, now)
        self.transmission_failed(transmission, now)

    # Core -------------------------------------------------------------------------------------------------

    def token(self) -> str:
        """Returns a new token of 64 random bits, 16 hexadecimal digits, for tags, branches and Call-IDs."""
        return f"{self.random.getrandbits(64):016x}"

    def contact(self, hop: Hop, user: str = "", *, secure: bool = False) -> str:
        """Returns the Contact under which the other end of `hop` reaches this endpoint, as in `Core`."""
        host, port = self._local_address(replace(hop, transport="tls") if secure else hop)
        params = {} if secure or hop.transport == "udp" else {"transport": hop.transport}
        return f"<{Uri('sips' if secure else 'sip', user, host, port=port, params=params)}>"

    def send_request(
        self, request: Request, hop: Hop, user: TransactionUser, now: float
    ) -> ClientTransaction:
        """Sends `request` in a new transaction, over TCP where it is long (RFC 3261 18.1.1)."""
        request.headers.prepend("Via", self._via(hop, request.method))
        switches = hop.elastic and not hop.reliable and self._streams
        if switches and self.clients.takes_streams(hop, now) and len(request.to_bytes()) > MTU_LIMIT:
            hop = replace(hop, transport="tcp")
            request.headers.pop_first("Via")
            request.headers.prepend("Via", self._via(hop, request.method))
        return self._start(request, hop, user, now)

    def send_cancel(self, invite: ClientTransaction, user: TransactionUser, now: float, reason: str) -> None:
        """Sends the CANCEL of `invite` in a new transaction (RFC 3261 9.1)."""
        self._start(cancel_of(invite.request, reason), invite.hop, user, now)

    def send_ack(self, ack: Request, hop: Hop) -> None:
        """Sends the ACK of a 2xx. The first transmission puts a Via on top, which repetitions keep."""
        if ack.headers.get("Via") is None:
            ack.headers.prepend("Via", self._via(hop))
        self.transmit(ack.to_bytes(), hop, "")

    def open_dialog(self, dialog: Dialog, user: DialogUser) -> None:
        """Delivers requests within `dialog` to `user` from now on."""
        self.within.open(dialog, user)

    def close_dialog(self, dialog: DialogId) -> None:
        """Answers requests within `dialog` with 481 from now on; idempotent."""
        self.within.close(dialog)

    def emit(self, event: StackEvent) -> None:
        """Queues `event` for the application."""
        self._events.append(event)

    def reply(
        self,
        transaction: ServerTransaction,
        status: int,
        now: float,
        *,
        headers: HeaderLines = (),
        to_tag: str | None = None,
    ) -> None:
        """Sends a response without a body in `transaction`."""
        response = response_to(transaction.request, status, to_tag=to_tag, headers=headers)
        transaction.respond(response, now)

    # Wire -------------------------------------------------------------------------------------------------

    def transmit(self, data: bytes, hop: Hop, key: str) -> None:
        """Queues `data` for `hop`; a failure is reported to the transaction `key`."""
        self.counts.transmitted += 1
        self._transmissions.append(Transmission(data, hop, key))

    def forget(self, transaction: Transaction) -> None:
        """Drops a transaction that has terminated."""
        key = transaction.key
        if isinstance(transaction, ClientTransaction):
            self.clients.forget(key)
        elif isinstance(transaction, ServerTransaction):
            self._servers.pop(key, None)
            self._invited.pop(key, None)
            identity = _identity(transaction.request)
            if self._initial.get(identity) == key:
                del self._initial[identity]

    # Internals --------------------------------------------------------------------------------------------

    def _via(self, hop: Hop, method: str = "") -> str:
        offers = ";keep" if method == "REGISTER" and hop.reliable else ""  # RFC 6223; STUN over UDP: not here
        sent_by = format_hostport(*self._local_address(hop))
        return f"SIP/2.0/{hop.transport.upper()} {sent_by};branch={MAGIC}{self.token()};rport{offers}"

    def _start(self, request: Request, hop: Hop, user: TransactionUser, now: float) -> ClientTransaction:
        client = ClientTransaction(self, request, hop=hop, user=user)
        self.clients.add(client)
        client.start(now)
        return client

    def _malformed(self, fault: MalformedMessage, request: Request | None, source: Hop, now: float) -> None:
        self.counts.malformed += 1
        if request is None or request.method == "ACK":
            return
        try:
            self._refuse(request, Refused(fault.code), source, now)
        except MalformedMessage:
            return  # without a valid Via there is nowhere to answer to

    def _refuse(self, request: Request, refused: Refused, source: Hop, now: float) -> None:
        """Answers statelessly, without a transaction, if at all."""
        self.counts.refused += 1
        data = refusal(request, refused, self._secret).to_bytes()
        received = None if source.reliable else self._read
        if self._answers(RefusedRequest(refused.status, source, received, len(data)), now):
            self.transmit(data, response_hop(request.via, source), "")

    def _response(self, response: Response, source: Hop, now: float) -> None:
        if len(response.vias) != 1 or not self.clients.receive(response, source, now):
            self.counts.strays += 1

    def _request(self, request: Request, source: Hop, now: float) -> None:
        via = _stamp(request, source)
        key = server_key(request, via)
        if request.method == "ACK":
            self._ack(request, key, source, now)
            return
        server = self._servers.get(key)
        if server is not None:
            server.receive(request, now)
            return
        refused = unknown_method(request)
        if refused is None and request.method == "CANCEL":
            refused = self._cancel(request, source, now)
        elif request.to.tag is not None and refused is None:
            refused = self._in_dialog(request, source, now)
        elif request.to.tag is None:
            refused = self._outside(request, source, now)
        if refused is not None:
            self._refuse(request, refused, source, now)

    def _serve(self, request: Request, source: Hop) -> ServerTransaction:
        key, hop = server_key(request, request.via), response_hop(request.via, source)
        server = ServerTransaction(self, request, hop=hop, key=key, source=source)
        self._servers[key] = server
        return server

    def _ack(self, request: Request, key: str, source: Hop, now: float) -> None:
        server = self._servers.get(key)
        if server is not None and server.status >= 300:
            server.receive(request, now)
            return
        user = self.within.find(request, source)
        if user is None or isinstance(user, Refused):
            self.counts.strays += 1
        else:
            user.ack_received(request, now)

    def _cancel(self, request: Request, source: Hop, now: float) -> Refused | None:
        key = server_key(request, request.via, method="INVITE")
        cancelled = self._servers.get(key)
        if cancelled is None:
            return NO_DIALOG
        invite = self._invited.get(key)
        if not (carried(cancelled.source, source) or (invite and listed(invite.allow_from, source))):
            return self.within.refuse()
        tag = invite.usage.dialog_set.local_tag if invite is not None else None
        self.reply(self._serve(request, source), 200, now, to_tag=tag)
        if invite is not None:
            invite.cancelled(now, request)
        return None

    def _in_dialog(self, request: Request, source: Hop, now: float) -> Refused | None:
        user = self.within.find(request, source)
        if user is None or isinstance(user, Refused):
            return user
        refused = unsupported(request)
        if refused is None:
            user.request_received(self._serve(request, source), now)
        return refused

    def _outside(self, request: Request, source: Hop, now: float) -> Refused | None:
        admitted, old = self.within.admit(request, source, now, self._gate)
        if not isinstance(admitted, Admitted):
            return admitted
        refused = unknown_method(request) or unanswerable(request, admitted, replaces=old is not None)
        if refused is not None or request.method == "OPTIONS":
            return refused or CAPABLE
        identity = _identity(request)
        if identity in self._initial:
            return Refused(482)  # the request arrived by two paths (RFC 3261 8.2.2.2)
        server = self._serve(request, source)
        self._initial[identity] = server.key
        self.reply(server, 100, now)
        invite = self.offered_by(self, admitted.settings, server)
        self._invited[server.key] = invite
        self.emit(InviteReceived(invite, admitted, source, old))
        return None


def _stamp(request: Request, source: Hop) -> Via:
    """Notes the request's source address in the topmost Via (RFC 3261 18.2.1, RFC 3581)."""
    via = request.via
    if "rport" in via.params:
        via = via.with_params(received=source.host, rport=str(source.port))
    elif via.host != source.host:
        via = via.with_params(received=source.host)
    else:
        return via
    request.headers.pop_first("Via")
    request.headers.prepend("Via", str(via))
    return via


def server_key(request: Request, via: Via, *, method: str = "") -> str:
    """Returns the key of a request's server transaction (RFC 3261 17.2.3); the ACK of a 3xx-6xx has that of
    its INVITE."""
    method = method or ("INVITE" if request.method == "ACK" else request.method)
    branch = via.branch or ""
    if branch.startswith(MAGIC) and len(branch) > len(MAGIC):
        return f"{branch} {via.host.lower()}:{via.port} {method}"
    # An RFC 2543 peer sends no usable branch; the magic cookie alone counts as such (RFC 4475 3.2.1).
    tag = request.from_.tag
    return f"{request.call_id} {tag} {request.cseq.number} {via.host}:{via.port} {branch} {method}"


def _identity(request: Request) -> str:
    return f"{request.call_id} {request.from_.tag} {request.cseq.number} {request.method}"
