"""What can go wrong on the phone, as one tree: ours, theirs."""

from __future__ import annotations


class SipError(Exception):
    """Root of every exception that this package raises on purpose."""


class LocalError(SipError):
    """We used the stack wrongly (a verb in a state that has no such verb): a bug on this side."""


class RemoteError(SipError):
    """The far end did something wrong, or refused. `code` is the SIP status that says so: the one received,
    or the one that we answer with (400 for a malformed message)."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class MalformedMessage(RemoteError):
    """Not SIP, or SIP that breaks RFC 3261's grammar or limits. A malformed request that can be answered is a
    `sip.message.message.MalformedRequest`."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message, code)


class MalformedSdp(RemoteError):
    """Not SDP (RFC 8866), or an offer that cannot be answered."""

    def __init__(self, message: str, code: int = 488) -> None:
        super().__init__(message, code)


class MediaRefused(MalformedSdp):
    """SDP that names an `address` which nothing may be sent to."""

    def __init__(self, address: str) -> None:
        super().__init__("media address that nothing may be sent to")
        self.address = address
