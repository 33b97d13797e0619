"""Places the calls: so many, so many at once, so many a second, and none that is not hung up."""

from __future__ import annotations

import asyncio
import logging
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import Final

from mediaserver.benchmark.caller import CallerTurn, CallingParty, Fate, ReceivedAudio
from mediaserver.benchmark.sayings import Saying
from mediaserver.benchmark.target import CallTarget
from pipeline.errors import boundary
from sip.call import Call, CallFailed
from sip.endpoint import Endpoint, EndpointSettings
from sip.errors import SipError
from sip.message.uri import format_hostport
from sip.rtp.media_stream import MediaStats
from sip.sdp.media_plan import CODECS
from sip.states import CallState, HangupCause
from sip.trunk import Trunk
from sip.trunk_settings import TrunkSettings

log = logging.getLogger(__name__)

RING_S: Final = 40.0
NO_RESPONSE_S: Final = 8.0
"""An INVITE that nobody has said anything to by then has reached nobody."""

LEAVE_S: Final = 5.0
"""For the answer to a BYE."""

REFUSED_AT_MOST: Final = 3
"""In a row: no further call is placed."""

RTP_PORTS: Final = (16_384, 19_999)
"""Below those of a server on the same machine."""

USER_AGENT: Final = "openline-mediaserver bench"

_BEAT_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """The calls to place. A call ends after `turns` turns or `seconds`; `barge_every`: as in `CallingParty`.
    `username` and `password` answer the far end's challenge; `public_address` is what the far end is told, ""
    for our own."""

    target: CallTarget
    calls: int = 2
    concurrent: int = 2
    rate_per_s: float = 1.0
    turns: int = 8
    seconds: float = 120.0
    barge_every: int = 4
    codec: str = "pcmu"
    caller_id: str = ""
    username: str = ""
    password: str = ""
    public_address: str = ""

    @property
    def rate_hz(self) -> int:
        """Of the frames both ways."""
        return CODECS[self.codec].rate_hz


@dataclass(slots=True)
class Record:
    """One call. Moments are those of the loop's clock; `status` is the SIP status that ended it, 0 for none;
    `cause` why (`sip.states.HangupCause`); `ended_by` "remote" where the far end hung up."""

    number: int
    placed_s: float
    answered_s: float | None = None
    ended_s: float = 0.0
    status: int = 0
    cause: str = ""
    ended_by: str = ""
    turns: list[CallerTurn] = field(default_factory=list)
    heard: ReceivedAudio = field(default_factory=ReceivedAudio)
    media: MediaStats = field(default_factory=MediaStats)

    @property
    def set_up_ms(self) -> float | None:
        """From the INVITE to the answer."""
        return None if self.answered_s is None else (self.answered_s - self.placed_s) * 1000

    @property
    def first_voice_ms(self) -> float | None:
        """From the answer to the agent's first packet with voice."""
        if self.answered_s is None or self.heard.first_voice_s is None:
            return None
        return (self.heard.first_voice_s - self.answered_s) * 1000

    @property
    def answered_turns(self) -> int:
        """Turns that an agent answered."""
        return sum(turn.fate is Fate.ANSWERED for turn in self.turns)


@dataclass(slots=True)
class Run:
    """All calls. `late_s`: how late this process' clock struck, every 20 ms; a packet may have been noted so
    much later than it came."""

    records: list[Record] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    stopped: bool = False
    """Somebody ended it before its time."""
    faults: list[str] = field(default_factory=list)
    """What calls broke off with, a line each: a defect of ours or of this machine's."""


Told = Callable[[Record], None]


