"""The scripted callers over SIP and RTP: a socket each, µ-law or Opus, against a server of its own."""

from __future__ import annotations

import asyncio
import struct
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.call_line import OPUS, PCMU, Line, LineState
from bench.call_site import KEY, Target, free_port, wait_ready
from bench.conversation_caller import Caller, Truth, recording
from bench.conversation_clock import PTIME_S, Taped
from bench.conversation_figures import Outcome, summary
from bench.conversation_scenarios import ASKING, SPEECH, Script
from bench.conversation_sounds import RATE_HZ, Sound
from pipeline.agent import AgentEvent, CallOpened, UserKeyed, UserSaid
from pipeline.audio import Pcm
from pipeline.resample import Resampler
from sip import codecs
from sip.plan import CODECS

LINES: Final = 8
JITTER_S: Final = 0.08
CODECS_OFFERED: Final = {"pcmu": PCMU, "opus": OPUS}
_HEADER: Final = struct.Struct("!BBHII")
_PARTS: Final = ("helping", "asking", "speech")
_FIRST_NUMBER: Final = 14155550200
_CONFIG: Final = """
[server]
http = "127.0.0.1:{http}"
public_url = "http://127.0.0.1:{http}"
data_dir = "{directory}/data"
drain_s = 1
[sip]
udp = "127.0.0.1:{sip}"
tcp = ""
rtp_ports = "18000-19999"
[[company]]
id = "bench"
country = "US"
[[company.key]]
key = "{key}"
scopes = ["calls"]
[[trunk]]
id = "callers"
company = "bench"
uri = "sip:127.0.0.1:{sip};transport=udp"
allow_from = ["127.0.0.1/32"]
codecs = ["opus", "pcmu"]
"""
_AGENT: Final = """
[[agent]]
id = "2f1c1a34-6f3e-4f0e-9a63-{number:012d}"
company = "bench"
direction = "inbound"
trunk = "callers"
phone_number = "+{number}"
[agent.script]
part = "{part}"
events = "{directory}/{number}.events"
[agent.stt]
engine = "bench"
words = "{directory}/{number}.words"
[agent.tts]
engine = "bench"
"""


@dataclass(slots=True)
class FiledTruth(Truth):
    """Written down for the other process as well."""

    path: Path = Path()

    def add(self, sound: Sound, at: float) -> None:
        """See `Truth`."""
        first = len(self.words)
        Truth.add(self, sound, at)
        with self.path.open("a", encoding="utf-8") as file:
            for text, start, end, sure in self.words[first:]:
                file.write(f"{start:.4f}\t{end:.4f}\t{sure}\t{text}\n")


class Server(Target):
    """The server under test, with an agent for every line and part."""

    def __init__(self, directory: Path) -> None:
        self.http, sip = free_port(), free_port()
        self.directory = directory
        text = _CONFIG.format(http=self.http, sip=sip, directory=directory, key=KEY)
        for number in (number_of(part, line) for part in _PARTS for line in range(LINES)):
            part = _PARTS[(number - _FIRST_NUMBER) // LINES]
            text += _AGENT.format(number=number, part=part, directory=directory)
            (directory / f"{number}.words").touch()
        config = directory / "server.toml"
        config.write_text(text, encoding="utf-8")
        command = ["-m", "bench.conversation_server", "serve", "--config", str(config)]
        super().__init__([sys.executable, *command], ("127.0.0.1", sip), directory / "server.log")
        wait_ready(self, f"http://127.0.0.1:{self.http}/readyz")


class Phone(asyncio.DatagramProtocol):
    """A caller's two sockets: signalling and RTP, 20 ms in and out."""

    def __init__(self, script: Script, codec: str, seed: int) -> None:
        self._script = script
        self._loop = asyncio.get_running_loop()
        self._codec = CODECS[codec]
        self._encoder, self._decoder = codecs.encoder(self._codec), codecs.decoder(self._codec)
        rate = self._codec.rate_hz
        self._up = Resampler(RATE_HZ, rate) if rate != RATE_HZ else None
        self._down = Resampler(rate, RATE_HZ) if rate != RATE_HZ else None
        self._step = self._codec.clock_rate_hz // 50
        self._rng = np.random.default_rng(seed)
        self._payload = np.empty(1440, np.uint8)
        self._sequence = 0
        self._media: tuple[str, int] = ("", 0)
        self.caller: Caller | None = None
        self.start = 0.0
        self._anchor, self._anchor_s = 0, -1.0
        self.rtp: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: Any) -> None:
        """RTP's socket is open."""
        self.rtp = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """A packet of the agent's."""
        if self.caller is None or len(data) <= _HEADER.size or data[1] & 127 != self._codec.payload_type:
            return
        samples = self._decoder.decode(np.frombuffer(data, np.uint8)[_HEADER.size :])
        heard = samples.copy() if self._down is None else self._down(samples)
        now_s = self._loop.time() - self.start
        self.caller.hears(heard, now_s, place_s=self._place(_HEADER.unpack_from(data)[3], now_s))

    def _place(self, timestamp: int, now_s: float) -> float:
        """When the packet would have come without jitter; a stream that begins anew is taken as it comes."""
        at_s = self._anchor_s + ((timestamp - self._anchor) & 0xFFFFFFFF) / self._codec.clock_rate_hz
        if self._anchor_s < 0 or not -JITTER_S < at_s - now_s < PTIME_S / 2:
            self._anchor, self._anchor_s, at_s = timestamp, now_s, now_s
        return at_s

    async def talk(self, media: tuple[str, int], truth: FiledTruth) -> Taped:
        """The call, from its answer until the caller has nothing left to wait for."""
        self._media, self.start = media, self._loop.time()
        caller = self.caller = Caller(self._script.cues, truth, origin=self.start)
        caller.background, caller.echo = self._script.background, self._script.echo
        for tick in range(round(self._script.limit_s / PTIME_S) + 10):
            spoken_s = tick * PTIME_S
            await asyncio.sleep(self.start + spoken_s + PTIME_S - self._loop.time())
            self._send(caller.frame(spoken_s))
            if caller.finished(spoken_s, self._script.ending, self._script.limit_s):
                break
        seconds = self._loop.time() - self.start
        return Taped(np.concatenate(caller.sent), recording(caller.heard, seconds), caller.placed)

    def _send(self, frame: Pcm) -> None:
        size = self._encoder.encode(frame if self._up is None else self._up(frame), self._payload)
        sequence, self._sequence = self._sequence, self._sequence + 1
        if self._rng.random() < self._script.loss:
            return
        header = _HEADER.pack(0x80, self._codec.payload_type, sequence, sequence * self._step, 7)
        packet = header + self._payload[:size].tobytes()
        if self._script.jitter_s:
            late_s = float(self._rng.uniform(0, self._script.jitter_s))
            self._loop.call_later(late_s, self._put, packet)
        else:
            self._put(packet)

    def _put(self, packet: bytes) -> None:
        if self.rtp is not None and not self.rtp.is_closing():
            self.rtp.sendto(packet, self._media)


