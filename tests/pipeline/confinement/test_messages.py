"""What the server and its processes say to each other, and when a process that died is started again."""

from __future__ import annotations

import asyncio
import io
import re

import pytest

from pipeline.confinement.confined_process import how_it_ended, restart_pause_s
from pipeline.confinement.messages import ANSWER_LIMIT, HEAD_LIMIT, LENGTHS, pack, receive, receive_from


def stream(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


async def test_a_message_arrives_as_it_was_sent() -> None:
    message = pack({"kind": "chunk", "words": [[0, 0], [17, 2**31]]}, b"\x01\x02")
    expected = ({"kind": "chunk", "words": [[0, 0], [17, 2**31]]}, b"\x01\x02")
    assert receive(io.BytesIO(message).read) == expected
    assert await receive_from(stream(message)) == expected
    for cut in (0, 3, len(message) - 1):
        with pytest.raises(EOFError):
            receive(io.BytesIO(message[:cut]).read)
        with pytest.raises(EOFError):
            await receive_from(stream(message[:cut]))


@pytest.mark.parametrize(
    "message",
    [
        LENGTHS.pack(HEAD_LIMIT + 1, 0),
        LENGTHS.pack(2, ANSWER_LIMIT + 1) + b"{}",
        LENGTHS.pack(2, 0) + b"[]",
        LENGTHS.pack(2, 0) + b"\xff{",
        LENGTHS.pack(200_000, 0) + b"[" * 200_000,
    ],
)
async def test_a_stream_out_of_step_is_known_before_anything_is_read_into_memory(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"out of step|without an object|decode|too deeply"):
        await receive_from(stream(message))


def test_the_pause_before_a_restart_doubles_and_ends_at_its_limit() -> None:
    assert [restart_pause_s(deaths, limit_s=0.5) for deaths in range(5)] == [0.0, 0.1, 0.2, 0.4, 0.5]
    assert restart_pause_s(5000, limit_s=2.0) == 2.0, "2.0 ** 4999 is no float"


@pytest.mark.parametrize(
    ("status", "said"),
    [(-4, "SIGILL.*AVX"), (-9, "SIGKILL.*memory"), (-40, "signal 40"), (3, "status 3")],
)
def test_a_process_that_ended_says_by_what(status: int, said: str) -> None:
    assert re.search(said, how_it_ended(status))
