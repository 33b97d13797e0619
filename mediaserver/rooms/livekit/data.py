"""LiveKit's data packets of one client: those it sends to others and to the agent, and those it receives.

Packets between participants pass through unread, with the sender's identity set by the server. Packets for
the agent are handled here: text streams and chat messages go to `Room.on_text`, RPC to `AgentRpc`.
Transcripts are sent by `TranscriptStreams`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError
from livekit.protocol import models

from mediaserver.rooms.livekit.rpc import AgentRpc
from mediaserver.rooms.livekit.text_streams import TextStreams
from mediaserver.rooms.livekit.transcript_streams import TranscriptStreams
from mediaserver.rooms.participant import Participant
from mediaserver.rooms.room import Message, Room, RoomObserver, Words
from pipeline.net.untrusted import NotJson, read_json

log = logging.getLogger(__name__)

RELIABLE: Final = "_reliable"
LOSSY: Final = "_lossy"

CHAT: Final = "lk.chat"
LEGACY_CHAT: Final = "lk-chat-topic"

MAX_WAITING: Final = 128
"""The most packets that wait for the channel to open: the greeting is often said before."""

MAX_PACKET_BYTES: Final = 64 * 1024

SendOn = Callable[[str, bytes], bool]
"""Sends on the data channel of that label; False: it is not open, or full."""


class DataLink(RoomObserver):
    """The data channels of one client, reliable and lossy."""

    def __init__(self, room: Room, participant: Participant, send: SendOn) -> None:
        self.last_sequence = 0
        """The last sequence number of reliable packets; a packet that comes again after a resume is
        dropped."""
        self.refused = 0
        """Packets that were malformed, oversized or not permitted."""
        self.dropped = 0
        """Packets for the client that its channel did not take, or that waited for it behind too many."""
        self.on_encrypted = _unheard
        """Called for a packet to the agent that is encrypted end to end, which the agent cannot read."""
        self.rpc = AgentRpc(room, participant, self.from_agent)
        self._room = room
        self._participant = participant
        self._send = send
        self._streams = TextStreams(self._text)
        self._transcript = TranscriptStreams(self._from, lambda: self.dropped)
        self._sequence = 0
        self._open = False
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING)

    # From the client ----------------------------------------------------------------------------------------

    def receive(self, label: str, body: bytes, now: float) -> None:
        """Takes a message on a data channel; malformed ones are counted in `refused`."""
        if label not in (RELIABLE, LOSSY):
            return
        packet = self._parsed(body) if self._participant.permissions.publish_data else None
        if packet is None:
            self.refused += 1
            return
        if label == RELIABLE and packet.sequence:
            if packet.sequence <= self.last_sequence:
                return
            self.last_sequence = packet.sequence
        self._sign(packet)
        to = _recipients(packet)
        if not to or self._room.agent.identity in to:
            self._for_agent(packet, now)
        if to == (self._room.agent.identity,):
            return
        if packet.HasField("rpc_request") and not any(each in self._room.participants for each in to):
            self.rpc.refuse_recipient(packet.rpc_request.id)
            return
        message = Message(self._participant, packet.SerializeToString(), reliable=label == RELIABLE, to=to)
        self._room.send(message, now)

    def _parsed(self, body: bytes) -> models.DataPacket | None:
        if len(body) > MAX_PACKET_BYTES:
            return None
        try:
            packet = models.DataPacket.FromString(body)
        except DecodeError:
            return None
        return packet if packet.WhichOneof("value") in _TAKEN else None

    def _sign(self, packet: models.DataPacket) -> None:
        packet.participant_identity = self._participant.identity
        packet.participant_sid = self._participant.sid
        if packet.HasField("user"):
            packet.user.participant_identity = self._participant.identity
            packet.user.participant_sid = self._participant.sid

    def _for_agent(self, packet: models.DataPacket, now: float) -> None:
        kind = packet.WhichOneof("value")
        if kind == "encrypted_packet":
            self.on_encrypted()
        elif kind == "stream_header" and packet.stream_header.topic == CHAT:
            self._streams.begin(packet.stream_header, now)
        elif kind == "stream_chunk":
            self._streams.add(packet.stream_chunk, now)
        elif kind == "stream_trailer":
            self._streams.end(packet.stream_trailer, now)
        elif kind == "chat_message" and not packet.chat_message.deleted:
            self._text(packet.chat_message.message)
        elif kind == "user" and packet.user.topic == LEGACY_CHAT:
            self._text(_legacy_text(packet.user.payload))
        elif kind is not None and kind.startswith("rpc_"):
            self.rpc.receive(packet)

    def _text(self, text: str) -> None:
        if text.strip() and self._room.on_text is not None:
            self._room.on_text(self._participant, text.strip())

    # To the client ------------------------------------------------------------------------------------------

    def opened(self, label: str) -> None:
        """Sends the packets that waited for the reliable channel to open."""
        if label == RELIABLE and not self._open:
            self._open = True
            while self._waiting:
                self._deliver(self._waiting.popleft())

    def from_agent(self, packet: models.DataPacket, *, speaker: Participant | None = None) -> None:
        """Sends a reliable packet of the agent. `speaker`: the participant in whose name it is sent, for
        transcripts of participants; the sequence number remains the agent's, by which clients count."""
        self._sequence += 1
        packet.kind = models.DataPacket.RELIABLE
        packet.sequence = self._sequence
        packet.participant_sid = self._room.agent.sid
        packet.participant_identity = (speaker or self._room.agent).identity
        body = packet.SerializeToString()
        if self._open:
            self._deliver(body)
        else:
            self.dropped += len(self._waiting) == MAX_WAITING
            self._waiting.append(body)

    def _from(self, packet: models.DataPacket, speaker: Participant) -> None:
        self.from_agent(packet, speaker=speaker)

    def words_spoken(self, words: Words, now: float) -> None:
        """Sends a piece of the transcript."""
        self._transcript.add(words)

    def message_sent(self, message: Message, now: float) -> None:
        """Sends another participant's message to this client if the message is addressed to it; queued until
        the channel is open."""
        own = self._participant
        if message.sender is own or (message.to and own.identity not in message.to):
            return
        if message.reliable and not self._open:
            self._waiting.append(message.body)
        else:
            self._deliver(message.body, RELIABLE if message.reliable else LOSSY)

    def close(self) -> None:
        """Closes the link of a participant who has left: pending RPC fails, queued packets are dropped."""
        self._room.forget(self)
        self._waiting.clear()
        self.rpc.close()
        self._send, self._streams = _unsent, TextStreams(_unread)
        self._transcript = TranscriptStreams(_untold, lambda: 0)
        self.on_encrypted = _unheard

    def _deliver(self, body: bytes, label: str = RELIABLE) -> None:
        if not self._send(label, body):
            self.dropped += 1


