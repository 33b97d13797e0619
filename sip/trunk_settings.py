"""Settings of a trunk, with their checks, and of who has an account there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pipeline.net.egress import EgressPolicy
from sip.called_number import CALLED_NUMBER_HEADERS
from sip.client_tls import ClientTlsSettings
from sip.egress import PublicAddress
from sip.errors import LocalError, MalformedMessage
from sip.message.uri import Uri
from sip.sdp.media_plan import CODECS
from sip.sdp.security import Srtp
from sip.states import Engine

TELEPHONES_LIMIT: Final = 10
"""Contacts that are bound to one user; a further one takes the place of the one that registered first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user. `password`, or `hashes`: HA1 by the name of its hash (RFC 7616 3.4.2); `digest`: the hashes by
    which the user's telephones are challenged, strongest first. `telephones`: the most contacts, 0: it does
    not register. `may_call`: it may call agents."""

    name: str
    password: str = ""
    hashes: Mapping[str, str] = field(default_factory=dict)
    digest: tuple[str, ...] = ("MD5",)
    telephones: int = TELEPHONES_LIMIT
    may_call: bool = True

    @property
    def secret(self) -> str | Mapping[str, str] | None:
        """What a digest is verified by; None: nothing passes."""
        return self.hashes or self.password or None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrunkSettings:
    """Settings of a trunk. Raises `LocalError` for values that cannot be used.

    `uri` is where INVITEs and REGISTERs go: with `;transport=` that transport only, without it UDP, and TCP
    for requests above 1300 bytes (RFC 3261 18.1.1). `backup_uris` take over, in order, when `uri` answers
    500, 502, 503 or 504, cannot be reached, or says nothing at all for `failover_s`. With an
    `outbound_proxy` requests go there, by a preloaded Route. `follow_redirects`: redirections (3xx) of one
    call that are followed, to the same number only. `options_ping_s`: its servers are asked so often whether
    they live, 0: never; calls try those that are down last. `keep_alive_s`: the longest time between two
    keep-alives of the registration's flow, 0: as the registrar asks. `username` and
    `password` answer the trunk's challenges, and admit its calls from addresses other than `allow_from`.
    `codecs` in order of preference. `session_expires_s` 0: no session timer. `symmetric_rtp`: media is sent
    to where it comes from once that source has proved itself (`sip.rtp.latch`), not only to the address in
    SDP; True: SDP may name any address, closed ones too. `inband_dtmf`: tones are detected even where
    telephone events were negotiated. `egress`: the addresses to which its calls and registrations may send
    SIP and RTP, whoever names them; None, any. `trusted_hosts` may be sent to whatever they resolve to.
    `called_number_headers`: where the called number stands in an INVITE to the trunk's account
    (`sip.called_number`), in order. `identity`: where the number of either side stands beside From.
    `caller_name`: shown with the number; `withhold_number`: neither is shown. `accept_register`: a telephone
    that registers with `username` and `password` gets the trunk's calls. `srtp`: how its media is protected
    (`sip.sdp.security`). `accept_refer`: its calls take a REFER of the far end. `public_address`: written to
    the trunk's peers in Via, Contact, From and SDP instead of that of the endpoint; "stun:host:port": what
    that server says, asked every `stun_every_s`. `users`: those of a company, whose
    telephones are this trunk's only peers; `uri` leads nowhere then. `engine`: who has the INVITE sessions of
    its calls, this stack or PJSIP (`sip.pjsip`).
    """

    id: str
    uri: str
    caller_id: str = ""
    username: str = ""
    password: str = ""
    register: bool = False
    allow_from: tuple[str, ...] = ()
    codecs: tuple[str, ...] = ("pcmu", "pcma", "g722", "opus")
    symmetric_rtp: bool | Literal["auto"] = "auto"
    session_expires_s: int = 1800
    min_session_expires_s: int = 90
    ring_timeout_s: float = 60
    failover_s: float = 4.0
    follow_redirects: int = 0
    options_ping_s: float = 0
    keep_alive_s: float = 0
    outbound_proxy: str = ""
    media_timeout_s: float = 30
    reliable_provisional: bool = True
    backup_uris: tuple[str, ...] = ()
    inband_dtmf: bool = False
    tls: ClientTlsSettings | None = None
    egress: EgressPolicy | None = None
    trusted_hosts: tuple[str, ...] = ()
    called_number_headers: tuple[str, ...] = CALLED_NUMBER_HEADERS
    identity: Literal["from", "pai", "rpid"] = "from"
    caller_name: str = ""
    withhold_number: bool = False
    accept_register: bool = False
    srtp: Srtp = Srtp.OFF
    accept_refer: bool = False
    public_address: str = ""
    stun_every_s: float = 60.0
    users: tuple[User, ...] = ()
    engine: Engine = "native"

    def __post_init__(self) -> None:
        try:
            proxies = [self.outbound_proxy] if self.outbound_proxy else []
            targets = [Uri.parse(each) for each in (self.uri, *self.backup_uris, *proxies)]
        except MalformedMessage as fault:
            raise LocalError(f"trunk {self.id}: uri: {fault}") from fault
        if any(each.scheme not in ("sip", "sips") for each in targets):
            raise LocalError(f"trunk {self.id}: uri: must begin with sip: or sips:")
        try:
            PublicAddress.of(self.public_address)
        except ValueError as error:
            raise LocalError(f"trunk {self.id}: public_address: {error}") from error
        unknown = [each for each in self.codecs if each.lower() not in CODECS]
        if unknown or not self.codecs:
            raise LocalError(f"trunk {self.id}: codecs: choose from {', '.join(CODECS)}")
        if self.session_expires_s and self.session_expires_s < self.min_session_expires_s:
            raise LocalError(f"trunk {self.id}: session_expires_s: below min_session_expires_s")
