"""The caller's signalling: one SIP call over UDP, independent of the server's SIP stack, so that the
generator shares no bug with it. It sends the minimum that RFC 3261 demands of a caller."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from bench.call.protected import Keys

T1_NS: Final = 500_000_000
GIVE_UP_NS: Final = 8_000_000_000
"""Nanoseconds after which a call without a final response counts as failed."""

PCMU: Final = "0 PCMU/8000"
OPUS: Final = "111 opus/48000/2"
"""Codecs that a caller offers, as in `a=rtpmap`; the `events` of DTMF are offered beside these."""

Address = tuple[str, int]


class LineState(Enum):
    """State of a generator's call."""

    CALLING = auto()
    TALKING = auto()
    LEAVING = auto()
    ENDED = auto()
    FAILED = auto()


class Line:
    """One call to `server` from `contact` (host and port of the generator's socket). `receive` returns the
    response to a message; `overdue` the message to retransmit."""

    def __init__(
        self,
        server: Address,
        contact: Address,
        *,
        call_id: str,
        caller: str,
        called: str,
        codec: str = PCMU,
        events: str = "",
        keys: Keys | None = None,
    ) -> None:
        self.state = LineState.CALLING
        self.call_id = call_id
        self.caller = caller
        self.media: Address = ("", 0)
        self.reason = ""
        self.invited_ns = self.answered_ns = self.refused_ns = self.left_ns = self.ended_ns = 0
        self.retry_after_s = 0
        """Seconds of the refusal's Retry-After; 0 without one."""
        self.retransmissions = 0
        self._contact = contact
        self._keys = keys
        self._target = self._uri = f"sip:{called}@{server[0]}:{server[1]}"
        self._to_tag = ""
        self._formats = [codec, events] if events else [codec]
        self._pending = b""
        self._resend_ns = self._wait_ns = 0

    def invite(self, media: Address, now_ns: int) -> bytes:
        """Returns the INVITE; `media` is the caller's RTP address."""
        host, port = media
        types = " ".join(each.partition(" ")[0] for each in self._formats)
        body = (
            f"v=0\r\no=- 1 1 IN IP4 {host}\r\ns=-\r\nc=IN IP4 {host}\r\nt=0 0\r\n"
            f"m=audio {port} RTP/{'AVP' if self._keys is None else 'SAVP'} {types}\r\n"
            + "".join(f"a=rtpmap:{each}\r\n" for each in self._formats)
            + "a=ptime:20\r\n"
            + ("" if self._keys is None else self._keys.line)
        )
        self.invited_ns = now_ns
        return self._first(self._request("INVITE", 1, body), now_ns)

    def leave(self, now_ns: int) -> bytes:
        """Returns the BYE, b"" where there is no call."""
        if self.state is not LineState.TALKING:
            return b""
        self.state, self.left_ns = LineState.LEAVING, now_ns
        return self._first(self._request("BYE", 2), now_ns)

    def receive(self, message: str, now_ns: int) -> bytes:
        """Returns the answer to a message of the server."""
        start = message.partition("\r\n")[0]
        if not start.startswith("SIP/2.0 "):
            return self._answer(message, start.partition(" ")[0], now_ns)
        status, method = int(start[8:11]), _header(message, "CSeq").split()[1]
        if status < 200:
            self._wait_ns = 0
            return b""
        if method == "INVITE":
            return self._invited(message, status, now_ns)
        if method == "BYE" and self.state is LineState.LEAVING:
            self._wait_ns = 0
            self.state, self.ended_ns = LineState.ENDED, now_ns
        return b""

    def overdue(self, now_ns: int) -> bytes:
        """Returns the message to retransmit; fails a call that has waited too long."""
        if not self._wait_ns and self.state is not LineState.CALLING:
            return b""
        began = self.left_ns or self.invited_ns
        if self.state in (LineState.CALLING, LineState.LEAVING) and now_ns - began > GIVE_UP_NS:
            self._fail("no answer to " + ("BYE" if self.left_ns else "INVITE"))
        elif self._wait_ns and now_ns >= self._resend_ns:
            self._wait_ns *= 2
            self._resend_ns = now_ns + self._wait_ns
            self.retransmissions += 1
            return self._pending
        return b""

    def _first(self, message: bytes, now_ns: int) -> bytes:
        self._pending, self._wait_ns, self._resend_ns = message, T1_NS, now_ns + T1_NS
        return message

    def _fail(self, reason: str) -> None:
        self.state, self.reason, self._wait_ns = LineState.FAILED, reason, 0

    def _invited(self, message: str, status: int, now_ns: int) -> bytes:
        self._to_tag = _found(r"^To:.*?(;tag=[^\r;]+)", message)
        if status >= 300:
            if self.state is LineState.CALLING:
                self.refused_ns = now_ns
                self.retry_after_s = int(_header(message, "Retry-After") or 0)
                self._fail(str(status))
            return self._request("ACK", 1)
        if self._keys is not None and not self._keys.take(message):
            self._fail("answer without a key")
        if self.state is LineState.CALLING:
            self._wait_ns = 0
            self.state, self.answered_ns = LineState.TALKING, now_ns
            self._target = _found(r"^Contact:[^<\r]*<([^>]+)>", message) or self._target
            self.media = _found(r"^c=IN IP4 (\S+)", message), int(_found(r"^m=audio (\d+)", message))
        return self._request("ACK", 1, branch="ack")

    def _answer(self, message: str, method: str, now_ns: int) -> bytes:
        if method == "ACK":
            return b""
        if method == "BYE" and self.state in (LineState.TALKING, LineState.LEAVING):
            self.state, self.ended_ns, self.reason = LineState.ENDED, now_ns, "the server hung up"
        copied = [line for line in message.split("\r\n") if _COPIED.match(line)]
        return ("\r\n".join(["SIP/2.0 200 OK", *copied, "Content-Length: 0"]) + "\r\n\r\n").encode()

    def _request(self, method: str, number: int, body: str = "", *, branch: str = "") -> bytes:
        host, port = self._contact
        kind = "INVITE" if method == "ACK" and not branch else method
        lines = [
            f"{method} {self._target} SIP/2.0",
            f"Via: SIP/2.0/UDP {host}:{port};rport;branch=z9hG4bK{self.call_id}{kind}{number}{branch}",
            "Max-Forwards: 70",
            f"From: <sip:{self.caller}@{host}>;tag={self.call_id}",
            f"To: <{self._uri}>{self._to_tag}",
            f"Call-ID: {self.call_id}",
            f"CSeq: {number} {method}",
            f"Contact: <sip:{self.caller}@{host}:{port}>",
        ]
        if body:
            lines.append("Content-Type: application/sdp")
        return ("\r\n".join([*lines, f"Content-Length: {len(body)}"]) + f"\r\n\r\n{body}").encode()


_COPIED: Final = re.compile(r"(Via|From|To|Call-ID|CSeq):", re.IGNORECASE)


def call_id_of(message: str) -> str:
    """Returns the Call-ID of a message."""
    return _header(message, "Call-ID")


def _header(message: str, name: str) -> str:
    return _found(rf"^{name}:\s*([^\r]+)", message)


def _found(pattern: str, message: str) -> str:
    found = re.search(pattern, message, re.MULTILINE | re.IGNORECASE)
    return found.group(1) if found else ""
