"""ICE as a lite agent (RFC 8445 2.5): browsers send audio only to who answers their connectivity checks.

This side has one candidate, the stream's port, and is never the controlling agent. Whoever sends a check with
the password of SDP, which only the peer's description was given, has agreed to receive media at that source
(RFC 7675): the address that it nominates is where media goes. Sans-IO."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import zlib
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from sip.sdp.sdp import Attribute

FIRST_OCTETS: Final = range(4)
"""Of a STUN message: RFC 7983 tells it from DTLS, RTP and RTCP by these."""

MOST_BYTES: Final = 1280
_HEADER: Final = 20
_MAGIC: Final = b"\x21\x12\xa4\x42"
_REQUEST, _SUCCESS = b"\x00\x01", b"\x01\x01"
_USERNAME, _INTEGRITY, _USE_CANDIDATE = 0x0006, 0x0008, 0x0025
_MAPPED, _FINGERPRINT = 0x0020, 0x8028
_DIGEST_BYTES: Final = 20
_FINGERPRINT_XOR: Final = 0x5354554E


LITE: Attribute = ("ice-lite", None)


@dataclass(frozen=True, slots=True)
class IceCredentials:
    """The user fragment and the password of this side, for one call."""

    ufrag: str
    password: str

    @classmethod
    def new(cls) -> IceCredentials:
        """Makes new ones that nobody can guess."""
        return cls(secrets.token_hex(4), secrets.token_hex(16))

    def attributes(self, host: str, port: int) -> list[Attribute]:
        """Returns what SDP says of them, with the one candidate of this side."""
        candidate = f"1 1 udp 2130706431 {host} {port} typ host"
        return [
            ("ice-ufrag", self.ufrag),
            ("ice-pwd", self.password),
            ("candidate", candidate),
            ("end-of-candidates", None),
        ]


@dataclass(frozen=True, slots=True)
class Check:
    """A check that has passed: the answer, and whether its source is nominated."""

    answer: bytes
    nominated: bool


def checked(data: bytes, ours: IceCredentials, host: str, port: int) -> Check | None:
    """Judges a datagram from `host` and `port`; None for one that is no check of the peer's."""
    if not _HEADER <= len(data) <= MOST_BYTES or data[:2] != _REQUEST or data[4:8] != _MAGIC:
        return None
    if int.from_bytes(data[2:4]) != len(data) - _HEADER:
        return None
    found, place = _attributes(data)
    key = ours.password.encode()
    if place is None or not found.get(_USERNAME, b"").startswith(f"{ours.ufrag}:".encode()):
        return None
    signed = data[:2] + (place + 4 + _DIGEST_BYTES - _HEADER).to_bytes(2) + data[4:place]
    if not hmac.compare_digest(_digest(key, signed), found[_INTEGRITY]):
        return None
    body = _attribute(_MAPPED, _mapped(host, port, data[4:20]))
    return Check(_signed(data[4:20], body, key), _USE_CANDIDATE in found)


def _attributes(data: bytes) -> tuple[dict[int, bytes], int | None]:
    """Returns the attributes up to MESSAGE-INTEGRITY, and where that begins; None without a whole one."""
    found: dict[int, bytes] = {}
    at = _HEADER
    while at + 4 <= len(data):
        kind, size = int.from_bytes(data[at : at + 2]), int.from_bytes(data[at + 2 : at + 4])
        value = data[at + 4 : at + 4 + size]
        if len(value) < size:
            break
        found.setdefault(kind, value)
        if kind == _INTEGRITY:
            return found, at if size == _DIGEST_BYTES else None
        at += 4 + size + -size % 4
    return found, None


def _signed(transaction: bytes, body: bytes, key: bytes) -> bytes:
    """Returns a success with its integrity and fingerprint (RFC 8489 14.5, 14.7)."""

    def head(length: int) -> bytes:
        return _SUCCESS + length.to_bytes(2) + transaction

    digest = _digest(key, head(len(body) + 4 + _DIGEST_BYTES) + body)
    body += _attribute(_INTEGRITY, digest)
    whole = head(len(body) + 8) + body
    return whole + _attribute(_FINGERPRINT, ((zlib.crc32(whole) ^ _FINGERPRINT_XOR) & 0xFFFFFFFF).to_bytes(4))


def _digest(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha1).digest()


def _attribute(kind: int, value: bytes) -> bytes:
    return kind.to_bytes(2) + len(value).to_bytes(2) + value + bytes(-len(value) % 4)


def _mapped(host: str, port: int, transaction: bytes) -> bytes:
    """Returns XOR-MAPPED-ADDRESS (RFC 8489 14.2); `transaction` begins with the magic cookie."""
    address = ip_address(host.partition("%")[0])
    packed = bytes(one ^ other for one, other in zip(address.packed, transaction, strict=False))
    family = 1 if address.version == 4 else 2
    return bytes((0, family)) + (port ^ int.from_bytes(_MAGIC[:2])).to_bytes(2) + packed
