"""Does the plane let go: of rows, sockets, threads and a process that ends?"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pipeline.plane.address import sockaddr, unpacked
from pipeline.plane.atomic import AT_WORK, FREE
from pipeline.plane.drive.plane import Plane, PlaneFull
from pipeline.plane.drive.run import run as goes_on
from pipeline.plane.drive.shared_port import BURST
from pipeline.plane.rows import EVENTS, Field, Happened, Kind
from pipeline.plane.setup import (
    PayloadFormat,
    Receiving,
    Sending,
    begin_sending,
    configure,
    configure_sending,
    prepare,
)
from tests.support.paths import ROOT
from tests.support.waiting import until

HOST = "127.0.0.1"
LOOPBACK = socket.if_nametoindex("lo")
PCMU = PayloadFormat(Kind.PCMU, 8000, 8000)

pytestmark = pytest.mark.virtual_clock(and_real=True)
"""The plane runs on its thread by the real clock, and on the event loop by the virtual one."""


@contextmanager
def bound() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setblocking(False)
        made.bind((HOST, 0))
        yield made


def stream(
    plane: Plane, own: socket.socket, far: socket.socket, news: Callable[[int, int, int], None]
) -> int:
    """A stream that listens and sends silence to `far`."""
    number = plane.reserve()
    plane.open(number, own, news)
    with plane.held(number) as line:
        prepare(line, number, rate_hz=8000, patience_ms=40)
        begin_sending(line, own.fileno(), first_due_ns=plane.first_due_ns(number))
        configure(line, Receiving(formats={0: PCMU}, events_type=-1, events_hz=8000, receives=True))
        configure_sending(
            line, Sending(payload_type=0, format=PCMU, events_type=-1, events_hz=8000, sends=True)
        )
        packed = sockaddr(far.getsockname())
        line["remote"][: len(packed)] = list(packed)
        line["remote_size"], line["listening"] = len(packed), True
    return number


def packet(sequence: int) -> bytes:
    return (
        b"\x80\x00"
        + sequence.to_bytes(2, "big")
        + (sequence * 160).to_bytes(4, "big")
        + b"ssrc"
        + b"\x55" * 160
    )


def quiet(kind: int, one: int, two: int) -> None: ...


async def test_what_was_told_of_a_stream_never_reaches_the_next_on_its_row() -> None:
    plane = Plane(asyncio.get_running_loop(), capacity=1)
    for turn in range(5):
        await one_of_many(plane, packets=3 + turn, waits=turn % 2 == 1)
        await asyncio.sleep(0.3)  # until what was told of the row has been read
    assert len(plane) == 0
    plane.close()


async def one_of_many(plane: Plane, *, packets: int, waits: bool) -> None:
    """A stream that hears some packets, and ends with or without having told of them."""
    told: list[tuple[int, int]] = []
    with bound() as far, bound() as own:
        number = stream(plane, own, far, lambda kind, one, two: told.append((kind, one)))
        for sequence in range(packets):
            far.sendto(packet(sequence), own.getsockname())
        await until(lambda: plane.rows[number]["packets"] == packets)
        if waits:
            await until(lambda: told and told[-1] == (Happened.HEARD, packets))
        assert all(one <= packets for _, one in told)
        plane.shut(number, own)


async def test_streams_of_a_plane_that_was_closed_may_be_shut_still() -> None:
    plane = Plane(asyncio.get_running_loop())
    with bound() as far, bound() as own:
        number = stream(plane, own, far, quiet)
        await until(lambda: plane.rows[number]["packets_sent"] > 3)
        plane.close()
        plane.close()
        sent = int(plane.rows[number]["packets_sent"])
        await asyncio.sleep(0.1)
        assert plane.rows[number]["packets_sent"] == sent
        plane.poke()
        plane.shut(number, own)


async def test_a_row_is_memory_no_longer_once_its_stream_is_shut_and_serves_the_next_one() -> None:
    plane = Plane(asyncio.get_running_loop(), capacity=1)
    heard: list[int] = []
    with bound() as far:
        for _ in range(3):
            heard.clear()
            with bound() as own:
                number = stream(plane, own, far, lambda kind, frames, _: heard.append(frames))
                for sequence in range(5):
                    far.sendto(packet(sequence), own.getsockname())
                await until(lambda: bool(heard) and heard[-1] == 5)
                assert plane.rows[number]["heard"].any()
                plane.shut(number, own)
            await until(lambda: _is_free(plane))
            assert not plane.rows[number]["heard"].any()
    plane.close()


def _is_free(plane: Plane) -> bool:
    try:
        plane.give_back(plane.reserve())
    except PlaneFull:
        return False
    return True


async def test_a_stream_that_python_holds_stops_no_other() -> None:
    plane = Plane(asyncio.get_running_loop())
    with bound() as far, bound() as one, bound() as other:
        numbers = [stream(plane, own, far, quiet) for own in (one, other)]
        await until(lambda: all(plane.rows[number]["packets_sent"] > 3 for number in numbers))
        with plane.held(numbers[0]) as line:
            before, going = int(line["packets_sent"]), int(plane.rows[numbers[1]]["packets_sent"])
            await until(lambda: plane.rows[numbers[1]]["packets_sent"] > going + 5)
            assert line["packets_sent"] == before
        await until(lambda: plane.rows[numbers[0]]["packets_sent"] > before + 5)
        for number, own in zip(numbers, (one, other), strict=True):
            plane.shut(number, own)
    plane.close()


async def test_two_planes_share_a_process() -> None:
    loop = asyncio.get_running_loop()
    planes = [Plane(loop), Plane(loop)]
    with bound() as one, bound() as other:
        heard: list[int] = []
        ends = [
            stream(planes[0], one, other, quiet),
            stream(planes[1], other, one, lambda kind, frames, _: heard.append(frames)),
        ]
        await until(lambda: heard and heard[-1] > 10)
        for plane, number, own in zip(planes, ends, (one, other), strict=True):
            plane.shut(number, own)
            plane.close()


async def test_a_late_loop_is_told_all_that_fitted_and_the_counts_of_the_rest() -> None:
    plane = Plane(asyncio.get_running_loop())
    told: list[tuple[int, int]] = []
    with bound() as far, bound() as own:
        number = stream(plane, own, far, lambda kind, one, two: told.append((kind, one)))
        plane.close()
        told.clear()
        clock, line = plane.shared["clock"], plane.rows[number]
        plane.shared["events"][:] = (number, Happened.KEYED, 1, 0)
        line["frames"], line["presses"], line["keys_sent"] = 70, 0, 9
        clock[Field.EVENT_HEAD] = int(clock[Field.EVENT_TAIL]) + EVENTS
        clock[Field.DROPPED] += 3
        plane._tell()
        assert told[:EVENTS] == [(Happened.KEYED, 1)] * EVENTS
        assert {(Happened.HEARD, 70), (Happened.KEYED, 9)} <= set(told[EVENTS:])
        plane.shut(number, own)


async def test_a_listener_that_breaks_costs_no_other_stream_its_events() -> None:
    plane = Plane(asyncio.get_running_loop())
    heard: list[int] = []

    def breaks(kind: int, one: int, two: int) -> None:
        raise IndexError("a listener's own defect")

    with bound() as far, bound() as one, bound() as other:
        first = stream(plane, one, far, breaks)
        second = stream(plane, other, far, lambda kind, frames, _: heard.append(frames))
        for sequence in range(5):
            for own in (one, other):
                far.sendto(packet(sequence), own.getsockname())
        await until(lambda: heard and heard[-1] == 5)
        plane.shut(first, one)
        plane.shut(second, other)
    plane.close()


def test_a_stream_that_breaks_the_thread_costs_no_other_its_media(monkeypatch: pytest.MonkeyPatch) -> None:
    broke = threading.Event()

    def run(rows: Any, scratch: Any, shared: Any) -> None:
        while not broke.is_set() and not shared["clock"][Field.STOP]:
            if rows[0]["open"] and rows[0]["owner"][0] == FREE:
                rows[0]["owner"][0] = AT_WORK
                broke.set()
                raise ZeroDivisionError
            time.sleep(0.001)
        goes_on(rows, scratch, shared)

    async def both() -> None:
        plane = Plane(asyncio.get_running_loop(), capacity=2, on_thread=True)
        with bound() as far, bound() as one, bound() as other:
            numbers = [stream(plane, own, far, quiet) for own in (one, other)]
            broken, well = (plane.rows[number] for number in sorted(numbers))
            await until(lambda: well["packets_sent"] > 3)
            assert not broken["open"]
            assert broke.is_set()
            for number, own in zip(numbers, (one, other), strict=True):
                plane.shut(number, own)
        plane.close()

    monkeypatch.setattr("pipeline.plane.drive.on_thread.run", run)
    asyncio.run(both())


def flood(stranger: socket.socket, target: socket.socket) -> None:
    """Packets that could be a new far end's, over a few ticks."""
    for sequence in range(150):
        stranger.sendto(packet(sequence), target.getsockname())
        time.sleep(0.001)


