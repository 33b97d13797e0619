"""Two streams on the loopback, and strangers who would like to join."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from aioice import stun
from pylibsrtp import Policy, Session

from pipeline.plane.drive.plane import Plane
from pipeline.plane.srtp import Opener
from pipeline.plane.srtp_suite import Master, Masters, Suite
from sip.errors import LocalError
from sip.rtp.dtls import Certificate, DtlsHandshake
from sip.rtp.media_stream import MediaStream
from sip.rtp.packet import RtpPacket
from sip.rtp.ports import PortRange
from sip.rtp.rtcp import Bye, SenderReport, parse
from sip.rtp.stream_security import Insecure
from sip.sdp.ice import IceCredentials
from sip.sdp.media_plan import G722, OPUS, PCMA, PCMU, Codec
from sip.sdp.security import Handshake, Role
from tests.support.ports import free_rtp_range
from tests.support.speech.media import (
    RecordingListener,
    Voice,
    packets,
    plan,
    sine,
    snr_db,
    spectral_distance_db,
    speech_like,
)
from tests.support.waiting import until

HOST = "127.0.0.1"

pytestmark = pytest.mark.virtual_clock(and_real=True)
"""The plane runs on its thread by the real clock, and on the event loop by the virtual one."""


class Peer:
    """A far end of plain sockets: an RTP port and the RTCP port above it."""

    def __init__(self) -> None:
        self.rtp, self.rtcp = PortRange(40000, 49999).bind(HOST)
        self.port = int(self.rtp.getsockname()[1])

    def send(self, stream: MediaStream, packet: RtpPacket | bytes) -> None:
        data = packet if isinstance(packet, bytes) else packet.to_bytes()
        self.rtp.sendto(data, (HOST, stream.local_port))

    def received(self) -> list[RtpPacket]:
        """Everything that came since the last time."""
        return [RtpPacket.parse(data) for data in _drain(self.rtp)]

    async def receives(self, count: int) -> list[RtpPacket]:
        """The next `count` packets."""
        found: list[RtpPacket] = []
        async with asyncio.timeout(20):
            while len(found) < count:
                found += self.received()
                await asyncio.sleep(0.005)
        return found

    def reports(self) -> list[bytes]:
        return _drain(self.rtcp)

    def close(self) -> None:
        self.rtp.close()
        self.rtcp.close()


def _drain(bound: socket.socket) -> list[bytes]:
    found = []
    while True:
        try:
            found.append(bound.recv(2048))
        except BlockingIOError:
            return found


class Office:
    """Opens streams and closes them all."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.plane = Plane(self.loop)
        self.ports = PortRange(*free_rtp_range())
        self.streams: list[MediaStream] = []
        self.peers: list[Peer] = []

    def open(self) -> MediaStream:
        stream = MediaStream.open(self.ports, self.plane, host=HOST, loop=self.loop)
        self.streams.append(stream)
        return stream

    def peer(self) -> Peer:
        self.peers.append(Peer())
        return self.peers[-1]

    def close(self) -> None:
        for stream in self.streams:
            stream.close()
        for peer in self.peers:
            peer.close()


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    office = Office()
    yield office
    office.close()
    assert office.ports.in_use == 0
    assert len(office.plane) == 0
    office.plane.close()


@pytest.fixture
def peer(office: Office) -> Peer:
    return office.peer()


def start(stream: MediaStream, agreed: Any, **changes: Any) -> None:
    stream.configure(agreed, **{"symmetric": False, "media_timeout_s": 30.0, "inband_dtmf": False, **changes})


def protected(suite: Suite = Suite.AES_CM_128_HMAC_SHA1_80) -> tuple[Masters, Masters]:
    """Keys as either end has them."""
    here, there = Master.new(suite), Master.new(suite)
    return Masters(here, there), Masters(there, here)


def connect(
    one: MediaStream, other: MediaStream, codec: Codec, **changes: Any
) -> tuple[RecordingListener, RecordingListener]:
    """Two streams that send to each other."""
    recorder = (RecordingListener(), RecordingListener())
    for stream, far, listener in ((one, other, recorder[0]), (other, one, recorder[1])):
        start(stream, plan(far.local_port, codec, rtcp_port=far.local_port + 1, **changes))
        stream.attach(listener, None)
    return recorder


