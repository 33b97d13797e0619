"""LiveKit's signalling without a network: what a client says, what it is told, in which order."""

from __future__ import annotations

import base64
import gzip
import json

import pytest
from livekit.protocol import models, rtc

from mediaserver.rooms.errors import BadSignal, RoomError
from mediaserver.rooms.livekit.messages import MAX_JOIN_BYTES, ice_server_infos, parse_join
from mediaserver.rooms.livekit.signalling import (
    BURST,
    ENCRYPTED,
    RESUME_S,
    AddCandidate,
    AnswerOffer,
    Leave,
    Listen,
    Refuse,
    Signalling,
    SignalState,
    UseAnswer,
)
from mediaserver.rooms.livekit.tracks import MAX_PENDING
from mediaserver.rooms.participant import AGENT_STATE, Kind, Participant, Permissions
from mediaserver.rooms.room import LeaveReason, Room
from mediaserver.rooms.webrtc.sdp_munging import AudioSection
from mediaserver.settings.ice_servers import IceServer


class Client:
    """One client and everything that it was told."""

    def __init__(
        self, room: Room, identity: str = "ann", *, dual: bool = False, permissions: Permissions | None = None
    ) -> None:
        self.room = room
        self.told: list[rtc.SignalResponse] = []
        self.participant = Participant(identity, permissions=permissions or Permissions())
        self.signalling = Signalling(room, self.participant, dual=dual)
        room.join(self.participant, 1.0)
        self.signalling.attach(self.told.append, 1.0)

    @property
    def kinds(self) -> list[str]:
        return [each.WhichOneof("message") or "" for each in self.told]

    def last(self, kind: str) -> rtc.SignalResponse:
        return next(each for each in reversed(self.told) if each.WhichOneof("message") == kind)

    def says(self, now: float = 2.0, **request: object) -> object:
        return self.signalling.receive(rtc.SignalRequest(**request).SerializeToString(), now)  # type: ignore[arg-type]

    def publishes(self, cid: str = "mic", mid: str = "1") -> str:
        """Announces and offers a microphone; the track's sid."""
        self.says(add_track=rtc.AddTrackRequest(cid=cid, type=models.AUDIO, source=models.MICROPHONE))
        self.offers(AudioSection(mid, cid, "-", sends=True, receives=False))
        return self.last("track_published").track_published.track.sid

    def offers(self, *sections: AudioSection, number: int = 1) -> None:
        step = self.says(offer=rtc.SessionDescription(type="offer", sdp="v=0", id=number))
        assert isinstance(step, AnswerOffer)
        self.signalling.answered(step, "v=0 answer", sections=sections, agent_mid="0", now=2.0)


def room() -> Room:
    return Room("call-1", agent=Participant("agent", kind=Kind.AGENT), now=0.0)


def test_the_first_message_says_who_is_there_and_how_to_keep_alive() -> None:
    client = Client(room())
    join = client.told[0].join
    assert client.kinds == ["join"]
    assert join.room.name == "call-1"
    assert (join.participant.identity, join.participant.state) == ("ann", models.ParticipantInfo.JOINED)
    (agent,) = join.other_participants
    assert (agent.identity, agent.kind) == ("agent", models.ParticipantInfo.AGENT)
    assert agent.attributes[AGENT_STATE] == "initializing"
    assert [track.source for track in agent.tracks] == [models.MICROPHONE]
    assert join.ping_interval > 0
    assert join.ping_timeout > join.ping_interval
    assert join.fast_publish
    assert not join.subscriber_primary
    assert list(join.participant.permission.can_publish_sources) == [models.MICROPHONE]


def test_a_microphone_is_announced_answered_published_and_seen_by_others() -> None:
    here = room()
    ann, bob = Client(here), Client(here, "bob")
    sid = ann.publishes()
    kinds = ann.kinds[ann.kinds.index("track_published") :]
    assert kinds[:3] == ["track_published", "answer", "update"]
    assert ann.last("answer").answer.id == 1
    assert dict(ann.last("answer").answer.mid_to_track_id) == {"0": here.agent_track.sid}
    seen = bob.last("update").update.participants[0]
    assert [(seen.identity, track.sid, track.mid) for track in seen.tracks] == [("ann", sid, "1")]
    ann.offers(AudioSection("1", "", "", sends=False, receives=True), number=2)
    assert list(bob.last("update").update.participants[0].tracks) == []


def test_an_announcement_that_is_repeated_is_the_same_track() -> None:
    client = Client(room())
    first = client.publishes()
    client.says(add_track=rtc.AddTrackRequest(cid="mic", type=models.AUDIO))
    assert client.last("track_published").track_published.track.sid == first


