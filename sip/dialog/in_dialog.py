"""Answers requests within a dialog: re-INVITE, UPDATE, BYE, INFO, PRACK, OPTIONS."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sip.dialog.events import DigitsReceived
from sip.dialog.move_request import MoveRequest
from sip.dialog.ua_core import ALLOW
from sip.dialog.usage import InviteRole, InviteUsage
from sip.errors import MalformedMessage, MalformedSdp, RemoteError
from sip.message.body import SDP, UnsupportedBody, info_digit, session_description
from sip.message.headers import NameAddr
from sip.message.message import response_to
from sip.sdp.offer_answer import OfferState
from sip.transaction.transaction import ServerTransaction

Answer = Callable[[InviteRole, ServerTransaction, float], None]
RETRY_AFTER_S = 10  # RFC 3261 14.2: at most


def answer_bye(role: InviteRole, transaction: ServerTransaction, now: float) -> None:
    """Answers a BYE, by which the far end hangs up (RFC 3261 15.1.2)."""
    role.bye_received(transaction, now)


def answer_prack(role: InviteRole, transaction: ServerTransaction, now: float) -> None:
    """Answers a PRACK, which acknowledges a reliable provisional response (RFC 3262 section 3)."""
    role.prack_received(transaction, now)


def answer_reinvite(role: InviteRole, transaction: ServerTransaction, now: float) -> None:
    """Answers a re-INVITE, which changes hold, address or codec (RFC 3261 14.2)."""
    if not _ready(role, transaction, now, during_call=True):
        return
    usage = role.usage
    assert usage.dialog is not None
    try:
        offer = session_description(transaction.request)
        body = usage.negotiation.respond(offer) if offer else usage.negotiation.offer()
    except RemoteError as error:
        refuse_body(usage, transaction, error, now)
        return
    usage.offered_late = not offer
    usage.dialog.refresh_target(transaction.request)
    usage.accept_with(transaction, body, now)
    if offer:
        usage.tell_plan()


def answer_update(role: InviteRole, transaction: ServerTransaction, now: float) -> None:
    """Answers an UPDATE, which changes or refreshes the session, possibly before the answer (RFC 3311
    5.2)."""
    if not _ready(role, transaction, now, during_call=False):
        return
    usage = role.usage
    assert usage.dialog is not None
    try:
        offer = session_description(transaction.request)
        body = usage.negotiation.respond(offer) if offer else b""
    except RemoteError as error:
        refuse_body(usage, transaction, error, now)
        return
    usage.dialog.refresh_target(transaction.request)
    response = response_to(transaction.request, 200, headers=[("Contact", usage.dialog.contact)])
    usage.introduce(response.headers)
    usage.session.answer(transaction.request, response.headers, now)
    if body:
        response.headers.add("Content-Type", SDP)
        response.body = body
    transaction.respond(response, now)
    usage.arm_session(now)
    if offer:
        usage.tell_plan()


def answer_info(role: InviteRole, transaction: ServerTransaction, now: float) -> None:
    """Answers an INFO: takes the DTMF digit in its body, refuses any other body."""
    if transaction.request.header("Info-Package") is not None:
        role.usage.core.reply(transaction, 469, now, headers=(("Recv-Info", ""),))  # RFC 6086 4.2.2
        return
    try:
        digit = info_digit(transaction.request)
    except RemoteError as error:
        refuse_body(role.usage, transaction, error, now)
        return
    role.usage.core.reply(transaction, 200, now)
    if digit is not None:
        role.usage.core.emit(DigitsReceived(role.usage.dialog_set, digit))


def answer_options(role: InviteRole, transaction: ServerTransaction, now: float) -> None:
    """Answers an OPTIONS within the dialog with the supported methods and body type."""
    role.usage.core.reply(transaction, 200, now, headers=(("Allow", ALLOW), ("Accept", SDP)))


def answer_notify(role: InviteRole, transaction: ServerTransaction, now: float) -> None:
    """Answers a NOTIFY: of a REFER that this side sent, else of no subscription (RFC 6665 4.1.3)."""
    if role.usage.referral is None:
        role.usage.core.reply(transaction, 481, now)
    else:
        role.usage.referral.notified(transaction, now)


def answer_refer(role: InviteRole, transaction: ServerTransaction, now: float) -> None:
    """Answers a REFER, by which the far end asks for a call to somebody else (RFC 3515 2.4.2): 202 where the
    trunk lets it, once at a time."""
    usage = role.usage
    if not usage.settings.accept_refer:
        usage.core.reply(transaction, 405, now, headers=(("Allow", ALLOW),))
        return
    try:
        [to] = NameAddr.parse_list(transaction.request.headers.get_all("Refer-To"))
    except (ValueError, MalformedMessage):
        usage.core.reply(transaction, 400, now)
        return
    if (
        "replaces" in {name.lower() for name in to.uri.headers}
        or (to.uri.params.get("method") or "INVITE") != "INVITE"
    ):
        usage.core.reply(transaction, 603, now)  # whoever is to be replaced is on a line already
        return
    if not usage.confirmed or (usage.request_to_move is not None and usage.request_to_move.pending):
        usage.core.reply(transaction, 491, now)
        return
    MoveRequest(usage, to.uri, transaction, now)


ANSWERS: Mapping[str, Answer] = {
    "BYE": answer_bye,
    "INFO": answer_info,
    "INVITE": answer_reinvite,
    "NOTIFY": answer_notify,
    "OPTIONS": answer_options,
    "PRACK": answer_prack,
    "REFER": answer_refer,
    "UPDATE": answer_update,
}


def refuse_body(usage: InviteUsage, transaction: ServerTransaction, error: RemoteError, now: float) -> None:
    """Refuses a body that cannot be read, or an offer that cannot be answered; the session stays as it
    was."""
    headers: tuple[tuple[str, str], ...] = ()
    usage.refusals.note_error(error)
    if isinstance(error, UnsupportedBody):
        headers = (("Accept", error.accept),)
    elif isinstance(error, MalformedSdp):
        headers = (("Warning", '399 media "The session description cannot be answered"'),)
    usage.core.reply(transaction, error.code, now, headers=headers, to_tag=local_tag(usage))


def local_tag(usage: InviteUsage) -> str | None:
    """Returns the local tag of the usage's dialog, None before there is one."""
    return usage.dialog.local.tag if usage.dialog is not None else None


def _ready(role: InviteRole, transaction: ServerTransaction, now: float, *, during_call: bool) -> bool:
    """Refuses a request that crosses an open offer or INVITE, or asks for too short a session. True: go
    on."""
    usage, request = role.usage, transaction.request
    has_offer = bool(request.body) or request.method == "INVITE"
    if role.answer_due or (during_call and not usage.confirmed):
        wait_s = usage.core.random.randint(0, RETRY_AFTER_S)
        usage.core.reply(transaction, 500, now, headers=(("Retry-After", str(wait_s)),))
        return False
    if has_offer and (usage.changing or usage.negotiation.state is OfferState.OFFERED):
        usage.core.reply(transaction, 491, now)
        return False
    try:
        minimum_s = usage.session.refusal(request)
    except MalformedMessage as error:
        usage.core.reply(transaction, error.code, now)
        return False
    if minimum_s is not None:
        usage.core.reply(transaction, 422, now, headers=(("Min-SE", str(minimum_s)),))
        return False
    return True
