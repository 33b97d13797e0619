"""The tables [[company]] and [[trunk]]: the server's customers, and the carriers of their calls."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from mediaserver.settings.values import (
    E164,
    CallingWindow,
    Country,
    HeaderName,
    HeaderPattern,
    Name,
    Network,
    NumberFormat,
    Prefix,
    PublicHost,
    Regex,
    SentHeader,
    SipUri,
    VariableName,
    WebOrigin,
)
from pipeline.engines.tables import HttpUrl, Secret, Table, reveal
from sip.called_number import CALLED_NUMBER_HEADERS

Scope = Literal["calls", "web-calls", "speech", "admin"]
DuplicatePolicy = Literal["DEDUPE", "SPACED"]
TlsVersion = Literal["1.2", "1.3"]
CodecName = Literal["pcmu", "pcma", "g722", "opus"]

_EVENT = re.compile(r"\*|[a-z]+\.(\*|[a-z]+)")


class ContactLimit(Table):
    """How often one number may be called: `calls` within any `per_minutes`."""

    calls: int = Field(ge=1, le=1_000_000)
    per_minutes: int = Field(ge=1, le=10 * 366 * 24 * 60)


class RetentionSettings(Table):
    """[company.retention]: for how many days after a call each kind of data is kept; absent, for ever."""

    recordings_days: int | None = Field(default=None, ge=1, le=36_500)
    transcripts_days: int | None = Field(default=None, ge=1, le=36_500)
    events_days: int | None = Field(default=None, ge=1, le=36_500)
    signalling_days: int | None = Field(default=None, ge=1, le=36_500)


class KeySettings(Table):
    """[[company.key]]: an API key of the company and what the key may do."""

    key: Secret
    scopes: tuple[Scope, ...] = Field(default=("calls",), min_length=1)

    @model_validator(mode="after")
    def _long_enough(self) -> Self:
        if len(self.key.get_secret_value()) < 8:
            raise ValueError("key: must have at least 8 characters")
        return self


class WebhookSettings(Table):
    """[[company.webhook]]: a URL that gets events of the company's calls. A secret is "whsec_" and base64 of
    the key; while there is a `previous_secret`, every event carries a signature by each."""

    url: HttpUrl
    secret: Secret
    previous_secret: Secret | None = None
    events: tuple[str, ...] = Field(default=("*",), min_length=1)

    @field_validator("events")
    @classmethod
    def _patterns(cls, events: tuple[str, ...]) -> tuple[str, ...]:
        for event in events:
            if _EVENT.fullmatch(event) is None:
                raise ValueError('must be "*", "call.*" or an event such as "call.completed"')
        return events

    @field_validator("secret", "previous_secret")
    @classmethod
    def _usable_secret(cls, secret: SecretStr | None) -> SecretStr | None:
        encoded = reveal(secret).removeprefix("whsec_")
        try:
            key = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except ValueError:
            key = b""
        if secret is not None and not key:
            raise ValueError('must be "whsec_" followed by base64')
        return secret


class CompanyTerms(Table):
    """The settings of a company without its id: limits, destinations, calling hours."""

    name: str = ""
    duplicate_policy: DuplicatePolicy = "DEDUPE"
    contact_limit: ContactLimit | None = None
    dial_prefixes: tuple[Prefix, ...] | None = None
    max_concurrent_calls: int = Field(default=20, ge=1, le=1_000_000)
    web_calls: bool = False
    country: Country | None = None
    caller_ids: tuple[E164, ...] | None = None
    calling_windows: tuple[CallingWindow, ...] = ()
    retention: RetentionSettings = RetentionSettings()

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The destinations that may be dialled: `dial_prefixes`, else the company's own country, else
        none."""
        if self.dial_prefixes is not None:
            return self.dial_prefixes
        return (self.country,) if self.country is not None else ()


class CompanySettings(CompanyTerms):
    """[[company]]: a customer of this server. `public_talk`: visitors without a key may talk to its agents at
    /talk; `talk_origins`: on pages of these origins, by the widget."""

    id: Name
    public_talk: bool = False
    talk_origins: tuple[WebOrigin, ...] = Field(default=(), max_length=100)
    keys: tuple[KeySettings, ...] = Field(default=(), alias="key")
    webhooks: tuple[WebhookSettings, ...] = Field(default=(), alias="webhook")


class StirSettings(Table):
    """[trunk.stir]: the service of ATIS-1000082 that signs the trunk's INVITEs. `attest`: what is attested of
    their numbers; `origid`: the origination identifier, absent one made of the trunk's id. `required`: no
    call leaves unsigned."""

    url: HttpUrl
    attest: Literal["A", "B", "C"]
    api_key: Secret | None = None
    origid: str = Field(default="", pattern=r"^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?$")
    timeout_s: float = Field(default=2.0, gt=0, le=10)
    required: bool = False