class PlacedCalls:
    """The calls of one plan: `have` places them. `told` hears of each that is answered or over. Once `stop`
    is set no further one is placed, and those under way are hung up."""

    def __init__(self, plan: CallPlan, sayings: Sequence[Saying], *, stop: asyncio.Event, told: Told) -> None:
        self._plan = plan
        self._sayings = sayings
        self._stop = stop
        self._told = told
        self._phone = Endpoint(_endpoint_settings(plan))
        self._loop = asyncio.get_running_loop()
        self._free = asyncio.Semaphore(plan.concurrent)
        self._refused = 0  # in a row
        self._run = Run()

    async def have(self) -> Run:
        """Places the calls and returns when all of them are over. Raises OSError and `sip.errors.SipError`
        where the phone cannot be opened. When this is cancelled the calls are hung up as well."""
        async with self._phone as phone:
            trunk = phone.add_trunk(_trunk_settings(self._plan))
            beat = asyncio.create_task(self._beat())
            try:
                async with asyncio.TaskGroup() as tasks:
                    for number in range(1, self._plan.calls + 1):
                        await self._free.acquire()
                        if self._stop.is_set() or self._refused >= REFUSED_AT_MOST:
                            break
                        tasks.create_task(self._one(trunk, number))
                        await self._pause()
            finally:
                beat.cancel()
        self._run.stopped = self._stop.is_set()
        return self._run

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(1 / self._plan.rate_per_s):
                await self._stop.wait()

    async def _beat(self) -> None:
        due_s = self._loop.time()
        while True:
            due_s += _BEAT_S
            await asyncio.sleep(due_s - self._loop.time())
            self._run.late_s.append(self._loop.time() - due_s)

    async def _one(self, trunk: Trunk, number: int) -> None:
        record = Record(number, self._loop.time())
        self._run.records.append(record)
        with boundary(log, "call broke off", number=number) as failure:  # the others go on
            await self._place(trunk, record)
        if failure.error is not None:
            record.cause = f"{type(failure.error).__name__}: {failure.error}"
            self._run.faults.append(f"call {number} broke off: {record.cause}")
        record.ended_s = record.ended_s or self._loop.time()
        self._refused = 0 if record.answered_s is not None else self._refused + 1
        self._free.release()
        self._told(record)

    async def _place(self, trunk: Trunk, record: Record) -> None:
        try:
            call = await trunk.call(self._plan.target.user, ring_timeout_s=RING_S)
        except CallFailed as failed:
            record.status, record.cause = failed.code, failed.cause
        except SipError as error:
            record.cause = str(error)
        else:
            await self._talk(call, record)

    async def _talk(self, call: Call, record: Record) -> None:
        """Waits for the answer, has the conversation, hangs up."""
        call.on_state(partial(_note, record))
        try:
            if await self._answered(call):
                await self._converse(call, record)
        finally:
            await call.hang_up()
            if record.answered_s is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LEAVE_S):
                        await call.ended()
            record.media = call.stats
            record.status, record.ended_by = call.status, call.ended_by or ""
            record.cause = call.cause or HangupCause.UNREACHABLE

    async def _answered(self, call: Call) -> bool:
        answer = asyncio.create_task(call.answered())
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({answer, stopped}, timeout=NO_RESPONSE_S, return_when=FIRST_COMPLETED)
            if not answer.done() and self._phone.stats.received:
                await asyncio.wait({answer, stopped}, return_when=FIRST_COMPLETED)
            return answer.done() and answer.exception() is None
        finally:
            answer.cancel()
            stopped.cancel()

    async def _converse(self, call: Call, record: Record) -> None:
        self._told(record)
        plan, over = self._plan, asyncio.Event()
        caller = CallingParty(
            self._sayings, call.rate_hz, turns=plan.turns, barge_every=plan.barge_every, done=over.set
        )
        record.turns, record.heard = caller.turns, caller.heard
        call.attach(caller, caller)
        waits = {asyncio.create_task(over.wait()), asyncio.create_task(self._stop.wait())}
        try:
            await asyncio.wait(waits, timeout=plan.seconds, return_when=FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()


def _note(record: Record, call: Call, state: CallState, now: float) -> None:
    if state is CallState.ANSWERED:
        record.answered_s = now
    elif state is CallState.ENDED:
        record.ended_s = now


def _endpoint_settings(plan: CallPlan) -> EndpointSettings:
    address = ip_address(plan.target.address)
    anywhere = "0.0.0.0" if address.version == 4 else "::"
    bound = format_hostport(str(address) if address.is_loopback else anywhere, 0)
    return EndpointSettings(
        udp=bound,
        tcp=bound,
        rtp_ports=RTP_PORTS,
        public_address=plan.public_address or None,
        max_calls=plan.calls,
        user_agent=USER_AGENT,
    )


def _trunk_settings(plan: CallPlan) -> TrunkSettings:
    """Media comes from wherever it comes: a caller behind a NAT has no other choice."""
    return TrunkSettings(
        id="bench",
        uri=plan.target.trunk_uri,
        caller_id=plan.caller_id,
        username=plan.username,
        password=plan.password,
        codecs=(plan.codec,),
        symmetric_rtp=True,
        ring_timeout_s=RING_S,
    )
