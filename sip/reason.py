"""Why a call ended, in the words of SIP and of Q.850 (Reason: RFC 3326, in responses RFC 6432)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sip.errors import MalformedMessage
from sip.message.headers import Headers, parse_params, split_list
from sip.states import HangupCause

_TEXT_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. `protocol`: "Q.850" or "SIP", as it was written; `cause`: a code of that protocol."""

    protocol: str
    cause: int
    text: str = ""

    def __str__(self) -> str:
        shown = self.text.replace("\\", "").replace('"', "")
        return f"{self.protocol};cause={self.cause}" + (f';text="{shown}"' if shown else "")


Q850: Mapping[HangupCause, Reason] = {
    HangupCause.NORMAL: Reason("Q.850", 16, "Normal call clearing"),
    HangupCause.BUSY: Reason("Q.850", 17, "User busy"),
    HangupCause.NO_ANSWER: Reason("Q.850", 19, "No answer from user"),
    HangupCause.REJECTED: Reason("Q.850", 21, "Call rejected"),
    HangupCause.NOT_FOUND: Reason("Q.850", 1, "Unallocated number"),
    HangupCause.CANCELLED: Reason("Q.850", 16, "Normal call clearing"),
    HangupCause.UNREACHABLE: Reason("Q.850", 41, "Temporary failure"),
    HangupCause.INCOMPATIBLE: Reason("Q.850", 88, "Incompatible destination"),
    HangupCause.REMOTE_ERROR: Reason("Q.850", 111, "Protocol error"),
    HangupCause.ADDRESS_REFUSED: Reason("Q.850", 79, "Service not implemented"),
    HangupCause.MEDIA_TIMEOUT: Reason("Q.850", 102, "Recovery on timer expiry"),
    HangupCause.SESSION_EXPIRED: Reason("Q.850", 102, "Recovery on timer expiry"),
    HangupCause.NO_ACK: Reason("Q.850", 102, "Recovery on timer expiry"),
    HangupCause.SHUTDOWN: Reason("Q.850", 41, "Temporary failure"),
    HangupCause.ENGINE_FAILED: Reason("Q.850", 41, "Temporary failure"),
}
"""The reason that this side gives for each of its hangup causes (ITU-T Q.850)."""


def reasons_of(headers: Headers) -> tuple[Reason, ...]:
    """Returns the reasons of a message; broken ones are left out."""
    return tuple(_read(headers.get_all("Reason")))


def _read(values: Iterable[str]) -> Iterable[Reason]:
    for value in values:
        try:
            parts = split_list(value)
        except MalformedMessage:
            continue
        for part in parts:
            protocol, semicolon, rest = part.partition(";")
            try:
                params = parse_params(semicolon + rest)
            except MalformedMessage:
                continue
            cause = params.get("cause") or ""
            if cause.isascii() and cause.isdecimal() and len(cause) <= 3:
                text = (params.get("text") or "").encode("utf-8", "replace").decode()
                yield Reason(protocol.strip(), int(cause), text[:_TEXT_LIMIT])
