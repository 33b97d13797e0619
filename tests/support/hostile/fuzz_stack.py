"""Hostile conversations with the whole SIP stack on a virtual clock: nothing escapes, nothing stays."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from sip.dialog.usage import InviteSettings
from sip.message.message import Request
from sip.sdp.media_plan import G722, OPUS, PCMA, PCMU
from sip.sdp.negotiation import Capabilities
from sip.stack.admission import Admitted, Refused
from sip.stack.events import InviteReceived
from sip.stack.stack import Stack
from sip.transaction.hop import Hop
from tests.support.hostile.fuzz import damaged, datagrams

PEER = Hop("udp", "192.0.2.9", 5060)
LOCAL_TAG = b"LOCALTAG"
"""Stands for the tag that the stack gave its side of the first dialog."""

LONG_ENOUGH_S = 7200.0
"""Every timer of a call that nobody looks after has rung by then, session timers of 1800 s included."""

_CAPABILITIES = Capabilities("192.0.2.1", 20000, (PCMU, PCMA, G722, OPUS))
_TAG = re.compile(rb"^To:[^\r\n]*;tag=([^;\r\n]+)", re.MULTILINE)
_OFFER = (
    b"v=0\r\no=- 1 %d IN IP4 192.0.2.9\r\ns=-\r\nc=IN IP4 192.0.2.9\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0 8\r\n"
)


def _message(method: str, cseq: int, *, extra: str = "", body: bytes = b"", tagged: bool = True) -> bytes:
    branch = "1" if method == "CANCEL" else f"{cseq}{method}"
    to_tag = f";tag={LOCAL_TAG.decode()}" if tagged else ""
    kind = "Content-Type: application/sdp\r\n" if body else ""
    head = (
        f"{method} sip:100@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9:5060;branch=z9hG4bK{branch}\r\n"
        f"Max-Forwards: 70\r\nFrom: <sip:peer@192.0.2.9>;tag=peer\r\nTo: <sip:100@192.0.2.1>{to_tag}\r\n"
        f"Call-ID: fuzz\r\nCSeq: {cseq} {method}\r\nContact: <sip:peer@192.0.2.9>\r\n{extra}{kind}"
    )
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


INVITE = _message("INVITE", 1, body=_OFFER % 1, tagged=False).replace(b"z9hG4bK1INVITE", b"z9hG4bK1")
_DIALOGUE = (
    INVITE,
    _message("ACK", 1),
    _message("INVITE", 2, body=_OFFER % 2),
    _message("INVITE", 3),
    _message("ACK", 3, body=_OFFER % 3),
    _message("UPDATE", 4, body=_OFFER % 4, extra="Session-Expires: 90;refresher=uas\r\n"),
    _message("PRACK", 5, extra="RAck: 1 1 INVITE\r\n"),
    _message("INFO", 6, extra="Content-Type: application/dtmf-relay\r\n"),
    _message("OPTIONS", 7),
    _message("BYE", 8),
    _message("CANCEL", 1, tagged=False),
    INVITE.replace(b"Content-Length", b"Supported: 100rel, timer\r\nSession-Expires: 120\r\nContent-Length"),
    INVITE.replace(b"Call-ID: fuzz", b"Call-ID: other"),
)


def conversations() -> st.SearchStrategy[list[bytes]]:
    """What one peer may send, one after the other: sound messages of a call, damaged ones, and anything."""
    sound = st.sampled_from(_DIALOGUE)
    anything = st.one_of(sound, sound, damaged(_DIALOGUE), datagrams())
    beginnings: st.SearchStrategy[list[bytes]] = st.sampled_from(([], [INVITE]))
    return st.builds(lambda first, rest: [*first, *rest], beginnings, st.lists(anything, max_size=6))


@dataclass
class _Open:
    settings: InviteSettings = field(default_factory=InviteSettings)

    def admit(self, request: Request, source: Hop, now: float) -> Admitted | Refused:
        return Admitted("trunk", self.settings)


def survive(data: Sequence[bytes], *, answers: bool = True) -> int:
    """Gives every datagram to a new stack, then lets all its timers ring; calls are answered, or left alone.

    Returns how many datagrams it sent. Raises AssertionError where a transaction, a dialog or a timer is
    left, and whatever the stack lets escape.
    """
    stack = Stack(_Open(), lambda hop: ("192.0.2.1", 5060), random=random.Random(1))
    now, tag, sent = 0.0, b"none", 0
    for each in data:
        stack.receive(each.replace(LOCAL_TAG, tag), PEER, now)
        transmitted = _settle(stack, now, answers)
        sent += len(transmitted)
        for response in transmitted:
            match = _TAG.search(response)
            if match is not None and b" 200 OK\r\n" in response and tag == b"none":
                tag = match[1]
        now += 0.02
    while (due := stack.timer_at()) is not None and due <= LONG_ENOUGH_S:
        now = max(now, due)
        stack.handle_timer(now)
        sent += len(_settle(stack, now, answers))
    left = (stack.transactions, stack.dialogs, stack.timer_at())
    assert left == (0, 0, None), f"left behind: {left}"
    return sent


def _settle(stack: Stack, now: float, answers: bool) -> list[bytes]:
    for event in stack.events():
        if isinstance(event, InviteReceived) and event.invite.describe(_CAPABILITIES, now) and answers:
            event.invite.accept(now)
    return [transmission.data for transmission in stack.transmissions()]
