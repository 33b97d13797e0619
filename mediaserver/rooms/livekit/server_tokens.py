"""Server tokens: JWTs with which LiveKit's server SDKs sign each request, HS256 by the secret of an API key.

`iss` is the id of the API key, `video` and `sip` are the grants. Participant tokens
(`mediaserver.rooms.tokens`) are signed by the server's own pair and are none of these."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import jwt

from mediaserver.rooms.errors import TokenRefused
from mediaserver.rooms.livekit.room_service import Grants
from mediaserver.rooms.tokens import MAX_TOKEN_CHARS

_ALGORITHM: Final = "HS256"
_LEEWAY_S: Final = 5
_KEY_ID: Final = re.compile(r"[\x21-\x7e]{1,64}")


def issuer(token: str) -> str:
    """Returns the API key id that `token` names; nothing else of it is read, for it may be signed by anybody.
    Raises `TokenRefused`."""
    if not token or len(token) > MAX_TOKEN_CHARS:
        raise TokenRefused("missing or oversized token")
    try:
        key_id = jwt.decode(token, options={"verify_signature": False}).get("iss")
    except (jwt.PyJWTError, UnicodeError, RecursionError):
        raise TokenRefused("this is not a server token") from None
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise TokenRefused("the token names no API key")
    return key_id


def grants(token: str, *, secret: str) -> Grants | None:
    """Returns the grants of a token signed with `secret`, None for one that was not. Raises `TokenRefused`
    for one that was, and has expired or lacks a claim."""
    try:
        claims = jwt.decode(
            token, secret, algorithms=[_ALGORITHM], leeway=_LEEWAY_S, options={"require": ["exp", "iss"]}
        )
    except (jwt.DecodeError, jwt.InvalidAlgorithmError, UnicodeError):
        return None
    except jwt.PyJWTError as error:
        raise TokenRefused(f"invalid token: {error}") from None
    video, sip = _object(claims, "video"), _object(claims, "sip")
    room = video.get("room")
    return Grants(
        room=room if isinstance(room, str) else "",
        room_create=video.get("roomCreate") is True,
        room_admin=video.get("roomAdmin") is True,
        room_list=video.get("roomList") is True,
        sip_call=sip.get("call") is True,
    )


def _object(claims: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = claims.get(name)
    return value if isinstance(value, dict) else {}