class Judge(NamedTuple):
    """What a codec leaves of parts of `samples` samples: a loss in dB, below `limit`."""

    samples: int
    limit: float
    measure: Callable[[Any, Any], float]


def noise_db(heard: Any, said: Any) -> float:
    """The level of the noise, against the signal's."""
    return -snr_db(heard, said, search=1)


def spectral_db(heard: Any, said: Any) -> float:
    return spectral_distance_db(heard, said, delay=0)


JUDGES = {
    PCMU: Judge(320, -34, noise_db),
    PCMA: Judge(320, -34, noise_db),
    G722: Judge(640, -18, noise_db),
    OPUS: Judge(1024, 2.5, spectral_db),
}


def where_found(heard: Any, said: Any) -> Any:
    """The part of `heard` that is most like `said`."""
    like = np.correlate(heard.astype(float), said.astype(float))
    loud = np.sqrt(np.convolve(heard.astype(float) ** 2, np.ones(len(said)), "valid"))
    begin = int(np.argmax(like / np.maximum(loud, 1.0)))
    return heard[begin : begin + len(said)]


@pytest.mark.parametrize("codec", JUDGES, ids=lambda codec: codec.name)
async def test_two_streams_hear_each_other(office: Office, codec: Codec) -> None:
    one, other = office.open(), office.open()
    recorder, other_recorder = connect(one, other, codec)
    before = other.stats.strange_address  # what came before the other knew of one
    frame = codec.rate_hz // 50
    said = speech_like(codec.rate_hz, codec.rate_hz)
    voice = Voice(said, frame)
    one.attach(recorder, voice)
    await until(lambda: not voice.waiting and len(other_recorder.frames) >= 60)
    heard, judge = other_recorder.heard, JUDGES[codec]
    parts = [said[at : at + judge.samples] for at in range(0, len(said), judge.samples)]
    found = [judge.measure(where_found(heard, part), part) for part in parts]
    assert np.median(found) < judge.limit, found  # a busy machine leaves gaps
    assert other_recorder.positions == [i * frame for i in range(len(other_recorder.frames))]
    assert one.rate_hz == codec.rate_hz
    assert one.stats.send_errors == other.stats.bad_packets == 0
    assert other.stats.strange_address == before


def expanded(code: int) -> int:
    """G.711 table 2a, decoded by its definition."""
    code = ~code & 0xFF
    magnitude = (((code & 0x0F) << 3) + 0x84) << (code >> 4 & 7)
    return 0x84 - magnitude if code & 0x80 else magnitude - 0x84


async def test_every_code_of_g711_arrives_bit_for_bit(office: Office, peer: Peer) -> None:
    stream, recorder = office.open(), RecordingListener()
    start(stream, plan(peer.port))
    stream.attach(recorder, None)
    codes = bytes(range(256)) * 5
    for packet in packets([codes[at : at + 160] for at in range(0, len(codes), 160)]):
        peer.send(stream, packet)
    await until(lambda: len(recorder.frames) == 8)
    assert recorder.heard.tolist() == [expanded(code) for code in codes]


async def test_digits_go_both_ways(office: Office) -> None:
    one, other = office.open(), office.open()
    recorder, other_recorder = connect(one, other, PCMU)
    await asyncio.gather(one.send_dtmf("19#A"), other.send_dtmf("*0"))
    await until(lambda: len(other_recorder.digits) == 4 and len(recorder.digits) == 2)
    assert (other_recorder.digits, recorder.digits) == (list("19#A"), list("*0"))


async def test_digits_go_as_tones_where_events_were_not_agreed(office: Office) -> None:
    one, other = office.open(), office.open()
    _, other_recorder = connect(one, other, PCMA, dtmf_send=None, dtmf_receive=None)
    await one.send_dtmf("258D")
    await until(lambda: len(other_recorder.digits) == 4)
    assert other_recorder.digits == list("258D")


