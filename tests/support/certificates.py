"""Certificates that tests make for themselves."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path


async def tls_of_localhost(folder: Path) -> tuple[ssl.SSLContext, str]:
    """A server's context with a certificate of its own making for "localhost", and the certificate's path."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    made = await asyncio.create_subprocess_exec(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
        *("-keyout", str(key), "-out", str(certificate)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await made.wait() == 0
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context, str(certificate)
