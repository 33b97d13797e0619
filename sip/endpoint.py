"""The SIP endpoint: sockets, trunks and calls."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

from pipeline.media.pacer import Pacer
from pipeline.plane.drive.plane import PlaneFull
from sip.admission_policy import RETRY_AFTER_S, AdmissionPolicy
from sip.call import Call, Parties
from sip.call_media import CallMedia, turn_to
from sip.dialog.dialog import DialogSetId
from sip.dialog.events import AddressRefused, InviteEnded
from sip.dialog.invite import Dialled
from sip.dialog.onward import GoOn
from sip.dialog.uac import Invitation, OutgoingInvite
from sip.dialog.usage import InviteSettings
from sip.errors import LocalError
from sip.message.message import Request
from sip.message.uri import Uri
from sip.offered import OfferedCalls
from sip.pjsip.engines import Engines
from sip.rtp.ports import NoPortsLeft
from sip.stack.driver import Driver, EndpointSettings
from sip.stack.events import InviteReceived, StackEvent
from sip.states import CallState, Direction, HangupCause
from sip.telephones.forking import AnyInvite, Forking, invites_of
from sip.telephones.registrar import Binding
from sip.transaction.hop import Hop, hop_of
from sip.trunk import Rung, Trunk, TrunkUnavailable
from sip.trunk_settings import TrunkSettings
from sip.trunk_watch import begin

__all__ = ["Endpoint", "EndpointSettings", "EndpointStats"]

logger = logging.getLogger(__name__)

GOODBYE_S = 2.0
"""Seconds that `close` waits for ACKs and for the responses to its BYEs: three retransmissions over UDP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointStats:
    """Counts of an endpoint. `calls`, `transactions`, `dialogs`, `rtp_ports_used`, `banned` (addresses) are
    current, the others count since the start, messages as in `sip.stack.counts`. `blocked`: messages not sent
    because their address is closed to the trunk. `shed`: requests refused before parsing, for lack of time or
    capacity. `wrong_passwords`: requests with wrong credentials, those included that were refused unchecked.
    `bans`: of addresses, `silenced`: requests of strangers without an answer (`sip.strangers`)."""

    calls: int
    transactions: int
    dialogs: int
    rtp_ports_used: int
    received: int
    transmitted: int
    refused: int
    shed: int
    malformed: int
    strays: int
    foreign: int
    blocked: int
    wrong_passwords: int
    banned: int
    bans: int
    silenced: int

    @classmethod
    def of(cls, driver: Driver, gate: AdmissionPolicy, *, calls: int, ports: int, blocked: int) -> Self:
        """Returns the counts of an endpoint on `driver` behind `gate`."""
        counts = driver.stack.counts
        return cls(
            calls=calls,
            transactions=driver.stack.transactions,
            dialogs=driver.stack.dialogs,
            rtp_ports_used=ports,
            received=counts.received,
            transmitted=counts.transmitted,
            refused=counts.refused,
            shed=driver.inflow.shed,
            malformed=counts.malformed,
            strays=counts.strays,
            foreign=counts.foreign,
            blocked=blocked,
            wrong_passwords=gate.wrong_passwords.wrong_ones,
            banned=gate.strangers.banned_now(driver.loop.time()),
            bans=gate.strangers.bans,
            silenced=gate.strangers.silenced,
        )