async def test_digits_that_no_telephone_has_are_refused(office: Office) -> None:
    stream = office.open()
    with pytest.raises(ValueError, match="DTMF"):
        await stream.send_dtmf("12x")
    with pytest.raises(LocalError, match="no plan"):
        await stream.send_dtmf("12")


async def test_closing_while_digits_are_sent_tells_the_sender(office: Office, peer: Peer) -> None:
    stream = office.open()
    start(stream, plan(peer.port))
    keying = asyncio.ensure_future(stream.send_dtmf("123"))
    await until(lambda: any(packet.payload_type == 101 for packet in peer.received()))
    stream.close()
    with pytest.raises(LocalError, match="closed"):
        await keying
    with pytest.raises(LocalError, match="closed"):
        await stream.send_dtmf("1")


async def test_a_closed_stream_does_not_make_the_next_one_on_its_row_deaf(office: Office, peer: Peer) -> None:
    office.plane.close()
    office.plane = Plane(office.loop, capacity=1)
    stream, recorder = office.open(), RecordingListener()
    start(stream, plan(peer.port))
    stream.attach(RecordingListener(), None)
    stream.close()
    await asyncio.sleep(0.5)
    following = office.open()
    start(following, plan(peer.port))
    following.attach(recorder, None)
    stream.attach(None, None)
    for packet in packets([bytes(160)] * 10):
        peer.send(following, packet)
    await until(lambda: len(recorder.frames) == 10)


async def test_ten_thousand_packets_of_a_stranger_change_nothing(office: Office, peer: Peer) -> None:
    stream, recorder = office.open(), RecordingListener()
    start(stream, plan(peer.port))
    stream.attach(recorder, None)
    stranger = office.peer()
    forged = packets([b"\x00" * 160] * 200)
    sent = 0
    for burst in range(50):
        for packet in forged:
            stranger.send(stream, packet)
            sent += 1
        peer.send(stream, RtpPacket(0, burst, burst * 160, 7, bytes([burst]) * 160))
        await until(lambda expected=burst: len(recorder.frames) > expected)  # type: ignore[misc]
    assert sent == 10_000
    await until(lambda: stream.stats.strange_address > 9000)  # the kernel may have dropped some before us
    assert stream.stats.strange_address <= sent
    assert recorder.positions == [i * 160 for i in range(50)]
    assert stream.stats.bad_packets == 0


async def speaks(stream: MediaStream, *streams: tuple[Peer, list[RtpPacket]]) -> None:
    """Each peer sends its packets, 20 ms apart."""
    for now in zip(*(said for _, said in streams), strict=True):
        for (peer, _), packet in zip(streams, now, strict=True):
            peer.send(stream, packet)
        await asyncio.sleep(0.02)


async def test_symmetric_rtp_follows_the_source_that_speaks_and_loses_none_of_it(
    office: Office, peer: Peer
) -> None:
    stream, recorder = office.open(), RecordingListener()
    start(stream, plan(9), symmetric=True)  # nobody is at the address that the SDP names
    stream.attach(recorder, None)
    stranger, late = office.peer(), office.peer()
    for junk in (b"", b"\x80\x4d" + bytes(30), b"\x00" * 172, b"GET / HTTP/1.0"):
        stranger.send(stream, junk)
    stranger.send(stream, packets([b"\x33" * 160], ssrc=0x77)[0])  # the one packet before the carrier's
    await until(lambda: stream.stats.strange_address == 5)
    await speaks(stream, (peer, packets([b"\x11" * 160] * 10)))
    await until(lambda: len(recorder.frames) == 10)
    await peer.receives(4)
    await speaks(stream, (peer, packets([b"\x11" * 160] * 30, sequence=110, timestamp=6600)),
                 (late, packets([b"\x22" * 160] * 30, ssrc=0x99)))  # fmt: skip
    await until(lambda: stream.stats.strange_address == 35)
    assert len(recorder.frames) == 40
    assert {int(frame[0]) for frame in recorder.frames} == {int(recorder.frames[0][0])}
    assert late.received() == stranger.received() == []
    start(stream, plan(9, codec=PCMA, receive={0: PCMU, 8: PCMA}), symmetric=True)
    peer.received()
    await until(lambda: any(packet.payload_type == 8 for packet in peer.received()))