REPORT = b"\x81\xc9\x00\x07" + bytes(28)


@pytest.mark.parametrize("flooded", ["another call", "this call"])
async def test_a_report_on_the_rtp_port_is_told_whatever_strangers_send(flooded: str) -> None:
    """Python stands still meanwhile."""
    plane = Plane(asyncio.get_running_loop())
    told: list[bytes] = []

    def happened(kind: int, one: int, two: int) -> None:
        if kind == Happened.ASIDE:
            told.append(plane.aside(number, one)[0])

    with bound() as far, bound() as stranger, bound() as own, bound() as other:
        number = stream(plane, own, far, happened)
        second = stream(plane, other, far, quiet)
        for each in (number, second):
            plane.rows[each]["symmetric"] = True
        target = own if flooded == "this call" else other
        flood(stranger, target)
        far.sendto(REPORT, own.getsockname())
        await until(lambda: REPORT in told)
        plane.shut(number, own)
        plane.shut(second, other)
    plane.close()


async def test_a_plane_without_a_free_row_says_so_and_has_one_again() -> None:
    plane = Plane(asyncio.get_running_loop(), capacity=1)
    number = plane.reserve()
    assert len(plane) == 1
    with pytest.raises(PlaneFull):
        plane.reserve()
    plane.give_back(number)
    assert plane.reserve() == number
    plane.give_back(number)
    assert len(plane) == 0
    plane.close()