class Endpoint:
    """A SIP endpoint, to be used from the thread of the loop that it was started in.

    async with Endpoint(EndpointSettings(udp="0.0.0.0:5060")) as phone:
        trunk = phone.add_trunk(TrunkSettings(id="carrier", uri="sip:sip.example.net"))
        call = await trunk.call("+15551234")
    """

    pacer: Pacer
    """The clock that paces all mixes of the process; set once the endpoint has started."""
    _driver: Driver

    def __init__(self, settings: EndpointSettings) -> None:
        """Raises ValueError for a bad port range."""
        self.settings = settings
        self.media = CallMedia(settings)
        self._trunks: dict[str, Trunk] = {}
        self._calls: dict[str, Call] = {}
        self._invites: dict[DialogSetId, tuple[AnyInvite, Call]] = {}
        self._gate = AdmissionPolicy.of(settings, self._trunks, room=self._has_room)
        self._offered = OfferedCalls(self._invites, self._trunks)
        self._gate.undecided = self._offered.__len__
        self._open, self._blocked, self._engines = False, 0, Engines()
        self.processes = self._engines.processes  # of PJSIP

    async def __aenter__(self) -> Endpoint:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # Opening and closing ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Binds the sockets, starts to register. Raises OSError, and `LocalError` for unusable settings."""
        self._driver = Driver(self.settings, self._gate, self._take)
        self._driver.stack.within.admitted_as = self._offered.admitted_as
        self._driver.stack.offered_by = self._engines.start(self._driver.loop, self._driver.flush)
        self.pacer = Pacer(self._driver.loop)
        await self._driver.open()
        self._driver.transport.closed = self._gate.registrar.flow_closed
        self.web_sockets = self._driver.transport  # takes those of browsers (`framed`)
        self.media.start(self._driver)
        self._open = True
        for trunk in self._trunks.values():
            self._register(trunk)

    async def close(self) -> None:
        """Ends every call, removes registrations and closes the sockets. Idempotent."""
        if not self._open:
            return
        self.drain()
        self._open = False
        driver = self._driver
        for invite, _ in list(self._invites.values()):
            invite.hang_up(driver.loop.time(), cause=HangupCause.SHUTDOWN)
        for trunk in self._trunks.values():
            if trunk.registration is not None:
                trunk.registration.stop(driver.loop.time())
        driver.flush()
        await driver.settle(GOODBYE_S, self._invites)
        for call in list(self._calls.values()):
            call.onward.given_up = HangupCause.SHUTDOWN  # one that is between two trunks
        for usage in [each.usage for invite, _ in self._invites.values() for each in invites_of(invite)]:
            usage.finish(HangupCause.SHUTDOWN, 487, "local", driver.loop.time())  # CANCEL, 2xx unanswered
        driver.flush()
        await self._engines.close()
        await driver.close()
        self.media.close()
        self._offered.end()

    def drain(self) -> None:
        """Refuses new calls from now on (503 with Retry-After); calls in progress go on."""
        self._gate.draining = True

    # Trunks -----------------------------------------------------------------------------------------------

    @property
    def trunks(self) -> Mapping[str, Trunk]:
        """The trunks by id, as a read-only view."""
        return MappingProxyType(self._trunks)

    def add_trunk(self, settings: TrunkSettings) -> Trunk:
        """Adds a trunk, before or after `start`. Raises `LocalError` for an id that is taken and for
        malformed networks."""
        if settings.id in self._trunks:
            raise LocalError(f"trunk {settings.id}: there is one of that id")
        try:
            trunk = Trunk(settings, self)
        except ValueError as error:
            raise LocalError(f"trunk {settings.id}: allow_from: {error}") from error
        self._trunks[settings.id] = trunk
        self._gate.trunks_changed()
        if self._open:
            self._register(trunk)
        return trunk

    def remove_trunk(self, trunk_id: str) -> None:
        """Removes a trunk; its calls go on. Raises KeyError."""
        trunk = self._trunks.pop(trunk_id)
        self._gate.trunks_changed()
        if trunk.ping is not None:
            trunk.ping.stop()
        if trunk.registration is not None:
            trunk.registration.stop(self._driver.loop.time())
            self._driver.flush()

    def addresses_of(self, host: str) -> tuple[str, ...] | None:
        """Returns the known addresses of `host` (`sip.stack.resolver`); None where these are not known."""
        return self._driver.transport.names.addresses_of(host) if self._open else None

    def _register(self, trunk: Trunk) -> None:
        for host in trunk.egress.hosts:
            self.addresses_of(host)  # looked up now, so that callers from these hosts are recognised
        self._engines.prepare(trunk.invite_settings)
        begin(self._driver, trunk, is_current=self._holds, refused=self._block)

    def _holds(self, trunk: Trunk) -> bool:
        return self._open and self._trunks.get(trunk.settings.id) is trunk

    @property
    def gate(self) -> AdmissionPolicy:
        """Who is admitted, by what the application says, and the registered telephones."""
        return self._gate

    def telephones(self, trunk: Trunk, name: str) -> Sequence[Binding]:
        """Returns the telephones that are registered for the account `name` of `trunk`."""
        return self._gate.registrar.bound((trunk.settings.id, name), self._driver.loop.time())

    # Calls ------------------------------------------------------------------------------------------------

    @property
    def calls(self) -> Mapping[str, Call]:
        """The calls that have not ended, by id."""
        return MappingProxyType(self._calls)

    def incoming(self) -> AsyncIterator[Call]:
        """Yields admitted calls in state OFFERED, until the endpoint closes. Answer or reject each; after
        three minutes it is refused (480)."""
        return self._offered.taken()

    async def place(
        self,
        trunk: Trunk,
        invitation: Invitation,
        settings: InviteSettings,
        *,
        call_id: str,
        go_on: GoOn | None = None,
    ) -> Call:
        """Places a call over `trunk`, as `Trunk.call` does. Raises `CallFailed` where no INVITE can leave."""
        self._check_room(call_id)
        invitation = await self.media.located(trunk, invitation, settings)
        self._check_room(call_id)
        stream, offer = self.media.offer(trunk, invitation, settings)
        invite = self._engines.outgoing(self._driver.stack, settings, invitation, offer)
        local, remote = invitation.caller.uri.user, invitation.targets[0].uri.user
        parties = Parties(direction=Direction.OUTBOUND, local_number=local, remote_number=remote)
        call = Call(self._driver, trunk.settings, call_id, parties, invite=invite, stream=stream)
        return self._begin(call, invite, go_on)

    async def go_on(self, call: Call, trunk: Trunk, invitation: Invitation, settings: InviteSettings) -> None:
        """Sends the INVITE of a call that another trunk did not take over `trunk`, as `Trunk.go_on` does."""
        invitation = await self.media.located(trunk, invitation, settings)
        if not self._open or call.onward.given_up is not None:
            raise TrunkUnavailable("the call was given up")
        before = invites_of(call.invite)[0]
        if isinstance(before, Dialled):
            if before.targets.may_ring:
                raise TrunkUnavailable("the phone may ring, over a trunk that was passed over")
            invitation = replace(invitation, after=before.targets)
        stream, offer = self.media.offer(trunk, invitation, settings)
        invite = self._engines.outgoing(self._driver.stack, settings, invitation, offer)
        call.go_over(trunk.settings, invite, stream)
        self._dial(call, invite)

    def ring(self, trunk: Trunk, rung: Rung, number: str, call_id: str, *, go_on: GoOn | None = None) -> Call:
        """Rings registered telephones over `trunk`, all at once, as `Trunk.call` does."""
        self._check_room(call_id)
        stream = self.media.open_to_call(rung[0][0].targets[0].hop)
        invites: dict[OutgoingInvite, str] = {}
        for invitation, settings in rung:
            hop = invitation.targets[0].hop
            offer = self.media.capabilities(trunk, stream, hop, peer=hop.host)
            invites[OutgoingInvite(self._driver.stack, settings, invitation, offer)] = hop.host
        forking = Forking(list(invites), lambda invite: turn_to(stream, trunk, invites[invite]))
        caller = rung[0][0].caller.uri.user
        parties = Parties(direction=Direction.OUTBOUND, local_number=caller, remote_number=number)
        call = Call(self._driver, trunk.settings, call_id, parties, invite=forking, stream=stream)
        return self._begin(call, forking, go_on)

    def _begin(self, call: Call, invite: Dialled | Forking, go_on: GoOn | None) -> Call:
        call.onward.go_on = go_on
        call.on_state(self._moved)
        self._dial(call, invite)
        return call

    def _dial(self, call: Call, invite: Dialled | Forking) -> None:
        self._enlist(call, invite)
        invite.dial(self._driver.loop.time())
        self._driver.flush()

    def host_towards(self, uri: Uri) -> str:
        """Returns the address under which the host of `uri` reaches this endpoint."""
        return self._driver.local.host(hop_of(uri))

    def _check_room(self, call_id: str) -> None:
        if not self._open or self._gate.draining:
            raise TrunkUnavailable("the endpoint takes no new calls")
        if not self._has_room():
            raise TrunkUnavailable(f"all {self.settings.max_calls} calls are in use")
        if call_id in self._calls:
            raise LocalError("there is a call of that id")

    def _has_room(self) -> bool:
        return len(self._calls) < self.settings.max_calls

    def _enlist(self, call: Call, invite: AnyInvite, came: tuple[Request, Hop] | None = None) -> None:
        self._calls[call.id] = call
        usages = [each.usage for each in invites_of(invite)]
        tags = [each.dialog_set.local_tag for each in usages]
        call.trace = self._driver.traces.adopt(call.sip_call_id, tags, came, goes_on=call.trace)
        for each in usages:
            self._invites[each.dialog_set] = invite, call
            each.refusals.name = call.id

    def _offer(self, event: InviteReceived, now: float) -> None:
        invite, trunk = event.invite, self._trunks.get(event.admitted.trunk_id)
        if trunk is None:
            return invite.reject(404, now)
        try:
            stream = self.media.open(event.source)
        except (NoPortsLeft, PlaneFull, OSError) as error:
            refused = {"trunk": event.admitted.trunk_id, "reason": str(error)}
            logger.warning("no place for the media of an incoming call", extra=refused)
            return invite.reject(503, now, retry_after_s=RETRY_AFTER_S)
        capabilities = self.media.capabilities(trunk, stream, event.source, peer=event.source.host)
        if not invite.describe(capabilities, now):
            stream.close()
            return
        request = invite.transaction.request
        parties = Parties.of_invite(request, event.called, trunk.settings, event.admitted.user)
        call = Call(self._driver, trunk.settings, uuid.uuid4().hex, parties, invite=invite, stream=stream)
        call.on_state(self._moved)
        self._enlist(call, invite, (request, event.source))
        self._offered.put(call, now, replaces=event.replaces)

    def backlog_s(self) -> float:
        """Returns the longest time in seconds that a message has waited since the last call, in the kernel or
        here."""
        transport, inflow = self._driver.transport, self._driver.inflow
        unread_s, transport.unread_s = transport.unread_s, 0.0
        return unread_s + inflow.longest_wait_s(self._driver.loop.time())

    def undecided_s(self) -> float:
        """Returns for how many seconds the application has left a caller without a response, else 0."""
        return self._offered.longest_wait_s(self._driver.loop.time())

    # Addresses and counts ---------------------------------------------------------------------------------

    @property
    def udp_address(self) -> tuple[str, int] | None:
        """Host and port that UDP is bound to."""
        return self._driver.transport.addresses.get("udp")

    @property
    def tcp_address(self) -> tuple[str, int] | None:
        """Host and port that TCP is bound to."""
        return self._driver.transport.addresses.get("tcp")

    @property
    def tls_address(self) -> tuple[str, int] | None:
        """Host and port that TLS is bound to."""
        return self._driver.transport.addresses.get("tls")

    @property
    def stats(self) -> EndpointStats:
        """Counts calls, ports, messages and refusals at this moment."""
        blocked = self._blocked + self.media.blocked
        now = {"calls": len(self._calls), "ports": self.media.ports.in_use, "blocked": blocked}
        return EndpointStats.of(self._driver, self._gate, **now)

    def _block(self, trunk: Trunk, address: str) -> None:
        self._blocked += 1
        logger.warning("trunk may not register there", extra={"trunk": trunk.settings.id, "address": address})

    def _moved(self, call: Call, state: CallState, now: float) -> None:
        if state is CallState.ENDED:
            del self._calls[call.id]

    def _take(self, event: StackEvent, now: float) -> None:
        if isinstance(event, InviteReceived):
            self._offer(event, now)
            return
        if isinstance(event, AddressRefused):
            self._blocked += 1
            return _tell_refused(event)
        invite, call = self._invites.get(event.dialog_set, (None, None))
        if invite is None or call is None:
            return
        if isinstance(event, InviteEnded):
            del self._invites[event.dialog_set]
            self._driver.traces.release(call.sip_call_id, event.dialog_set.local_tag, now)
        for each in invite.passed(event, now) if isinstance(invite, Forking) else (event,):
            call.take(each, now)


def _tell_refused(event: AddressRefused) -> None:
    if event.first:
        named = {"call_id": event.name, "sip_call_id": event.dialog_set.call_id}
        logger.warning("call may not send there", extra=named | {"address": event.address})
