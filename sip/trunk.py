"""A trunk: the line to a carrier or PBX, over which calls are placed and from which they are admitted."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_network
from typing import TYPE_CHECKING

from pipeline.net.egress import EgressPolicy
from sip.dialog.invite import InviteSettings
from sip.dialog.registration import Registration
from sip.dialog.uac import Invitation
from sip.egress import EgressRule
from sip.errors import LocalError, MalformedMessage, SipError
from sip.message.headers import TOKEN, NameAddr
from sip.message.uri import Uri
from sip.sdp.media_plan import CODECS, Codec

if TYPE_CHECKING:
    from sip.call import Call
    from sip.endpoint import Endpoint

NUMBER = re.compile(r"[0-9A-Za-z+*#._\-]{1,64}")
"""What can be dialled: digits, +, *, # and the names of a PBX's extensions."""

_OURS = frozenset(
    {"allow", "call-id", "contact", "content-length", "content-type", "cseq", "from", "max-forwards"}
    | {"min-se", "require", "route", "rseq", "session-expires", "supported", "to", "via"}
)
_LINE_BREAKS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class TrunkUnavailable(SipError):
    """No call can be placed now: the endpoint is full, draining or closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrunkSettings:
    """What an operator says about a trunk. Raises `LocalError` for what cannot be.

    `uri` is where INVITEs and REGISTERs go: with `;transport=` that transport only, without it UDP, and TCP
    for requests above 1300 bytes (RFC 3261 18.1.1). `backup_uris` take over, in order, when it says 503 or
    cannot be reached. `username` and `password` answer the trunk's challenges, and let its calls in from
    addresses other than `allow_from`. `codecs` in order of preference. `session_expires_s` 0: no session
    timer. `symmetric_rtp`: media goes to where it comes from (once), not to where SDP says. `inband_dtmf`:
    tones are looked for even where telephone events were agreed on. `reach`: which addresses its calls and
    registrations may send SIP and RTP to, whoever names them; None, any. `trusted_hosts` may be sent to
    wherever they lead.
    """

    id: str
    uri: str
    caller_id: str = ""
    username: str = ""
    password: str = ""
    register: bool = False
    allow_from: tuple[str, ...] = ()
    codecs: tuple[str, ...] = ("pcmu", "pcma", "g722", "opus")
    symmetric_rtp: bool = False
    session_expires_s: int = 1800
    min_session_expires_s: int = 90
    ring_timeout_s: float = 60
    media_timeout_s: float = 30
    reliable_provisional: bool = True
    backup_uris: tuple[str, ...] = ()
    inband_dtmf: bool = False
    reach: EgressPolicy | None = None
    trusted_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            targets = [Uri.parse(each) for each in (self.uri, *self.backup_uris)]
        except MalformedMessage as fault:
            raise LocalError(f"trunk {self.id}: uri: {fault}") from fault
        if any(each.scheme not in ("sip", "sips") for each in targets):
            raise LocalError(f"trunk {self.id}: uri: must begin with sip: or sips:")
        unknown = [each for each in self.codecs if each.lower() not in CODECS]
        if unknown or not self.codecs:
            raise LocalError(f"trunk {self.id}: codecs: choose from {', '.join(CODECS)}")
        if self.session_expires_s and self.session_expires_s < self.min_session_expires_s:
            raise LocalError(f"trunk {self.id}: session_expires_s: below min_session_expires_s")


class Trunk:
    """One configured trunk of an `Endpoint`; made by `Endpoint.add_trunk`. ValueError: a bad network."""

    def __init__(self, settings: TrunkSettings, endpoint: Endpoint) -> None:
        self.settings = settings
        self.codecs: tuple[Codec, ...] = tuple(CODECS[each.lower()] for each in settings.codecs)
        self.egress = EgressRule(
            settings.reach,
            frozenset(host.lower() for host in settings.trusted_hosts),
            endpoint.addresses_of,
        )
        self.invite_settings = InviteSettings(
            session_expires_s=settings.session_expires_s,
            min_session_expires_s=settings.min_session_expires_s,
            ring_timeout_s=settings.ring_timeout_s,
            reliable_provisional=settings.reliable_provisional,
            username=settings.username,
            password=settings.password,
            allow_from=tuple(ip_network(each, strict=False) for each in settings.allow_from),
            egress=self.egress,
        )
        self.uris = tuple(Uri.parse(each) for each in (settings.uri, *settings.backup_uris))
        self.registration: Registration | None = None
        self._endpoint = endpoint

    def __repr__(self) -> str:
        return f"<Trunk {self.settings.id}>"

    @property
    def registered(self) -> bool:
        """Whether a registrar holds our contact; False on a trunk that does not register."""
        return self.registration is not None and self.registration.registered

    @property
    def aor(self) -> Uri:
        """The address that we register: our username at the registrar."""
        return Uri(self.uris[0].scheme, self.settings.username, self.uris[0].host)

    async def call(
        self,
        number: str,
        *,
        caller_id: str | None = None,
        ring_timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        call_id: str | None = None,
    ) -> Call:
        """Places a call and returns as soon as its INVITE has left (state DIALING).

        `number` becomes the user part of the trunk's URI. `headers` are added to the INVITE. `call_id` names
        the call in this process, not in SIP; one is made up where none is given. Raises `LocalError` for a
        number, caller or header that cannot be sent, `TrunkUnavailable`, `sip.rtp.ports.NoPortsLeft`,
        `CallFailed` when the trunk's name cannot be looked up: nothing has been dialled then.
        """
        if not NUMBER.fullmatch(number):
            raise LocalError("a number has 1 to 64 of 0-9 A-Z a-z + * # . _ -")
        _check_headers(headers or {})
        caller = self._caller(caller_id if caller_id is not None else self.settings.caller_id)
        settings = self.invite_settings
        if ring_timeout_s is not None:
            settings = replace(settings, ring_timeout_s=ring_timeout_s)
        invitation = Invitation(
            targets=tuple(replace(each, user=number) for each in self._targets()),
            caller=caller,
            call_id=uuid.uuid4().hex,
            headers=dict(headers or {}),
        )
        return await self._endpoint.place(self, invitation, settings, call_id or uuid.uuid4().hex)

    def _targets(self) -> tuple[Uri, ...]:
        """Where to send INVITEs, in order: the registrar that has us comes first."""
        first = self.registration.index if self.registration is not None and self.registered else 0
        return self.uris[first:] + self.uris[:first]

    def _caller(self, caller_id: str) -> NameAddr:
        """From: in the carrier's domain where we have an account there."""
        user = caller_id or self.settings.username or "anonymous"
        if not NUMBER.fullmatch(user):
            raise LocalError("a caller has 1 to 64 of 0-9 A-Z a-z + * # . _ -")
        host = self.uris[0].host if self.settings.username else self._endpoint.host_towards(self.uris[0])
        return NameAddr(Uri("sip", user, host))


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not TOKEN.fullmatch(name) or name.lower() in _OURS or len(name) == 1:
            raise LocalError(f"header {name!r} cannot be added to a call")
        if _LINE_BREAKS.search(value):
            raise LocalError(f"header {name!r} has a character that cannot be sent")
