"""Parses, formats and computes digest authentication (RFC 2617, 7616, 8760), the same for client and
server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sip.errors import MalformedMessage

_ALGORITHMS: Mapping[str, str] = {"MD5": "md5", "SHA-256": "sha256", "SHA-512-256": "sha512_256"}
_PREFERENCE = ("SHA-512-256", "SHA-256", "MD5")  # strongest first (RFC 8760 2.4)

_SCHEME = re.compile(r"Digest\s+(.*)", re.IGNORECASE | re.DOTALL)
_FIELD = re.compile(r'\s*([A-Za-z0-9\-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,"]+)\s*(?:,|$)', re.DOTALL)
_QUOTED_FIELDS = frozenset(("username", "realm", "nonce", "uri", "response", "cnonce", "opaque"))


@dataclass(frozen=True, slots=True)
class Credentials:
    """Username and password of a trunk or a caller. `hashes`: HA1 by the name of its hash (RFC 7616 3.4.2),
    which count instead of the password."""

    username: str
    password: str
    hashes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Challenge:
    """A digest challenge: one WWW-Authenticate or Proxy-Authenticate field (RFC 7616 3.3)."""

    realm: str
    nonce: str
    algorithm: str = "MD5"
    qop: tuple[str, ...] = ()
    opaque: str | None = None
    stale: bool = False
    userhash: bool = False

    @classmethod
    def parse(cls, value: str) -> Challenge:
        """Reads a header value. Raises MalformedMessage for another scheme than Digest, or a broken one."""
        fields = parse_fields(value)
        if "realm" not in fields or "nonce" not in fields:
            raise MalformedMessage("challenge without realm or nonce")
        return cls(
            fields["realm"],
            fields["nonce"],
            fields.get("algorithm", "MD5"),
            tuple(part.strip().lower() for part in fields.get("qop", "").split(",") if part.strip()),
            opaque=fields.get("opaque"),
            stale=fields.get("stale", "").lower() == "true",
            userhash=fields.get("userhash", "").lower() == "true",
        )

    @property
    def usable(self) -> bool:
        """Whether this stack implements the challenge's algorithm and quality of protection."""
        return base_algorithm(self.algorithm) in _ALGORITHMS and (
            not self.qop or bool({"auth", "auth-int"} & {*self.qop})
        )

    def __str__(self) -> str:
        fields = {"realm": self.realm, "nonce": self.nonce}
        if self.opaque is not None:
            fields["opaque"] = self.opaque
        text = ", ".join(f"{name}={_quote(value)}" for name, value in fields.items())
        text += f", algorithm={self.algorithm}"
        if self.qop:
            text += f', qop="{",".join(self.qop)}"'
        return f"Digest {text}{', stale=true' if self.stale else ''}"


def best(challenges: Iterable[Challenge]) -> Challenge | None:
    """Returns the strongest usable challenge, the first of equals; None where none is usable."""
    usable = [each for each in challenges if each.usable]
    return min(usable, key=lambda each: _PREFERENCE.index(base_algorithm(each.algorithm)), default=None)


def digest_response(
    credentials: Credentials,
    challenge: Challenge,
    *,
    method: str,
    uri: str,
    body: bytes = b"",
    qop: str | None = None,
    nonce_count: int = 1,
    cnonce: str = "",
) -> str:
    """Returns the `response` field (RFC 7616 3.4.1) in hexadecimal. `qop` None computes the form of RFC
    2069."""
    algorithm = base_algorithm(challenge.algorithm)
    secret = credentials.hashes.get(algorithm) or hash_text(
        algorithm, f"{credentials.username}:{challenge.realm}:{credentials.password}"
    )
    if challenge.algorithm.upper().endswith("-SESS"):
        secret = hash_text(algorithm, f"{secret}:{challenge.nonce}:{cnonce}")
    target = f"{method}:{uri}"
    if qop == "auth-int":
        target += f":{hash_text(algorithm, body)}"
    target = hash_text(algorithm, target)
    if qop is None:
        return hash_text(algorithm, f"{secret}:{challenge.nonce}:{target}")
    return hash_text(algorithm, f"{secret}:{challenge.nonce}:{nonce_count:08x}:{cnonce}:{qop}:{target}")


def parse_fields(value: str) -> dict[str, str]:
    """Parses the fields of a Digest header value, with names in lower case. Raises MalformedMessage."""
    match = _SCHEME.fullmatch(value.strip())
    if match is None:
        raise MalformedMessage("authentication scheme other than Digest")
    text, place, fields = match[1], 0, dict[str, str]()
    while place < len(text):
        field = _FIELD.match(text, place)
        if field is None:
            raise MalformedMessage("broken digest field")
        content = field[2]
        if content.startswith('"'):
            content = re.sub(r"\\(.)", r"\1", content[1:-1], flags=re.DOTALL)
        fields.setdefault(field[1].lower(), content)
        place = field.end()
    return fields


def format_fields(fields: Mapping[str, str]) -> str:
    """Writes the value of a Digest header field, with quotes where RFC 7616 has them."""
    return "Digest " + ", ".join(
        f"{name}={_quote(value) if name in _QUOTED_FIELDS else value}" for name, value in fields.items()
    )


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def base_algorithm(algorithm: str) -> str:
    """Returns the hash of an algorithm: its name without -sess."""
    return algorithm.upper().removesuffix("-SESS")


def hash_text(algorithm: str, data: str | bytes) -> str:
    """Returns H() of RFC 7616 3.3 in hexadecimal."""
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    return hashlib.new(_ALGORITHMS[algorithm], raw, usedforsecurity=False).hexdigest()
