"""Data packets without a network: who may say what to whom, and what the agent takes from it."""

from __future__ import annotations

import asyncio
import json

import pytest
from livekit.protocol import models

from mediaserver.rooms.errors import RoomError
from mediaserver.rooms.livekit.data import (
    CHAT,
    LOSSY,
    MAX_WAITING,
    RELIABLE,
    DataLink,
)
from mediaserver.rooms.livekit.rpc import MAX_CALLS, MAX_PAYLOAD_BYTES, RpcCode, RpcFailed
from mediaserver.rooms.livekit.text_streams import MAX_STREAMS, MAX_TEXT_BYTES
from mediaserver.rooms.livekit.transcript_streams import CHUNK_BYTES, TRANSCRIPTION
from mediaserver.rooms.participant import Kind, Participant, Permissions, Track
from mediaserver.rooms.room import LeaveReason, Room, Words


class End:
    """A participant's end of the data channels."""

    def __init__(
        self, room: Room, identity: str = "ann", *, opened: bool = True, **permissions: bool
    ) -> None:
        self.got: list[tuple[str, models.DataPacket]] = []
        self.full = False
        self.participant = Participant(identity, permissions=Permissions(**permissions))
        room.join(self.participant, 1.0)
        self.link = DataLink(room, self.participant, self._take)
        room.observe(self.link)
        if opened:
            self.link.opened(RELIABLE)

    def _take(self, label: str, body: bytes) -> bool:
        if self.full:
            return False
        self.got.append((label, models.DataPacket.FromString(body)))
        return True

    @property
    def packets(self) -> list[models.DataPacket]:
        return [packet for _, packet in self.got]

    def says(self, packet: models.DataPacket, label: str = RELIABLE, now: float = 2.0) -> None:
        self.link.receive(label, packet.SerializeToString(), now)

    def writes(self, text: str, *, topic: str = CHAT, stream: str = "s1", size: int = 10) -> None:
        content = text.encode()
        header = models.DataStream.Header(
            stream_id=stream, topic=topic, text_header=models.DataStream.TextHeader()
        )
        self.says(models.DataPacket(stream_header=header))
        for index in range(0, len(content), size):
            chunk = models.DataStream.Chunk(
                stream_id=stream, chunk_index=index // size, content=content[index : index + size]
            )
            self.says(models.DataPacket(stream_chunk=chunk))
        self.says(models.DataPacket(stream_trailer=models.DataStream.Trailer(stream_id=stream)))


def room() -> Room:
    return Room("call-1", agent=Participant("agent", kind=Kind.AGENT), now=0.0)


def user(text: str, **more: object) -> models.DataPacket:
    return models.DataPacket(user=models.UserPacket(payload=text.encode(), topic="t"), **more)  # type: ignore[arg-type]


def test_data_goes_to_everybody_or_to_whom_it_names_and_never_back() -> None:
    here = room()
    ann, bob, eve = End(here), End(here, "bob"), End(here, "eve")
    ann.says(user("all"))
    ann.says(user("bob only", destination_identities=["bob"]))
    ann.says(user("fast"), LOSSY)
    assert [packet.user.payload for packet in bob.packets] == [b"all", b"bob only", b"fast"]
    assert [label for label, _ in bob.got] == [RELIABLE, RELIABLE, LOSSY]
    assert [packet.user.payload for packet in eve.packets] == [b"all", b"fast"]
    assert ann.packets == []


def test_nobody_speaks_in_anothers_name() -> None:
    here = room()
    ann, bob = End(here), End(here, "bob")
    forged = user("hello", participant_identity="agent", participant_sid=here.agent.sid)
    forged.user.participant_identity, forged.user.participant_sid = "agent", here.agent.sid
    ann.says(forged)
    ann.says(models.DataPacket(speaker=models.ActiveSpeakerUpdate()))
    transcript = models.Transcription(transcribed_participant_identity="agent")
    ann.says(models.DataPacket(transcription=transcript))
    (packet,) = bob.packets
    assert (packet.participant_identity, packet.participant_sid) == ("ann", ann.participant.sid)
    assert packet.user.participant_identity == "ann"
    assert ann.link.refused == 2


def test_a_listener_without_the_permission_says_nothing() -> None:
    here = room()
    ann, eve = End(here), End(here, "eve", publish_data=False)
    eve.says(user("psst"))
    assert ann.packets == []
    assert eve.link.refused == 1