async def test_symmetric_rtp_follows_a_far_end_that_moves(office: Office, peer: Peer) -> None:
    stream, recorder = office.open(), RecordingListener()
    start(stream, plan(peer.port), symmetric=True)
    stream.attach(recorder, None)
    moved = office.peer()
    await speaks(stream, (peer, packets([b"\x11" * 160] * 10)))
    await speaks(stream, (moved, packets([b"\x22" * 160] * 80, ssrc=0x99)))
    await until(lambda: recorder.frames and recorder.frames[-1][0] != recorder.frames[0][0])
    moved.received()
    await moved.receives(5)
    peer.received()
    await asyncio.sleep(0.1)
    assert peer.received() == []


async def test_without_symmetric_rtp_only_the_plan_says_where_the_far_end_is(
    office: Office, peer: Peer
) -> None:
    stream, recorder = office.open(), RecordingListener()
    other = office.peer()
    start(stream, plan(peer.port))
    stream.attach(recorder, None)
    for packet in packets([b"\x11" * 160] * 3):
        other.send(stream, packet)
    await until(lambda: stream.stats.strange_address == 3)
    start(stream, plan(other.port))  # a re-INVITE moved it
    for packet in packets([b"\x11" * 160] * 3):
        other.send(stream, packet)
    await until(lambda: len(recorder.frames) == 3)
    peer.received()
    await other.receives(3)
    assert len(peer.received()) <= 1


async def test_reports_give_the_round_trip_and_closing_says_goodbye(office: Office) -> None:
    one, other = office.open(), office.open()
    connect(one, other, PCMU)
    await until(lambda: one.stats.rtt_ms is not None or other.stats.rtt_ms is not None)
    measured = [s.stats.rtt_ms for s in (one, other) if s.stats.rtt_ms is not None]
    assert all(0 <= rtt_ms < 5000 for rtt_ms in measured)
    assert one.stats.remote_lost == 0


@pytest.mark.parametrize("mux", [False, True])
async def test_closing_sends_a_bye_where_reports_are_wanted(office: Office, peer: Peer, mux: bool) -> None:
    stream = office.open()
    start(stream, plan(peer.port, rtcp_port=peer.port + 1, rtcp_mux=mux))
    await until(lambda: stream.stats.packets_sent > 3)
    stream.close()
    stream.close()
    last = _drain(peer.rtp)[-1] if mux else peer.reports()[-1]
    compound = parse(last)
    assert isinstance(compound[0], SenderReport)
    assert compound[0].packets == stream.stats.packets_sent
    assert isinstance(compound[-1], Bye)


async def test_a_report_of_a_new_source_counts_what_that_has_sent(office: Office, peer: Peer) -> None:
    """Opus has another RTP clock than PCMU, so its packets are another SSRC's (RFC 7160)."""
    stream = office.open()
    start(stream, plan(peer.port, rtcp_port=peer.port + 1))
    await until(lambda: stream.stats.packets_sent > 10)
    before = stream.stats.packets_sent
    start(stream, plan(peer.port, OPUS, rtcp_port=peer.port + 1))
    await until(lambda: stream.stats.packets_sent > before + 5)
    stream.close()
    ours = {packet.ssrc: 0 for packet in peer.received()}
    last = parse(peer.reports()[-1])[0]
    assert isinstance(last, SenderReport)
    assert len(ours) == 2
    assert 5 <= last.packets <= stream.stats.packets_sent - before + 1
    assert stream.stats.packets_sent > before + 5


async def test_no_reports_where_none_were_agreed(office: Office, peer: Peer) -> None:
    stream = office.open()
    start(stream, plan(peer.port))
    await until(lambda: stream.stats.packets_sent > 3)
    stream.close()
    assert peer.reports() == []


