"""The SIP endpoint: sockets, trunks and calls."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

from pipeline.media.pacer import Pacer
from pipeline.plane.drive.plane import PlaneFull
from pipeline.plane.drive.planes import Planes
from sip.admission_policy import RETRY_AFTER_S, AdmissionPolicy, TrunkChoice
from sip.call import Call, CallFailed, Parties
from sip.dialog.dialog import DialogSetId
from sip.dialog.events import AddressRefused, InviteEnded
from sip.dialog.invite import Invite
from sip.dialog.target_set import Target
from sip.dialog.uac import Invitation, OutgoingInvite
from sip.dialog.usage import InviteSettings
from sip.egress import Egress
from sip.errors import LocalError
from sip.message.message import Request
from sip.message.uri import Uri
from sip.offered import OfferedCalls
from sip.rtp.dtls import Certificate
from sip.rtp.media_stream import MediaStream
from sip.rtp.ports import NoPortsLeft, PortRange
from sip.sdp.negotiation import Capabilities
from sip.sdp.security import LocalSecurity
from sip.stack.driver import Driver, EndpointSettings
from sip.stack.events import InviteReceived, StackEvent
from sip.states import Direction, HangupCause
from sip.transaction.hop import Hop, hop_of
from sip.trunk import Trunk, TrunkUnavailable
from sip.trunk_settings import TrunkSettings
from sip.trunk_watch import registration_of, watch

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

    _driver: Driver
    _pacer: Pacer
    _planes: Planes

    def __init__(self, settings: EndpointSettings) -> None:
        """Raises ValueError for a bad port range."""
        self.settings = settings
        self._ports, self._certificate = PortRange(*settings.rtp_ports), Certificate()
        self._trunks: dict[str, Trunk] = {}
        self._calls: dict[str, Call] = {}
        self._invites: dict[DialogSetId, tuple[Invite, Call]] = {}
        self._gate = AdmissionPolicy.of(settings, self._trunks, room=self._has_room)
        self._offered = OfferedCalls()
        self._gate.undecided = self._offered.__len__
        self._open, self._blocked = False, 0

    @property
    def pacer(self) -> Pacer:
        """The clock that paces all media of the process; set once the endpoint has started."""
        return self._pacer

    async def __aenter__(self) -> Endpoint:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # Opening and closing ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Binds the sockets, starts to register. Raises OSError, and `LocalError` for unusable settings."""
        self._driver = Driver(self.settings, self._gate, self._take)
        self._pacer = Pacer(self._driver.loop)
        await self._driver.open()
        rows, threads = 2 * self.settings.max_calls, self.settings.media_threads
        self._planes = Planes(self._driver.loop, capacity=rows, threads=threads)
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
        for invite, _ in list(self._invites.values()):  # a CANCEL or a 2xx without a response
            invite.usage.finish(HangupCause.SHUTDOWN, 487, "local", driver.loop.time())
        driver.flush()
        await driver.close()
        self._planes.close()
        self._offered.end()

    def drain(self) -> None:
        """Refuses new calls from now on (503 with Retry-After); calls in progress go on."""
        self._gate.draining = True

    # Trunks -----------------------------------------------------------------------------------------------

    @property
    def trunk_for(self) -> TrunkChoice:
        """Chooses the trunk that a called number is answered on; at first the first for every number."""
        return self._gate.trunk_for

    @trunk_for.setter
    def trunk_for(self, choice: TrunkChoice) -> None:
        self._gate.trunk_for = choice

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
        if trunk.settings.options_ping_s:
            self._driver.transport.run(watch(self._driver, trunk, is_current=self._holds))
        if not trunk.settings.register:
            return
        trunk.registration = registration_of(self._driver, trunk, refused=lambda to: self._block(trunk, to))
        trunk.registration.start(self._driver.loop.time())
        self._driver.flush()

    def _holds(self, trunk: Trunk) -> bool:
        return self._open and self._trunks.get(trunk.settings.id) is trunk

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
        self, trunk: Trunk, invitation: Invitation, settings: InviteSettings, call_id: str
    ) -> Call:
        """Places a call over `trunk`, as `Trunk.call` does. Raises `CallFailed` where no INVITE can leave."""
        self._check_room(call_id)
        invitation = replace(invitation, targets=await self._located(trunk, invitation, settings))
        hop = invitation.targets[0].hop
        self._check_room(call_id)
        try:
            stream = self._open_stream(hop)
        except PlaneFull as error:
            raise TrunkUnavailable(str(error)) from error
        registered = settings.egress is not trunk.egress
        offer = self._capabilities(trunk, stream, hop, peer=hop.host if registered else "")
        invite = OutgoingInvite(self._driver.stack, settings, invitation, offer)
        local, remote = invitation.caller.uri.user, invitation.targets[0].uri.user
        parties = Parties(direction=Direction.OUTBOUND, local_number=local, remote_number=remote)
        call = Call(self._driver, trunk.settings, call_id, parties, invite=invite, stream=stream)
        self._enlist(call, invite)
        invite.dial(self._driver.loop.time())
        self._driver.flush()
        return call

    async def _located(
        self, trunk: Trunk, invitation: Invitation, settings: InviteSettings
    ) -> Sequence[Target]:
        """Returns the hops of an INVITE in order. Raises `CallFailed` where there are none, and where all are
        closed to the trunk: the socket checks each again (`sip.egress`), but now nothing was dialled."""
        uris = [each.uri for each in invitation.targets]
        try:
            found = await self._driver.router.targets(uris, proxy=next(iter(invitation.route), None))
        except OSError as error:
            raise CallFailed("the trunk's name has no address", 503, HangupCause.UNREACHABLE) from error
        egress = Egress(settings.egress)
        if not any(egress.allows(each.hop.host, host=each.hop.domain) for each in found):
            self._blocked += 1
            raise CallFailed("the trunk's address is refused", 503, HangupCause.ADDRESS_REFUSED)
        return trunk.in_order(found)

    def _capabilities(self, trunk: Trunk, stream: MediaStream, hop: Hop, *, peer: str = "") -> Capabilities:
        """Returns the capabilities of a call. Where the trunk expects a NAT, SDP may name any address: the
        stream sends nothing to one that is closed to the trunk."""
        stream.reaches = reaches = Egress(trunk.egress, peer=peer).allows
        return Capabilities(
            trunk.settings.public_address or self._driver.local.host(hop),
            stream.local_port,
            trunk.codecs,
            reaches=None if trunk.settings.symmetric_rtp is True else reaches,
            security=LocalSecurity(trunk.settings.srtp, self._certificate.fingerprint),
        )

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

    def _open_stream(self, peer: Hop) -> MediaStream:
        plane, host = self._planes.least_loaded(), self._driver.local.media(peer)
        stream = MediaStream.open(self._ports, plane, host=host, loop=self._driver.loop)
        stream.signalled_by, stream.security.certificate = peer.host, self._certificate
        return stream

    def _enlist(self, call: Call, invite: Invite, came: tuple[Request, Hop] | None = None) -> None:
        self._calls[call.id] = call
        self._invites[invite.usage.dialog_set] = invite, call
        call.trace = self._driver.traces.adopt(call.sip_call_id, invite.usage.dialog_set.local_tag, came)
        invite.usage.refusals.name = call.id

    def _offer(self, event: InviteReceived, now: float) -> None:
        invite, trunk = event.invite, self._trunks.get(event.trunk_id)
        if trunk is None:
            return invite.reject(404, now)
        try:
            stream = self._open_stream(event.source)
        except (NoPortsLeft, PlaneFull, OSError) as error:
            refused = {"trunk": event.trunk_id, "reason": str(error)}
            logger.warning("no place for the media of an incoming call", extra=refused)
            return invite.reject(503, now, retry_after_s=RETRY_AFTER_S)
        capabilities = self._capabilities(trunk, stream, event.source, peer=event.source.host)
        if not invite.describe(capabilities, now):
            stream.close()
            return
        parties = Parties.of_invite(invite.transaction.request, event.called, trunk.settings)
        call = Call(self._driver, trunk.settings, uuid.uuid4().hex, parties, invite=invite, stream=stream)
        self._enlist(call, invite, (invite.transaction.request, event.source))
        self._offered.put(call, now)

    @property
    def overload(self) -> Callable[[], int]:
        """Returns the seconds until new requests are admitted, 0: now. Calls that are up go on."""
        return self._gate.overload

    @overload.setter
    def overload(self, overload: Callable[[], int]) -> None:
        self._gate.overload = overload

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
        now = {"calls": len(self._calls), "ports": self._ports.in_use, "blocked": self._blocked}
        return EndpointStats.of(self._driver, self._gate, **now)

    def _block(self, trunk: Trunk, address: str) -> None:
        self._blocked += 1
        logger.warning("trunk may not register there", extra={"trunk": trunk.settings.id, "address": address})

    def _take(self, event: StackEvent, now: float) -> None:
        if isinstance(event, InviteReceived):
            self._offer(event, now)
            return
        if isinstance(event, AddressRefused):
            self._blocked += 1
            if event.first:
                named = {"call_id": event.name, "sip_call_id": event.dialog_set.call_id}
                logger.warning("call may not send there", extra=named | {"address": event.address})
            return
        _, call = self._invites.get(event.dialog_set, (None, None))
        if call is not None and isinstance(event, InviteEnded):
            del self._invites[event.dialog_set]
            del self._calls[call.id]
            self._driver.traces.release(call.sip_call_id, event.dialog_set.local_tag, now)
        if call is not None:
            call.take(event, now)