def test_a_track_that_is_named_by_its_stream_is_found() -> None:
    client = Client(room())
    client.says(add_track=rtc.AddTrackRequest(cid="stream-1", type=models.AUDIO))
    client.offers(AudioSection("0", "other", "stream-1", sends=True, receives=False))
    assert [each.cid for each in client.participant.tracks.values()] == ["stream-1"]


def test_a_section_that_nobody_announced_is_the_first_track_announced_and_stays_it() -> None:
    client = Client(room())
    client.says(add_track=rtc.AddTrackRequest(cid="{first}", type=models.AUDIO))
    client.says(add_track=rtc.AddTrackRequest(cid="second", type=models.AUDIO))
    made_up = AudioSection("7", "{a}", "{b}", sends=True, receives=False)
    for number in (1, 2):
        client.offers(made_up, AudioSection("8", "second", "-", sends=True, receives=False), number=number)
        tracks = {each.cid: each.mid for each in client.participant.tracks.values()}
        assert tracks == {"{first}": "7", "second": "8"}
    (sid, _) = client.participant.tracks
    client.says(mute=rtc.MuteTrackRequest(sid=sid, muted=True))
    assert client.participant.tracks[sid].muted
    client.offers(AudioSection("7", "{a}", "{b}", sends=False, receives=False), number=3)
    assert client.participant.tracks == {}


def test_a_section_of_a_track_that_was_refused_is_nobodys() -> None:
    client = Client(room())
    client.says(
        add_track=rtc.AddTrackRequest(cid="film", type=models.AUDIO, source=models.SCREEN_SHARE_AUDIO)
    )
    client.says(add_track=rtc.AddTrackRequest(cid="mic", type=models.AUDIO))
    client.offers(AudioSection("1", "film", "-", sends=True, receives=False))
    assert client.participant.tracks == {}
    client.offers(
        AudioSection("1", "film", "-", sends=True, receives=False),
        AudioSection("2", "mic", "-", sends=True, receives=False),
        number=2,
    )
    assert [(each.cid, each.mid) for each in client.participant.tracks.values()] == [("mic", "2")]


@pytest.mark.parametrize(
    ("wish", "permissions"),
    [
        (rtc.AddTrackRequest(cid="c", type=models.VIDEO, source=models.CAMERA), None),
        (rtc.AddTrackRequest(cid="c", type=models.AUDIO, source=models.SCREEN_SHARE_AUDIO), None),
        (
            rtc.AddTrackRequest(cid="c", type=models.AUDIO, source=models.MICROPHONE),
            Permissions(publish=False),
        ),
    ],
)
def test_what_may_not_be_published_is_refused_by_name_and_the_session_lives(
    wish: rtc.AddTrackRequest, permissions: Permissions | None
) -> None:
    client = Client(room(), permissions=permissions)
    client.says(add_track=wish)
    refusal = client.last("request_response").request_response
    assert refusal.reason == rtc.RequestResponse.NOT_ALLOWED
    assert refusal.add_track.cid == "c"
    assert client.signalling.state is SignalState.ATTACHED
    assert "track_published" not in client.kinds


def test_a_client_that_encrypts_is_told_why_and_is_to_be_put_out() -> None:
    client = Client(room())
    wish = rtc.AddTrackRequest(cid="c", type=models.AUDIO, encryption=models.Encryption.GCM)
    assert client.says(add_track=wish) == Refuse(ENCRYPTED)
    refusal = client.last("request_response").request_response
    assert (refusal.reason, refusal.message) == (rtc.RequestResponse.NOT_ALLOWED, ENCRYPTED)
    assert "track_published" not in client.kinds
    client.room.leave(client.participant, LeaveReason.ENCRYPTED, 3.0)
    leave = client.last("leave").leave
    assert (leave.reason, leave.action) == (models.JOIN_FAILURE, rtc.LeaveRequest.DISCONNECT)


def test_tracks_that_are_announced_and_never_offered_are_counted() -> None:
    client = Client(room())
    for number in range(MAX_PENDING + 5):
        client.says(add_track=rtc.AddTrackRequest(cid=f"c{number}", type=models.AUDIO))
    assert client.kinds.count("track_published") == MAX_PENDING


def test_a_client_whose_first_offer_has_no_audio_is_asked_for_a_section_once() -> None:
    client = Client(room())
    for number in (1, 2):
        step = client.says(offer=rtc.SessionDescription(type="offer", sdp="v=0", id=number))
        assert isinstance(step, AnswerOffer)
        client.signalling.answered(step, "v=0", sections=(), agent_mid="", now=2.0)
    assert client.kinds.count("media_sections_requirement") == 1
    assert client.last("media_sections_requirement").media_sections_requirement.num_audios == 1


