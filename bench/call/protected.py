"""A caller whose audio is SRTP, with keys by SDES (RFC 4568)."""

from __future__ import annotations

import base64
import re
import secrets
from typing import Final

from pylibsrtp import Error, Policy, Session

_CRYPTO: Final = re.compile(r"^a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:(\S+)", re.MULTILINE)
_SUITE: Final = "AES_CM_128_HMAC_SHA1_80"
_KEY_BYTES: Final = 30


class Keys:
    """The keys of one caller, by SDES; independent of the server's code, on the same libsrtp."""

    def __init__(self) -> None:
        secret = secrets.token_bytes(_KEY_BYTES)
        self.line = f"a=crypto:1 {_SUITE} inline:{base64.b64encode(secret).decode()}\r\n"
        self._sent = Session(Policy(key=secret, ssrc_type=Policy.SSRC_ANY_OUTBOUND))
        self._received: Session | None = None

    def take(self, answer: str) -> bool:
        """Reads the answer's key; False: it has none."""
        found = _CRYPTO.search(answer)
        if found is None:
            return False
        secret = base64.b64decode(found.group(1).split("|")[0])
        self._received = Session(Policy(key=secret, ssrc_type=Policy.SSRC_ANY_INBOUND))
        return True

    def seal(self, packet: bytes) -> bytes:
        """Returns a packet as it is sent."""
        return bytes(self._sent.protect(packet))

    def open(self, packet: bytes) -> bytes:
        """Returns a packet that came, b"" for one that is not authentic."""
        try:
            return b"" if self._received is None else bytes(self._received.unprotect(packet))
        except Error:
            return b""
