"""A web call: the agent's conversation with the people in a room, recorded and reported like a phone call.

```
room opened (token minted) → participant joins, media up → row in the store → Session → outcome → room closed
```
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mediaserver.calls.detail_record import CallDetailRecord
from mediaserver.calls.live_conversation import LiveConversation
from mediaserver.calls.pre_call_tools import OBJECTED
from mediaserver.calls.services import CallProfile, CallServices
from mediaserver.calls.transfers.transfer import conversed
from mediaserver.queue.records import CallStatus, Claim, Outcome
from mediaserver.rooms.captions import RoomCaptions
from mediaserver.rooms.errors import RoomError
from mediaserver.rooms.participant import Participant
from mediaserver.rooms.room import EMPTY_TIMEOUT_S, Room
from mediaserver.rooms.sip_participant import phone_participant
from pipeline.media.bridge import Bridge
from pipeline.media.who_hears import Role
from pipeline.result import EndReason, SessionResult
from sip.call import Call

MAX_PAYLOAD_BYTES = 15 * 1024
"""Bytes of an RPC response, LiveKit's limit."""

DIRECTION = "web"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebCallRequest:
    """A client's request for a web call. `variables` are for the prompt, `metadata` goes to the webhooks and,
    as the call's own data, to the agent. The room is closed when nobody has joined within `join_within_s`
    seconds."""

    agent_id: str
    user_ref: str = ""
    name: str = ""
    join_within_s: float = EMPTY_TIMEOUT_S
    variables: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


class WebCall:
    """One conversation in one room. `run` returns when its outcome is written."""

    def __init__(
        self,
        claim: Claim,
        profile: CallProfile,
        services: CallServices,
        *,
        room: Room,
        bridge: Bridge,
        dialled: set[str],
    ) -> None:
        """`dialled`: numbers that no further transfer in the room calls."""
        self.cdr = CallDetailRecord(claim, services)
        self.captions = RoomCaptions(room, self.cdr)
        self.conversation = LiveConversation(self.cdr, profile, services)
        self.conversation.dialled = dialled
        self._room = room
        self._bridge = bridge
        for name, method in (("hang_up", self._end_call), ("transcript", self._tell_transcript)):
            room.methods.setdefault(name, method)

    async def run(self) -> None:
        """Converses, hangs up every leg, writes the outcome. Never raises."""
        self.cdr.placed(DIRECTION)
        objection = await self.conversation.prepare(DIRECTION)
        if objection:
            outcome = Outcome(status=CallStatus.FAILED, cause=OBJECTED, ended_by="local", error=objection)
        else:
            outcome = await self._converse()
        await self._bridge.hang_up()
        self.cdr.finish(outcome, DIRECTION)
        await self.cdr.written

    def hang_up(self) -> None:
        """Ends the conversation; returns at once."""
        self.conversation.stop()

    async def _converse(self) -> Outcome:
        self.cdr.picked_up()
        self._room.on_text = self._written
        result, error = await self.conversation.converse(
            self._bridge, observer=self.captions, prompt_metadata=self.cdr.claim.metadata
        )
        if not error:
            result, error = await conversed(
                self.conversation, self._bridge, result, observer=self.captions, on_answer=self._show
            )
        self._room.on_text = None
        await self._bridge.hang_up()
        result = await self.conversation.debrief(result)
        ended_by = "remote" if result is not None and result.reason is EndReason.FAR_END else "local"
        return self.cdr.answered(result, cause=_cause(result), ended_by=ended_by, error=error)

    def _written(self, who: Participant, text: str) -> None:
        if who.supervises:  # hidden from the caller, so never the caller's words
            if who.role is Role.WHISPER:
                self.conversation.whisper(text)
            return
        self.captions.written(who, text)
        self.conversation.write(text)

    def _show(self, call: Call, now: float) -> None:
        """Shows the telephone that answered a transfer as a participant of the room."""
        phone = phone_participant(call.remote_number, status="active")
        with suppress(RoomError):  # full, or just closed: the person is heard, if not shown
            self._room.join(phone, now)
            self._room.active(phone, now)

    # RPC methods of the agent -------------------------------------------------------------------------------

    def _end_call(self, who: Participant, payload: str) -> str:
        if not who.permissions.publish:
            raise RoomError("only who takes part may end the call")
        asyncio.get_running_loop().call_soon(self.hang_up)  # after the RPC response
        return ""

    def _tell_transcript(self, who: Participant, payload: str) -> str:
        """Returns the transcript so far as the API has it, without the oldest lines where it is too long for
        a response."""
        lines = list(self.cdr.transcript)
        while len(text := json.dumps(lines, ensure_ascii=False).encode()) > MAX_PAYLOAD_BYTES:
            del lines[: max(1, len(lines) // 8)]
        return text.decode()


def _cause(result: SessionResult | None) -> str:
    """Returns the hangup cause of the API for the leg's reason."""
    if result is None or result.reason is not EndReason.FAR_END:
        return "normal"
    return _CAUSES.get(result.leg_reason, "normal")


_CAUSES: Mapping[str, str] = {
    "media_failure": "media_timeout",
    "signal_close": "media_timeout",
    "encrypted": "incompatible",
}
