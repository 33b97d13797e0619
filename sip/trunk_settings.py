"""Settings of a trunk, with their checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.net.egress import EgressPolicy
from sip.errors import LocalError, MalformedMessage
from sip.message.uri import Uri
from sip.sdp.media_plan import CODECS


@dataclass(frozen=True, slots=True, kw_only=True)
class TrunkSettings:
    """Settings of a trunk. Raises `LocalError` for values that cannot be used.

    `uri` is where INVITEs and REGISTERs go: with `;transport=` that transport only, without it UDP, and TCP
    for requests above 1300 bytes (RFC 3261 18.1.1). `backup_uris` take over, in order, when `uri` answers 503
    or cannot be reached. `username` and `password` answer the trunk's challenges, and admit its calls from
    addresses other than `allow_from`. `codecs` in order of preference. `session_expires_s` 0: no session
    timer. `symmetric_rtp`: media is sent to where it comes from once that source has proved itself
    (`sip.rtp.latch`), not only to the address in SDP; True: SDP may name any address, closed ones too.
    `inband_dtmf`: tones are detected even where telephone events were negotiated. `egress`: the addresses to
    which its calls and registrations may send SIP and RTP, whoever names them; None, any. `trusted_hosts` may
    be sent to whatever they resolve to.
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
    media_timeout_s: float = 30
    reliable_provisional: bool = True
    backup_uris: tuple[str, ...] = ()
    inband_dtmf: bool = False
    egress: EgressPolicy | None = None
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