async def test_the_address_of_an_old_hold_is_not_taken_for_this_machine(office: Office, peer: Peer) -> None:
    """c=0.0.0.0 (RFC 2543): a socket would send to 127.0.0.1, reports too."""
    stream = office.open()
    held = replace(plan(peer.port, rtcp_port=peer.port + 1), remote_host="0.0.0.0", sends=False)
    start(stream, held)
    stream.close()
    assert (peer.reports(), peer.received()) == ([], [])


async def test_nothing_is_sent_to_an_address_that_is_closed_nor_latched_onto(
    office: Office, peer: Peer
) -> None:
    """The stream's own check, whoever made the plan."""
    stream = office.open()
    stream.reaches = lambda address: address != HOST
    agreed = plan(peer.port, rtcp_port=peer.port + 1)
    for symmetric in (False, True):
        assert not stream.configure(agreed, symmetric=symmetric, media_timeout_s=30.0, inband_dtmf=False)
        peer.send(stream, RtpPacket(0, 1, 160, 7, b"\xff" * 160))
        await asyncio.sleep(0.1)
    stream.close()
    assert (peer.reports(), peer.received(), stream.stats.packets_sent) == ([], [], 0)


async def test_broken_reports_are_counted(office: Office, peer: Peer) -> None:
    stream = office.open()
    start(stream, plan(peer.port, rtcp_port=peer.port + 1))
    for junk in (b"\x80", b"\x80\xc8\x00\x01abcd", b"\x00" * 40):
        peer.rtcp.sendto(junk, (HOST, stream.local_port + 1))
    await until(lambda: stream.stats.bad_packets == 3)


async def test_a_far_end_that_falls_silent_is_told_once(office: Office, peer: Peer) -> None:
    stream, told = office.open(), []
    stream.on_timeout = lambda: told.append(1)
    start(stream, plan(peer.port), media_timeout_s=0.3)
    await until(lambda: bool(told))
    await until(lambda: stream.stats.packets_sent > 50)
    assert told == [1]


async def test_a_far_end_on_hold_may_be_silent(office: Office, peer: Peer) -> None:
    stream, told = office.open(), []
    stream.on_timeout = lambda: told.append(1)
    start(stream, plan(peer.port, receives=False), media_timeout_s=0.1)
    await until(lambda: stream.stats.packets_sent > 40)
    start(stream, plan(peer.port, sends=False), media_timeout_s=0.1)
    await asyncio.sleep(0.5)
    assert told == []
    start(stream, plan(peer.port), media_timeout_s=0.1)
    await until(lambda: told == [1])


async def test_hold_stops_our_packets(office: Office, peer: Peer) -> None:
    stream = office.open()
    start(stream, plan(peer.port))
    await until(lambda: stream.stats.packets_sent > 5)
    start(stream, plan(peer.port, sends=False))
    held = stream.stats.packets_sent
    for packet in packets([b"\x11" * 160] * 10):
        peer.send(stream, packet)
        await asyncio.sleep(0.01)
    assert stream.stats.packets_sent == held
    start(stream, plan(peer.port))
    await until(lambda: stream.stats.packets_sent > held)


async def test_first_words_do_not_wait_for_the_tick(office: Office, peer: Peer) -> None:
    """The packet leaves when the words come, and the regular ones follow it: up to 20 ms ahead of their
    clock."""
    stream, voice = office.open(), Voice()
    start(stream, plan(peer.port))
    stream.attach(None, voice)
    await peer.receives(20)
    ahead_ns = []
    for phase in range(1, 6):
        await peer.receives(45)  # the lead is given back meanwhile
        await asyncio.sleep(0.0031 * phase)
        peer.received()
        voice.say(sine(480))
        await until_said(peer)
        with office.plane.held(stream._number) as line:
            ahead_ns.append(int(line["lead_ns"]))
    assert ahead_ns.count(0) <= 2, ahead_ns  # words may meet the tick, and a busy machine comes late


async def until_said(peer: Peer) -> None:
    """Until a packet that begins a talkspurt."""
    async with asyncio.timeout(20):
        while not any(packet.marker for packet in peer.received()):
            await asyncio.sleep(0.0005)


