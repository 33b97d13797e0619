"""What state a peer connection is in, and what aiortc calls it."""

from __future__ import annotations

from enum import Enum
from typing import Final


class PeerState(Enum):
    """CONNECTED: DTLS is up. CLOSED: for good, by us or because the far end was not heard for half a
    minute. LEFT: for good, because the far end said so (close_notify of DTLS)."""

    NEW = "new"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    CLOSED = "closed"
    LEFT = "left"

    @property
    def over(self) -> bool:
        """Whether the state is final: closed by either side."""
        return self in (PeerState.CLOSED, PeerState.LEFT)


STATES: Final = {
    "new": PeerState.NEW,
    "connecting": PeerState.CONNECTING,
    "connected": PeerState.CONNECTED,
    "failed": PeerState.CLOSED,
    "closed": PeerState.CLOSED,
}
