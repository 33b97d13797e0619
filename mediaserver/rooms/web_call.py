"""A web call: the agent's conversation with whoever is in a room, recorded and reported like a phone call.

```
room opened (token minted) → somebody joins, media up → recorded in the store → Session → outcome → room
closed ```
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mediaserver.calls.live_conversation import CallProfile, CallServices, LiveConversation
from mediaserver.calls.pre_call_tools import OBJECTED
from mediaserver.calls.transfer import transfer_call
from mediaserver.queue.records import CallStatus, Claim, Outcome
from mediaserver.rooms.errors import RoomError
from mediaserver.rooms.participant import AGENT_STATE, Participant
from mediaserver.rooms.room import EMPTY_TIMEOUT_S, Room, Words
from mediaserver.rooms.sip_participant import phone_participant
from pipeline.media.bridge import Bridge
from pipeline.result import EndReason, SessionResult, TurnRecord
from pipeline.transcript import Role, TranscriptEntry
from sip.call import Call

log = logging.getLogger(__name__)

MAX_PAYLOAD_BYTES = 15 * 1024
"""Of an answer by RPC, as LiveKit has it."""

DIRECTION = "web"

AGENT_STATES: Mapping[str, str] = {
    "opening": "thinking",
    "listening": "listening",
    "hearing": "listening",
    "endpointing": "thinking",
    "replying": "thinking",
    "speaking": "speaking",
    "overlapping": "speaking",
    "overlapped": "speaking",
    "keying": "listening",
    "leaving": "speaking",
    "closing": "speaking",
}
"""The value of `lk.agent.state`, as LiveKit's clients know it, by the state of turn-taking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebCallRequest:
    """What a client asks for when it opens a web call. `variables` are for the prompt, `metadata` goes to the
    webhooks and, as the call's own data, to the agent. The room is given up when nobody has joined it
    `join_within_s`."""

    agent_id: str
    user_ref: str = ""
    name: str = ""
    join_within_s: float = EMPTY_TIMEOUT_S
    variables: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


class WebCall(LiveConversation):
    """One conversation in one room. `run` returns when its outcome is written."""

    prompt_takes_metadata = True

    def __init__(
        self, claim: Claim, part: CallProfile, floor: CallServices, *, room: Room, bridge: Bridge
    ) -> None:
        super().__init__(claim, part, floor)
        self._room = room
        self._bridge = bridge
        self._loop = asyncio.get_running_loop()
        self._segments = 0
        self._open: dict[Role, tuple[str, Participant]] = {}  # the segment that is being spoken, and by whom
        self._wrote: tuple[Participant, str] | None = None  # who wrote to the agent last, and what
        self.speaking: Callable[[float], Participant | None] = lambda now: None
        """Who of the people in the room speaks; set by who knows."""
        self._ending: asyncio.Task[None] | None = None
        for name, method in (("hang_up", self._end_call), ("transcript", self._tell_transcript)):
            room.methods.setdefault(name, method)

    async def run(self) -> None:
        """Converses, hangs everybody up, writes the outcome. Never raises."""
        objection = await self.prepare(DIRECTION)
        if objection:
            outcome = Outcome(status=CallStatus.FAILED, cause=OBJECTED, ended_by="local", error=objection)
        else:
            outcome = await self._converse()
        await self._bridge.hang_up()
        self.finish(outcome, DIRECTION)
        await self.written

    async def _converse(self) -> Outcome:
        self._room.on_text = self._written
        result, error = await self.converse(self._bridge)
        self._room.on_text = None
        await transfer_call(self, self._bridge, result)
        await self._bridge.hang_up()
        result = await self.debrief(result)
        ended_by = "remote" if result is not None and result.reason is EndReason.FAR_END else "local"
        return self.answered(result, cause=_cause(result), ended_by=ended_by, error=error)

    def handed_to(self, call: Call, now: float) -> None:
        """Shows the telephone that answered a transfer as a participant of the room."""
        guest = phone_participant(call.remote_number, status="active")
        with suppress(RoomError):  # full, or closed a moment ago: it is heard, if not seen
            self._room.join(guest, now)
            self._room.active(guest, now)

    # RPC methods of the agent -------------------------------------------------------------------------------

    def _end_call(self, who: Participant, payload: str) -> str:
        if not who.permissions.publish:
            raise RoomError("only who takes part may end the call")
        self._ending = self._loop.create_task(self.hang_up())
        return ""

    def _tell_transcript(self, who: Participant, payload: str) -> str:
        """The lines so far, as the API tells them; the oldest left out where they are too long for an
        answer."""
        lines = list(self.transcript)
        while len(text := json.dumps(lines, ensure_ascii=False).encode()) > MAX_PAYLOAD_BYTES:
            del lines[: max(1, len(lines) // 8)]
        return text.decode()

    # Events for the room (`SessionObserver`) ----------------------------------------------------------------

    def state_changed(self, state: str, now: float) -> None:
        """Sets the agent's attribute `lk.agent.state`."""
        shown = AGENT_STATES.get(state)
        if shown is not None and self._room.agent.attributes.get(AGENT_STATE) != shown:
            self._room.describe(self._room.agent, now, attributes={AGENT_STATE: shown})

    def words_heard(self, text: str, now: float) -> None:
        """Sends the interim transcript of the caller to the room."""
        self._say(Role.CALLER, text, now, final=False)

    def agent_speaking(self, text: str, now: float) -> None:
        """Sends the words that the agent begins to speak to the room."""
        self._say(Role.AGENT, text, now, final=False)

    def transcript_added(self, entry: TranscriptEntry) -> None:
        """Records the entry and sends it to the room as final."""
        super().transcript_added(entry)
        self._say(entry.role, entry.text, self._loop.time(), final=True, interrupted=entry.interrupted)

    def do_not_call(self, reason: str, now: float) -> None:
        """Does nothing: a web call has no telephone number."""

    def turn_completed(self, turn: TurnRecord) -> None:
        """Records the turn and sends its latency to the room."""
        super().turn_completed(turn)
        if turn.latency is not None:
            self._room.turn_taken(turn.latency.voice_to_voice_ms, self._loop.time())

    def _written(self, who: Participant, text: str) -> None:
        self._wrote = who, text
        self.write(text)

    def _say(self, role: Role, text: str, now: float, *, final: bool, interrupted: bool = False) -> None:
        """A segment is its first speaker's to its end, whoever joins in."""
        if role not in self._open:
            self._segments += 1
            self._open[role] = f"SG_{self._segments}", self._speaker(role, text, now)
        segment, speaker = self._open[role]
        if final:
            del self._open[role]
        self._room.spoken(Words(speaker, segment, text, final=final, interrupted=interrupted), now)

    def _speaker(self, role: Role, text: str, now: float) -> Participant:
        wrote, speakers = self._wrote, self._room.speakers
        if role is Role.AGENT or not speakers:
            return self._room.agent
        if wrote is not None and wrote[1].strip() == text:
            self._wrote = None
            return wrote[0]
        speaking = self.speaking(now) if len(speakers) > 1 else None
        return speaking if speaking in speakers else speakers[0]


def _cause(result: SessionResult | None) -> str:
    """What the leg said of its end, in the words of the API."""
    if result is None or result.reason is not EndReason.FAR_END:
        return "normal"
    return _CAUSES.get(result.leg_reason, "normal")


_CAUSES: Mapping[str, str] = {
    "media_failure": "media_timeout",
    "signal_close": "media_timeout",
    "encrypted": "incompatible",
}
