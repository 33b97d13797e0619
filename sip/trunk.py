"""A trunk: the connection to a carrier or PBX, over which calls are placed and admitted."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_network
from typing import Protocol

from sip.call import Call, CallFailed
from sip.client_tls import ClientTls
from sip.dialog.onward import GoOn
from sip.dialog.options_ping import OptionsPing, ServerHealth
from sip.dialog.registration import Registration
from sip.dialog.target_set import Target
from sip.dialog.uac import Invitation
from sip.dialog.usage import InviteSettings
from sip.egress import EgressRule, PublicAddress
from sip.errors import LocalError, SipError
from sip.extra_headers import check_headers
from sip.identity import WITHHELD, identity_headers
from sip.message.headers import NameAddr
from sip.message.uri import Uri
from sip.sdp.media_plan import CODECS, Codec
from sip.states import HangupCause
from sip.telephones.registrar import Binding
from sip.transaction.hop import hop_of
from sip.trunk_settings import TrunkSettings, User

__all__ = ["NUMBER", "Dialer", "Rung", "Trunk", "TrunkUnavailable"]

Rung = Sequence[tuple[Invitation, InviteSettings]]
"""An INVITE for each telephone of a call that rings several."""

NUMBER = re.compile(r"[0-9A-Za-z+*#._\-]{1,64}")
"""What can be dialled: digits, +, *, # and the names of a PBX's extensions."""


class TrunkUnavailable(SipError):
    """No call can be placed now: the endpoint is full, draining or closed."""


class Dialer(Protocol):
    """What a trunk needs of its endpoint."""

    async def place(
        self,
        trunk: Trunk,
        invitation: Invitation,
        settings: InviteSettings,
        *,
        call_id: str,
        go_on: GoOn | None,
    ) -> Call:
        """Sends the INVITE of `Trunk.call`; raises as `Trunk.call` does."""

    async def go_on(self, call: Call, trunk: Trunk, invitation: Invitation, settings: InviteSettings) -> None:
        """Sends the INVITE of `Trunk.go_on`; raises as `Trunk.go_on` does."""

    def ring(self, trunk: Trunk, rung: Rung, number: str, call_id: str, *, go_on: GoOn | None = None) -> Call:
        """Sends one INVITE to each telephone at once: the first that answers has the call; raises as
        `Trunk.call` does."""

    def telephones(self, trunk: Trunk, name: str) -> Sequence[Binding]:
        """Returns the telephones that are registered for the account `name` of `trunk`."""

    def host_towards(self, uri: Uri) -> str:
        """Returns the address under which the host of `uri` reaches this endpoint."""

    def addresses_of(self, host: str) -> tuple[str, ...] | None:
        """Returns the known addresses of `host`, None where these are not known."""


