"""Scripted callers over SIP and RTP, one socket each, µ-law or Opus, against a server of the benchmark."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.call.sip_line import OPUS, PCMU, Line, LineState
from bench.conversation.caller import Truth
from bench.conversation.figures.metrics import Outcome, summary
from bench.conversation.handset import EVENTS, Handset, Taped
from bench.conversation.processes import Server
from bench.conversation.scenarios import Script
from bench.conversation.sounds import Sound
from mediaserver.local_node import free_port
from sip.sdp.media_plan import CODECS

AT_ONCE: Final = 16
CODECS_OFFERED: Final = {"pcmu": PCMU, "opus": OPUS}


@dataclass(slots=True)
class FiledTruth(Truth):
    """Ground truth that is also written to a file for the server's process."""

    path: Path = Path()

    def add(self, sound: Sound, at: float) -> None:
        """Adds the words of a sound, and appends these to the file."""
        first = len(self.words)
        Truth.add(self, sound, at)
        with self.path.open("a", encoding="utf-8") as file:
            for text, start, end, sure in self.words[first:]:
                file.write(f"{start:.4f}\t{end:.4f}\t{sure}\t{text}\n")


class Phone(asyncio.DatagramProtocol):
    """A caller's telephone on its RTP socket."""

    def __init__(self, script: Script, codec: str, seed: int) -> None:
        self.handset = Handset(script, CODECS[codec], seed, self._put)
        self.media: tuple[str, int] = ("", 0)
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: Any) -> None:
        """Keeps the open socket."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Takes a packet of the agent."""
        self.handset.receive(data)

    def _put(self, packet: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(packet, self.media)


class _Signalling(asyncio.DatagramProtocol):
    def __init__(self, line: Line, phone: Phone) -> None:
        self._line = line
        self._phone = phone
        self._loop = asyncio.get_running_loop()
        self.changed = asyncio.Event()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.send(self._line.receive(data.decode(), round(self._loop.time() * 1e9)))
        if self._line.state is LineState.ENDED:
            self._phone.handset.hang_up()
        self.changed.set()

    def send(self, message: bytes) -> None:
        if message:
            self.transport.sendto(message)

    async def until(self, *states: LineState) -> None:
        while self._line.state not in states:
            self.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self.changed.wait()
            self.send(self._line.overdue(round(self._loop.time() * 1e9)))


@dataclass(frozen=True, slots=True)
class Call:
    """A call to place; `seed` is that of its packet losses."""

    script: Script
    codec: str
    seed: int


async def ring(server: Server, place: int, call: Call) -> Taped:
    """Places call number `place`. Raises RuntimeError when it is not answered."""
    loop = asyncio.get_running_loop()
    server.prepare(place, call.script)
    rtp, phone = await loop.create_datagram_endpoint(
        lambda: Phone(call.script, call.codec, call.seed), local_addr=("127.0.0.1", 0)
    )
    contact = ("127.0.0.1", free_port())
    clock_rate_hz = CODECS[call.codec].clock_rate_hz
    line = Line(
        server.address,
        contact,
        call_id=f"c{place}-{round(loop.time() * 1e6)}",
        caller="+14155550100",
        called=f"+{server.number(place)}",
        codec=CODECS_OFFERED[call.codec],
        events=f"{EVENTS} telephone-event/{clock_rate_hz}",
    )
    sip, signalling = await loop.create_datagram_endpoint(
        lambda: _Signalling(line, phone), local_addr=contact, remote_addr=server.address
    )
    try:
        signalling.send(line.invite(rtp.get_extra_info("sockname"), round(loop.time() * 1e9)))
        await signalling.until(LineState.TALKING, LineState.FAILED)
        if line.state is LineState.FAILED:
            raise RuntimeError(f"the call was not answered: {line.reason}")
        phone.media = line.media
        taped = await phone.handset.talk(FiledTruth(path=server.line(place).with_suffix(".words")))
        signalling.send(line.leave(round(loop.time() * 1e9)))
        await signalling.until(LineState.ENDED, LineState.FAILED)
    finally:
        sip.close()
        rtp.close()
    taped.events = server.events(place)
    return taped


async def ring_all(server: Server, calls: Sequence[Call]) -> list[Taped]:
    """Places the calls, `AT_ONCE` at a time."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one(place: int, call: Call) -> Taped:
        async with free:
            return await ring(server, place, call)

    return list(await asyncio.gather(*(one(*each) for each in enumerate(calls))))


def measure(calls: Sequence[Call]) -> list[Taped]:
    """Runs the calls on a server of their own; returns each recording with the server's account."""
    with tempfile.TemporaryDirectory() as directory:
        server = Server(Path(directory), [call.script for call in calls])
        try:
            tapes = asyncio.run(ring_all(server, calls))
            results = server.results(len(calls))
        finally:
            server.close()
    for place, taped in enumerate(tapes):
        taped.result = results.get(place)
    return tapes


def compared(name: str, codec: str, wire: Sequence[Outcome], virtual: Sequence[Outcome]) -> dict[str, Any]:
    """Returns one row: the outcomes of the same calls on wire and virtual clock. `apart_ms`: the median
    difference of each call's figure (yield where the caller interrupts, else response), without calls that
    had different outcomes."""
    here, there = summary(wire), summary(virtual)
    figure = "yield_ms" if here["yield_ms"]["count"] else "response_ms"
    pairs = [(getattr(one, figure), getattr(other, figure)) for one, other in zip(wire, virtual, strict=True)]
    differences = [
        ms - beside_ms
        for here_ms, there_ms in pairs
        if len(here_ms) == len(there_ms)
        for ms, beside_ms in zip(here_ms, there_ms, strict=True)
    ]
    row = {
        "scenario": name,
        "codec": codec,
        "calls": len(wire),
        "as_wanted": here["as_wanted"],
        "virtual_as_wanted": there["as_wanted"],
        "figure": figure,
        "wire": here[figure],
        "virtual": there[figure],
        "server_ms": [ms for each in wire for ms in each.server_ms],
        "late_ms": [round(each.late_ms, 1) for each in wire],
        "reasons": here["reasons"],
    }
    return row | ({"apart_ms": round(abs(median(differences)), 1)} if differences else {})
