"""The transaction layer of RFC 3261 section 17, with the corrections of RFC 6026.

Four machines - INVITE and non-INVITE, client and server - each one table: (state, event) gives the next state
and the actions. Where a cell is absent, RFC 3261 has nothing happen: a late or repeated message, which is
absorbed. The timers are data too (`sip.transaction.timers.TIMER_RULES`); every state names those that are
armed when it is entered, and leaving it disarms all others.

No I/O and no clock: bytes go to `Wire.transmit`, time is passed in as `now`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import NamedTuple, Protocol

from sip.message.headers import CSeq, Headers
from sip.message.message import Request, Response
from sip.transaction.hop import Hop
from sip.transaction.timers import TIMER_RULES, Alarm, Clock, Timer


class TransactionState(StrEnum):
    """All states of the four machines; each uses its own subset."""

    CALLING = "calling"
    TRYING = "trying"
    PROCEEDING = "proceeding"
    COMPLETED = "completed"
    ACCEPTED = "accepted"
    CONFIRMED = "confirmed"
    TERMINATED = "terminated"


class Happening(Enum):
    """Events of a transaction beside its timers."""

    PROVISIONAL = auto()  # 1xx: received (client) or to be sent (server)
    SUCCESS = auto()  # 2xx
    FAILURE = auto()  # 3xx to 6xx
    REQUEST = auto()  # the request again
    ACK = auto()  # ACK to a 3xx-6xx
    TRANSPORT_ERROR = auto()


class Act(Enum):
    """The actions of a transition, in the table's cells."""

    TRANSMIT = auto()  # the last message, once more or for the first time
    ACKNOWLEDGE = auto()  # ACK a 3xx-6xx
    DELIVER = auto()  # pass the message to the transaction's user
    TIME_OUT = auto()  # tell the user that no response came
    FAIL = auto()  # tell the user that the transport failed


class Cell(NamedTuple):
    """One entry of a table: the next state and the actions."""

    state: TransactionState
    acts: tuple[Act, ...] = ()


Table = Mapping[tuple[TransactionState, Happening | Timer], Cell]
S, H = TransactionState, Happening

INVITE_CLIENT: Table = {
    (S.CALLING, Timer.A): Cell(S.CALLING, (Act.TRANSMIT,)),
    (S.CALLING, Timer.B): Cell(S.TERMINATED, (Act.TIME_OUT,)),
    (S.CALLING, H.TRANSPORT_ERROR): Cell(S.TERMINATED, (Act.FAIL,)),
    (S.CALLING, H.PROVISIONAL): Cell(S.PROCEEDING, (Act.DELIVER,)),
    (S.CALLING, H.SUCCESS): Cell(S.ACCEPTED, (Act.DELIVER,)),
    (S.CALLING, H.FAILURE): Cell(S.COMPLETED, (Act.ACKNOWLEDGE, Act.DELIVER)),
    (S.PROCEEDING, H.PROVISIONAL): Cell(S.PROCEEDING, (Act.DELIVER,)),
    (S.PROCEEDING, H.SUCCESS): Cell(S.ACCEPTED, (Act.DELIVER,)),
    (S.PROCEEDING, H.FAILURE): Cell(S.COMPLETED, (Act.ACKNOWLEDGE, Act.DELIVER)),
    (S.COMPLETED, H.FAILURE): Cell(S.COMPLETED, (Act.ACKNOWLEDGE,)),
    (S.COMPLETED, Timer.D): Cell(S.TERMINATED),
    (S.ACCEPTED, H.SUCCESS): Cell(S.ACCEPTED, (Act.DELIVER,)),
    (S.ACCEPTED, Timer.M): Cell(S.TERMINATED),
}

