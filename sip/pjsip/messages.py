"""The same SIP message on both sides of the server's own stack: as the far end has it, and as PJSIP has it.

PJSIP sees one peer, the relay; no names, numbers, routes or session descriptions of the far end, and of its
header fields only those that an INVITE session needs. The far end sees this server; nothing of PJSIP but the
same header fields. A description stands for `DESCRIPTION` in PJSIP: what was offered and answered is
`sip.sdp.offer_answer`'s."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from sip.message.body import SDP
from sip.message.headers import Headers
from sip.message.message import Request, Response, response_to
from sip.message.uri import Uri

Message = TypeVar("Message", Request, Response)

DESCRIPTION: Final = (
    b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
    b"m=audio 4000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\na=sendrecv\r\n"
)

ASKED_BY_PJSIP: Final = (
    *("Authorization", "Proxy-Authorization", "Require"),
    *("Session-Expires", "Min-SE", "Reason"),
)
ANSWERED_BY_PJSIP: Final = ("Require", "RSeq", "Session-Expires", "Min-SE", "Unsupported", "Retry-After")
ASKED_OF_PJSIP: Final = ("Require", "Supported", "RAck", "Session-Expires", "Min-SE", "Allow")
ANSWERED_TO_PJSIP: Final = (
    *("WWW-Authenticate", "Proxy-Authenticate", "Require", "RSeq", "Supported"),
    *("Session-Expires", "Min-SE", "Allow"),
)
"""The header fields that pass, beside those that every message is rebuilt with."""

LONGEST: Final = 1500
"""Characters of a header field that PJSIP gets; it drops messages above 4000 bytes."""

_HERE: Final = "sip:pjsip@127.0.0.1"


@dataclass(frozen=True, slots=True)
class Names:
    """A call as PJSIP knows it: its key, which is the Call-ID, the tags of PJSIP and of the far end, "" for
    none yet, and the relay's "host:port"."""

    key: str
    tag: str
    peer_tag: str
    relay: str


def carry(fields: Iterable[str], from_: Headers, to: Headers) -> None:
    """Copies header fields, in the place of those that are there."""
    for name in fields:
        if name in from_:
            to.remove(name)
        for value in from_.get_all(name):
            to.add(name, value)


def carry_readable(fields: Iterable[str], from_: Headers, to: Headers) -> None:
    """Copies header fields of the far end that PJSIP can read except those that are too long for it."""
    for name in fields:
        values = from_.get_all(name)
        if sum(map(len, values)) <= LONGEST:
            for value in values:
                to.add(name, value)


def request_to_pjsip(request: Request, names: Names, branch: str, *, described: bool) -> Request:
    """Returns a request of the far end as PJSIP gets it. `described`: with a session description."""
    headers = Headers([("Via", f"SIP/2.0/UDP {names.relay};branch={branch};rport"), ("Max-Forwards", "70")])
    headers.add("From", f"<sip:peer@{names.relay}>;tag={names.peer_tag}")
    headers.add("To", f"<{_HERE}>" + (f";tag={names.tag}" if names.tag else ""))
    headers.add("Call-ID", names.key)
    headers.add("CSeq", str(request.cseq))
    if request.method in ("INVITE", "UPDATE"):
        headers.add("Contact", _contact(request, names.relay))
    if request.method == "INVITE" and not names.tag:
        headers.add("Record-Route", f"<sip:{names.relay};lr>")
    carry_readable(ASKED_OF_PJSIP, request.headers, headers)
    return _described(Request(request.method, Uri.parse(_HERE), headers), described)


def response_to_pjsip(asked: Request, response: Response, relay: str, *, described: bool) -> Response:
    """Returns a response of the far end to PJSIP's request `asked` as PJSIP gets it."""
    answer = response_to(asked, response.status, to_tag=response.to.tag)
    if response.status < 300 and response.to.tag and asked.method in ("INVITE", "UPDATE"):
        answer.headers.add("Contact", _contact(response, relay))
        answer.headers.add("Record-Route", f"<sip:{relay};lr>")
    carry_readable(ANSWERED_TO_PJSIP, response.headers, answer.headers)
    return _described(answer, described)


def ack_to_pjsip(request: Request, response: Response) -> Request:
    """Returns the ACK of PJSIP's refusal of `request`, which it was handed (RFC 3261 17.1.1.3)."""
    return _within(request, "ACK", to=response.headers.get("To") or "")


def cancel_to_pjsip(request: Request) -> Request:
    """Returns the CANCEL of an INVITE that PJSIP was handed."""
    return _within(request, "CANCEL", to=request.headers.get("To") or "")


def _within(request: Request, method: str, *, to: str) -> Request:
    headers = Headers([("Via", request.headers.get("Via") or ""), ("Max-Forwards", "70")])
    headers.add("From", request.headers.get("From") or "")
    headers.add("To", to)
    headers.add("Call-ID", request.call_id)
    headers.add("CSeq", f"{request.cseq.number} {method}")
    return Request(method, request.uri, headers)


def _contact(message: Request | Response, relay: str) -> str:
    """Returns where PJSIP's requests go: to the far end's own URI, for which it may have to compute a digest,
    though all of them pass the relay."""
    contacts = message.contacts
    if contacts and contacts[0].uri.scheme == "sip":
        return f"<{contacts[0].uri.without_headers()}>"
    return f"<sip:peer@{relay}>"


def _described(message: Message, described: bool) -> Message:
    if described:
        message.headers.add("Content-Type", SDP)
        message.body = DESCRIPTION
    return message
