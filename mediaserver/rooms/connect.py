"""Creates rooms for browser sessions: the checks of `POST /api/v1/web-calls/connect`."""

from __future__ import annotations

from collections.abc import Callable

from mediaserver.admin.access import Access
from mediaserver.admin.directory import Directory
from mediaserver.errors import ScopeMissing, TooMany
from mediaserver.queue.records import NewWebRoom
from mediaserver.rooms.open_room import JoinGrant
from mediaserver.rooms.registry import NO_WEB_CALLS, UNKNOWN_AGENT, RoomRegistry
from mediaserver.rooms.tokens import LIFETIME_S
from mediaserver.rooms.web_call import WebCallRequest
from mediaserver.store.store import Store


class WebCalls:
    """Creates rooms for browser sessions. `room_registry` returns the node's rooms, and raises
    `NotConfigured` where there are none."""

    def __init__(
        self, directory: Directory, store: Store, *, room_registry: Callable[[], RoomRegistry]
    ) -> None:
        self._directory = directory
        self._store = store
        self._room_registry = room_registry

    async def connect(self, access: Access, request: WebCallRequest) -> JoinGrant:
        """Creates a room with its agent and a token for one participant, and stores both. Raises
        `ScopeMissing`, `NotFound`, `NotConfigured`, `TooMany`, `Unavailable`."""
        company_id = access.company_id
        company = self._directory.company(company_id)
        if company is None or not company.web_calls:
            raise ScopeMissing(NO_WEB_CALLS)
        agent = access.companys_thing(self._directory.agent(request.agent_id), UNKNOWN_AGENT)
        access.check_agent(agent.id)
        await self.check_vacancy(company_id)
        join_grant = self._room_registry().invite(company_id, request)
        room = NewWebRoom(
            name=join_grant.room_name,
            company_id=company_id,
            agent_id=agent.id,
            identity=join_grant.identity,
            life_ms=LIFETIME_S * 1000,
            user_ref=request.user_ref,
            variables=request.variables,
            metadata=request.metadata,
        )
        await self._store.open_room(room)
        return join_grant

    async def check_vacancy(self, company_id: str) -> None:
        """Raises `TooMany` where the company is at its limit of concurrent calls. The place is taken only
        when a participant joins: a page that shows a button has called nobody yet."""
        verdict = await self._store.vacancy(company_id)
        if verdict.rule is not None:
            raise TooMany(verdict.reason)