CLIENT: Table = {
    (S.TRYING, Timer.E): Cell(S.TRYING, (Act.TRANSMIT,)),
    (S.TRYING, Timer.F): Cell(S.TERMINATED, (Act.TIME_OUT,)),
    (S.TRYING, H.TRANSPORT_ERROR): Cell(S.TERMINATED, (Act.FAIL,)),
    (S.TRYING, H.PROVISIONAL): Cell(S.PROCEEDING, (Act.DELIVER,)),
    (S.TRYING, H.SUCCESS): Cell(S.COMPLETED, (Act.DELIVER,)),
    (S.TRYING, H.FAILURE): Cell(S.COMPLETED, (Act.DELIVER,)),
    (S.PROCEEDING, Timer.E): Cell(S.PROCEEDING, (Act.TRANSMIT,)),
    (S.PROCEEDING, Timer.F): Cell(S.TERMINATED, (Act.TIME_OUT,)),
    (S.PROCEEDING, H.TRANSPORT_ERROR): Cell(S.TERMINATED, (Act.FAIL,)),
    (S.PROCEEDING, H.PROVISIONAL): Cell(S.PROCEEDING, (Act.DELIVER,)),
    (S.PROCEEDING, H.SUCCESS): Cell(S.COMPLETED, (Act.DELIVER,)),
    (S.PROCEEDING, H.FAILURE): Cell(S.COMPLETED, (Act.DELIVER,)),
    (S.COMPLETED, Timer.K): Cell(S.TERMINATED),
}

INVITE_SERVER: Table = {
    (S.PROCEEDING, H.REQUEST): Cell(S.PROCEEDING, (Act.TRANSMIT,)),
    (S.PROCEEDING, H.PROVISIONAL): Cell(S.PROCEEDING, (Act.TRANSMIT,)),
    (S.PROCEEDING, H.SUCCESS): Cell(S.ACCEPTED, (Act.TRANSMIT,)),
    (S.PROCEEDING, H.FAILURE): Cell(S.COMPLETED, (Act.TRANSMIT,)),
    (S.COMPLETED, H.REQUEST): Cell(S.COMPLETED, (Act.TRANSMIT,)),
    (S.COMPLETED, H.ACK): Cell(S.CONFIRMED),
    (S.COMPLETED, Timer.G): Cell(S.COMPLETED, (Act.TRANSMIT,)),
    (S.COMPLETED, Timer.H): Cell(S.TERMINATED),
    (S.CONFIRMED, Timer.I): Cell(S.TERMINATED),
    (S.ACCEPTED, H.SUCCESS): Cell(S.ACCEPTED, (Act.TRANSMIT,)),  # the user retransmits its 2xx
    (S.ACCEPTED, Timer.L): Cell(S.TERMINATED),
}

SERVER: Table = {
    (S.TRYING, H.PROVISIONAL): Cell(S.PROCEEDING, (Act.TRANSMIT,)),
    (S.TRYING, H.SUCCESS): Cell(S.COMPLETED, (Act.TRANSMIT,)),
    (S.TRYING, H.FAILURE): Cell(S.COMPLETED, (Act.TRANSMIT,)),
    (S.PROCEEDING, H.REQUEST): Cell(S.PROCEEDING, (Act.TRANSMIT,)),
    (S.PROCEEDING, H.PROVISIONAL): Cell(S.PROCEEDING, (Act.TRANSMIT,)),
    (S.PROCEEDING, H.SUCCESS): Cell(S.COMPLETED, (Act.TRANSMIT,)),
    (S.PROCEEDING, H.FAILURE): Cell(S.COMPLETED, (Act.TRANSMIT,)),
    (S.COMPLETED, H.REQUEST): Cell(S.COMPLETED, (Act.TRANSMIT,)),
    (S.COMPLETED, Timer.J): Cell(S.TERMINATED),
}

ARMED: Mapping[int, Mapping[TransactionState, tuple[Timer, ...]]] = {
    id(INVITE_CLIENT): {S.CALLING: (Timer.A, Timer.B), S.COMPLETED: (Timer.D,), S.ACCEPTED: (Timer.M,)},
    id(CLIENT): {
        S.TRYING: (Timer.E, Timer.F),
        S.PROCEEDING: (Timer.E, Timer.F),
        S.COMPLETED: (Timer.K,),
    },
    id(INVITE_SERVER): {
        S.COMPLETED: (Timer.G, Timer.H),
        S.CONFIRMED: (Timer.I,),
        S.ACCEPTED: (Timer.L,),
    },
    id(SERVER): {S.COMPLETED: (Timer.J,)},
}
"""The timers that run in each state of each machine."""


class Wire(Protocol):
    """What a transaction needs of the stack."""

    clock: Clock

    def transmit(self, data: bytes, hop: Hop, key: str) -> None:
        """Sends `data`; a failure is reported as `TRANSPORT_ERROR` to the transaction `key`."""

    def forget(self, transaction: Transaction) -> None:
        """Drops `transaction`, which has terminated."""


