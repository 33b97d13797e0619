"""What protects a stream of SRTP: the suite, and the master keys of both directions."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from enum import Enum


class Suite(Enum):
    """Ciphers, by their names in SDP (RFC 4568 6.2, RFC 7714 14.2), in the order in which they are
    offered."""

    AES_CM_128_HMAC_SHA1_80 = "AES_CM_128_HMAC_SHA1_80"
    AEAD_AES_128_GCM = "AEAD_AES_128_GCM"
    AES_CM_128_HMAC_SHA1_32 = "AES_CM_128_HMAC_SHA1_32"

    @property
    def profile(self) -> int:
        """Its number in DTLS-SRTP (RFC 5764 4.1.2, RFC 7714 14.2), which is libsrtp's too."""
        return _TABLE[self][0]

    @property
    def dtls_name(self) -> str:
        """The name by which OpenSSL knows the suite, for the handshake of DTLS."""
        return _TABLE[self][1]

    @property
    def salt_bytes(self) -> int:
        """Length of the master salt; that of the master key is `KEY_BYTES`."""
        return _TABLE[self][2]

    @property
    def tag_bytes(self) -> int:
        """How much longer than RTP a packet is."""
        return _TABLE[self][3]


_TABLE = {
    Suite.AES_CM_128_HMAC_SHA1_80: (1, "SRTP_AES128_CM_SHA1_80", 14, 10),
    Suite.AEAD_AES_128_GCM: (7, "SRTP_AEAD_AES_128_GCM", 12, 16),
    Suite.AES_CM_128_HMAC_SHA1_32: (2, "SRTP_AES128_CM_SHA1_32", 14, 4),
}

KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Master:
    """Master key and salt of one direction. `secret` is never shown. Raises ValueError for another length
    than the suite's."""

    suite: Suite
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES + self.suite.salt_bytes:
            raise ValueError(f"{self.suite.value} has keys of {KEY_BYTES + self.suite.salt_bytes} octets")

    @classmethod
    def new(cls, suite: Suite) -> Master:
        """A key that nobody knows yet."""
        return cls(suite, secrets.token_bytes(KEY_BYTES + suite.salt_bytes))


@dataclass(frozen=True, slots=True)
class Masters:
    """The keys of both directions of a stream."""

    sent: Master
    received: Master
