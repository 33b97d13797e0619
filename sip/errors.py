"""Exceptions of the SIP stack, as one tree: local and remote faults."""

from __future__ import annotations


class SipError(Exception):
    """Root of all exceptions that the package `sip` raises on purpose."""


class LocalError(SipError):
    """The application used the stack wrongly (a verb that the state does not have): a bug on this side."""


class RemoteError(SipError):
    """The far end made an error, or refused. `code` is the SIP status: the one received, or the one to answer
    with (400 for a malformed message)."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class MalformedMessage(RemoteError):
    """Not SIP, or SIP that breaks RFC 3261's grammar or limits. A malformed request that can be answered is a
    `sip.message.message.MalformedRequest`."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message, code)


class MalformedSdp(RemoteError):
    """Malformed SDP (RFC 8866), or an offer that cannot be answered."""

    def __init__(self, message: str, code: int = 488) -> None:
        super().__init__(message, code)


class MediaRefused(MalformedSdp):
    """SDP that names an `address` which is closed to the trunk."""

    def __init__(self, address: str) -> None:
        super().__init__("media address that nothing may be sent to")
        self.address = address