def test_what_comes_again_after_a_resume_is_dropped() -> None:
    here = room()
    ann, bob = End(here), End(here, "bob")
    for sequence in (1, 2, 1, 2, 3):
        ann.says(user(str(sequence), sequence=sequence))
    assert [packet.user.payload for packet in bob.packets] == [b"1", b"2", b"3"]
    assert ann.link.last_sequence == 3


def test_a_text_to_the_agent_arrives_whole_whatever_the_client_calls_it() -> None:
    here = room()
    texts: list[tuple[str, str]] = []
    here.on_text = lambda who, text: texts.append((who.identity, text))
    ann = End(here)
    ann.writes("Guten Tag, wie schön!")
    ann.writes("not for the agent", topic="other")
    ann.says(models.DataPacket(chat_message=models.ChatMessage(message="old chat")))
    legacy = {"id": "1", "message": "older chat"}
    packet = models.UserPacket(payload=json.dumps(legacy).encode(), topic="lk-chat-topic")
    ann.says(models.DataPacket(user=packet))
    packet.payload = json.dumps({**legacy, "ignoreLegacy": True}).encode()
    ann.says(models.DataPacket(user=packet))
    ann.writes("   ")
    assert texts == [("ann", "Guten Tag, wie schön!"), ("ann", "old chat"), ("ann", "older chat")]


def test_streams_in_disorder_torn_endless_or_too_many_cost_little() -> None:
    here = room()
    texts: list[str] = []
    here.on_text = lambda _, text: texts.append(text)
    ann = End(here)
    header = models.DataStream.Header(stream_id="s", topic=CHAT, text_header=models.DataStream.TextHeader())
    ann.says(models.DataPacket(stream_header=header))
    for index, content in ((1, b"two"), (0, b"one "), (1, b"again")):
        chunk = models.DataStream.Chunk(stream_id="s", chunk_index=index, content=content)
        ann.says(models.DataPacket(stream_chunk=chunk))
    ann.says(models.DataPacket(stream_trailer=models.DataStream.Trailer(stream_id="s")))
    ann.says(models.DataPacket(stream_trailer=models.DataStream.Trailer(stream_id="unknown")))
    ann.writes("x" * (MAX_TEXT_BYTES + 1), size=5000)
    for number in range(MAX_STREAMS * 3):
        header.stream_id = f"open {number}"
        ann.says(models.DataPacket(stream_header=header))
    assert texts == ["one two"]
    assert len(ann.link._streams) == MAX_STREAMS
    header.stream_id = "later"
    ann.says(models.DataPacket(stream_header=header), now=100.0)
    assert len(ann.link._streams) == 1


@pytest.mark.parametrize("body", [b"", b"\xff\xff", bytes(70_000), b"\x12\x05\x12\xff"])
def test_garbage_on_a_channel_is_counted_and_nothing_else(body: bytes) -> None:
    here = room()
    ann, bob = End(here), End(here, "bob")
    ann.link.receive(RELIABLE, body, 2.0)
    ann.link.receive("_data_track", user("x").SerializeToString(), 2.0)
    assert ann.link.refused == 1
    assert bob.packets == []


def test_both_sides_words_arrive_as_segments_and_as_text_streams() -> None:
    here = room()
    ann = End(here)
    here.spoken(Words(here.agent, "SG_1", "Hello.", final=False), 2.0)
    here.publish(ann.participant, Track("TR_ann", cid="mic"), 2.5)
    here.spoken(Words(ann.participant, "SG_2", "hi", final=True), 3.0)
    kinds = [packet.WhichOneof("value") for packet in ann.packets]
    whole = ["transcription", "stream_header", "stream_chunk", "stream_trailer"]
    assert kinds == whole[:-1] + whole
    segment = ann.packets[0].transcription
    assert segment.transcribed_participant_identity == "agent"
    assert segment.track_id == here.agent_track.sid
    assert (segment.segments[0].id, segment.segments[0].final) == ("SG_1", False)
    header = ann.packets[4]
    assert (header.participant_identity, header.stream_header.topic) == ("ann", TRANSCRIPTION)
    assert header.stream_header.attributes["lk.transcription_final"] == "true"
    assert header.stream_header.attributes["lk.segment_id"] == "SG_2"
    assert [packet.sequence for packet in ann.packets] == list(range(1, 8))
    assert {packet.participant_sid for packet in ann.packets} == {here.agent.sid}


def test_the_words_of_somebody_without_a_microphone_are_a_text_stream_alone() -> None:
    here = room()
    ann = End(here)
    here.spoken(Words(ann.participant, "SG_1", "written", final=True), 3.0)
    assert [packet.WhichOneof("value") for packet in ann.packets] == [
        "stream_header",
        "stream_chunk",
        "stream_trailer",
    ]
    assert "lk.transcribed_track_id" not in ann.packets[0].stream_header.attributes


