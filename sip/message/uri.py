"""SIP, SIPS and tel URIs (RFC 3261 section 19.1, RFC 3966), parsed and formatted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address
from urllib.parse import quote, unquote

from sip.errors import MalformedMessage

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(.*)", re.DOTALL)
_ILLEGAL = re.compile(r"[\x00-\x20\x7f<>\"]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.\-]*[A-Za-z0-9_.])?")

_WITH_SEPARATORS = re.compile(r"\+?[0-9*#A-Da-d().\-]+")
_VISUAL = str.maketrans("", "", "().-")

# urllib never escapes unreserved characters except these; each part of a URI also allows some reserved ones.
_MARK = "!~*'()"
_USER_SAFE = _MARK + "&=+$,;?/#"
_PASSWORD_SAFE = _MARK + "&=+$,"
_PARAM_SAFE = _MARK + "[]/:&+$"
_HEADER_SAFE = _MARK + "[]/?:+$"


@dataclass(frozen=True, slots=True)
class Uri:
    """One URI, with its parts unescaped.

    sip, sips: every field but `opaque`; `host` is a name, an IPv4 address, or an IPv6 address without its
    brackets; `params` has lower-case names and None for a parameter without a value. tel: the number is
    `user`, visual separators kept, and `host` is empty. Any other scheme is kept as text in `opaque`, so that
    a server can answer 416 to it."""

    scheme: str
    user: str = ""
    host: str = ""
    port: int | None = None
    password: str | None = None
    params: Mapping[str, str | None] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    opaque: str = ""

    @classmethod
    def parse(cls, text: str) -> Uri:
        """Parses an absolute URI. Raises MalformedMessage for any other text."""
        match = _SCHEME.fullmatch(text)
        if match is None:
            raise MalformedMessage("URI without a scheme")
        if _ILLEGAL.search(text):
            raise MalformedMessage("URI with a character that must be escaped")
        scheme, rest = match[1].lower(), match[2]
        if scheme == "tel":
            return _parse_tel(rest)
        if scheme in ("sip", "sips"):
            return _parse_sip(scheme, rest)
        return cls(scheme, opaque=rest)

    @property
    def number(self) -> str:
        """The user without the parameters of a telephone number (`;npdi;rn=`, `;phone-context=`), which
        belong to the routing and do not name anybody else (RFC 3261 19.1.6, RFC 4694)."""
        number = self.user.partition(";")[0]
        phone = self.scheme == "tel" or self.params.get("user") == "phone"
        return number.translate(_VISUAL) if phone and _WITH_SEPARATORS.fullmatch(number) else number

    @property
    def number_params(self) -> Mapping[str, str | None]:
        """Parameters of the telephone number, with lower-case names: those behind the user of a SIP URI, or
        of the tel URI. Broken ones are left out."""
        behind = self.user.partition(";")[2].split(";")
        pairs = (part.partition("=") for part in behind if part)
        params = {name.lower(): value if equals else None for name, equals, value in pairs}
        return {**params, **self.params} if self.scheme == "tel" else params

    @property
    def transport(self) -> str | None:
        """The transport parameter in lower case, or None."""
        value = self.params.get("transport")
        return value.lower() if value else None

    def with_params(self, **params: str | None) -> Uri:
        """Returns a copy with parameters added or replaced; `lr=None` makes a parameter without a value."""
        return replace(self, params={**self.params, **params})

    def without_params(self, *names: str) -> Uri:
        """Returns a copy without the named parameters, or without all where none is named."""
        kept = {k: v for k, v in self.params.items() if k not in names} if names else {}
        return replace(self, params=kept)

    def without_headers(self) -> Uri:
        """Returns a copy without the ?headers, which a Request-URI must not have (RFC 3261 19.1.1, table
        1)."""
        return replace(self, headers={})

    def __hash__(self) -> int:
        return hash((self.scheme, self.user, self.host, self.port, self.opaque))

    def __str__(self) -> str:
        if self.scheme == "tel":
            return f"tel:{_escape(self.user, _USER_SAFE)}{_params_text(self.params)}"
        if self.scheme not in ("sip", "sips"):
            return f"{self.scheme}:{self.opaque}"
        userinfo = _escape(self.user, _USER_SAFE)
        if self.password is not None:
            userinfo += ":" + _escape(self.password, _PASSWORD_SAFE)
        if userinfo:
            userinfo += "@"
        hostport = format_hostport(self.host, self.port)
        return f"{self.scheme}:{userinfo}{hostport}{_params_text(self.params)}{_headers_text(self.headers)}"


def format_hostport(host: str, port: int | None) -> str:
    """Returns `host` or `host:port`, with brackets around an IPv6 address."""
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def parse_hostport(text: str) -> tuple[str, int | None]:
    """Parses `name`, `name:port` or `[v6]:port`; the port must be within 0 to 65535. Raises
    MalformedMessage."""
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or not _is_ipv6(host):
            raise MalformedMessage("not an IPv6 address within brackets")
        colon = rest[:1] == ":"
        if rest and not colon:
            raise MalformedMessage("text after an IPv6 address")
        port = rest[1:]
    else:
        host, separator, port = text.partition(":")
        colon = bool(separator)
        if not _HOST.fullmatch(host):
            raise MalformedMessage("not a host name or address")
    if not colon:
        return host, None
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise MalformedMessage("not a port number")
    return host, int(port)


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text


def _parse_sip(scheme: str, rest: str) -> Uri:
    # Within userinfo ";" and "?" are ordinary characters, so "@" is found first.
    userinfo, at, remainder = rest.rpartition("@")
    if at and not userinfo:
        raise MalformedMessage("URI with an empty user")
    if "@" in userinfo:
        raise MalformedMessage("URI with more than one @")
    user, colon, password = userinfo.partition(":")
    if at and not user:
        raise MalformedMessage("URI with a password and no user")
    remainder, _, headers = remainder.partition("?")
    hostport, semicolon, params = remainder.partition(";")
    host, port = parse_hostport(hostport)
    return Uri(
        scheme,
        _unescape(user),
        host,
        port=port,
        password=_unescape(password) if colon else None,
        params=_parse_params(params) if semicolon else {},
        headers=_parse_headers(headers) if headers else {},
    )


def _parse_tel(rest: str) -> Uri:
    number, semicolon, params = rest.partition(";")
    if not number or "@" in number:
        raise MalformedMessage("tel URI without a number")
    return Uri("tel", _unescape(number), params=_parse_params(params) if semicolon else {})


def _parse_params(text: str) -> dict[str, str | None]:
    params: dict[str, str | None] = {}
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        if not name:
            raise MalformedMessage("URI with an empty parameter")
        params.setdefault(_unescape(name).lower(), _unescape(value) if equals else None)
    return params


def _parse_headers(text: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for part in text.split("&"):
        name, equals, value = part.partition("=")
        if not name or not equals:
            raise MalformedMessage("URI with an empty header")
        headers.setdefault(_unescape(name), _unescape(value))
    return headers


def _unescape(text: str) -> str:
    if "%" not in text:
        return text
    if _BAD_ESCAPE.search(text):
        raise MalformedMessage("URI with a broken escape")
    return unquote(text, errors="surrogateescape")


def _escape(text: str, safe: str) -> str:
    return quote(text, safe=safe, errors="surrogateescape")


def _params_text(params: Mapping[str, str | None]) -> str:
    return "".join(
        f";{_escape(name, _PARAM_SAFE)}" + ("" if value is None else f"={_escape(value, _PARAM_SAFE)}")
        for name, value in params.items()
    )


def _headers_text(headers: Mapping[str, str]) -> str:
    fields = "&".join(f"{_escape(k, _HEADER_SAFE)}={_escape(v, _HEADER_SAFE)}" for k, v in headers.items())
    return f"?{fields}" if fields else ""
