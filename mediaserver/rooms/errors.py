"""What can go wrong in a room, as one tree."""

from __future__ import annotations

from mediaserver.errors import LocalError, RemoteError


class RoomError(LocalError):
    """Something that a room does not allow."""


class RoomClosed(RoomError):
    """The room is over: nobody joins it any more."""


class RoomFull(RoomError):
    """The room, or the media port of this server, takes nobody else."""


class TokenRefused(RoomError):
    """A participant token that is not ours, has expired, or does not allow this."""


class BadOffer(RemoteError):
    """A session description that cannot be answered: malformed, oversized, or without audio of ours."""


class PeerClosed(RoomError):
    """The peer connection is over."""


class BadSignal(RemoteError):
    """A signalling message that is not LiveKit's protocol, or too much of it."""