def test_what_is_for_the_peer_connections_comes_out_as_steps() -> None:
    client = Client(room(), dual=True)
    candidate = json.dumps({"candidate": "candidate:1 1 udp 1 127.0.0.1 9 typ host", "sdpMid": "0"})
    trickle = rtc.TrickleRequest(candidateInit=candidate, target=rtc.SUBSCRIBER)
    assert client.says(answer=rtc.SessionDescription(type="answer", sdp="v=0")) == UseAnswer("v=0")
    assert client.says(trickle=trickle) == AddCandidate(True, "candidate:1 1 udp 1 127.0.0.1 9 typ host")
    assert client.says(trickle=rtc.TrickleRequest(candidateInit='{"candidate": ""}')) is None
    assert client.says(leave=rtc.LeaveRequest(reason=models.CLIENT_INITIATED)) == Leave()
    assert client.says(leave=rtc.LeaveRequest()) == Leave(wished=False)
    agent = [client.room.agent_track.sid]
    assert client.says(subscription=rtc.UpdateSubscription(track_sids=agent)) == Listen(False)
    assert client.says(subscription=rtc.UpdateSubscription(track_sids=["TR_x"], subscribe=True)) is None
    assert client.says(track_setting=rtc.UpdateTrackSettings(track_sids=agent)) == Listen(True)


def test_pings_of_both_kinds_are_answered() -> None:
    client = Client(room())
    client.says(ping=5)
    client.says(ping_req=rtc.Ping(timestamp=77))
    assert client.last("pong").pong > 0
    assert client.last("pong_resp").pong_resp.last_ping_timestamp == 77


def test_metadata_is_shown_to_all_before_the_request_is_answered() -> None:
    here = room()
    ann, bob = Client(here), Client(here, "bob")
    wish = rtc.UpdateParticipantMetadata(name="Ann", attributes={"mood": "good"}, request_id=9)
    ann.says(update_metadata=wish)
    assert ann.kinds[-2:] == ["update", "request_response"]
    assert ann.last("request_response").request_response.request_id == 9
    assert ann.last("request_response").request_response.reason == rtc.RequestResponse.OK
    seen = bob.last("update").update.participants[0]
    assert (seen.name, dict(seen.attributes)) == ("Ann", {"mood": "good"})
    ann.says(update_metadata=rtc.UpdateParticipantMetadata(metadata="x" * 70_000, request_id=10))
    assert ann.last("request_response").request_response.reason == rtc.RequestResponse.LIMIT_EXCEEDED
    listener = Client(here, "eve", permissions=Permissions(update_own_metadata=False))
    listener.says(update_metadata=wish)
    assert listener.last("request_response").request_response.reason == rtc.RequestResponse.NOT_ALLOWED


def test_the_agents_state_reaches_the_client_as_attribute_and_as_speaker() -> None:
    client = Client(room())
    client.room.describe(client.room.agent, 2.0, attributes={AGENT_STATE: "speaking"})
    agent = client.last("update").update.participants[0]
    assert agent.attributes[AGENT_STATE] == "speaking"
    (speaker,) = client.last("speakers_changed").speakers_changed.speakers
    assert (speaker.sid, speaker.active) == (client.room.agent.sid, True)
    client.room.describe(client.room.agent, 3.0, attributes={AGENT_STATE: "listening"})
    assert not client.last("speakers_changed").speakers_changed.speakers[0].active


def test_who_resumes_is_told_of_everybody_and_versions_never_go_down() -> None:
    here = room()
    ann, bob = Client(here), Client(here, "bob")
    sid = ann.publishes()
    before = ann.last("update").update.participants[0].version
    ann.signalling.detach(3.0)
    here.mute(ann.participant, sid, True, 3.5)
    heard = len(ann.told)
    ann.signalling.resume(ann.told.append, 4.0, last_sequence=12)
    assert ann.kinds[heard:] == ["reconnect", "update"]
    assert ann.told[heard].reconnect.last_message_seq == 12
    people = {each.identity: each for each in ann.told[-1].update.participants}
    assert set(people) == {"ann", "bob", "agent"}
    assert people["ann"].version > before
    assert people["ann"].tracks[0].muted
    assert bob.kinds.count("leave") == 0


def test_who_does_not_come_back_in_time_has_lapsed() -> None:
    client = Client(room())
    assert not client.signalling.lapsed(1000.0)
    client.signalling.detach(10.0)
    assert not client.signalling.lapsed(10.0 + RESUME_S)
    assert client.signalling.lapsed(10.1 + RESUME_S)


def test_the_same_identity_puts_the_earlier_one_out_and_says_why() -> None:
    here = room()
    first = Client(here)
    gone: list[LeaveReason] = []
    first.signalling.on_gone = gone.append
    second = Client(here)
    assert first.last("leave").leave.reason == models.DUPLICATE_IDENTITY
    assert first.last("leave").leave.action == rtc.LeaveRequest.DISCONNECT
    assert gone == [LeaveReason.DUPLICATE_IDENTITY]
    with pytest.raises(RoomError):
        first.signalling.resume(first.told.append, 2.0, last_sequence=0)
    told = len(first.told)
    second.publishes()
    assert len(first.told) == told  # nothing more
    assert "leave" not in second.kinds


