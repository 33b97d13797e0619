"""Types of configuration values, each with a message that says what is wrong."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated
from urllib.parse import urlsplit
from zoneinfo import available_timezones

import phonenumbers
from pydantic import AfterValidator, BeforeValidator

from mediaserver.errors import InvalidNumber
from mediaserver.numbers.calling_windows import parse_window
from mediaserver.numbers.e164 import check_number_format, normalise
from mediaserver.numbers.patterns import parse_number_pattern
from mediaserver.settings.ice_servers import IceServer
from sip.egress import STUN, PublicAddress
from sip.errors import LocalError
from sip.extra_headers import check_headers

EMPTY_IS_NONE = BeforeValidator(lambda value: None if value == "" else value)
"""Has "" stand for an absent value."""


def formed(pattern: str, reason: str) -> Callable[[str], str]:
    """Returns the check of a text that has a form. It raises ValueError with `reason`."""

    def check(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise ValueError(reason)
        return value

    return check


def read_by(
    read: Callable[[str], object], reason: str = "{}", *, normal: bool = False
) -> Callable[[str], str]:
    """Returns the check of a text that `read` takes; with `normal` it gives what was read, as a text. It
    raises ValueError with `reason`, which has the place of the error of `read`."""

    def check(value: str) -> str:
        try:
            made = read(value)
        except (ValueError, re.error) as error:
            raise ValueError(reason.format(error)) from error
        return str(made) if normal else value

    return check


_host = read_by(ipaddress.ip_address, "must be an IP address", normal=True)
_header_name = formed(
    r"[A-Za-z][A-Za-z0-9.!%*_+`'~-]{1,63}",
    'must be the name of a SIP header field in its long form, such as "X-Account"',
)


def split_address(value: str) -> tuple[str, int]:
    """Splits `"127.0.0.1:5060"` or `"[::1]:5060"` into host and port. Raises ValueError."""
    parts = urlsplit(f"//{value}")
    if parts.hostname is None or parts.port is None or parts.path or parts.username is not None:
        raise ValueError('must be "address:port"')
    ipaddress.ip_address(parts.hostname)
    return parts.hostname, parts.port


def split_ports(value: str) -> tuple[int, int]:
    """Splits `"20000-21999"` into first and last port. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", value)
    if match is None:
        raise ValueError('must be "first-last"')
    first, last = int(match[1]), int(match[2])
    if not 1024 <= first <= last <= 65535:
        raise ValueError("ports must rise and lie between 1024 and 65535")
    return first, last


def _public_host(value: str) -> str:
    PublicAddress.of(value)
    return value if value.startswith(STUN) else _host(value)


_SIP_URI = re.compile(
    r"sips?:(?:[A-Za-z0-9._~%+-]+@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::(?P<port>\d{1,5}))?"
    r"(?P<params>(?:;[A-Za-z0-9.-]+(?:=[A-Za-z0-9.:-]+)?)*)"
)


def _sip_uri(value: str) -> str:
    match = _SIP_URI.fullmatch(value)
    if match is None:
        raise ValueError('must be a SIP URI such as "sip:carrier.example:5060;transport=udp"')
    if match["port"] is not None and not 0 < int(match["port"]) < 65536:
        raise ValueError("the port must lie between 1 and 65535")
    transport = re.search(r";transport=([^;]+)", match["params"], re.IGNORECASE)
    if transport is not None and transport[1].lower() not in ("udp", "tcp", "tls"):
        raise ValueError("transport must be udp, tcp or tls")
    return value


def _country(value: str) -> str:
    if value not in phonenumbers.SUPPORTED_REGIONS:
        raise ValueError('must be a country of two capital letters, such as "SA"')
    return value


def _e164(value: str) -> str:
    if not value.startswith("+"):
        raise ValueError('must begin with "+" and the country code')
    try:
        return normalise(value)
    except InvalidNumber as error:
        raise ValueError("not a telephone number") from error


def _called_number(value: str) -> str:
    return parse_number_pattern(value).text


def _time_zone(value: str) -> str:
    if value not in available_timezones():
        raise ValueError('must be a time zone such as "Asia/Riyadh"')
    return value


def _sent_header(value: str) -> str:
    try:
        check_headers({_header_name(value): ""})
    except LocalError as error:
        raise ValueError(f"{value} is the server's own") from error
    return value


def _header_pattern(value: str) -> str:
    _header_name(value.removesuffix("*") + "x" * value.endswith("*"))
    return value


_name = formed(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "must be 1 to 64 letters, digits, dots, dashes or underscores"
)
_origin_form = formed(
    r"\*|https?://(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:\d{1,5})?",
    'must be "*" or an origin such as "https://phone.example.com"',
)


def web_origin(url: str) -> str:
    """Returns the origin of a URL as browsers write it: without the port that its scheme has anyway. Raises
    ValueError where the port is out of range."""
    parts = urlsplit(url)
    has_usual_port = parts.port == {"http": 80, "https": 443}[parts.scheme]
    host = parts.netloc.rpartition(":")[0] if has_usual_port else parts.netloc
    return f"{parts.scheme}://{host.lower()}"


def _origin(value: str) -> str:
    return value if _origin_form(value) == "*" else web_origin(value)


_prefix = formed(r"[1-9]\d{0,14}", 'must be digits that begin with a country code, without "+"')
_variable_name = formed(
    r"[A-Za-z_][A-Za-z0-9_.-]{0,63}",
    "must be the name of a variable: letters, digits, dots, dashes, underscores",
)
_address = read_by(split_address, 'must be "address:port" with an IP address: {}')
_network = read_by(ipaddress.ip_network, 'must be a network such as "10.0.0.0/8": {}', normal=True)

Name = Annotated[str, AfterValidator(_name)]
WebOrigin = Annotated[str, AfterValidator(_origin)]
Address = Annotated[str, AfterValidator(_address)]
OptionalAddress = Annotated[Address | None, EMPTY_IS_NONE]
Ports = Annotated[str, AfterValidator(read_by(split_ports))]
Host = Annotated[str, AfterValidator(_host)]
PublicHost = Annotated[str, AfterValidator(_public_host)]
Network = Annotated[str, AfterValidator(_network)]
SentHeader = Annotated[str, AfterValidator(_sent_header)]
HeaderPattern = Annotated[str, AfterValidator(_header_pattern)]
VariableName = Annotated[str, AfterValidator(_variable_name)]
HeaderName = Annotated[str, AfterValidator(_header_name)]
IceServerText = Annotated[str, AfterValidator(read_by(IceServer.parse))]
SipUri = Annotated[str, AfterValidator(_sip_uri)]
Regex = Annotated[str, AfterValidator(read_by(re.compile, "not a regular expression: {}"))]
Prefix = Annotated[str, AfterValidator(_prefix)]
Country = Annotated[str, AfterValidator(_country)]
E164 = Annotated[str, AfterValidator(_e164)]
NumberFormat = Annotated[str, AfterValidator(check_number_format)]
CalledNumber = Annotated[str, AfterValidator(_called_number)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
CallingWindow = Annotated[str, AfterValidator(read_by(parse_window))]
