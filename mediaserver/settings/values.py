"""The kinds of value that the configuration is made of, each with a reason that says what is wrong."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Annotated, Any
from urllib.parse import urlsplit

import phonenumbers
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr, ValidationInfo

from mediaserver.calling_windows import parse_window
from mediaserver.e164 import check_number_format, normalise
from mediaserver.errors import InvalidNumber
from mediaserver.settings.ice_servers import IceServer

_ENV = "env:"


class Table(BaseModel):
    """A table of the file: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=False)


def resolve_env(value: Any, info: ValidationInfo) -> Any:
    """`"env:NAME"` to what the environment holds; anything else stays as it is."""
    if not isinstance(value, str) or not value.startswith(_ENV):
        return value
    name = value.removeprefix(_ENV)
    environment: Mapping[str, str] = (info.context or {}).get("environment", {})
    if name not in environment:
        raise ValueError(f"the environment variable {name} is not set")
    if not environment[name]:
        raise ValueError(f"the environment variable {name} is empty")
    return environment[name]


def split_address(value: str) -> tuple[str, int]:
    """`"127.0.0.1:5060"` or `"[::1]:5060"` as host and port. Raises ValueError."""
    parts = urlsplit(f"//{value}")
    if parts.hostname is None or parts.port is None or parts.path or parts.username is not None:
        raise ValueError('must be "address:port"')
    ipaddress.ip_address(parts.hostname)
    return parts.hostname, parts.port


def _address(value: str) -> str:
    try:
        split_address(value)
    except ValueError as error:
        raise ValueError(f'must be "address:port" with an IP address: {error}') from error
    return value


def split_ports(value: str) -> tuple[int, int]:
    """`"20000-21999"` as first and last port. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", value)
    if match is None:
        raise ValueError('must be "first-last"')
    first, last = int(match[1]), int(match[2])
    if not 1024 <= first <= last <= 65535:
        raise ValueError("ports must rise and lie between 1024 and 65535")
    return first, last


def _ports(value: str) -> str:
    split_ports(value)
    return value


def _host(value: str) -> str:
    try:
        return str(ipaddress.ip_address(value))
    except ValueError as error:
        raise ValueError("must be an IP address") from error


def _network(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise ValueError(f'must be a network such as "10.0.0.0/8": {error}') from error


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL that begins with http:// or https://")
    if parts.username is not None:
        raise ValueError("must not carry a user name or password")
    if parts.port == 0:
        raise ValueError("the port must not be 0")
    return value.rstrip("/")


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


def _regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return value


def _prefix(value: str) -> str:
    if re.fullmatch(r"[1-9]\d{0,14}", value) is None:
        raise ValueError('must be digits that begin with a country code, without "+"')
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


def _calling_window(value: str) -> str:
    parse_window(value)
    return value


def _name(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value) is None:
        raise ValueError("must be 1 to 64 letters, digits, dots, dashes or underscores")
    return value


def _plain(value: Any, key: str) -> Any:
    """`value` as JSON would have it. Raises ValueError for TOML's dates and times."""
    if isinstance(value, datetime | date | time):
        raise ValueError(f"{key}: dates and times must be written as strings")
    if isinstance(value, Mapping):
        return {name: _plain(inner, f"{key}.{name}") for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner, f"{key}[{place}]") for place, inner in enumerate(value)]
    return value


def _options(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, Mapping):
        return value
    plain: dict[str, Any] = {}
    for key, inner in value.items():
        try:
            plain[key] = _plain(resolve_env(inner, info), key)
        except ValueError as error:
            raise ValueError(f"{key}: {error}" if inner.__class__ is str else str(error)) from error
    return plain


def _ice_server(value: str) -> str:
    IceServer.parse(value)
    return value


Name = Annotated[str, AfterValidator(_name)]
Secret = Annotated[SecretStr, BeforeValidator(resolve_env)]
Address = Annotated[str, AfterValidator(_address)]
Ports = Annotated[str, AfterValidator(_ports)]
Host = Annotated[str, AfterValidator(_host)]
Network = Annotated[str, AfterValidator(_network)]
IceServerText = Annotated[str, AfterValidator(_ice_server)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
SipUri = Annotated[str, AfterValidator(_sip_uri)]
Regex = Annotated[str, AfterValidator(_regex)]
Prefix = Annotated[str, AfterValidator(_prefix)]
Country = Annotated[str, AfterValidator(_country)]
E164 = Annotated[str, AfterValidator(_e164)]
NumberFormat = Annotated[str, AfterValidator(check_number_format)]
CallingWindow = Annotated[str, AfterValidator(_calling_window)]
Options = Annotated[dict[str, Any], BeforeValidator(_options)]
"""A mapping that somebody else checks; `env:` values in it are resolved."""
