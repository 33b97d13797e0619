"""Requests that arrive within a call: re-INVITE, UPDATE, BYE, INFO, PRACK, OPTIONS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sip.dialog.events import DigitsReceived, MediaAgreed
from sip.dialog.ua_core import ALLOW
from sip.errors import MalformedMessage, MalformedSdp, MediaRefused, RemoteError
from sip.message.body import SDP, UnsupportedBody, info_digit, session_description
from sip.message.message import response_to
from sip.sdp.offer_answer import OfferState
from sip.transaction.transaction import ServerTransaction

if TYPE_CHECKING:
    from sip.dialog.invite import Invite

Answer = Callable[["Invite", ServerTransaction, float], None]
RETRY_AFTER_S = 10  # RFC 3261 14.2: up to this


def answer_bye(invite: Invite, transaction: ServerTransaction, now: float) -> None:
    """Answers a BYE: the far end hangs up (RFC 3261 15.1.2)."""
    invite.bye_received(transaction, now)


def answer_prack(invite: Invite, transaction: ServerTransaction, now: float) -> None:
    """They acknowledge a reliable provisional response of ours."""
    invite.prack_received(transaction, now)


def answer_reinvite(invite: Invite, transaction: ServerTransaction, now: float) -> None:
    """They change the session: hold, another address, another codec (RFC 3261 14.2)."""
    if not _ready(invite, transaction, now, during_call=True):
        return
    assert invite.dialog is not None
    try:
        offer = session_description(transaction.request)
        body = invite.negotiation.respond(offer) if offer else invite.negotiation.offer()
    except RemoteError as error:
        refuse_body(invite, transaction, error, now)
        return
    invite.offered_late = not offer
    invite.dialog.refresh_target(transaction.request)
    invite.accept_with(transaction, body, now)
    _tell_plan(invite, bool(offer))


def answer_update(invite: Invite, transaction: ServerTransaction, now: float) -> None:
    """They change or refresh the session, possibly before it is answered (RFC 3311 5.2)."""
    if not _ready(invite, transaction, now, during_call=False):
        return
    assert invite.dialog is not None
    try:
        offer = session_description(transaction.request)
        body = invite.negotiation.respond(offer) if offer else b""
    except RemoteError as error:
        refuse_body(invite, transaction, error, now)
        return
    invite.dialog.refresh_target(transaction.request)
    response = response_to(transaction.request, 200, headers=[("Contact", invite.dialog.contact)])
    invite.introduce(response.headers)
    invite.session.answer(transaction.request, response.headers, now)
    if body:
        response.headers.add("Content-Type", SDP)
        response.body = body
    transaction.respond(response, now)
    invite.arm_session(now)
    _tell_plan(invite, bool(offer))


def answer_info(invite: Invite, transaction: ServerTransaction, now: float) -> None:
    """Answers an INFO: takes the DTMF digit in its body, refuses what is none."""
    if transaction.request.header("Info-Package") is not None:
        invite.core.reply(transaction, 469, now, headers=(("Recv-Info", ""),))  # RFC 6086 4.2.2
        return
    try:
        digit = info_digit(transaction.request)
    except RemoteError as error:
        refuse_body(invite, transaction, error, now)
        return
    invite.core.reply(transaction, 200, now)
    if digit is not None:
        invite.core.emit(DigitsReceived(invite, digit))


def answer_options(invite: Invite, transaction: ServerTransaction, now: float) -> None:
    """They look whether we are still there."""
    invite.core.reply(transaction, 200, now, headers=(("Allow", ALLOW), ("Accept", SDP)))


ANSWERS: Mapping[str, Answer] = {
    "BYE": answer_bye,
    "INFO": answer_info,
    "INVITE": answer_reinvite,
    "OPTIONS": answer_options,
    "PRACK": answer_prack,
    "UPDATE": answer_update,
}


def refuse_body(invite: Invite, transaction: ServerTransaction, error: RemoteError, now: float) -> None:
    """A body that cannot be read, or an offer that cannot be answered: the session stays as it was."""
    headers: tuple[tuple[str, str], ...] = ()
    if isinstance(error, MediaRefused):
        invite.refusals.note(error.address)
    if isinstance(error, UnsupportedBody):
        headers = (("Accept", error.accept),)
    elif isinstance(error, MalformedSdp):
        headers = (("Warning", '399 media "The session description cannot be answered"'),)
    invite.core.reply(transaction, error.code, now, headers=headers, to_tag=local_tag(invite))


def local_tag(invite: Invite) -> str | None:
    """Our tag, None before there is one."""
    return invite.dialog.local.tag if invite.dialog is not None else None


def _ready(invite: Invite, transaction: ServerTransaction, now: float, *, during_call: bool) -> bool:
    """Answers what crosses something else; True: go on."""
    request = transaction.request
    has_offer = bool(request.body) or request.method == "INVITE"
    if invite.answer_due or (during_call and not invite.confirmed):
        wait_s = invite.core.random.randint(0, RETRY_AFTER_S)
        invite.core.reply(transaction, 500, now, headers=(("Retry-After", str(wait_s)),))
        return False
    if has_offer and (invite.changing or invite.negotiation.state is OfferState.OFFERED):
        invite.core.reply(transaction, 491, now)
        return False
    try:
        minimum_s = invite.session.refusal(request)
    except MalformedMessage as error:
        invite.core.reply(transaction, error.code, now)
        return False
    if minimum_s is not None:
        invite.core.reply(transaction, 422, now, headers=(("Min-SE", str(minimum_s)),))
        return False
    return True


def _tell_plan(invite: Invite, negotiated: bool) -> None:
    plan = invite.negotiation.plan
    if negotiated and plan is not None:
        invite.core.emit(MediaAgreed(invite, plan))
