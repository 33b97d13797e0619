"""What protects one stream: keys from SDP or from a handshake, at the stream's row and for its reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from pipeline.plane.srtp import Protection
from pipeline.plane.srtp_suite import Masters
from sip.errors import LocalError
from sip.rtp.dtls import Certificate, DtlsHandshake, DtlsState
from sip.sdp.security import Handshake, Security


@dataclass(frozen=True, slots=True)
class Encryption:
    """How a stream was protected: where its keys came from ("none", "sdes" or "dtls"), and the suite of what
    was sent."""

    keys: str = "none"
    suite: str = ""


class Insecure(Enum):
    """What is wrong with a stream's protection: each is told once for each set of keys."""

    FORGED = auto()  # packets come that are not authentic; they are not played
    NO_KEYS = auto()  # the handshake has failed: nothing will be sent or heard


class StreamSecurity:
    """SRTP and SRTCP of one stream. Methods with a `line` want its row held. `certificate`: whose handshakes
    this side makes; `error`: why the last has failed."""

    def __init__(self) -> None:
        self.certificate: Certificate | None = None
        self.encryption = Encryption()
        self.error = ""
        self._protection = Protection()
        self._handshake: DtlsHandshake | None = None
        self._required = False
        self._told: set[Insecure] = set()
        self._forged = 0  # before the keys of now

    def agree(self, line: Any, security: Security | None, now: float) -> bool:
        """Protects the stream as the plan says. False: there are no keys yet, and nothing may be sent. Raises
        LocalError for a handshake without a certificate."""
        self._required = security is not None
        if isinstance(security, Handshake):
            self._protection.require(line)
            self._begin(security, now)
            line["handshakes"] = 1
            return self.encryption.keys == "dtls"
        self._handshake, line["handshakes"] = None, 0
        if security is None:
            self._protection.stop(line)
            self.encryption = Encryption()
        else:
            self._use(line, security, "sdes")
        return True

    def _begin(self, security: Handshake, now: float) -> None:
        if self._handshake is not None and self._handshake.agreed == security:
            return
        if self.certificate is None:
            raise LocalError("no certificate for DTLS")
        self._told.discard(Insecure.NO_KEYS)
        self._handshake = DtlsHandshake(self.certificate.context(), security, now)

    def handshake(self, data: bytes, now: float) -> Sequence[bytes]:
        """Takes a datagram of DTLS; returns those to send to its source."""
        return () if self._handshake is None else self._handshake.receive(data, now)

    def flight(self, now: float) -> Sequence[bytes]:
        """Returns the datagrams of the handshake that are due."""
        return () if self._handshake is None else self._handshake.tick(now)

    def take_keys(self, line: Any) -> bool:
        """Protects the stream with the keys of the handshake; whether these are new."""
        masters = None if self._handshake is None else self._handshake.masters
        if masters is None or masters == self._protection.masters:
            return False
        self._use(line, masters, "dtls")
        return True

    @property
    def shaken(self) -> bool:
        """Whether the handshake has made keys that are not in use yet."""
        handshake = self._handshake
        return (
            handshake is not None
            and handshake.masters is not None
            and (handshake.masters != self._protection.masters)
        )

    def _use(self, line: Any, masters: Masters, keys: str) -> None:
        if masters != self._protection.masters:
            self._told.discard(Insecure.FORGED)
            self._forged = int(line["forged"])
        self._protection.use(line, masters)
        self.encryption = Encryption(keys, masters.sent.suite.value)

    def close(self, line: Any) -> None:
        """Frees the keys of a row that is held, or that the plane has left for good."""
        self._protection.drop(line)

    def wrong(self, line: Any) -> Insecure | None:
        """What is wrong and was not told of yet."""
        handshake, found = self._handshake, None
        if handshake is not None and handshake.state is DtlsState.FAILED:
            found, self.error = Insecure.NO_KEYS, handshake.error
        elif self._protection.masters is not None and line["forged"] != self._forged:
            found = Insecure.FORGED
        if found is None or found in self._told:
            return None
        self._told.add(found)
        return found

    def sealed_report(self, compound: bytes) -> bytes | None:
        """Returns what is sent of a compound RTCP packet; None: nothing may be sent yet."""
        if not self._required:
            return compound
        sealer = self._protection.sealer
        return None if sealer is None else sealer.report(compound)

    def opened_report(self, data: bytes) -> bytes | None:
        """Returns the compound RTCP packet in `data`; None for one that is not authentic."""
        return self._protection.opened_report(data) if self._required else data
