"""A UDP socket that answers as a TURN server does to who may not have a relay, and notes who asked."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from aioice import stun

from mediaserver.rooms.webrtc.udp_mux import own_addresses
from tests.support.udp import UdpServer, bound


class StunServer(UdpServer):
    """`users`: who signed in for a relay."""

    def __init__(self) -> None:
        self.users: set[str] = set()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """See `asyncio.DatagramProtocol`."""
        message = stun.parse_message(data)
        if message.message_method is not stun.Method.ALLOCATE:
            return
        if "USERNAME" in message.attributes:
            self.users.add(message.attributes["USERNAME"])
        refusal = stun.Message(stun.Method.ALLOCATE, stun.Class.ERROR, message.transaction_id)
        refusal.attributes["ERROR-CODE"] = (401, "Unauthorized")
        refusal.attributes["REALM"] = "test"
        refusal.attributes["NONCE"] = b"once"
        self.transport.sendto(bytes(refusal), addr)


def stun_server() -> AbstractAsyncContextManager[StunServer]:
    """One on a free port of this machine: browsers do not ask 127.0.0.1 from another address."""
    return bound(StunServer(), own_addresses()[0])