class Trunk:
    """One configured trunk of an `Endpoint`, made by `Endpoint.add_trunk`. Raises ValueError for a malformed
    network."""

    def __init__(self, settings: TrunkSettings, dialer: Dialer) -> None:
        self.settings = settings
        self.codecs: tuple[Codec, ...] = tuple(CODECS[each.lower()] for each in settings.codecs)
        self.public = PublicAddress.of(settings.public_address)
        self.egress = EgressRule(
            settings.egress,
            frozenset(host.lower() for host in settings.trusted_hosts),
            dialer.addresses_of,
            ClientTls.of(settings.tls) if settings.tls is not None else None,
            self.public,
            keeps_flow=bool(settings.users),
        )
        self.invite_settings = InviteSettings(
            session_expires_s=settings.session_expires_s,
            min_session_expires_s=settings.min_session_expires_s,
            ring_timeout_s=settings.ring_timeout_s,
            failover_s=settings.failover_s,
            follow_redirects=settings.follow_redirects,
            accept_refer=settings.accept_refer,
            reliable_provisional=settings.reliable_provisional,
            username=settings.username,
            password=settings.password,
            allow_from=tuple(ip_network(each, strict=False) for each in settings.allow_from),
            egress=self.egress,
            engine=settings.engine,
        )
        self.uris = tuple(Uri.parse(each) for each in (settings.uri, *settings.backup_uris))
        self.proxy = Uri.parse(settings.outbound_proxy) if settings.outbound_proxy else None
        self.registration: Registration | None = None
        self.ping: OptionsPing | None = None
        self._dialer = dialer

    def __repr__(self) -> str:
        return f"<Trunk {self.settings.id}>"

    @property
    def registered(self) -> bool:
        """Whether a registrar holds the trunk's contact; False on a trunk that does not register."""
        return self.registration is not None and self.registration.registered

    @property
    def accounts(self) -> Sequence[User]:
        """Who authenticates with this trunk: its users, or the peer by the trunk's own name and password."""
        settings = self.settings
        if settings.users or not (settings.username and settings.password):
            return settings.users
        telephones = 1 if settings.accept_register else 0
        return (User(name=settings.username, password=settings.password, telephones=telephones),)

    @property
    def account(self) -> str:
        """The user of the contact that the trunk registers, "" without one."""
        return self.settings.username

    def registered_at(self, address: str) -> bool:
        """Whether the trunk is registered at a registrar whose host has `address`."""
        return self.registered and any(
            address in (self._dialer.addresses_of(hop_of(uri).host) or ()) for uri in self.uris
        )

    @property
    def addresses(self) -> Iterator[str]:
        """The known addresses of the trunk's servers."""
        for uri in self.uris if self.proxy is None else (*self.uris, self.proxy):
            yield from self._dialer.addresses_of(hop_of(uri).host) or ()

    @property
    def servers(self) -> Sequence[ServerHealth]:
        """What OPTIONS found out about the carrier's servers; empty without `options_ping_s`."""
        return self.ping.servers if self.ping is not None else ()

    def in_order(self, targets: Sequence[Target]) -> Sequence[Target]:
        """Returns targets with those last that are known to be down."""
        ping = self.ping
        return targets if ping is None else sorted(targets, key=lambda each: ping.down(each.hop))

    @property
    def aor(self) -> Uri:
        """The address of record that the trunk registers: its username at the registrar."""
        return Uri(self.uris[0].scheme, self.settings.username, self.uris[0].host)

    async def call(
        self,
        number: str,
        *,
        caller_id: str | None = None,
        ring_timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        call_id: str | None = None,
        sip_call_id: str | None = None,
        go_on: GoOn | None = None,
    ) -> Call:
        """Places a call and returns as soon as its INVITE has been sent (state DIALING).

        `number` becomes the user part of the trunk's URI. `headers` are added to the INVITE. `call_id` is the
        call's id in this process, `sip_call_id` the INVITE's Call-ID; each is made where none is
        given. `go_on` is called where no server of the trunk takes the call and no phone can have rung; it
        may send it over another trunk. Raises `LocalError` for a number, caller or header that cannot be
        sent, `TrunkUnavailable`, `sip.rtp.ports.NoPortsLeft`, and `CallFailed` when the trunk's name cannot
        be resolved, or its telephone is not registered: nothing has been dialled then."""
        invitation = self._invitation(number, caller_id, headers or {}, sip_call_id=sip_call_id)
        settings = self._settings_of_call(ring_timeout_s, spare=go_on is not None)
        name = call_id or uuid.uuid4().hex
        if self.settings.users or self.settings.accept_register:
            rung = self._rung(number, invitation, settings)
            return self._dialer.ring(self, rung, number, name, go_on=go_on)
        return await self._dialer.place(self, invitation, settings, call_id=name, go_on=go_on)

    async def go_on(
        self,
        call: Call,
        number: str,
        *,
        caller_id: str | None = None,
        ring_timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        spare: bool = False,
    ) -> None:
        """Sends the INVITE of `call`, which another trunk did not take, over this one; returns when it has
        been sent. `spare`: there is a further trunk. Raises as `call` does, `TrunkUnavailable` too where the
        call was given up meanwhile."""
        invitation = self._invitation(number, caller_id, headers or {}, sip_call_id=call.sip_call_id)
        settings = self._settings_of_call(ring_timeout_s, spare=spare)
        if self.settings.users or self.settings.accept_register:
            invitation, settings = self._rung(number, invitation, settings)[0]
        await self._dialer.go_on(call, self, invitation, settings)

    def _invitation(
        self, number: str, caller_id: str | None, headers: Mapping[str, str], *, sip_call_id: str | None
    ) -> Invitation:
        """Returns the INVITE for `number`. Raises `LocalError`."""
        if not NUMBER.fullmatch(number):
            raise LocalError("a number has 1 to 64 of 0-9 A-Z a-z + * # . _ -")
        check_headers(headers)
        caller = self._caller(caller_id if caller_id is not None else self.settings.caller_id)
        hidden = self.settings.withhold_number
        return Invitation(
            targets=tuple(Target.of(replace(each, user=number)) for each in self._targets()),
            route=() if self.proxy is None else (self.proxy,),
            caller=WITHHELD if hidden else caller,
            call_id=sip_call_id or uuid.uuid4().hex,
            headers={**identity_headers(self.settings.identity, caller, withheld=hidden), **headers},
        )

    def _settings_of_call(self, ring_timeout_s: float | None, *, spare: bool) -> InviteSettings:
        settings = replace(self.invite_settings, spare=spare)
        return settings if ring_timeout_s is None else replace(settings, ring_timeout_s=ring_timeout_s)

    def _rung(
        self, number: str, invitation: Invitation, settings: InviteSettings
    ) -> list[tuple[Invitation, InviteSettings]]:
        """Returns an INVITE for each telephone, over its flow; of several none goes on over another trunk.
        Raises `CallFailed` where there is none."""
        account = number if self.settings.users else self.account
        telephones = self._dialer.telephones(self, account)
        if not telephones:
            raise CallFailed("no telephone is registered", 480, HangupCause.NO_ANSWER)
        rung, spare = [], settings.spare and len(telephones) == 1
        for each in telephones:
            egress = replace(self.egress.with_host(each.hop.host), keeps_flow=True)
            targets = (Target(each.contact, each.hop),)
            sent = replace(invitation, targets=targets, route=each.path)
            rung.append((sent, replace(settings, egress=egress, spare=spare)))
        return rung

    @property
    def telephones(self) -> Sequence[Binding]:
        """The telephones that are registered with the trunk's own name and password."""
        return self._dialer.telephones(self, self.account)

    @property
    def caller(self) -> NameAddr:
        """The From of requests that belong to no call."""
        return self._caller(self.settings.caller_id)

    def uri_of(self, number: str) -> Uri:
        """Returns the URI of `number` at the carrier."""
        return replace(self._targets()[0], user=number, params={})

    def _targets(self) -> tuple[Uri, ...]:
        """Returns the URIs for INVITEs, in order: the registrar that holds the contact comes first."""
        first = self.registration.index if self.registration is not None and self.registered else 0
        return self.uris[first:] + self.uris[:first]

    def _caller(self, caller_id: str) -> NameAddr:
        """Returns the From address, in the carrier's domain where the trunk has an account."""
        user = caller_id or self.settings.username or "anonymous"
        if not NUMBER.fullmatch(user):
            raise LocalError("a caller has 1 to 64 of 0-9 A-Z a-z + * # . _ -")
        here = self.public.now or self._dialer.host_towards(self.uris[0])
        host = self.uris[0].host if self.settings.username else here
        return NameAddr(Uri("sip", user, host), self.settings.caller_name)
