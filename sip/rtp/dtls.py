"""DTLS-SRTP (RFC 5763, RFC 5764): the handshake that makes a stream's keys, sans-IO.

Certificates are self-signed: what counts is that their fingerprint is the one that SDP named. OpenSSL speaks
DTLS 1.2 between two memories; datagrams come and go by the stream's RTP port, and `now` by its caller."""

from __future__ import annotations

import datetime
from enum import Enum, auto
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from OpenSSL import SSL

from pipeline.plane.srtp_suite import KEY_BYTES, Master, Masters, Suite
from sip.sdp.security import Handshake, Role

FIRST_OCTETS: Final = range(20, 64)
"""Of a record: RFC 7983 tells it from RTP, RTCP and STUN by these."""

GIVE_UP_S: Final = 20.0
_EXPORTER: Final = b"EXTRACTOR-dtls_srtp"
_HASHES: Final = {"sha-256": hashes.SHA256(), "sha-384": hashes.SHA384(), "sha-512": hashes.SHA512()}
_CIPHERS: Final = (
    b"ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES"
)
_SUITES: Final = {each.dtls_name.encode(): each for each in Suite}
_DAYS: Final = 365
_MTU: Final = 1200
_MOST_BYTES: Final = 2048
_RECORD_HEADER: Final = 13  # the last two octets of which are the length (RFC 6347 4.1)


class Certificate:
    """The endpoint's certificate, made anew at each start."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sip")])
        now = datetime.datetime.now(tz=datetime.UTC)
        builder = x509.CertificateBuilder(name, name, self._key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1))
        self._certificate = builder.not_valid_after(now + datetime.timedelta(days=_DAYS)).sign(
            self._key, hashes.SHA256()
        )

    @property
    def fingerprint(self) -> str:
        """The value of its a=fingerprint."""
        return f"sha-256 {fingerprint(self._certificate, 'sha-256')}"

    def context(self) -> SSL.Context:
        """Returns what connections with this certificate are made from."""
        context = SSL.Context(SSL.DTLS_METHOD)
        context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_QUERY_MTU)
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, lambda *_: True)
        context.use_certificate(self._certificate)
        context.use_privatekey(self._key)
        context.set_cipher_list(_CIPHERS)
        context.set_tlsext_use_srtp(b":".join(_SUITES))
        return context


def fingerprint(certificate: x509.Certificate, name: str) -> str:
    """Returns the fingerprint of a certificate as SDP writes it (RFC 8122 5)."""
    return certificate.fingerprint(_HASHES[name]).hex(":").upper()


class DtlsState(Enum):
    """States of a handshake; the last two are for good."""

    SHAKING = auto()
    DONE = auto()
    FAILED = auto()


class DtlsHandshake:
    """One handshake. Each call returns the datagrams to send; `masters` are the keys once it is DONE, `error`
    says why it has FAILED."""

    def __init__(self, context: SSL.Context, agreed: Handshake, now: float) -> None:
        self.state = DtlsState.SHAKING
        self.masters: Masters | None = None
        self.error = ""
        self.agreed = agreed
        self._ends_s = now + GIVE_UP_S
        self._due_s = now
        self._connection = SSL.Connection(context, None)
        self._connection.set_ciphertext_mtu(_MTU)
        if agreed.role is Role.ACTIVE:
            self._connection.set_connect_state()
        else:
            self._connection.set_accept_state()

    def begin(self, now: float) -> list[bytes]:
        """Sends the client's first message, where this side is the client."""
        return self._step(now)

    def receive(self, data: bytes, now: float) -> list[bytes]:
        """A datagram of the far end's."""
        self._connection.bio_write(data)
        return self._step(now)

    def tick(self, now: float) -> list[bytes]:
        """Sends again what has not been answered; gives up after `GIVE_UP_S`."""
        if self.state is not DtlsState.SHAKING:
            return []
        if now >= self._ends_s:
            self._fail("nobody answers")
            return []
        if now < self._due_s:
            return []
        self._connection.DTLSv1_handle_timeout()
        return self._step(now)

    def _step(self, now: float) -> list[bytes]:
        try:
            self._connection.do_handshake()
            if self.state is DtlsState.DONE:
                self._connection.recv(_MOST_BYTES)  # a repeated flight is answered again
        except SSL.WantReadError:
            pass
        except SSL.Error as error:
            if self.state is DtlsState.SHAKING:
                self._fail(_reason(error))
        else:
            if self.state is DtlsState.SHAKING:
                self._finish()
        left_s = self._connection.DTLSv1_get_timeout()
        self._due_s = now + (0.25 if left_s is None else left_s)
        return self._flight()

    def _flight(self) -> list[bytes]:
        waiting = bytearray()
        while True:
            try:
                waiting += self._connection.bio_read(_MOST_BYTES)
            except SSL.WantReadError:
                return _datagrams(bytes(waiting))

    def _finish(self) -> None:
        certificate = self._connection.get_peer_certificate(as_cryptography=True)
        suite = _SUITES.get(self._connection.get_selected_srtp_profile())
        if certificate is None or not self._is_theirs(certificate):
            self._fail("another certificate than SDP names")
        elif suite is None:
            self._fail("no suite in common")
        else:
            self.masters, self.state = self._exported(suite), DtlsState.DONE

    def _is_theirs(self, certificate: x509.Certificate) -> bool:
        known = [(name, value) for name, value in self.agreed.fingerprints if name in _HASHES]
        return any(fingerprint(certificate, name) == value for name, value in known)

    def _exported(self, suite: Suite) -> Masters:
        salt = suite.salt_bytes
        exported = self._connection.export_keying_material(_EXPORTER, 2 * (KEY_BYTES + salt))
        keys, salts = exported[: 2 * KEY_BYTES], exported[2 * KEY_BYTES :]
        client = Master(suite, keys[:KEY_BYTES] + salts[:salt])
        server = Master(suite, keys[KEY_BYTES:] + salts[salt:])
        return Masters(client, server) if self.agreed.role is Role.ACTIVE else Masters(server, client)

    def _fail(self, error: str) -> None:
        self.state, self.error = DtlsState.FAILED, error


def _reason(error: SSL.Error) -> str:
    """What OpenSSL says; its errors are tuples of library, function and reason."""
    told = error.args[0] if error.args else []
    return (
        "; ".join(str(each[-1]) for each in told) if isinstance(told, list) and told else "broken handshake"
    )


def _datagrams(records: bytes) -> list[bytes]:
    """Returns records of DTLS in datagrams that fit a network."""
    found: list[bytes] = []
    while records:
        size = _RECORD_HEADER + int.from_bytes(records[_RECORD_HEADER - 2 : _RECORD_HEADER])
        record, records = records[:size], records[size:]
        if found and len(found[-1]) + len(record) <= _MTU:
            found[-1] += record
        else:
            found.append(record)
    return found
