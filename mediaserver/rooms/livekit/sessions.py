"""The sessions of LiveKit SDKs on this node: joining, resuming, ending."""

from __future__ import annotations

import asyncio
import logging

from mediaserver.rooms.errors import RoomClosed, TokenRefused
from mediaserver.rooms.livekit.session import Hello, Outlet, SdkSession
from mediaserver.rooms.registry import RoomRegistry
from mediaserver.settings.ice_servers import IceServersFor

log = logging.getLogger(__name__)


class SdkSessions:
    """Sessions by participant sid, which a client names when it resumes."""

    def __init__(self) -> None:
        self._sessions: dict[str, SdkSession] = {}
        # Tasks that end with the closing of a participant's peer connections.
        self._goodbyes: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    async def join(
        self,
        room_registry: RoomRegistry,
        token: str,
        hello: Hello,
        outlet: Outlet,
        *,
        ice_servers: IceServersFor,
    ) -> SdkSession:
        """Joins a new participant. Raises as `RoomRegistry.enter`."""
        entry = await room_registry.enter(token, resumable=True)
        session = SdkSession(room_registry, entry, self._goodbyes, dual=hello.dual, ice_servers=ice_servers)
        self._sessions[entry.leg.participant.sid] = session
        session.on_end = self._ended
        log.info(
            "participant joined",
            extra={
                "call_id": entry.room.name,
                "participant": entry.leg.participant.sid,
                "sdk": hello.request.client_info.sdk,
                "version": hello.request.client_info.version,
                "dual": hello.dual,
            },
        )
        try:
            await session.begin(hello, outlet)
        except asyncio.CancelledError:  # the client left while its offer was being answered
            session.lost(outlet)
            raise
        return session

    async def resume(self, room_registry: RoomRegistry, token: str, sid: str, outlet: Outlet) -> SdkSession:
        """Resumes the session of participant `sid` on a new WebSocket. Raises `TokenRefused`, and
        `RoomClosed` where there is no such session: the client then joins again."""
        grant = room_registry.verify(token)
        session = self._sessions.get(sid)
        if session is None or not session.resumable:
            raise RoomClosed("there is no such session")
        entry = session.entry
        if (grant.room, grant.identity) != (entry.room.name, entry.leg.participant.identity):
            raise TokenRefused("token is another participant's")
        try:
            await session.resume(outlet)
        except asyncio.CancelledError:
            session.lost(outlet)
            raise
        return session

    def _ended(self, session: SdkSession) -> None:
        self._sessions.pop(session.entry.leg.participant.sid, None)