def _unheard() -> None:
    """Stands for `on_encrypted` before it is set and after `close`."""


def _unsent(label: str, body: bytes) -> bool:
    """Refuses a packet: the participant's data channels are gone."""
    return False


def _untold(packet: models.DataPacket, speaker: Participant) -> None:
    """Drops a packet of the transcript after `close`."""


def _unread(text: str) -> None:
    """Drops text that arrives after `close`."""


_TAKEN: Final = frozenset(
    {
        "user",
        "chat_message",
        "rpc_request",
        "rpc_ack",
        "rpc_response",
        "stream_header",
        "stream_chunk",
        "stream_trailer",
        "encrypted_packet",
        "metrics",
        "sip_dtmf",
    }
)
"""The kinds of packets that one participant may send another. Not `speaker` and `transcription`, which only
the server sends."""


def _recipients(packet: models.DataPacket) -> tuple[str, ...]:
    """Returns the identities that a packet is addressed to, () for all; older SDKs name them in the user
    packet."""
    named = [*packet.destination_identities]
    if packet.HasField("user"):
        named += packet.user.destination_identities
    return tuple(dict.fromkeys(named))


def _legacy_text(payload: bytes) -> str:
    """Returns the text of a chat message as LiveKit's components sent it before text streams; "" for one that
    is marked as sent on a text stream too."""
    try:
        message = read_json(payload)
    except NotJson:
        return ""
    if not isinstance(message, dict) or message.get("ignoreLegacy"):
        return ""
    text = message.get("message")
    return text if isinstance(text, str) else ""
