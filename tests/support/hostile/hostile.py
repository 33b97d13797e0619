"""A peer with a socket of its own that sends bytes as they are and keeps what is answered."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
from contextlib import suppress

from sip.stack.inflow import RETRY_AFTER_S
from tests.support.hostile.torture import MESSAGES

PATIENCE_S = 20.0

_ADDRESSES = itertools.count(1)
_STATUS = re.compile(rb"^SIP/2\.0 (\d{3}) ", re.MULTILINE)
_PING = b"z9hG4bKping"


def fresh_address() -> str:
    """A loopback address that nobody has used in this process."""
    number = next(_ADDRESSES)
    return f"127.45.{number // 250}.{number % 250 + 1}"


def options(host: str, transport: str = "UDP") -> bytes:
    """A request whose answer shows that everything before it has been dealt with."""
    return (
        f"OPTIONS sip:{host} SIP/2.0\r\nVia: SIP/2.0/{transport} {host};branch=z9hG4bKping;rport\r\n"
        f"Max-Forwards: 70\r\nFrom: <sip:x@{host}>;tag=f\r\nTo: <sip:{host}>\r\nCall-ID: ping-{host}\r\n"
        "CSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    ).encode()


def _read(datagram: bytes, finals: list[int]) -> bool:
    """Takes note of final answers; True: the ping was answered."""
    if _PING in datagram:
        return True
    finals += [status for status in map(int, _STATUS.findall(datagram)) if status >= 200]
    return False


async def final_over_udp(data: bytes, port: int, *, answered: bool) -> list[int]:
    """The final statuses that a datagram from a new address gets. Answers go where its Via says (RFC 3261
    18.2.2), so that port is what is bound. `answered`: an answer is waited for."""
    host = fresh_address()
    sent_by = re.search(rb"^(?:Via|v)\s*:[^;\r\n]*?:(\d+)", data, re.IGNORECASE | re.MULTILINE)
    loop, finals = asyncio.get_running_loop(), list[int]()
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind((host, int(sent_by[1]) if sent_by and b";rport" not in data else 5060))
        await loop.sock_sendto(sock, data, ("127.0.0.1", port))
        await loop.sock_sendto(sock, options(host), ("127.0.0.1", port))
        async with asyncio.timeout(PATIENCE_S):
            pinged = False
            while not pinged or (answered and not finals):
                pinged = _read(await loop.sock_recv(sock, 65536), finals) or pinged
    return finals


async def final_over_tcp(data: bytes, port: int, *, answered: bool) -> list[int]:
    """The final statuses that a message gets on a connection of its own, which it may cost."""
    finals, host = list[int](), fresh_address()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    try:
        writer.write(data + options(host, "TCP"))
        async with asyncio.timeout(PATIENCE_S):
            seen, pinged = b"", False
            while not pinged or (answered and not finals):
                chunk = await reader.read(65536)
                if not chunk:
                    break
                seen += chunk
                finals.clear()
                for message in re.split(rb"(?=^SIP/2\.0 )", seen, flags=re.MULTILINE):
                    pinged = _read(message, finals) or pinged
    except ConnectionResetError:
        pass  # it was cut off, having been answered or not
    finally:
        await hang_up(writer)
    return finals


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Closes a connection, whatever the other end thinks of it."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def wrong_answer(name: str, port: int, transport: str) -> list[int] | None:
    """Sends one message of RFC 4475; None when what came back is of the right class."""
    data, expected = MESSAGES[name]
    if transport == "tcp" and expected.datagram_only:  # on a stream it has no end, or another
        _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(fresh_address(), 0))
        writer.write(data)
        await hang_up(writer)
        return None
    send = final_over_udp if transport == "udp" else final_over_tcp
    answered = bool(expected.statuses) and not expected.may_be_silent
    finals = await send(data, port, answered=answered)
    if finals == [503] and 503 not in expected.statuses:  # so much at once is too much, of strangers
        await asyncio.sleep(RETRY_AFTER_S)
        finals = await send(data, port, answered=answered)
    if not finals:
        return None if expected.may_be_silent or not expected.statuses else finals
    if len(set(finals)) == 1 and finals[0] in expected.statuses:
        return None
    # A request within a dialog that there is none of.
    return None if set(finals) == {481} and b"tag" in data else finals
