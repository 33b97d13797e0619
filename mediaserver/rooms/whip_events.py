"""JSON messages that a WHIP client gets on the data channel that it opens as "events".

    {"type": "words", "speaker": "agent" | "caller" | "colleague", "segment": "SG_1", "text": ...,
     "final": bool, "interrupted": bool}
    {"type": "state", "state": "listening" | "thinking" | "speaking"}
    {"type": "turn", "latencyMs": 412.0}
    {"type": "ended", "reason": ...}

The client may write {"type": "text", "text": ...} to the agent; its other messages are ignored."""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Final

from mediaserver.rooms.participant import AGENT_STATE, Kind, Participant
from mediaserver.rooms.room import LeaveReason, Room, RoomObserver, Words
from mediaserver.rooms.webrtc.peer_connection import PeerTransport
from pipeline.net.untrusted import NotJson, read_json

CHANNEL: Final = "events"

MAX_TEXT: Final = 2000
"""The most characters of a text to the agent."""

_MAX_WAITING: Final = 200  # messages until the channel opens: a greeting's worth


class TalkEvents(RoomObserver):
    """Sends the events of the room to one WHIP client, over its peer connection."""

    def __init__(self, room: Room, own: Participant, peer: PeerTransport) -> None:
        self._room = room
        self._own = own
        self._peer = peer
        self._waiting: deque[dict[str, Any]] = deque(maxlen=_MAX_WAITING)
        peer.on_channel = self._opened
        peer.on_message = self._received
        room.observe(self)

    def words_spoken(self, words: Words, now: float) -> None:
        """Sends a piece of the transcript as "words"."""
        speaker = "agent" if words.speaker.kind is Kind.AGENT else "caller"
        speaker = "colleague" if words.speaker.supervises else speaker
        self._tell(
            type="words",
            speaker=speaker,
            segment=words.segment,
            text=words.text,
            final=words.final,
            interrupted=words.interrupted,
        )

    def participant_changed(self, participant: Participant, now: float) -> None:
        """Sends the agent's state as "state"."""
        if participant is self._room.agent:
            self._tell(type="state", state=participant.attributes.get(AGENT_STATE, ""))

    def participant_left(self, participant: Participant, reason: LeaveReason, now: float) -> None:
        """Sends "ended" when the client's own participant has left."""
        if participant is self._own:
            self.ended(reason)

    def ended(self, reason: LeaveReason) -> None:
        """Sends "ended"; the connection closes next."""
        self._tell(type="ended", reason=reason.value)
        self._room.forget(self)

    def turn_taken(self, latency_ms: float, now: float) -> None:
        """Sends the latency of a turn as "turn"."""
        self._tell(type="turn", latencyMs=round(latency_ms, 1))

    def _tell(self, **message: Any) -> None:
        if CHANNEL not in self._peer.channels:
            self._waiting.append(message)
            return
        self._peer.send(CHANNEL, json.dumps(message, ensure_ascii=False))

    def _opened(self, label: str) -> None:
        if label == CHANNEL:
            waiting, self._waiting = list(self._waiting), deque(maxlen=_MAX_WAITING)
            for message in waiting:
                self._tell(**message)

    def _received(self, label: str, body: bytes) -> None:
        try:
            message = read_json(body, longest=4 * MAX_TEXT) if label == CHANNEL else None
        except NotJson:
            return
        text = message.get("text") if isinstance(message, dict) and message.get("type") == "text" else None
        if isinstance(text, str) and text.strip() and self._room.on_text is not None:
            self._room.on_text(self._own, text.strip()[:MAX_TEXT])