async def test_a_socket_that_cannot_be_watched_costs_no_row() -> None:
    plane = Plane(asyncio.get_running_loop(), capacity=1)
    with bound() as far, bound() as own:
        for _ in range(3):
            closed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            closed.close()
            number = plane.reserve()
            with pytest.raises((OSError, ValueError)):
                plane.open(number, closed, quiet)
            plane.give_back(number)
        number = stream(plane, own, far, quiet)
        await until(lambda: plane.rows[number]["packets_sent"] > 3)
        plane.shut(number, own)
    plane.close()


@pytest.mark.parametrize(
    "address", [("203.0.113.7", 40000), ("2001:db8::7", 40000, 0, 0), ("fe80::7%lo", 40000, 0, LOOPBACK)]
)
async def test_addresses_are_those_of_the_socket(address: tuple[str, int]) -> None:
    assert unpacked(sockaddr(address)) == address


def test_a_process_that_forgets_to_close_its_plane_ends() -> None:
    script = """
import asyncio
from pipeline.plane.drive.plane import Plane, PlaneFull
async def main():
    global plane
    plane = Plane(asyncio.get_running_loop(), on_thread=True)
    await asyncio.sleep(0.1)
asyncio.run(main())
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("on_thread", [True, False])
async def test_a_shared_port_that_was_closed_takes_nothing_from_the_next_one_in_its_place(
    on_thread: bool,
) -> None:
    """Though it was in the middle of what had come on it, and is closed again."""
    plane = Plane(asyncio.get_running_loop(), capacity=1, on_thread=on_thread)
    old, new = list[bytes](), list[bytes]()
    with bound() as first, bound() as second, bound() as far:
        port = plane.open_port(first, lambda data, sender, now: old.append(data))
        for _ in range(BURST + 10):
            far.sendto(b"\x00\x01old", first.getsockname())
        await until(lambda: len(old) >= BURST)
        port.close()
        following = plane.open_port(second, lambda data, sender, now: new.append(data))
        port.close()
        for _ in range(3):
            far.sendto(b"\x00\x01new", second.getsockname())
        await until(lambda: len(new) == 3)
        assert b"\x00\x01new" not in old
        following.close()
    plane.close()
