"""A UDP port that many streams share: whose is a datagram?"""

from __future__ import annotations

import random
from typing import Final

import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.audio.opus import RATE_HZ, OpusEncoder
from pipeline.plane.port import ASIDES, NO_STREAM, SOURCES, UNKNOWN, WAITING
from pipeline.plane.rows import Field
from sip.rtp.packet import RtpPacket
from sip.rtp.rtcp import ReceiverReport
from tests.support.speech.media import RecordingListener
from tests.support.speech.tones import share_at, tone
from tests.support.webrtc.stepped_port import PT, SteppedPort, at

FRAME: Final = RATE_HZ // 50
STUN: Final = b"\x00\x01" + bytes(18)
DTLS: Final = b"\x16\xfe\xfd" + bytes(40)
REPORT: Final = ReceiverReport(5).to_bytes()


def packets(count: int, *, hz: float = 440, ssrc: int = 7) -> list[bytes]:
    encoder, wave = OpusEncoder(), tone(hz, count / 50, RATE_HZ)
    return [
        RtpPacket(PT, n, n * 960, ssrc, encoder.encode(wave[n * FRAME : (n + 1) * FRAME])).to_bytes()
        for n in range(count)
    ]


def heard(port: SteppedPort, number: int) -> Pcm:
    line = port.lines[number]
    return np.asarray(line["heard"][: int(line["frames"]) * FRAME])


def listened(streams: int = 1) -> SteppedPort:
    port = SteppedPort(streams)
    for ear in port.ears:
        ear.listener = RecordingListener()
    return port


def test_each_stream_hears_what_comes_from_its_addresses() -> None:
    """One of them from two addresses in turn, as where a telephone changes from one network to another."""
    port = listened(2)
    port.know(at(1), 0)
    port.know(at(2), 1)
    port.know(at(2, 6000), 1)
    for n, (one, other) in enumerate(zip(packets(20), packets(20, hz=1000), strict=True)):
        port.datagram(one, at(1), n * 0.02)
        port.datagram(other, at(2, 6000 if n % 2 else 5000), n * 0.02)
    assert [ear.packets for ear in port.ears] == [20, 20]
    assert share_at(heard(port, 0)[3 * FRAME :], RATE_HZ, 440) > 0.9
    assert share_at(heard(port, 1)[3 * FRAME :], RATE_HZ, 1000) > 0.9
    assert port.asides() == []


def test_python_gets_what_is_not_media_with_its_sender_and_time() -> None:
    port = listened()
    port.know(at(1), 0)
    port.know(at(2), NO_STREAM)
    told = [(STUN, at(9), 0.5), (DTLS, at(1), 0.75), (REPORT, at(2), 1.0), (REPORT, at(1), 1.25)]
    for data, sender, now in told:
        port.datagram(data, sender, now)
    assert port.asides() == told
    assert port.port["strays"] == 0
    assert port.ears[0].bad_packets == 0


@pytest.mark.parametrize("data", [DTLS, REPORT, packets(1)[0], b"\x80", b"", b"\x05\x06"])
def test_what_comes_from_nowhere_is_counted_and_nothing_more(data: bytes) -> None:
    port = listened()
    port.know(at(1), 0)
    for address in (at(2), at(1, 5001), b"", at(1)[:8]):
        port.datagram(data, address)
    assert port.port["strays"] == 4
    assert port.asides() == []
    assert port.ears[0].packets == 0


def test_media_of_a_connection_that_no_stream_hears_is_nobodys() -> None:
    port = listened()
    port.know(at(1), 0)
    port.datagram(packets(1)[0], at(1))
    port.know(at(1), NO_STREAM)
    port.datagram(packets(2)[1], at(1))
    assert port.ears[0].packets == 1
    assert port.port["strays"] == 1


