"""Exceptions of the server, as one tree: local, remote, and the database's."""

from __future__ import annotations

from collections.abc import Sequence


class MediaServerError(Exception):
    """Root of every exception that this package raises on purpose."""


class LocalError(MediaServerError):
    """This side cannot do it: wrong use, a wrong setting, a request that is refused."""


class SettingsError(LocalError):
    """The configuration cannot be used. `problems` holds every one found, as "FILE: key: reason"."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class InvalidNumber(LocalError):
    """The text is not a telephone number, or not one of the given country."""


class RemoteError(MediaServerError):
    """The far end sent what this server cannot use."""


class SpeechFailed(MediaServerError):
    """Synthesis or transcription failed on our side. `str()` is for the client and names no detail."""


class StoreError(MediaServerError):
    """The database cannot do what it was asked. Nothing of the transaction was written."""


class StoreUnavailable(StoreError):
    """The database cannot do it now (locked, full, closed); the same request may succeed later."""


class RepeatedDifferently(LocalError):
    """An Idempotency-Key came again with another body."""


class RuleBroken(LocalError):
    """A call that is not queued; `str()` is the reason for the client. `rule`: one of
    `mediaserver.queue.decisions.Rule`."""

    def __init__(self, reason: str, *, rule: str) -> None:
        super().__init__(reason)
        self.rule = rule


class CalledTooRecently(RuleBroken):
    """The contact limit refuses the call until `retry_after_s` seconds have passed."""

    def __init__(self, reason: str, *, rule: str, retry_after_s: int) -> None:
        super().__init__(reason, rule=rule)
        self.retry_after_s = retry_after_s


class SchemaTooNew(StoreError):
    """The database was written by a newer version of this program, which alone understands it."""


class Refused(LocalError):
    """A request that the server will not carry out. `str()` is the message for the client."""


class InvalidRequest(Refused):
    """The request is wrong; the same request will never succeed."""


class Unprocessable(Refused):
    """The request is well-formed and does not have the fields that it must have."""


class TooLarge(Refused):
    """A request is larger than the limit: in octets, or in seconds of audio."""


class TooSlow(Refused, TimeoutError):
    """The body of a request did not arrive in time. Ends whatever reads the body, as a time-out does."""


class UnknownKey(Refused):
    """The request has no API key, or one that this server does not know."""


class ScopeMissing(Refused):
    """The key is known but may not do this."""


class Forbidden(Refused):
    """The request may not be made from the client's address."""


class NotFound(Refused):
    """The client's company has no such object; nothing is said about other companies."""


class Conflict(Refused):
    """The object is in a state in which the request cannot be done."""


class NotConfigured(Refused):
    """This server is not configured for the request: nothing that the client can change."""


class Unavailable(Refused):
    """The request cannot be done now: the server starts, drains, or its database is away. `retry_after_s`:
    when to ask again."""

    def __init__(self, message: str, *, retry_after_s: int = 5) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooMany(Unavailable):
    """The client's company asks for more than it is allowed at the moment."""
