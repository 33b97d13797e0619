"""Why the server says no: one class for each thing that a client would do something different about.

The text of every one is for the client; which HTTP status it becomes is `api.errors`' business.
"""

from __future__ import annotations

from mediaserver.errors import LocalError


class Refused(LocalError):
    """A request that the server will not carry out. `str()` is the message for the client."""


class InvalidRequest(Refused):
    """The request is wrong; the same request will never succeed."""


class Unprocessable(Refused):
    """The request is well-formed and does not have the fields that it must have."""


class TooLarge(Refused):
    """More was sent than is taken: octets, or seconds of audio."""


class TooSlow(Refused, TimeoutError):
    """The body of a request did not come in time. It ends whatever reads the body as a time-out does."""


class UnknownKey(Refused):
    """No key, or one that this server does not know."""


class ScopeMissing(Refused):
    """The key is known but may not do this."""


class Forbidden(Refused):
    """Not from where the request comes."""


class NotFound(Refused):
    """There is no such thing in the caller's company; nothing is said about other companies."""


class Conflict(Refused):
    """The thing is in a state in which this cannot be done to it."""


class NotConfigured(Refused):
    """This server was not set up for it: nothing that the client can do."""


class Unavailable(Refused):
    """Not now: the server starts, drains, or its database is away. `retry_after_s` says when to ask again."""

    def __init__(self, message: str, *, retry_after_s: int = 5) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooMany(Unavailable):
    """The caller's company asks for more than it is allowed at the moment."""
