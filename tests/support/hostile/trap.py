"""A carrier that takes note of every INVITE, and says at once that the number is busy."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from typing import cast

from tests.support.udp import UdpServer

_NUMBER = re.compile(rb"^(INVITE|CANCEL) sip:([^@;]+)@")
_KEPT = re.compile(rb"^(?:via|v|from|f|call-id|i|cseq)\s*:", re.IGNORECASE)
_TO = re.compile(rb"^(?:to|t)\s*:", re.IGNORECASE)
_CALL_ID = re.compile(rb"^(?:call-id|i)\s*:\s*(\S+)", re.IGNORECASE | re.MULTILINE)

Seen = dict[str, dict[str, float]]


class Trap(UdpServer):
    """`invites`: by number dialled and Call-ID, when the first of each came (loop time)."""

    def __init__(self) -> None:
        self.invites: Seen = defaultdict(dict)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Notes a request and refuses it; ACKs are heard and forgotten."""
        named = _NUMBER.match(data)
        if named is None:
            return
        if named[1] == b"CANCEL":
            self.transport.sendto(_answer(data, b"200 OK"), addr)
            return
        call_id = cast("re.Match[bytes]", _CALL_ID.search(data))[1].decode()
        self.invites[named[2].decode()].setdefault(call_id, asyncio.get_running_loop().time())
        self.transport.sendto(_answer(data, b"486 Busy Here"), addr)


def _answer(request: bytes, status: bytes) -> bytes:
    lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    kept = [line for line in lines if _KEPT.match(line)]
    to = next(line for line in lines if _TO.match(line)) + b";tag=trap"
    return b"\r\n".join([b"SIP/2.0 " + status, *kept, to, b"Content-Length: 0", b"", b""])