class _Signalling(asyncio.DatagramProtocol):
    def __init__(self, line: Line) -> None:
        self._line = line
        self._loop = asyncio.get_running_loop()
        self.changed = asyncio.Event()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.send(self._line.receive(data.decode(), round(self._loop.time() * 1e9)))
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


async def ring(server: Server, script: Script, *, codec: str, line_number: int, seed: int) -> Taped:
    """One call. Raises RuntimeError when it is not answered."""
    loop = asyncio.get_running_loop()
    number = number_of(part_of(script), line_number)
    words, told = (server.directory / f"{number}.{kind}" for kind in ("words", "events"))
    words.write_text("", encoding="utf-8")
    told.write_text("", encoding="utf-8")
    rtp, phone = await loop.create_datagram_endpoint(
        lambda: Phone(script, codec, seed), local_addr=("127.0.0.1", 0)
    )
    contact = ("127.0.0.1", free_port())
    line = Line(
        server.address,
        contact,
        call_id=f"c{seed}-{line_number}-{codec}-{round(loop.time() * 1e6)}",
        caller="+14155550100",
        called=f"+{number}",
        codec=CODECS_OFFERED[codec],
    )
    sip, signalling = await loop.create_datagram_endpoint(
        lambda: _Signalling(line), local_addr=contact, remote_addr=server.address
    )
    try:
        signalling.send(line.invite(rtp.get_extra_info("sockname"), round(loop.time() * 1e9)))
        await signalling.until(LineState.TALKING, LineState.FAILED)
        if line.state is LineState.FAILED:
            raise RuntimeError(f"the call was not answered: {line.reason}")
        taped = await phone.talk(line.media, FiledTruth(path=words))
        signalling.send(line.leave(round(loop.time() * 1e9)))
        await signalling.until(LineState.ENDED, LineState.FAILED)
    finally:
        sip.close()
        rtp.close()
    taped.events = _read_events(told)
    return taped


async def ring_all(
    server: Server, jobs: Sequence[tuple[Script, str, int]], *, at_once: int = LINES
) -> list[Taped]:
    """Calls of (script, codec, seed), `at_once` side by side."""
    free = asyncio.Queue[int]()
    for number in range(min(at_once, LINES)):
        free.put_nowait(number)

    async def one(script: Script, codec: str, seed: int) -> Taped:
        number = await free.get()
        try:
            return await ring(server, script, codec=codec, line_number=number, seed=seed)
        finally:
            free.put_nowait(number)

    return list(await asyncio.gather(*(one(*job) for job in jobs)))


def measure(jobs: Sequence[tuple[Script, str, int]]) -> list[Taped]:
    """The calls, with a server of their own."""
    with tempfile.TemporaryDirectory() as directory:
        server = Server(Path(directory))
        try:
            return asyncio.run(ring_all(server, jobs))
        finally:
            server.close()


def compared(name: str, codec: str, wire: Sequence[Outcome], virtual: Sequence[Outcome]) -> dict[str, Any]:
    """One row: the latency of both levels (yield where the caller interrupts, else response), and how far
    they are apart."""
    here, there = summary(wire), summary(virtual)
    figure = "yield_ms" if here["yield_ms"]["count"] else "response_ms"
    row = {
        "scenario": name,
        "codec": codec,
        "calls": len(wire),
        "as_wanted": here["as_wanted"],
        "figure": figure,
    }
    if here[figure]["count"] and there[figure]["count"]:
        row |= {"wire_p50": here[figure]["p50"], "virtual_p50": there[figure]["p50"]}
        row["apart_ms"] = round(abs(row["wire_p50"] - row["virtual_p50"]), 1)
    return row | {"reasons": here["reasons"]}


def number_of(part: str, line: int) -> int:
    """Which number to dial for an agent of `part` on a line of one's own."""
    return _FIRST_NUMBER + _PARTS.index(part) * LINES + line


def part_of(script: Script) -> str:
    """The name under which the server knows the script's agent."""
    if script.part is SPEECH:
        return "speech"
    return "asking" if script.part is ASKING else "helping"


def _read_events(path: Path) -> list[AgentEvent]:
    events: list[AgentEvent] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        kind, _, text = line.partition("\t")
        if kind == "UserSaid":
            events.append(UserSaid(text, 1.0))
        else:
            events.append(UserKeyed(text) if kind == "UserKeyed" else CallOpened())
    return events
