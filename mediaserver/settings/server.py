"""The tables [server], [sip], [rooms], [tracing], [overload] and [speech]: settings of this installation."""

from __future__ import annotations

import importlib.util
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator

from mediaserver.settings.agent import EngineChain
from mediaserver.settings.ice_servers import IceServer
from mediaserver.settings.presets import with_preset
from mediaserver.settings.users import UserSettings
from mediaserver.settings.values import (
    EMPTY_IS_NONE,
    Address,
    Host,
    IceServerText,
    Network,
    OptionalAddress,
    Ports,
    WebOrigin,
)
from pipeline.engines.tables import HttpUrl, Secret, Table, reveal

ADMIN_KEY_LENGTH = 24
"""The least characters of the admin key, which opens every company."""

RECORDINGS_KEY_LENGTH = 24
"""The least characters of the key by which recordings are sealed."""

GENERATED = "generated"
"""The value of `admin_key` for a key that the server makes, and keeps in the data directory."""


class ServerSettings(Table):
    """[server]: addresses, storage, logs. `database` "" means mediaserver.db in `data_dir`; without a
    `node_url` other nodes cannot fetch this node's recordings."""

    http: Address = "127.0.0.1:8080"
    public_url: HttpUrl = "http://127.0.0.1:8080"
    node_url: Annotated[HttpUrl | None, EMPTY_IS_NONE] = None
    data_dir: str = Field(default="var", min_length=1)
    database: str = ""
    admin_key: Secret | None = None
    secret_key: Secret | None = None
    recordings_key: Secret | None = None
    requests_per_minute: int = Field(default=1200, ge=1, le=1_000_000)
    http_connections: int = Field(default=4096, ge=1, le=1_000_000)
    http_connections_per_address: int = Field(default=512, ge=1, le=1_000_000)
    http_head_s: float = Field(default=15.0, gt=0, le=3600)
    http_body_s: float = Field(default=20.0, gt=0, le=3600)
    http_body_bytes_per_s: int = Field(default=500, ge=1, le=1_000_000)
    allow_networks: tuple[Network, ...] = ()
    metrics_networks: tuple[Network, ...] = ()
    trusted_proxies: tuple[Network, ...] = ()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "plain"] = "json"
    drain_s: float = Field(default=3600.0, ge=0, le=86_400)

    @field_validator("admin_key")
    @classmethod
    def _not_guessable(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and reveal(key) != GENERATED and len(reveal(key)) < ADMIN_KEY_LENGTH:
            raise ValueError(f'must have at least {ADMIN_KEY_LENGTH} characters, or be "{GENERATED}"')
        return key

    @field_validator("recordings_key")
    @classmethod
    def _long(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(reveal(key)) < RECORDINGS_KEY_LENGTH:
            raise ValueError(f"must have at least {RECORDINGS_KEY_LENGTH} characters")
        return key

    @model_validator(mode="after")
    def _known_database(self) -> Self:
        if self.database and not self.database.startswith(("sqlite:///", "postgresql://")):
            raise ValueError('database: must begin with "sqlite:///" or "postgresql://"')
        return self


class SipSettings(Table):
    """[sip]: where the SIP endpoint listens, and how many calls it takes. "" in the file, None here: it does
    not listen on that transport."""

    engine: Literal["native", "pjsua2"] = "native"
    udp: OptionalAddress = "127.0.0.1:5060"
    tcp: OptionalAddress = "127.0.0.1:5060"
    tls: OptionalAddress = None
    ws: OptionalAddress = None
    ws_origins: tuple[WebOrigin, ...] = ("*",)
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    tls_min_version: Literal["1.2", "1.3"] = "1.2"
    rtp_ports: Ports = "20000-21999"
    public_address: Host | None = None
    max_calls: int = Field(default=1000, ge=1, le=100_000)
    media_threads: int = Field(default=1, ge=1, le=64)
    trace: bool = True
    dns: OptionalAddress = None
    ban_after: int = Field(default=10, ge=0, le=1000)
    ban_s: float = Field(default=600.0, gt=0, le=7 * 86_400)
    never_ban: tuple[Network, ...] = ("127.0.0.0/8", "::1/128")
    realm: str | None = Field(default=None, pattern=r'^[^"\\\x00-\x1f\x7f]{1,128}$')
    register_min_s: int = Field(default=60, ge=1, le=3600)
    register_max_s: int = Field(default=600, ge=1, le=86_400)
    user_agent: str = Field(default="openline-mediaserver", pattern=r"^[\x21-\x7e][\x20-\x7e]{0,99}$")
    users: tuple[UserSettings, ...] = Field(default=(), alias="user", max_length=10_000)

    @model_validator(mode="after")
    def _lasting(self) -> Self:
        if self.register_max_s < self.register_min_s:
            raise ValueError("register_max_s: below register_min_s")
        if self.realm is None and any(user.hashes for user in self.users):
            raise ValueError("realm: HA1 of a user belongs to a realm")
        return self

    @model_validator(mode="after")
    def _complete_tls(self) -> Self:
        if self.tls is not None and not (self.tls_certificate and self.tls_key):
            raise ValueError("tls: needs tls_certificate and tls_key")
        if self.tls is None and (self.tls_certificate or self.tls_key):
            raise ValueError("tls_certificate: has no use without tls")
        return self


class RoomsSettings(Table):
    """[rooms]: WebRTC sessions. One UDP port of the range carries the media of all, on every one of
    `addresses` (empty: every address of this machine); `public_address` is the candidate that clients get
    behind a NAT. TURN servers in `ice_servers` without a user share `turn_secret` with this server, and each
    participant gets credentials for `turn_credentials_s`."""

    udp_ports: Ports = "30000-30099"
    addresses: tuple[Host, ...] = ()
    public_address: Host | None = None
    max_calls: int = Field(default=100, ge=1, le=10_000)
    public_talk_at_once: int = Field(default=50, ge=1, le=10_000)
    public_talk_at_once_each: int = Field(default=5, ge=1, le=10_000)
    public_talk_per_minute_each: int = Field(default=30, ge=1, le=10_000)
    ice_servers: tuple[IceServerText, ...] = ()
    turn_secret: Secret | None = None
    turn_credentials_s: int = Field(default=3600, ge=60, le=86_400)
    api_key: str = Field(default="devkey", min_length=1)
    api_secret: Secret | None = None

    def ice_servers_for(self, participant: str, now_s: float) -> list[IceServer]:
        """Returns the servers as the participant of that sid is told of them at the UNIX time `now_s`."""
        secret, until_s = reveal(self.turn_secret), int(now_s) + self.turn_credentials_s
        servers = map(IceServer.parse, self.ice_servers)
        return [each.lent(secret, participant, until_s=until_s) if each.lends else each for each in servers]

    @model_validator(mode="after")
    def _turn_servers_have_credentials(self) -> Self:
        for text in self.ice_servers:
            if IceServer.parse(text).lends and not reveal(self.turn_secret):
                raise ValueError(f"ice_servers: {text} needs a user and a password, or turn_secret")
        return self


class TracingSettings(Table):
    """[tracing]: where the spans of calls go, as OTLP over HTTP; nowhere without an `endpoint`."""

    endpoint: Annotated[HttpUrl | None, EMPTY_IS_NONE] = None
    headers: dict[str, Secret] = Field(default_factory=dict, max_length=20)

    @field_validator("endpoint")
    @classmethod
    def _installed(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and not _is_installed("opentelemetry.exporter.otlp.proto.http"):
            raise ValueError("needs OpenTelemetry: pip install 'openline-mediaserver[otel]'")
        return endpoint


class OverloadSettings(Table):
    """[overload]: the figures from which on the node accepts no new call (`mediaserver.admission.overload`);
    0: no such limit."""

    lag_ms: float = Field(default=10.0, ge=0, le=10_000)
    backlog_ms: float = Field(default=200.0, ge=0, le=10_000)
    set_up_ms: float = Field(default=1000.0, ge=0, le=60_000)


class SpeechSettings(Table):
    """[speech]: limits for each company, and those that begin with `keyless` for each address without a key
    (`keyless_requests_per_minute` 0: text-to-speech needs a key). An absent `fallback` of an engine means
    none: a client can ask again, and would not know that another engine has understood its file."""

    language: str = Field(default="en", pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")
    at_once: int = Field(default=8, ge=1, le=1000)
    text_characters: int = Field(default=5000, ge=1, le=100_000)
    keyless_requests_per_minute: int = Field(default=10, ge=0, le=100_000)
    keyless_at_once: int = Field(default=2, ge=1, le=1000)
    keyless_text_characters: int = Field(default=500, ge=1, le=100_000)
    upload_mb: int = Field(default=25, ge=1, le=1024)
    audio_s: int = Field(default=300, ge=1, le=3600)
    stt: EngineChain = EngineChain(engine="pocketsphinx")
    tts: EngineChain = EngineChain(engine="espeak-ng")

    @field_validator("stt", "tts", mode="before")
    @classmethod
    def _with_preset(cls, value: Any, info: ValidationInfo) -> Any:
        return with_preset(info.field_name or "", value, info)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False
