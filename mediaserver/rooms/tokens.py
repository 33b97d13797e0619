"""Participant tokens: JWTs with LiveKit's grant claims, so that an unmodified LiveKit SDK can use them.

Claims: `iss` the API key, `sub` the identity, `video` the grant (room, roomJoin, canPublish, canSubscribe,
canPublishData, canPublishSources, hidden), `name`, `metadata`, `attributes`, `supervisorRole`; HS256 and
nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt

from mediaserver.rooms.errors import TokenRefused
from mediaserver.rooms.participant import Permissions
from pipeline.media.who_hears import SUPERVISORS, Role

LIFETIME_S = 900
"""15 minutes to join; a participant who has joined stays."""

MAX_TOKEN_CHARS = 16 * 1024
"""The longest token, with metadata and attributes; a longer one is refused unread."""

ROLE = "supervisorRole"
"""The claim of a supervisor's token: no attribute, since participants may change those."""

_ALGORITHM = "HS256"
_LEEWAY_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a token grants: which room may be joined, by which identity, with which permissions. `role`: of a
    supervisor; None for everybody else."""

    room: str
    identity: str
    name: str = ""
    metadata: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    permissions: Permissions = field(default_factory=Permissions)
    role: Role | None = None


def mint(
    grant: Grant, *, key: str, secret: str, lifetime_s: int = LIFETIME_S, wall_s: float | None = None
) -> str:
    """Returns a token for `grant`, valid for `lifetime_s` from `wall_s` (seconds since 1970; None: now)."""
    issued = int(time.time() if wall_s is None else wall_s)
    permissions = grant.permissions
    video = {
        "room": grant.room,
        "roomJoin": True,
        "canPublish": permissions.publish,
        "canPublishSources": ["microphone"],
        "canSubscribe": permissions.subscribe,
        "canPublishData": permissions.publish_data,
        "canUpdateOwnMetadata": permissions.update_own_metadata,
        "hidden": permissions.hidden,
    }
    claims: dict[str, Any] = {
        "iss": key,
        "sub": grant.identity,
        "nbf": issued,
        "exp": issued + lifetime_s,
        "video": video,
        "name": grant.name,
        "metadata": grant.metadata,
        "attributes": dict(grant.attributes),
    }
    if grant.role is not None:
        claims[ROLE] = grant.role.value
    return jwt.encode(claims, secret, algorithm=_ALGORITHM)


def verify(token: str, *, key: str, secret: str) -> Grant:
    """Returns the grant of `token`. Raises `TokenRefused`."""
    if not secret:
        raise TokenRefused("this server takes no participants: rooms.api_secret is not set")
    if not token or len(token) > MAX_TOKEN_CHARS:
        raise TokenRefused("missing or oversized token")
    try:
        claims = jwt.decode(
            token,
            secret,
            algorithms=[_ALGORITHM],
            issuer=key,
            leeway=_LEEWAY_S,
            options={"require": ["exp", "iss", "sub"]},
        )
    except jwt.ExpiredSignatureError:
        raise TokenRefused("token has expired") from None
    except jwt.PyJWTError as error:
        raise TokenRefused(f"invalid token: {error}") from None
    except UnicodeError:
        raise TokenRefused("invalid token: not text") from None
    return _grant(claims)


def _grant(claims: Mapping[str, Any]) -> Grant:
    video = claims.get("video")
    if not isinstance(video, dict) or video.get("roomJoin") is not True:
        raise TokenRefused("token does not allow joining a room")
    room, identity = video.get("room"), claims["sub"]
    if not isinstance(room, str) or not room or not identity:
        raise TokenRefused("token names no room")
    attributes = claims.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise TokenRefused("token with malformed attributes")
    return Grant(
        room=room,
        identity=identity,
        name=_text(claims, "name"),
        metadata=_text(claims, "metadata"),
        attributes={str(name): str(value) for name, value in attributes.items()},
        permissions=Permissions(
            publish=video.get("canPublish") is not False and _microphone(video),
            subscribe=video.get("canSubscribe") is not False,
            publish_data=video.get("canPublishData") is not False,
            update_own_metadata=video.get("canUpdateOwnMetadata") is True,
            hidden=video.get("hidden") is True,
        ),
        role=_role(claims),
    )


def _role(claims: Mapping[str, Any]) -> Role | None:
    role = claims.get(ROLE)
    if role is None:
        return None
    if role not in [each.value for each in SUPERVISORS]:
        raise TokenRefused("token with an unknown supervisor's role")
    return Role(role)


def _microphone(video: Mapping[str, Any]) -> bool:
    sources = video.get("canPublishSources")
    return not sources or "microphone" in sources


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name) or ""
    if not isinstance(value, str):
        raise TokenRefused(f"token with malformed {name}")
    return value
