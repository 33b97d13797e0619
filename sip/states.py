"""The states of a call and its hangup causes, as applications, logs and the API name them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from sip.errors import MediaRefused, RemoteError

Engine = Literal["native", "pjsua2"]
"""Who has the INVITE session of a call: this stack, or PJSIP (`sip.pjsip`)."""


class Direction(StrEnum):
    """Which side placed the call: this one (OUTBOUND) or the far end."""

    INBOUND = "inbound"
    OUTBOUND = "outbound"


class CallState(StrEnum):
    """State of a call. Outbound: DIALING, RINGING, ANSWERED, ENDED; inbound: OFFERED instead of DIALING.

    Early media is a property of RINGING, hold one of ANSWERED: neither is a state."""

    OFFERED = "offered"
    DIALING = "dialing"
    RINGING = "ringing"
    ANSWERED = "answered"
    ENDED = "ended"


class HangupCause(StrEnum):
    """Why a call ended: one value for each end that a client of the API may handle differently."""

    NORMAL = "normal"  # BYE of either side after an answer
    BUSY = "busy"  # 486, 600
    NO_ANSWER = "no_answer"  # rang out, 408, 480
    REJECTED = "rejected"  # 603, 403, 401/407 that digest could not satisfy
    NOT_FOUND = "not_found"  # 404, 410, 484, 604: the number does not exist
    CANCELLED = "cancelled"  # given up before an answer: CANCEL of either side
    UNREACHABLE = "unreachable"  # no answer to the INVITE at all, transport error, 503
    INCOMPATIBLE = "incompatible"  # 415, 488, 606: no codec or no media in common
    REMOTE_ERROR = "remote_error"  # any other 4xx to 6xx
    ADDRESS_REFUSED = "address_refused"  # the far end named an address that is closed to the trunk
    MEDIA_TIMEOUT = "media_timeout"  # no RTP for the trunk's media_timeout_s
    SESSION_EXPIRED = "session_expired"  # RFC 4028: no refresh came
    NO_ACK = "no_ack"  # the 200 sent was never acknowledged
    SHUTDOWN = "shutdown"  # this server is stopping
    ENGINE_FAILED = "engine_failed"  # the process that had the call's signalling is gone, or refused it


CAUSES: Mapping[int, HangupCause] = {
    401: HangupCause.REJECTED,
    403: HangupCause.REJECTED,
    404: HangupCause.NOT_FOUND,
    407: HangupCause.REJECTED,
    408: HangupCause.NO_ANSWER,
    410: HangupCause.NOT_FOUND,
    415: HangupCause.INCOMPATIBLE,
    480: HangupCause.NO_ANSWER,
    484: HangupCause.NOT_FOUND,
    486: HangupCause.BUSY,
    487: HangupCause.CANCELLED,
    488: HangupCause.INCOMPATIBLE,
    503: HangupCause.UNREACHABLE,
    600: HangupCause.BUSY,
    603: HangupCause.REJECTED,
    604: HangupCause.NOT_FOUND,
    606: HangupCause.INCOMPATIBLE,
}


def cause_of(status: int) -> HangupCause:
    """Returns the hangup cause of a call that was refused with `status`."""
    return CAUSES.get(status, HangupCause.REMOTE_ERROR)


def cause_of_answer(error: RemoteError) -> HangupCause:
    """Returns the hangup cause of a call whose answer to an offer cannot be used."""
    refused = isinstance(error, MediaRefused)
    return HangupCause.ADDRESS_REFUSED if refused else HangupCause.INCOMPATIBLE