async def test_a_codec_at_another_rate_keeps_the_legs_rate(office: Office, peer: Peer) -> None:
    stream, recorder = office.open(), RecordingListener()
    start(stream, plan(peer.port))
    voice = Voice(speech_like(32000))
    stream.attach(recorder, voice)
    await until(lambda: any(packet.payload_type == 0 for packet in peer.received()))
    start(stream, plan(peer.port, G722))
    assert stream.rate_hz == 8000
    for packet in packets([b"\x55" * 160] * 5, payload_type=9):
        peer.send(stream, packet)
    await until(lambda: len(recorder.frames) == 5)
    assert {len(frame) for frame in recorder.frames} == {160}
    await until(lambda: any(packet.payload_type == 9 for packet in peer.received()))


async def test_closing_frees_the_port_and_lets_go_of_the_conversation(office: Office, peer: Peer) -> None:
    stream, voice = office.open(), Voice()
    with pytest.raises(LocalError, match="no plan"):
        assert stream.rate_hz
    start(stream, plan(peer.port))
    stream.attach(RecordingListener(), voice)
    assert voice.wake is not None
    assert office.ports.in_use == 1
    stream.close()
    assert voice.wake is None
    assert office.ports.in_use == 0
    with pytest.raises(LocalError, match="closed"):
        start(stream, plan(peer.port))
    assert stream.stats.bad_packets == 0


async def test_changing_the_source_lets_go_of_the_first(office: Office, peer: Peer) -> None:
    stream, first, second = office.open(), Voice(), Voice()
    start(stream, plan(peer.port))
    stream.attach(None, first)
    stream.attach(None, second)
    assert first.wake is None
    assert second.wake is not None
    stream.attach(None, None)
    assert second.wake is None


async def test_a_listener_may_close_the_stream(office: Office, peer: Peer) -> None:
    """It is told nothing more, of packets neither that were there already nor that come later."""
    stream, told = office.open(), []

    class Impatient(RecordingListener):
        def audio_received(self, frame: Any, position: int, now: float, *, concealed: bool) -> None:
            told.append(position)
            stream.close()

    start(stream, plan(peer.port))
    recorder = Impatient()
    stream.attach(recorder, None)
    for packet in packets([b"\x11" * 160] * 5):
        peer.send(stream, packet)
    await until(lambda: office.ports.in_use == 0)
    received = stream.stats.packets_received
    await asyncio.sleep(0.05)
    assert told == [0]
    assert stream.stats.packets_received == received <= 5


@pytest.mark.parametrize("host", ["media.example.com", "", "::1", "999.1.1.1"])
async def test_an_address_that_cannot_be_sent_to_is_refused_and_the_stream_goes_on(
    office: Office, peer: Peer, host: str
) -> None:
    stream = office.open()
    start(stream, plan(peer.port))
    with pytest.raises(LocalError, match="address"):
        start(stream, replace(plan(peer.port), remote_host=host))
    sent = stream.stats.packets_sent
    await until(lambda: stream.stats.packets_sent > sent + 2)


async def test_packets_before_the_first_plan_are_not_kept(office: Office, peer: Peer) -> None:
    stream, recorder = office.open(), RecordingListener()
    stream.attach(recorder, None)
    for packet in packets([b"\x11" * 160] * 20):
        peer.send(stream, packet)
    await asyncio.sleep(0.05)
    start(stream, plan(peer.port))
    for packet in packets([b"\x22" * 160] * 3, sequence=500):
        peer.send(stream, packet)
    await until(lambda: len(recorder.frames) == 3)
    await asyncio.sleep(0.05)
    assert len(recorder.frames) == 3


async def test_a_port_that_nobody_listens_on_is_no_error(office: Office) -> None:
    gone = office.peer()
    gone.close()
    stream = office.open()
    start(stream, plan(gone.port))
    await until(lambda: stream.stats.packets_sent + stream.stats.send_errors > 10)


