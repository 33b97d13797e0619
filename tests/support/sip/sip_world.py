"""Stacks wired back to back over a network that delays, loses, doubles and reorders, on a virtual clock."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from sip.dialog.events import InviteEnded
from sip.dialog.target_set import Target
from sip.dialog.uac import Invitation, OutgoingInvite
from sip.dialog.uas import IncomingInvite
from sip.dialog.usage import InviteSettings
from sip.message.headers import NameAddr
from sip.message.message import Request, Response, parse
from sip.message.uri import Uri
from sip.sdp.media_plan import G722, PCMA, PCMU
from sip.sdp.negotiation import Capabilities
from sip.stack.admission import Admitted, Refused
from sip.stack.events import InviteReceived, StackEvent
from sip.stack.stack import Stack
from sip.transaction.hop import Hop

CODECS = (PCMU, PCMA, G722)
DELAY_S = 0.01
E = TypeVar("E")

Fate = Callable[[bytes], Iterable[float]]
"""What becomes of a datagram: a delay for each copy that arrives."""


def safe(data: bytes) -> list[float]:
    """A network that only takes its time."""
    return [DELAY_S]


def hostile(seed: int, *, loss: float = 0.2, doubled: float = 0.2) -> Fate:
    """A network that loses, doubles and reorders, the same way for the same seed."""
    rng = random.Random(seed)

    def fate(data: bytes) -> list[float]:
        if rng.random() < loss:
            return []
        copies = 2 if rng.random() < doubled else 1
        return [rng.uniform(0.005, 0.3) for _ in range(copies)]

    return fate


@dataclass
class OpenGate:
    """Lets everybody in, unless told otherwise."""

    settings: InviteSettings = field(default_factory=InviteSettings)
    refusal: Refused | None = None

    def admit(self, request: Request, source: Hop, now: float) -> Admitted | Refused:
        return self.refusal or Admitted("trunk", self.settings)


class Party:
    """A stack at an address. What it hears is kept in `events`; `on_invite` decides about calls."""

    def __init__(self, host: str, *, settings: InviteSettings | None = None, streams: bool = False) -> None:
        self.host = host
        self.settings = settings or InviteSettings()
        self.gate = OpenGate(self.settings)
        self.events: list[StackEvent] = []
        self.received: list[Request | Response] = []
        self.on_invite: Callable[[IncomingInvite, float], None] = answer
        self.stack = Stack(
            self.gate,
            lambda hop: (host, 5060),
            user_agent="test",
            streams=streams,
            random=random.Random(host),
        )

    def call(
        self, *targets: str, number: str = "100", settings: InviteSettings | None = None
    ) -> OutgoingInvite:
        """An INVITE not sent yet."""
        uris = [Uri.parse(target if ":" in target else f"sip:{number}@{target}") for target in targets]
        invitation = Invitation(
            targets=[Target.of(uri) for uri in uris],
            caller=NameAddr(Uri("sip", "7", self.host)),
            call_id=self.stack.token(),
        )
        return OutgoingInvite(self.stack, settings or self.settings, invitation, self.capabilities)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(self.host, 4000, CODECS)

    def heard(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def end(self) -> InviteEnded:
        """The only end there was."""
        (end,) = self.heard(InviteEnded)
        return end

    def requests(self, method: str) -> list[Request]:
        """What arrived of one method, repetitions included."""
        return [each for each in self.received if isinstance(each, Request) and each.method == method]

    def statuses(self, method: str = "INVITE") -> list[int]:
        """Responses that arrived to one method."""
        return [
            each.status for each in self.received if isinstance(each, Response) and each.cseq.method == method
        ]


def answer(invite: IncomingInvite, now: float) -> None:
    """Picks up at once."""
    invite.ring(now)
    invite.accept(now)


class World:
    """Parties, the datagrams between them, and the time."""

    def __init__(self, *parties: Party, fate: Fate = safe) -> None:
        self.now = 1000.0
        self.fate = fate
        self.sent: list[bytes] = []
        self.sent_at: list[tuple[float, bytes]] = []
        self._parties = {party.host: party for party in parties}
        self._flying: list[tuple[float, int, bytes, Hop, Party]] = []
        self._count = count()

    def send(self, data: bytes, to: Party, *, source: Hop) -> None:
        """A datagram from somewhere else."""
        to.stack.receive(data, source, self.now)
        to.received.append(parse(data))
        self.settle()

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        end = self.now + seconds
        self.settle()
        while (when := self._next()) is not None and when <= end:
            self.now = max(self.now, when)
            while self._flying and self._flying[0][0] <= self.now:
                _, _, data, source, party = heapq.heappop(self._flying)
                party.received.append(parse(data))
                party.stack.receive(data, source, self.now)
                self.settle()
            for party in self._parties.values():
                party.stack.handle_timer(self.now)
            self.settle()
        self.now = end

    def settle(self) -> None:
        """Drains what every stack has to say."""
        busy = True
        while busy:
            busy = False
            for party in self._parties.values():
                for transmission in party.stack.transmissions():
                    busy = True
                    self._fly(transmission.data, Hop("udp", party.host, 5060), transmission.hop)
                for event in party.stack.events():
                    busy = True
                    self._take(party, event)

    def _take(self, party: Party, event: StackEvent) -> None:
        party.events.append(event)
        if isinstance(event, InviteReceived) and event.invite.describe(party.capabilities, self.now):
            assert isinstance(event.invite, IncomingInvite)
            party.on_invite(event.invite, self.now)

    def _fly(self, data: bytes, source: Hop, hop: Hop) -> None:
        self.sent.append(data)
        self.sent_at.append((self.now, data))
        party = self._parties.get(hop.host)
        if party is None:
            return  # nobody there
        for delay_s in self.fate(data):
            entry = (self.now + delay_s, next(self._count), data, source, party)
            heapq.heappush(self._flying, entry)

    def _next(self) -> float | None:
        times = [party.stack.timer_at() for party in self._parties.values()]
        times += [self._flying[0][0]] if self._flying else []
        return min((at for at in times if at is not None), default=None)
