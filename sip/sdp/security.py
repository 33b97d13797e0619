"""SRTP in offer and answer: SDES (RFC 4568), also beside plain RTP (RFC 8643), and DTLS-SRTP (RFC 5763).

| `srtp` | this side offers | taken from an offer | in an answer |
|---|---|---|---|
| off | plain RTP | plain RTP, with keys beside it too | plain RTP |
| optional | RTP/AVP with keys beside it | all | keys, or none where there were none before |
| sdes | RTP/SAVP | keys, in RTP/SAVP or beside RTP/AVP | keys |
| dtls | UDP/TLS/RTP/SAVP | fingerprints | fingerprints |

Everything else is refused (488), in changes of a call too: with `sdes` and `dtls` nothing falls back.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from pipeline.plane.srtp_suite import Master, Masters, Suite
from sip.errors import MalformedSdp
from sip.sdp.sdp import Attribute, MediaDescription, SessionDescription

PLAIN = ("RTP/AVP", "RTP/AVPF")
KEYED = ("RTP/SAVP", "RTP/SAVPF")
HANDSHAKEN = ("UDP/TLS/RTP/SAVP", "UDP/TLS/RTP/SAVPF")

_CRYPTO = re.compile(r"([0-9]{1,9}) +(\S+) +inline:([A-Za-z0-9+/=]{1,128})((?:\|[^|;\s]*){0,2})((?: +\S+)*)")
_LIFETIME = re.compile(r"(2\^)?[0-9]{1,20}")
_WINDOW = re.compile(r"(?i)WSH=[0-9]{1,4}")


class Srtp(StrEnum):
    """How the media of a trunk is protected: `srtp` of the configuration."""

    OFF = "off"
    OPTIONAL = "optional"
    SDES = "sdes"
    DTLS = "dtls"


class Role(StrEnum):
    """Who begins the DTLS handshake (RFC 4145): this side is the client (active) or the server (passive)."""

    ACTIVE = "active"
    PASSIVE = "passive"


@dataclass(frozen=True, slots=True)
class Handshake:
    """Keys come by DTLS: this side's role, and the fingerprints of which the far end's certificate must have
    one, as (hash, "AB:CD:…")."""

    role: Role
    fingerprints: frozenset[tuple[str, str]]


Security = Masters | Handshake
"""What protects a stream: keys by SDES, or a handshake that makes them."""


@dataclass(frozen=True, slots=True)
class LocalSecurity:
    """What this side brings into the negotiation of one call: `srtp` of the trunk, the fingerprint of its
    certificate ("sha-256 AB:CD:…", "": no DTLS), and a key for each suite, which stays for as long as the
    call is protected by it."""

    srtp: Srtp = Srtp.OFF
    fingerprint: str = ""
    _keys: dict[Suite, Master] = field(default_factory=dict, repr=False, compare=False)

    def key(self, suite: Suite) -> Master:
        """This side's key of the suite."""
        return self._keys.setdefault(suite, Master.new(suite))

    def offer(self, agreed: Agreed | None) -> tuple[str, list[Attribute]]:
        """Returns the transport and attributes of an offer; `agreed`: what the call has, which a later offer
        does not change."""
        srtp = self.srtp if agreed is None else _OF_KIND[type(agreed.security)]
        if srtp is Srtp.OFF:
            return PLAIN[0] if agreed is None else agreed.protocol, []
        if srtp is Srtp.DTLS:
            described = self._fingerprinted("actpass")
            return HANDSHAKEN[0] if agreed is None else agreed.protocol, described
        protocol = PLAIN[0] if srtp is Srtp.OPTIONAL else KEYED[0]
        suites = list(Suite)
        if agreed is not None and isinstance(agreed.security, Masters):
            protocol, suites = agreed.protocol, [agreed.security.sent.suite]
        return protocol, [_crypto(tag, self.key(suite)) for tag, suite in enumerate(suites, 1)]

    def answer(
        self, session: SessionDescription, media: MediaDescription, agreed: Agreed | None
    ) -> tuple[Security | None, list[Attribute]]:
        """Returns what protects a stream that was offered, with the attributes that say so. Raises
        MalformedSdp (488) for an offer that this side does not take."""
        protocol, srtp = media.protocol.upper(), self.srtp
        if srtp in (Srtp.SDES, Srtp.OPTIONAL) and protocol in PLAIN + KEYED:
            for tag, theirs in _keys(media):
                ours = self._key_beside(theirs.suite, agreed)
                return Masters(ours, theirs), [_crypto(tag, ours)]
        fingerprints = _fingerprints(session, media)
        if srtp in (Srtp.DTLS, Srtp.OPTIONAL) and fingerprints and self.fingerprint:
            role = _role(session, media, agreed)
            return Handshake(role, fingerprints), self._fingerprinted(role)
        was_plain = agreed is None or agreed.security is None
        if was_plain and srtp in (Srtp.OFF, Srtp.OPTIONAL) and protocol in PLAIN:
            return None, []
        raise MalformedSdp(f"audio over {media.protocol} with no protection that the trunk takes")

    def _key_beside(self, suite: Suite, agreed: Agreed | None) -> Master:
        """The key in use where the call has that suite, else one that has protected nothing: packet numbers,
        those of reports above all, begin anew with a session (RFC 3711 9.1)."""
        if agreed is not None:
            in_use = agreed.security.sent if isinstance(agreed.security, Masters) else None
            if in_use is None or in_use.suite is not suite:
                self._keys[suite] = Master.new(suite)
        return self.key(suite)

    def _fingerprinted(self, setup: str) -> list[Attribute]:
        return [("fingerprint", self.fingerprint), ("setup", setup)]