@pytest.mark.parametrize("suite", list(Suite), ids=lambda each: each.name)
async def test_two_protected_streams_hear_each_other_and_their_keys(office: Office, suite: Suite) -> None:
    one, other = office.open(), office.open()
    recorder, other_recorder = RecordingListener(), RecordingListener()
    ours, theirs = protected(suite)
    for stream, far, keys, listener in ((one, other, ours, recorder), (other, one, theirs, other_recorder)):
        start(stream, plan(far.local_port, rtcp_port=far.local_port + 1, security=keys))
        stream.attach(listener, None)
    await asyncio.gather(one.send_dtmf("19#A"), other.send_dtmf("*0"))
    await until(lambda: len(other_recorder.digits) == 4 and len(recorder.digits) == 2)
    await until(lambda: len(other_recorder.frames) >= 20)
    assert (other_recorder.digits, recorder.digits) == (list("19#A"), list("*0"))
    for stream in (one, other):
        stats = stream.stats
        assert stats.forged == stats.replayed == stats.bad_packets == stats.send_errors == 0
        assert stream.security.encryption.suite == suite.value


async def test_nothing_leaves_in_the_clear_and_reports_are_protected(office: Office, peer: Peer) -> None:
    stream = office.open()
    ours, _ = protected()
    start(stream, plan(peer.port, rtcp_port=peer.port + 1, security=ours))
    seen = await peer.receives(5)
    stream.close()
    assert all(len(packet.payload) == 170 and b"\xff" * 16 not in packet.payload for packet in seen)
    opener = Opener(ours.sent)
    compounds = [opener.report(data) for data in peer.reports()]
    assert compounds
    assert None not in compounds


async def test_forged_packets_are_told_once_and_never_heard(office: Office, peer: Peer) -> None:
    stream, recorder, told = office.open(), RecordingListener(), []
    ours, _ = protected()
    start(stream, plan(peer.port, security=ours))
    stream.attach(recorder, None)
    stream.on_insecure = lambda wrong, reason: told.append(wrong)
    for packet in packets([b"\x11" * 160] * 30):
        peer.send(stream, packet)
        await asyncio.sleep(0.02)
    await until(lambda: stream.stats.forged == 30)
    await until(lambda: len(told) == 1)
    start(stream, plan(peer.port, security=protected()[0]))
    for packet in packets([b"\x11" * 160] * 5, sequence=200):
        peer.send(stream, packet)
    await until(lambda: len(told) == 2)
    assert told == [Insecure.FORGED, Insecure.FORGED]
    assert recorder.frames == []


async def test_a_stranger_without_the_key_is_never_latched_onto(office: Office, peer: Peer) -> None:
    stream, recorder = office.open(), RecordingListener()
    ours, theirs = protected()
    start(stream, plan(9, security=ours), symmetric=True)
    stream.attach(recorder, None)
    stranger = office.peer()
    for packet in packets([b"\x22" * 160] * 30, ssrc=0x99):
        stranger.send(stream, packet)
        await asyncio.sleep(0.02)
    session = Session(
        Policy(
            key=theirs.sent.secret, ssrc_type=Policy.SSRC_ANY_OUTBOUND, srtp_profile=theirs.sent.suite.profile
        )
    )
    for packet in packets([b"\x11" * 160] * 10):
        peer.send(stream, session.protect(packet.to_bytes()))
        await asyncio.sleep(0.02)
    await until(lambda: len(recorder.frames) == 10)
    assert stranger.received() == []
    await until(lambda: bool(_drain(peer.rtp)))


async def test_a_handshake_makes_the_keys_of_both_streams(office: Office) -> None:
    one, other = office.open(), office.open()
    recorders = (RecordingListener(), RecordingListener())
    roles = (Role.ACTIVE, Role.PASSIVE)
    certificates = (Certificate(), Certificate())
    for at, (stream, far) in enumerate(((one, other), (other, one))):
        name, value = certificates[1 - at].fingerprint.split()
        stream.security.certificate = certificates[at]
        wanted = Handshake(roles[at], frozenset({(name, value)}))
        start(stream, plan(far.local_port, rtcp_mux=True, security=wanted))
        stream.attach(recorders[at], None)
    await until(lambda: all(len(each.frames) >= 10 for each in recorders))
    assert {one.security.encryption.keys, other.security.encryption.keys} == {"dtls"}
    assert one.stats.forged == other.stats.forged == 0