def test_a_long_text_is_cut_between_characters() -> None:
    here = room()
    ann = End(here)
    text = "x" + "ä" * CHUNK_BYTES
    here.spoken(Words(ann.participant, "SG_1", text, final=True), 2.0)
    chunks = [each.stream_chunk for each in ann.packets if each.HasField("stream_chunk")]
    assert len(chunks) > 2
    assert "".join(each.content.decode() for each in chunks) == text
    assert [each.chunk_index for each in chunks] == list(range(len(chunks)))


def test_what_is_said_before_the_channel_opens_waits_for_it() -> None:
    here = room()
    ann, bob = End(here, opened=False), End(here, "bob")
    here.spoken(Words(here.agent, "SG_1", "Hello.", final=True), 2.0)
    bob.says(user("early"))
    assert ann.got == []
    ann.link.opened(LOSSY)
    assert ann.got == []
    ann.link.opened(RELIABLE)
    kinds = [packet.WhichOneof("value") for packet in ann.packets]
    assert kinds == ["transcription", "stream_header", "stream_chunk", "stream_trailer", "user"]
    late = End(here, "late", opened=False)
    for number in range(MAX_WAITING):
        here.spoken(Words(bob.participant, f"SG_{number}", str(number), final=True), 3.0)
    late.link.opened(RELIABLE)
    assert len(late.packets) == MAX_WAITING
    assert late.link.dropped == 2 * MAX_WAITING


def test_the_agents_words_are_one_stream_that_grows_with_the_voice() -> None:
    here = room()
    ann = End(here)
    for text in ("Good", "Good morning.", "Good morning. How"):
        here.spoken(Words(here.agent, "SG_1", text, final=False), 2.0)
    late = End(here, "late")
    whole = "Good morning. How are you?"
    here.spoken(Words(here.agent, "SG_1", whole, final=True), 3.0)
    segments = [each.transcription.segments[0] for each in ann.packets if each.HasField("transcription")]
    assert [(each.text, each.final) for each in segments] == [
        ("Good", False),
        ("Good morning.", False),
        ("Good morning. How", False),
        (whole, True),
    ]
    assert streams(ann) == [(["Good", " morning.", " How", " are you?"], "false", "true")]
    assert streams(late) == [([whole], "true", "")]


def test_words_that_the_voice_did_not_end_are_replaced() -> None:
    here = room()
    ann = End(here)
    here.spoken(Words(here.agent, "SG_1", "Your order will", final=False), 2.0)
    here.spoken(Words(here.agent, "SG_1", "Your order", final=True, interrupted=True), 2.1)
    here.spoken(Words(here.agent, "SG_2", "Fine.", final=False), 4.0)
    here.spoken(Words(here.agent, "SG_2", "Fine.", final=True), 4.5)
    assert streams(ann) == [
        (["Your order will"], "false", ""),
        (["Your order"], "true", ""),
        (["Fine."], "false", "true"),
    ]


def test_a_channel_that_was_full_gets_the_whole_text_at_the_end() -> None:
    here = room()
    ann = End(here)
    here.spoken(Words(here.agent, "SG_1", "Your", final=False), 2.0)
    ann.full = True
    here.spoken(Words(here.agent, "SG_1", "Your order", final=False), 2.2)
    ann.full = False
    here.spoken(Words(here.agent, "SG_1", "Your order is", final=False), 2.4)
    here.spoken(Words(here.agent, "SG_1", "Your order is here.", final=True), 2.6)
    assert streams(ann)[-1] == (["Your order is here."], "true", "")


def streams(end: End) -> list[tuple[list[str], str, str]]:
    """The text streams of transcripts that an end got: chunks, and `lk.transcription_final` of header and
    trailer."""
    found: dict[str, tuple[list[str], str, str]] = {}
    for packet in end.packets:
        if packet.HasField("stream_header"):
            header = packet.stream_header
            found[header.stream_id] = [], header.attributes["lk.transcription_final"], "open"
        elif packet.HasField("stream_chunk"):
            chunk = packet.stream_chunk
            assert chunk.chunk_index >= len(found[chunk.stream_id][0])
            found[chunk.stream_id][0].append(chunk.content.decode())
        elif packet.HasField("stream_trailer"):
            trailer = packet.stream_trailer
            chunks, first, _ = found[trailer.stream_id]
            found[trailer.stream_id] = chunks, first, trailer.attributes.get("lk.transcription_final", "")
    return list(found.values())


