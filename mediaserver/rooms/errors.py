"""Exceptions of rooms: refusals by the room, and what a client sent wrong."""

from __future__ import annotations

from mediaserver.errors import LocalError, RemoteError


class RoomError(LocalError):
    """Something that a room does not allow."""


class RoomClosed(RoomError):
    """The room has ended: nobody can join it."""


class RoomFull(RoomError):
    """The room, or the media port of this server, has no place for another participant."""


class TokenRefused(RoomError):
    """A participant token with a wrong signature, an expired one, or one without the grant."""


class BadOffer(RemoteError):
    """A session description that cannot be answered: malformed, oversized, or without an audio codec of this
    server."""


class PeerClosed(RoomError):
    """The peer connection is closed, or never existed."""


class BadSignal(RemoteError):
    """A signalling message that is not LiveKit's protocol or is too large, or too many messages."""