def test_others_are_told_of_comings_and_goings_but_not_of_the_hidden() -> None:
    here = room()
    ann = Client(here)
    Client(here, "eve", permissions=Permissions(hidden=True))
    bob = Client(here, "bob")
    here.leave(bob.participant, LeaveReason.CLIENT, 3.0)
    seen = [who for each in ann.told for who in each.update.participants]
    assert {who.identity for who in seen} == {"bob"}
    assert seen[-1].state == models.ParticipantInfo.DISCONNECTED
    assert seen[-1].disconnect_reason == models.CLIENT_INITIATED
    assert ann.last("room_update").room_update.room.num_participants == 2


def test_who_hides_is_gone_for_those_who_saw_them_and_nothing_more_is_told() -> None:
    here = room()
    ann, boss = Client(here), Client(here, "boss")
    boss.participant.permissions = Permissions(hidden=True)
    here.describe(boss.participant, 3.0, attributes={"supervisor.role": "whisper"})
    (told,) = ann.last("update").update.participants
    gone = models.ParticipantInfo.DISCONNECTED
    assert told == models.ParticipantInfo(sid=boss.participant.sid, identity="boss", state=gone)
    bob, heard = Client(here, "bob"), len(ann.told)
    here.describe(boss.participant, 4.0, attributes={"supervisor.role": "monitor"})
    assert (bob.kinds, ann.kinds[heard:]) == (["join"], [])
    ann.signalling.detach(5.0)
    ann.signalling.resume(ann.told.append, 6.0, last_sequence=0)
    here.describe(boss.participant, 7.0, attributes={"supervisor.role": "whisper"})
    assert ann.kinds[heard:] == ["reconnect", "update"]


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x08", bytes(100)])
def test_what_is_not_the_protocols_is_refused(data: bytes) -> None:
    client = Client(room())
    with pytest.raises(BadSignal):
        client.signalling.receive(data, 2.0)


@pytest.mark.parametrize("init", ["", "null", "[]", '{"candidate": {}}', "[" * 100_000])
def test_a_candidate_of_any_shape_breaks_nothing(init: str) -> None:
    client = Client(room())
    try:
        assert client.says(trickle=rtc.TrickleRequest(candidateInit=init)) is None
    except BadSignal:
        return
    assert init == '{"candidate": {}}'


def test_a_flood_is_refused_and_an_even_pace_is_not() -> None:
    client = Client(room())
    for number in range(1000):
        client.says(now=2.0 + number / 40, ping=1)
    for _ in range(BURST):
        client.says(now=100.0, ping=1)
    with pytest.raises(BadSignal):
        client.says(now=100.0, ping=1)


def wrapped(request: rtc.JoinRequest, *, zipped: bool = True) -> str:
    body = request.SerializeToString()
    compression = rtc.WrappedJoinRequest.GZIP if zipped else rtc.WrappedJoinRequest.NONE
    outer = rtc.WrappedJoinRequest(
        compression=compression, join_request=gzip.compress(body) if zipped else body
    )
    return base64.urlsafe_b64encode(outer.SerializeToString()).decode().rstrip("=")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_join_request_is_read_from_the_url(zipped: bool) -> None:
    request = rtc.JoinRequest(participant_sid="PA_1", reconnect=True)
    assert parse_join(wrapped(request, zipped=zipped)) == request


def test_a_join_request_that_is_broken_or_a_bomb_is_refused() -> None:
    bomb = wrapped(rtc.JoinRequest(metadata="a" * (MAX_JOIN_BYTES * 40)))
    assert len(bomb) < 40_000
    torn = base64.urlsafe_b64encode(
        rtc.WrappedJoinRequest(
            compression=rtc.WrappedJoinRequest.GZIP, join_request=gzip.compress(b"abc")[:-9]
        ).SerializeToString()
    ).decode()
    for text in (bomb, torn, "", "!!!", "é", "AAAA", "CAESAwECAw"):
        with pytest.raises(BadSignal):
            parse_join(text)


def test_turn_servers_are_passed_on_with_their_credentials() -> None:
    urls = ["stun:stun.example:3478", "turn:user:pa:ss@turn.example:3478?transport=tcp"]
    plain, turn = ice_server_infos([IceServer.parse(each) for each in urls])
    assert list(plain.urls) == ["stun:stun.example:3478"]
    assert list(turn.urls) == ["turn:turn.example:3478?transport=tcp"]
    assert (turn.username, turn.credential) == ("user", "pa:ss")