def test_a_packet_waits_while_python_holds_its_row_and_is_heard_in_its_order() -> None:
    """Others are heard meanwhile."""
    port = listened(2)
    port.know(at(1), 0)
    port.know(at(2), 1)
    sent = packets(6)
    port.datagram(sent[0], at(1))
    with port.held(0):
        for packet in sent[1:4]:
            port.datagram(packet, at(1), 0.02)
            port.datagram(packet, at(2), 0.02)
        port.again()
        assert [ear.packets for ear in port.ears] == [1, 3]
    port.again()
    for packet in sent[4:]:
        port.datagram(packet, at(1), 0.04)
    assert [ear.packets for ear in port.ears] == [6, 3]
    assert port.ears[0].lost == 0
    assert port.lines[0]["frames"] == 6


def test_more_than_can_wait_is_counted() -> None:
    port = listened()
    port.know(at(1), 0)
    with port.held(0):
        for packet in packets(WAITING + 5):
            port.datagram(packet, at(1))
    port.again()
    assert port.ears[0].packets == WAITING
    assert port.port["dropped"] == 5


def test_strangers_leave_room_for_who_is_known() -> None:
    """However many checks strangers send, those of known addresses, DTLS and reports come to Python."""
    port = listened()
    port.know(at(1), 0)
    for _ in range(2 * ASIDES):
        port.datagram(STUN, at(9))
    for data in (STUN, DTLS, REPORT):
        port.datagram(data, at(1))
    found = port.asides()
    assert [data for data, sender, _ in found if sender == at(1)] == [STUN, DTLS, REPORT]
    assert len(found) == ASIDES // 2 + 3
    assert port.port["strays"] == 2 * ASIDES - ASIDES // 2
    for _ in range(2 * ASIDES):
        port.datagram(DTLS, at(1))
    assert len(port.asides()) == ASIDES
    assert port.port["dropped"] == ASIDES


def test_only_a_report_may_wait_to_be_told() -> None:
    port = listened()
    port.know(at(1), 0)
    urgent = []
    for data in (REPORT, STUN, DTLS):
        port.shared["clock"][Field.URGENT] = 0
        port.datagram(data, at(1))
        urgent.append(int(port.shared["clock"][Field.URGENT]))
    assert urgent == [0, 1, 1]


def stream_of(port: SteppedPort, address: bytes) -> int:
    """Where a packet of no audio from this address counts."""
    strays, bad = int(port.port["strays"]), [ear.bad_packets for ear in port.ears]
    port.datagram(b"\x80\x00" + bytes(10), address)
    counted = [ear.bad_packets - before for ear, before in zip(port.ears, bad, strict=True)]
    return counted.index(1) if any(counted) else UNKNOWN if port.port["strays"] > strays else NO_STREAM


def test_addresses_come_and_go_and_each_leads_to_its_stream() -> None:
    """Beside a dict, in thousands of steps, IPv6 among them."""
    port, rng, known = SteppedPort(5), random.Random(3), dict[bytes, int]()
    addresses = [at(rng.randrange(256), rng.randrange(1024, 65536)) for _ in range(300)]
    addresses += [b"\x0a\x00" + rng.randbytes(26) for _ in range(300)]
    for _ in range(6000):
        address = rng.choice(addresses)
        if rng.random() < 0.45:
            port.forget(address)
            known.pop(address, None)
        else:
            known[address] = rng.randrange(5)
            assert port.know(address, known[address])
        looked_for = rng.choice(addresses)
        assert stream_of(port, looked_for) == known.get(looked_for, UNKNOWN)
    assert port.port["sources"] == len(known)


def test_a_table_that_is_full_takes_no_more_and_ends() -> None:
    port, most = SteppedPort(), SOURCES // 4 * 3
    taken = [port.know(at(number % 256, 1 + number // 256), 0) for number in range(most + 10)]
    assert sum(taken) == most
    assert stream_of(port, at(0, 1)) == 0
    assert stream_of(port, at(255, 60000)) == UNKNOWN
