"""Certificate authorities that tests make, and certificates of theirs."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Pair(NamedTuple):
    """Files of a certificate and its key."""

    certificate: str
    key: str


class Authority:
    """An authority in `folder`; `ca` is the file of its own certificate."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._own = builder.sign(self._key, hashes.SHA256())
        self.ca = str(folder / "ca.pem")
        Path(self.ca).write_bytes(self._own.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, days: float = 1.0) -> Pair:
        """Makes a certificate for a host name; with negative `days` one that has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key, days=days).add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False
        )
        made = Pair(str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key"))
        signed = builder.sign(self._key, hashes.SHA256())
        Path(made.certificate).write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        Path(made.key).write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return made

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: float = 1.0
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + timedelta(days=days))
        )


def serving(pair: Pair, *, asks: str = "", newest: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """A server's context; `asks`: the authorities of which clients must show a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*pair)
    if asks:
        context.load_verify_locations(asks)
        context.verify_mode = ssl.CERT_REQUIRED
    if newest is not None:
        context.maximum_version = newest
    return context
