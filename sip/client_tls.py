"""How a trunk's connections over TLS are made: who is believed, what is shown, which versions (RFC 5922)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from sip.errors import LocalError

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTlsSettings:
    """The TLS of a trunk. `ca`: file of the authorities that its certificate is checked against, "" for the
    system's. `certificate` and `key`: files of what a carrier is shown that asks. `server_name`: what its
    certificate must be for, "" for the domain in the trunk's URI. `min_version`: "1.2" or "1.3". `stamp`:
    changes with the files' content, so that a trunk whose settings are compared is made anew."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""
    min_version: str = "1.2"
    stamp: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ClientTls:
    """A context for connections; two of them never share a connection."""

    context: ssl.SSLContext
    server_name: str

    @classmethod
    def of(cls, settings: ClientTlsSettings) -> ClientTls:
        """Returns the context of `settings`. Raises `LocalError` for files that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=settings.ca or None)
            if settings.certificate:
                context.load_cert_chain(settings.certificate, settings.key or None)
        except OSError as error:  # ssl.SSLError is one
            raise LocalError(f"tls_ca, tls_certificate, tls_key: {error}") from error
        context.minimum_version = VERSIONS[settings.min_version]
        return cls(context, settings.server_name)