SHORTEST_PING_S = 10.0
"""Whoever manages a trunk chooses its hosts: asked more often than this, these would be flooded."""


class TrunkTerms(Table):
    """The settings of a SIP trunk without its id and company: the carrier's address and what is sent to
    it."""

    uri: SipUri
    backup_uris: tuple[SipUri, ...] = ()
    caller_id: str = Field(default="", pattern=r"^[A-Za-z0-9+._-]{0,64}$")
    number_format: NumberFormat = "+{e164}"
    accepts: Regex = ".*"
    dial_prefixes: tuple[Prefix, ...] = Field(default=(), max_length=1000)
    username: str = Field(default="", pattern=r'^[^"\\\x00-\x1f\x7f]*$')
    password: Secret | None = None
    register_: bool = Field(default=False, alias="register")
    accept_register: bool = False
    allow_from: tuple[Network, ...] = ()
    called_number_headers: tuple[HeaderName, ...] = Field(default=CALLED_NUMBER_HEADERS, max_length=20)
    identity: Literal["from", "pai", "rpid"] = "from"
    caller_name: str = Field(default="", max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$")
    withhold_number: bool = False
    pass_headers: tuple[HeaderName, ...] = Field(default=(), max_length=50)
    headers: Mapping[HeaderName, VariableName] = Field(default_factory=dict, max_length=50)
    caller_variables: bool = False
    send_headers: Mapping[SentHeader, VariableName] = Field(default_factory=dict, max_length=20)
    allow_headers: tuple[HeaderPattern, ...] = Field(default=("X-*", "User-to-User"), max_length=50)
    codecs: tuple[CodecName, ...] = Field(default=("pcmu", "pcma", "g722", "opus"), min_length=1)
    symmetric_rtp: Literal["auto"] | bool = "auto"
    srtp: Literal["off", "optional", "sdes", "dtls"] = "off"
    session_expires_s: int = Field(default=1800, ge=90, le=86_400)
    ring_timeout_s: float = Field(default=60.0, ge=1, le=300)
    outbound_proxy: SipUri | None = None
    public_address: PublicHost | None = None
    stun_every_s: float = Field(default=60.0, ge=SHORTEST_PING_S, le=86_400)
    follow_redirects: int = Field(default=0, ge=0, le=10)
    transfer: Literal["bridge", "refer", "auto"] = "bridge"
    refer_to: Literal["sip", "tel"] = "sip"
    accept_refer: bool = False
    options_ping_s: float = Field(default=0, ge=0, le=86_400)
    failover_s: float = Field(default=4.0, ge=0.5, le=32)
    media_timeout_s: float = Field(default=30.0, ge=2, le=3600)
    inband_dtmf: bool = False
    reliable_provisional: bool = True
    max_concurrent_calls: int = Field(default=0, ge=0, le=1_000_000)
    calls_per_second: int = Field(default=0, ge=0, le=1000)
    engine: Literal["native", "pjsua2"] | None = None
    stir: StirSettings | None = None

    def shares_addresses(self, other: TrunkTerms) -> bool:
        """Whether an address is in the `allow_from` of both trunks."""
        mine, theirs = ([ip_network(each) for each in trunk.allow_from] for trunk in (self, other))
        return any(one.version == two.version and one.overlaps(two) for one in mine for two in theirs)

    @model_validator(mode="after")
    def _credentials(self) -> Self:
        if self.password is not None and not self.username:
            raise ValueError("password: has no use without username")
        if 0 < self.options_ping_s < SHORTEST_PING_S:
            raise ValueError(f"options_ping_s: 0, or at least {SHORTEST_PING_S:g}")
        if self.register_ and not self.username:
            raise ValueError("register: needs username")
        if self.accept_register and self.password is None:
            raise ValueError("accept_register: needs username and password")
        if len(set(self.codecs)) != len(self.codecs):
            raise ValueError("codecs: names one twice")
        return self


class TrunkSettings(TrunkTerms):
    """[[trunk]]: a SIP trunk of a company. `id` is unique in the file. What names files of this machine
    cannot be set over the API."""

    id: Name
    company: Name
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_server_name: str = Field(default="", pattern=r"^[A-Za-z0-9.:-]{0,253}$")
    tls_min_version: TlsVersion = "1.2"

    @model_validator(mode="after")
    def _complete_certificate(self) -> Self:
        if self.tls_key and not self.tls_certificate:
            raise ValueError("tls_key: has no use without tls_certificate")
        return self


TRUNK_OF_FILE = ("tls_ca", "tls_certificate", "tls_key", "tls_server_name", "tls_min_version")
"""Keys of a trunk that only the configuration file has."""
