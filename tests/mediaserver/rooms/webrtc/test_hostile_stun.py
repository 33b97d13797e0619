"""STUN that is meant to break the port's reader: of strangers, and of who was let in."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable

import pytest
from aioice import ice, stun

from mediaserver.rooms.webrtc.udp_mux import MediaPort, Path
from pipeline.plane.drive.plane import Plane
from tests.support.ports import free_rtp_range
from tests.support.waiting import until

COOKIE = 0x2112A442
CUT_PRIORITY = struct.pack("!HHH", 0x0024, 2, 1) + bytes(2)


@pytest.fixture(params=[True, False], ids=["on its thread", "on the loop"])
async def path(request: pytest.FixtureRequest) -> AsyncIterator[Path]:
    plane = Plane(asyncio.get_running_loop(), capacity=1, on_thread=request.param)
    port = MediaPort.open(plane, free_rtp_range(), addresses=["127.0.0.1"])
    opened = Path(port, ice.Connection(ice_controlling=False))
    await opened.candidates(1, [])
    yield opened
    await opened.connection.close()
    port.close()
    plane.close()


def request_cut_short(path: Path) -> bytes:
    """A request of who knows the user name alone, whose attribute ends within its value."""
    name = f"{path.connection.local_username}:far".encode()
    attributes = struct.pack("!HH", 6, len(name)) + name + bytes(-len(name) % 4) + CUT_PRIORITY
    return struct.pack("!HHI", 1, len(attributes), COOKIE) + bytes(12) + attributes


def response_cut_short(path: Path) -> bytes:
    """A response to a check of the server's, with such an attribute."""
    path._port.asked(b"transaction1", path._lanes[0])
    return struct.pack("!HHI", 0x0101, len(CUT_PRIORITY), COOKIE) + b"transaction1" + CUT_PRIORITY


def request_without_priority(path: Path) -> bytes:
    """An authentic request without the attribute that each check must have (RFC 8445 7.1.1)."""
    connection = path.connection
    connection.remote_username, connection._early_checks_done = "far", True
    message = stun.Message(stun.Method.BINDING, stun.Class.REQUEST)
    message.attributes["USERNAME"] = f"{connection.local_username}:far"
    message.add_message_integrity(connection.local_password.encode())
    return bytes(message)


@pytest.mark.parametrize("made", [request_cut_short, response_cut_short, request_without_priority])
async def test_it_is_counted_and_breaks_nothing(
    path: Path, made: Callable[[Path], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    port = path._port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far:
        for _ in range(3):
            far.sendto(made(path), ("127.0.0.1", port.number))
        far.sendto(bytes(20), ("127.0.0.1", port.number))
        await until(lambda: port.strays == 4)
    assert not [each for each in caplog.records if each.levelname == "ERROR"]
