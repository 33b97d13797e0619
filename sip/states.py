"""The states of a call and the reasons it ends: what an application, a log line and the API agree on."""

from __future__ import annotations

from enum import StrEnum


class Direction(StrEnum):
    """Who called: us (OUTBOUND) or them."""

    INBOUND = "inbound"
    OUTBOUND = "outbound"


class CallState(StrEnum):
    """Where a call is. Outbound: DIALING, RINGING, ANSWERED, ENDED; inbound: OFFERED instead of DIALING.

    Early media is a property of RINGING, hold one of ANSWERED: neither is a state of its own.
    """

    OFFERED = "offered"
    DIALING = "dialing"
    RINGING = "ringing"
    ANSWERED = "answered"
    ENDED = "ended"


class HangupCause(StrEnum):
    """Why a call ended: a word for each thing that a caller of the API would do something different about."""

    NORMAL = "normal"  # BYE of either side after an answer
    BUSY = "busy"  # 486, 600
    NO_ANSWER = "no_answer"  # rang out, 408, 480
    REJECTED = "rejected"  # 603, 403, 401/407 that digest could not satisfy
    NOT_FOUND = "not_found"  # 404, 410, 484, 604: the number does not exist
    CANCELLED = "cancelled"  # given up before an answer: our CANCEL, or the inbound caller's
    UNREACHABLE = "unreachable"  # no answer to the INVITE at all, transport error, 503
    INCOMPATIBLE = "incompatible"  # 415, 488, 606: no codec or no media in common
    REMOTE_ERROR = "remote_error"  # any other 4xx to 6xx
    ADDRESS_REFUSED = "address_refused"  # the far end named an address that this trunk may not send to
    MEDIA_TIMEOUT = "media_timeout"  # no RTP for the trunk's media_timeout_s
    SESSION_EXPIRED = "session_expired"  # RFC 4028: no refresh came
    NO_ACK = "no_ack"  # our 200 was never acknowledged
    SHUTDOWN = "shutdown"  # this server is stopping