async def test_a_handshake_with_somebody_else_makes_no_call(office: Office) -> None:
    one, other, told = office.open(), office.open(), []
    wrong = frozenset({("sha-256", Certificate().fingerprint.split()[1])})
    one.on_insecure = lambda wrong, reason: told.append((wrong, reason))
    for stream, far, role in ((one, other, Role.ACTIVE), (other, one, Role.PASSIVE)):
        stream.security.certificate = Certificate()
        start(stream, plan(far.local_port, rtcp_mux=True, security=Handshake(role, wrong)))
    await until(lambda: bool(told))
    assert told == [(Insecure.NO_KEYS, "another certificate than SDP names")]
    assert one.stats.packets_sent == other.stats.packets_sent == 0


async def test_who_makes_the_handshake_is_the_far_end_wherever_sdp_says_it_is(office: Office) -> None:
    one, other = office.open(), office.open()
    recorders = (RecordingListener(), RecordingListener())
    certificates = (Certificate(), Certificate())
    prints = [frozenset({("sha-256", each.fingerprint.split()[1])}) for each in certificates]
    for stream, own, recorder in zip((one, other), certificates, recorders, strict=True):
        stream.security.certificate = own
        stream.attach(recorder, None)
    start(one, plan(9, rtcp_mux=True, security=Handshake(Role.PASSIVE, prints[1])), symmetric=True)
    start(other, plan(one.local_port, rtcp_mux=True, security=Handshake(Role.ACTIVE, prints[0])))
    await until(lambda: all(len(each.frames) >= 10 for each in recorders))
    assert one.security.encryption.keys == "dtls"


async def test_a_stranger_cannot_spoil_the_handshake(office: Office) -> None:
    stream, told = office.open(), []
    stream.on_insecure = lambda wrong, reason: told.append(wrong)
    stream.security.certificate = Certificate()
    expected = Handshake(Role.PASSIVE, frozenset({("sha-256", "00")}))
    start(stream, plan(9, rtcp_mux=True, security=expected))  # symmetric RTP is off
    stranger = DtlsHandshake(Certificate().context(), replace(expected, role=Role.ACTIVE), 0.0)
    bound = office.peer()
    for datagram in stranger.begin(0.0):
        bound.send(stream, datagram)
    await until(lambda: stream.stats.strange_address > 0)
    await asyncio.sleep(0.3)
    assert bound.received() == []
    assert told == []


def nominating(ice: IceCredentials, password: str = "") -> bytes:
    check = stun.Message(stun.Method.BINDING, stun.Class.REQUEST)
    check.attributes["USERNAME"] = f"{ice.ufrag}:theirs"
    check.attributes["USE-CANDIDATE"] = None
    check.add_message_integrity((password or ice.password).encode())
    return bytes(check)


async def test_a_new_offer_of_a_browser_does_not_lead_away_from_where_ice_found_it(
    office: Office, peer: Peer
) -> None:
    """The port in its SDP is whichever candidate it counts as its default by then."""
    stream, stranger = office.open(), office.peer()
    ice = IceCredentials("ours", "a-password-of-ours")
    stream.security.certificate = Certificate()
    shaken = Handshake(Role.PASSIVE, frozenset({("sha-256", "00")}))
    found = replace(plan(9, rtcp_mux=True, security=shaken), remote_host="0.0.0.0", ice=ice)
    start(stream, found)
    stranger.rtp.sendto(nominating(ice, "a-guess"), (HOST, stream.local_port))
    await until(lambda: stream.stats.strange_address == 1)
    assert not stream.sends
    peer.send(stream, nominating(ice))
    await until(lambda: stream.sends)
    start(stream, replace(found, remote_port=40_404))
    assert stream.sends
    assert _drain(stranger.rtp) == []