class Transaction:
    """The common part of the four machines, which runs their table."""

    def __init__(self, wire: Wire, table: Table, state: TransactionState, *, hop: Hop, key: str) -> None:
        self.state = state
        self.hop = hop
        self.key = key
        self._wire = wire
        self._table = table
        self._alarms: dict[Timer, Alarm] = {}
        self._last = b""  # the message that TRANSMIT sends
        self._sent = 0  # how often

    @property
    def terminated(self) -> bool:
        return self.state is TransactionState.TERMINATED

    def _happen(self, what: Happening | Timer, now: float) -> tuple[Act, ...]:
        """Moves to the next state and returns the remaining actions."""
        cell = self._table.get((self.state, what))
        if cell is None:
            return ()
        if cell.state is not self.state:
            self._enter(cell.state, now)
        if Act.TRANSMIT in cell.acts:
            # Without the key: a failed repetition counts as lost. The first transmission may have arrived, so
            # nobody is called at another address for it.
            self._sent += 1
            self._wire.transmit(self._last, self.hop, "")
        return cell.acts

    def _enter(self, state: TransactionState, now: float) -> None:
        armed = ARMED[id(self._table)].get(state, ())
        for timer in [timer for timer in self._alarms if timer not in armed]:
            self._alarms.pop(timer).cancel()
        self.state = state
        if state is TransactionState.TERMINATED:
            self._wire.forget(self)
            return
        for timer in armed:
            if timer not in self._alarms:
                self._arm(timer, now)

    def _arm(self, timer: Timer, now: float) -> None:
        rule = TIMER_RULES[timer]
        wait_s = rule.reliable_s if self.hop.reliable else rule.first_s
        if wait_s is not None:
            self._arm_in(timer, wait_s, now)

    def _arm_in(self, timer: Timer, wait_s: float, now: float) -> None:
        def ring(then: float) -> None:
            self._ring(timer, wait_s, then)

        self._alarms[timer] = self._wire.clock.at(now + wait_s, ring)

    def _ring(self, timer: Timer, waited_s: float, now: float) -> None:
        self._alarms.pop(timer, None)
        rule = TIMER_RULES[timer]
        if rule.repeats:
            in_proceeding = timer is Timer.E and self.state is TransactionState.PROCEEDING
            self._arm_in(timer, rule.ceiling_s if in_proceeding else min(2 * waited_s, rule.ceiling_s), now)
        self._perform(self._happen(timer, now), None, now)

    def _perform(self, acts: tuple[Act, ...], response: Response | None, now: float) -> None:
        """Performs the actions that client and server differ in."""
        raise NotImplementedError


class TransactionUser(Protocol):
    """The sender of a request, which receives its responses."""

    def response_received(self, response: Response, now: float) -> None:
        """Receives a provisional or final response; after a 2xx to INVITE possibly further ones."""

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """Reports that no response came (timer B or F), or that the request could not be sent."""


class FireAndForget:
    """The user of a request whose response changes nothing (BYE, CANCEL, terminated transactions)."""

    def response_received(self, response: Response, now: float) -> None:
        """Ignores the response, since nothing depends on it."""

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """Ignores that no response came: nothing depends on one."""


