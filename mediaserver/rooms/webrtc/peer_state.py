"""The states of a peer connection, and aiortc's names of them."""

from __future__ import annotations

from enum import Enum
from typing import Final


class PeerState(Enum):
    """CONNECTED: DTLS is up. CLOSED: final, by the server or because nothing was heard from the far end
    for half a minute. LEFT: final, because the far end closed DTLS (close_notify)."""

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
