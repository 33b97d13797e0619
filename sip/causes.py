"""From SIP status codes to the reasons that an application acts on."""

from __future__ import annotations

from collections.abc import Mapping

from sip.errors import MediaRefused, RemoteError
from sip.states import HangupCause

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
    """Why a call that was refused with `status` ended."""
    return CAUSES.get(status, HangupCause.REMOTE_ERROR)


def cause_of_answer(error: RemoteError) -> HangupCause:
    """Why a call ended whose far end answered our offer with something unusable."""
    refused = isinstance(error, MediaRefused)
    return HangupCause.ADDRESS_REFUSED if refused else HangupCause.INCOMPATIBLE