def request(method: str, payload: str = "", *, version: int = 1, to: str = "agent") -> models.DataPacket:
    call = models.RpcRequest(id="r1", method=method, payload=payload, version=version)
    return models.DataPacket(rpc_request=call, destination_identities=[to])


def test_the_agent_answers_the_calls_that_it_knows() -> None:
    here = room()
    here.methods["order"] = lambda who, payload: f"{who.identity} gets {payload}"
    ann, bob = End(here), End(here, "bob")
    ann.says(request("order", "tea"))
    ack, response = ann.packets
    assert ack.rpc_ack.request_id == "r1"
    assert response.rpc_response.payload == "ann gets tea"
    assert bob.packets == []


def test_a_call_that_cannot_be_made_is_answered_with_the_protocols_code() -> None:
    here = room()

    def refuse(who: Participant, payload: str) -> str:
        raise RoomError("not now")

    here.methods["refuse"] = refuse
    ann = End(here)
    for packet, code in (
        (request("unknown"), RpcCode.UNSUPPORTED_METHOD),
        (request("refuse"), RpcCode.APPLICATION_ERROR),
        (request("refuse", version=2), RpcCode.UNSUPPORTED_VERSION),
        (request("refuse", "x" * (MAX_PAYLOAD_BYTES + 1)), RpcCode.REQUEST_PAYLOAD_TOO_LARGE),
        (request("refuse", to="nobody"), RpcCode.RECIPIENT_NOT_FOUND),
    ):
        ann.says(packet)
        assert ann.packets[-1].rpc_response.error.code == code
    bob = End(here, "bob")
    ann.says(request("theirs", to="bob"))
    assert bob.packets[-1].rpc_request.method == "theirs"


async def test_the_agent_calls_a_client() -> None:
    here = room()
    ann = End(here)
    call = asyncio.create_task(ann.link.rpc.call("locate", "where?"))
    await asyncio.sleep(0)
    asked = ann.packets[-1].rpc_request
    assert (asked.method, asked.payload, asked.version) == ("locate", "where?", 1)
    ann.says(models.DataPacket(rpc_ack=models.RpcAck(request_id=asked.id), destination_identities=["agent"]))
    answer = models.RpcResponse(request_id=asked.id, payload="here")
    ann.says(models.DataPacket(rpc_response=answer, destination_identities=["agent"]))
    assert await call == "here"


async def test_a_call_to_a_client_fails_with_its_reason() -> None:
    here = room()
    ann = End(here)
    calls = [asyncio.create_task(ann.link.rpc.call("locate", str(number))) for number in range(3)]
    await asyncio.sleep(0)
    first = ann.packets[0].rpc_request.id
    error = models.RpcResponse(request_id=first, error=models.RpcError(code=42, message="no idea"))
    ann.says(models.DataPacket(rpc_response=error))
    with pytest.raises(RpcFailed, match="no idea") as failed:
        await calls[0]
    assert failed.value.code == 42
    with pytest.raises(RpcFailed) as late:
        await ann.link.rpc.call("locate", "", timeout_s=0.01)
    assert late.value.code == RpcCode.RESPONSE_TIMEOUT
    more = [asyncio.create_task(ann.link.rpc.call("locate", "")) for _ in range(MAX_CALLS)]
    await asyncio.sleep(0)
    here.leave(ann.participant, LeaveReason.CLIENT, 3.0)
    ann.link.close()
    results = await asyncio.gather(*calls[1:], *more, return_exceptions=True)
    codes = [each.code for each in results if isinstance(each, RpcFailed)]
    assert codes.count(RpcCode.RECIPIENT_DISCONNECTED) == MAX_CALLS
    assert codes.count(RpcCode.SEND_FAILED) == 2


def test_a_packet_that_the_agent_cannot_read_is_told_of_and_one_for_others_passes() -> None:
    here = Room("call-1", agent=Participant("agent", kind=Kind.AGENT), now=0.0)
    ann, bob = End(here), End(here, "bob")
    told: list[str] = []
    ann.link.on_encrypted = lambda: told.append("ann")
    sealed = models.EncryptedPacket(encrypted_value=b"x")
    ann.says(models.DataPacket(encrypted_packet=sealed, destination_identities=["bob"]))
    assert told == []
    assert bob.packets[-1].encrypted_packet.encrypted_value == b"x"
    ann.says(models.DataPacket(encrypted_packet=sealed, destination_identities=["agent"]))
    ann.says(models.DataPacket(encrypted_packet=sealed))
    assert told == ["ann", "ann"]
