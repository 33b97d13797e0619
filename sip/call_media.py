"""What a call needs before its INVITE or its answer: hops, a port and a row of the media plane, and what SDP
says of them."""

from __future__ import annotations

from dataclasses import replace

from pipeline.plane.drive.plane import PlaneFull
from pipeline.plane.drive.planes import Planes
from sip.call import CallFailed
from sip.dialog.uac import Invitation
from sip.dialog.usage import InviteSettings
from sip.egress import Egress
from sip.rtp.dtls import Certificate
from sip.rtp.media_stream import MediaStream
from sip.rtp.ports import PortRange
from sip.sdp.ice import IceCredentials
from sip.sdp.negotiation import Capabilities
from sip.sdp.security import LocalSecurity, Srtp
from sip.stack.driver import Driver, EndpointSettings
from sip.states import HangupCause
from sip.transaction.hop import Hop
from sip.trunk import Trunk, TrunkUnavailable


class CallMedia:
    """The media of one endpoint's calls. `planes` are there from `start` on. `blocked`: calls whose hops are
    all closed to their trunk."""

    planes: Planes
    _driver: Driver

    def __init__(self, settings: EndpointSettings) -> None:
        """Raises ValueError for a bad port range."""
        self.ports = PortRange(*settings.rtp_ports)
        self.blocked = 0
        self._certificate = Certificate()
        self._rows = 2 * settings.max_calls + settings.participants
        self._threads = settings.media_threads

    def start(self, driver: Driver) -> None:
        """Starts the media plane on the driver's loop."""
        self._driver = driver
        self.planes = Planes(driver.loop, capacity=self._rows, threads=self._threads)

    def close(self) -> None:
        """Stops the media plane and its threads."""
        self.planes.close()

    async def located(self, trunk: Trunk, invitation: Invitation, settings: InviteSettings) -> Invitation:
        """Returns an INVITE with its hops in order. Raises `CallFailed` where there are none, and where all
        are closed to the trunk: the socket checks each again (`sip.egress`), but now nothing was dialled."""
        if settings.egress.keeps_flow:
            return invitation  # its hop is where the telephone's messages come from
        uris = [each.uri for each in invitation.targets]
        try:
            found = await self._driver.router.targets(uris, proxy=next(iter(invitation.route), None))
        except OSError as error:
            raise CallFailed("the trunk's name has no address", 503, HangupCause.UNREACHABLE) from error
        egress = Egress(settings.egress)
        if not any(egress.allows(each.hop.host, host=each.hop.domain) for each in found):
            self.blocked += 1
            raise CallFailed("the trunk's address is refused", 503, HangupCause.ADDRESS_REFUSED)
        return replace(invitation, targets=trunk.in_order(found))

    def offer(
        self, trunk: Trunk, invitation: Invitation, settings: InviteSettings
    ) -> tuple[MediaStream, Capabilities]:
        """Opens the stream of an INVITE to be sent. Raises `TrunkUnavailable`, `NoPortsLeft`, OSError."""
        hop = invitation.targets[0].hop
        stream = self.open_to_call(hop)
        peer = hop.host if settings.egress.keeps_flow else ""
        return stream, self.capabilities(trunk, stream, hop, peer=peer)

    def open_to_call(self, peer: Hop) -> MediaStream:
        """Opens the stream of a call to `peer`. Raises `TrunkUnavailable`, `NoPortsLeft`, OSError."""
        try:
            return self.open(peer)
        except PlaneFull as error:
            raise TrunkUnavailable(str(error)) from error

    def open(self, peer: Hop) -> MediaStream:
        """Opens the stream of a call with `peer`. Raises `NoPortsLeft`, `PlaneFull`, OSError."""
        plane, host = self.planes.least_loaded(), self._driver.local.media(peer)
        stream = MediaStream.open(self.ports, plane, host=host, loop=self._driver.loop)
        stream.signalled_by, stream.security.certificate = peer.host, self._certificate
        return stream

    def capabilities(self, trunk: Trunk, stream: MediaStream, hop: Hop, *, peer: str = "") -> Capabilities:
        """Returns the capabilities of a call. Where the trunk expects a NAT, SDP may name any address: the
        stream sends nothing to one that is closed to the trunk."""
        stream.reaches = reaches = Egress(trunk.egress, peer=peer).allows
        browser = hop.transport == "ws"
        srtp = Srtp.DTLS if browser else trunk.settings.srtp
        return Capabilities(
            trunk.public.now or self._driver.local.host(hop),
            stream.local_port,
            trunk.codecs,
            reaches=None if trunk.settings.symmetric_rtp is True else reaches,
            security=LocalSecurity(srtp, self._certificate.fingerprint),
            ice=IceCredentials.new() if browser else None,
        )


def turn_to(stream: MediaStream, trunk: Trunk, peer: str) -> None:
    """Expects the media of a call from `peer`, whose telephone has answered of several that rang."""
    stream.signalled_by, stream.reaches = peer, Egress(trunk.egress, peer=peer).allows