@dataclass(frozen=True, slots=True)
class Agreed:
    """What an earlier offer and answer of the call have agreed on."""

    protocol: str
    security: Security | None


_OF_KIND: dict[type, Srtp] = {type(None): Srtp.OFF, Masters: Srtp.SDES, Handshake: Srtp.DTLS}


def accepted(
    session: SessionDescription,
    media: MediaDescription,
    offered: MediaDescription,
    agreed: Agreed | None = None,
) -> Security | None:
    """Returns what protects the stream after the far end's answer to `offered`. `agreed`: what the call had
    before the offer. Raises MalformedSdp (488) for an answer that protects it less than the offer asked, or
    than the call was."""
    ours = dict(_keys(offered))
    family = next(each for each in (PLAIN, KEYED, HANDSHAKEN) if offered.protocol in each)
    if media.protocol.upper() not in (*family, *(KEYED if ours else ())):
        raise MalformedSdp("answer with another transport than the offer")
    for tag, theirs in _keys(media):
        mine = ours.get(tag)
        if mine is None or mine.suite is not theirs.suite:
            raise MalformedSdp("answer with a key for no offered suite")
        return Masters(mine, theirs)
    if offered.attribute("fingerprint"):
        fingerprints = _fingerprints(session, media)
        setup = (media.attribute("setup") or session.attribute("setup") or "").lower()
        if not fingerprints or setup not in (Role.ACTIVE, Role.PASSIVE):
            raise MalformedSdp("answer without fingerprint and setup")
        return Handshake(Role.PASSIVE if setup == Role.ACTIVE else Role.ACTIVE, fingerprints)
    if offered.protocol in PLAIN and (agreed is None or agreed.security is None):
        return None
    raise MalformedSdp("answer without a key")


def _role(session: SessionDescription, media: MediaDescription, agreed: Agreed | None) -> Role:
    """Who is to begin: the far end where it may, for its first packet opens its NAT. A call that goes on
    keeps its roles."""
    setup = (media.attribute("setup") or session.attribute("setup") or "active").lower()
    if setup == Role.PASSIVE:
        return Role.ACTIVE
    if setup == "actpass" and agreed is not None and isinstance(agreed.security, Handshake):
        return agreed.security.role
    return Role.PASSIVE


def _keys(media: MediaDescription) -> Iterator[tuple[int, Master]]:
    """Yields tag and key of each a=crypto that can be used: of a suite of ours, without an MKI, and without
    parameters that weaken it (RFC 4568 6.3)."""
    for value in media.values("crypto"):
        match = _CRYPTO.fullmatch(value)
        if match is None:
            continue
        tag, name, secret, limits, parameters = match.groups()
        plain = all(_LIFETIME.fullmatch(each) for each in limits.split("|")[1:])
        known = all(each.startswith("-") or _WINDOW.fullmatch(each) for each in parameters.split())
        if not plain or not known:
            continue
        try:
            suite = Suite(name.upper())
            yield int(tag), Master(suite, base64.b64decode(secret, validate=True))
        except (ValueError, binascii.Error):
            continue  # of another suite, or no key of it


def _fingerprints(session: SessionDescription, media: MediaDescription) -> frozenset[tuple[str, str]]:
    values = media.values("fingerprint") or session.values("fingerprint")
    pairs = (value.split() for value in values)
    return frozenset((pair[0].lower(), pair[1].upper()) for pair in pairs if len(pair) == 2)


def _crypto(tag: int, key: Master) -> Attribute:
    return "crypto", f"{tag} {key.suite.value} inline:{base64.b64encode(key.secret).decode()}"