class ClientTransaction(Transaction):
    """A request sent. Its `key` is the branch of its topmost Via, and its method."""

    def __init__(self, wire: Wire, request: Request, *, hop: Hop, user: TransactionUser) -> None:
        self.request = request
        self.source: Hop | None = None  # the source of its last response
        self.started_at = 0.0
        self.passed_over = False  # its request went elsewhere; of this one nothing more is sent
        self._bounced = 0
        self._user: TransactionUser = user
        invite = request.method == "INVITE"
        first = TransactionState.CALLING if invite else TransactionState.TRYING
        table = INVITE_CLIENT if invite else CLIENT
        super().__init__(wire, table, first, hop=hop, key=f"{request.via.branch} {request.method}")
        self._last = request.to_bytes()

    @property
    def waiting(self) -> bool:
        """Whether no final response has come."""
        return self.state in (
            TransactionState.CALLING,
            TransactionState.TRYING,
            TransactionState.PROCEEDING,
        )

    def start(self, now: float) -> None:
        """Sends the request for the first time."""
        self.started_at = now
        self._enter(self.state, now)
        self._sent += 1
        self._wire.transmit(self._last, self.hop, self.key)

    def receive(self, response: Response, now: float) -> None:
        """Takes a response that matches the request's branch and CSeq method."""
        self._perform(self._happen(_kind(response.status), now), response, now)

    def abandon(self, now: float) -> None:
        """Ends an INVITE that was cancelled and still has no final response (RFC 3261 9.1)."""
        if not self.terminated:
            self._enter(TransactionState.TERMINATED, now)
            self._perform((), None, now)

    def stand_down(self, user: TransactionUser) -> None:
        """Repeats the request no more and hands late responses to `user`, because it was sent elsewhere."""
        self.passed_over = True
        self._user = user
        repetition = self._alarms.pop(Timer.A, None)
        if repetition is not None:
            repetition.cancel()

    def bounced(self, now: float) -> None:
        """Takes one ICMP error that quotes the request (RFC 3261 18.4). The transport has failed once every
        transmission came back: one that did not may have arrived."""
        self._bounced += 1
        if self._bounced >= self._sent:
            self.transport_failed(now)

    def transport_failed(self, now: float) -> None:
        """Reports to the user that the request could not be sent."""
        self._perform(self._happen(Happening.TRANSPORT_ERROR, now), None, now)

    def _perform(self, acts: tuple[Act, ...], response: Response | None, now: float) -> None:
        for act in acts:
            if act is Act.DELIVER and response is not None:
                self._user.response_received(response, now)
            elif act is Act.ACKNOWLEDGE and response is not None:
                ack = ack_of_failure(self.request, response)
                self._wire.transmit(ack.to_bytes(), self.hop, "")
            elif act in (Act.TIME_OUT, Act.FAIL):
                self._user.no_response(now, transport_failed=act is Act.FAIL)
        if self.terminated:
            self._user = FireAndForget()  # the user refers to the transaction: neither keeps the other alive


class ServerTransaction(Transaction):
    """A request received from `source`. Responses go to `hop`."""

    def __init__(self, wire: Wire, request: Request, *, hop: Hop, key: str, source: Hop) -> None:
        self.request = request
        self.source = source
        self.status = 0
        invite = request.method == "INVITE"
        first = TransactionState.PROCEEDING if invite else TransactionState.TRYING
        super().__init__(wire, INVITE_SERVER if invite else SERVER, first, hop=hop, key=key)

    @property
    def answered(self) -> bool:
        """Whether a final response has been sent."""
        return self.status >= 200

    def respond(self, response: Response, now: float) -> None:
        """Sends a response; after the final one only a repeated 2xx to INVITE goes through."""
        what = _kind(response.status)
        if (self.state, what) not in self._table:
            return
        self.status = response.status
        self._last = response.to_bytes()
        self._happen(what, now)

    def receive(self, request: Request, now: float) -> None:
        """Takes a retransmitted request, or the ACK of a 3xx-6xx."""
        what = Happening.ACK if request.method == "ACK" else Happening.REQUEST
        if what is Happening.REQUEST and not self._last:
            return
        self._happen(what, now)

    def transport_failed(self, now: float) -> None:
        """Does nothing: the client may reconnect and retransmit before the timers end."""

    def _perform(self, acts: tuple[Act, ...], response: Response | None, now: float) -> None:
        """Does nothing: a server only transmits."""


def _kind(status: int) -> Happening:
    if status < 200:
        return Happening.PROVISIONAL
    return Happening.SUCCESS if status < 300 else Happening.FAILURE


def ack_of_failure(invite: Request, response: Response) -> Request:
    """Makes the ACK of a 3xx-6xx, which belongs to the INVITE's transaction (RFC 3261 17.1.1.3)."""
    return _sibling(invite, "ACK", to=response.headers.get("To") or "")


def cancel_of(invite: Request, reason: str) -> Request:
    """Makes the CANCEL of an INVITE (RFC 3261 9.1) with its Reason (RFC 3326)."""
    cancel = _sibling(invite, "CANCEL", to=invite.headers.get("To") or "")
    cancel.headers.add("Reason", reason)
    return cancel


def _sibling(invite: Request, method: str, *, to: str) -> Request:
    """Makes a request that shares the branch and the route of an INVITE."""
    headers = Headers([("Via", str(invite.via))])
    for route in invite.headers.get_all("Route"):
        headers.add("Route", route)
    headers.add("Max-Forwards", "70")
    headers.add("From", invite.headers.get("From") or "")
    headers.add("To", to)
    headers.add("Call-ID", invite.call_id)
    headers.add("CSeq", str(CSeq(invite.cseq.number, method)))
    return Request(method, invite.uri, headers)
