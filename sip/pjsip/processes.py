"""The processes of PJSIP: four calls each, of one account at a time, and one more in advance."""

from __future__ import annotations

import asyncio
import logging
import socket
from asyncio.subprocess import DEVNULL
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol, Self

from pipeline.confinement.confined_process import clean_environment, confined_command, how_it_ended
from pipeline.errors import boundary
from sip.dialog.usage import InviteSettings
from sip.errors import MalformedMessage
from sip.message.message import Request, Response, parse, response_to
from sip.pjsip.channel import CALLS_LIMIT, MAX_FRAME, command, read

logger = logging.getLogger(__name__)

WORN_AFTER: Final = CALLS_LIMIT
"""Calls of one process in its life: PJSIP keeps the slot of a call for seconds after its end, and refuses the
next one meanwhile."""

SILENT_S: Final = 8.0
"""Seconds without a sign of life after which a process counts as hung, and is killed."""

SPARES: Final = 2
"""Idle processes that are kept: calls that come one after the other need no start each."""

CHECK_S: Final = 2.0
LEAVE_S: Final = 2.0
"""Seconds in which a process ends by itself, once its channel is closed."""


@dataclass(frozen=True, slots=True)
class Account:
    """What a process knows of a trunk: credentials, session timer in seconds (0: none), and whether it
    supports reliable provisional responses."""

    username: str
    password: str
    expires_s: int
    min_s: int
    reliable: bool

    @classmethod
    def of(cls, settings: InviteSettings) -> Self:
        """Returns the account of a trunk's calls."""
        return cls(
            settings.username,
            settings.password,
            settings.session_expires_s,
            settings.min_session_expires_s,
            settings.reliable_provisional,
        )


class PjsipSide(Protocol):
    """A call as its process reaches it."""

    def message_of_pjsip(self, message: Request | Response, now: float) -> None:
        """Takes a message that PJSIP sends to its peer."""

    def arrived_at_pjsip(self, now: float) -> None:
        """Notes that PJSIP has the far end's INVITE."""

    def ended_at_pjsip(self, status: int, reason: str, now: float) -> None:
        """Takes that the call is over for PJSIP, or never began."""

    def refused_by_pjsip(self, verb: str, now: float) -> None:
        """Takes that PJSIP did not carry out a command."""

    def crashed(self, reason: str, now: float) -> None:
        """Takes that the process is gone."""


class PjsipProcess:
    """One process. `calls`: those that have a slot, by key; None for one whose call is over here."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Processes) -> None:
        """Raises OSError."""
        self.calls: dict[str, PjsipSide | None] = {}
        self.account: Account | None = None
        self.served = 0
        self.dead = False
        self.dismissed = False  # ends by the will of this side
        self._killed = False
        self.version = ""
        self.pid: int | None = None
        self._loop, self._owner = loop, owner
        self._heard_at = loop.time()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        relay = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        relay.bind(("127.0.0.1", 0))
        host, port = relay.getsockname()
        self.relay = f"{host}:{port}"
        self._channel.setblocking(False)
        loop.add_reader(self._channel, self._readable)
        self.life = loop.create_task(self._live(theirs, relay))

    @property
    def idle(self) -> bool:
        """Whether it has no call and may take some."""
        return not (self.calls or self.dead or self.worn)

    @property
    def worn(self) -> bool:
        """Whether it takes no further calls."""
        return self.served >= WORN_AFTER

    def has_room(self, account: Account) -> bool:
        """Whether it may take another call of `account`."""
        return self.account == account and len(self.calls) < CALLS_LIMIT and not (self.dead or self.worn)

    def take(self, account: Account, key: str, call: PjsipSide) -> None:
        """Gives `call` a slot here."""
        if account != self.account:
            self.account = account
            self.send(command("account", **asdict(account)))
        self.calls[key] = call
        self.served += 1

    def leave(self, key: str) -> None:
        """Keeps the slot of a call that is over here until PJSIP has ended it too."""
        if key in self.calls:
            self.calls[key] = None

    def free(self, key: str) -> None:
        """Frees the slot of a call that PJSIP never had, or has ended."""
        self.calls.pop(key, None)
        self._owner.tidy()

    def send(self, frame: bytes) -> None:
        """Sends a command or a message. A process that does not read is killed."""
        if self.dead:
            return
        try:
            self._channel.send(frame)
        except OSError:
            self.kill()

    def kill(self) -> None:
        """Ends the process at once, and once only: a second cancellation would keep `life` from telling the
        calls."""
        self.dead = True
        if not self._killed:
            self._killed = True
            self._loop.call_soon(self.life.cancel)

    def end(self) -> None:
        """Lets it end by itself, which it does without its channel; kills it where it does not."""
        self.dead = self.dismissed = True
        self._close_channel()
        self._loop.call_later(LEAVE_S, self.kill)

    def check(self, now: float) -> None:
        """Kills a process that has been silent for too long."""
        self._readable()
        if not self.dead and now - self._heard_at > SILENT_S:
            logger.error("PJSIP process does not answer", extra={"pid": self.pid})
            self.kill()

    async def _live(self, theirs: socket.socket, relay: socket.socket) -> None:
        reason, process = "it could not be started", None
        try:
            with theirs, relay:
                descriptors = theirs.fileno(), relay.fileno()
                process = await asyncio.create_subprocess_exec(
                    *confined_command("sip.pjsip.process", *map(str, descriptors)),
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    env=clean_environment(),
                    pass_fds=descriptors,
                )
            self.pid = process.pid
            reason = how_it_ended(await process.wait())
        except OSError as error:
            reason = str(error)
        except asyncio.CancelledError:
            reason = "it did not answer"
        finally:
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()
        self._died(reason)

    def _died(self, reason: str) -> None:
        if self._channel.fileno() >= 0:
            self._readable()  # what it told before
        self.dead = True
        self._close_channel()
        self._owner.died(self, reason)

    def _close_channel(self) -> None:
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel)
            self._channel.close()

    def _readable(self) -> None:
        while self._channel.fileno() >= 0:
            try:
                frame = self._channel.recv(MAX_FRAME)
            except OSError:
                break
            if not frame:
                self._loop.remove_reader(self._channel)
                break
            self._heard_at = self._loop.time()
            # The boundary between calls: what goes wrong with one is not the others'.
            with boundary(logger, "frame of a PJSIP process was not taken", pid=self.pid):
                self._take(frame)
        self._owner.flush()

    def _take(self, frame: bytes) -> None:
        now, told = self._loop.time(), read(frame)
        if told is not None:
            self._event(told, now)
            return
        try:
            message = parse(frame)
        except MalformedMessage as fault:
            logger.warning("PJSIP sends what is not SIP", extra={"pid": self.pid, "reason": str(fault)})
            return
        call = self.calls.get(message.call_id)
        if call is not None:
            call.message_of_pjsip(message, now)
        elif isinstance(message, Request) and message.method != "ACK":
            self.send(_gone(message))

    def _event(self, told: dict[str, Any], now: float) -> None:
        key = str(told.get("call", ""))
        call = self.calls.get(key)
        match told.get("event"):
            case "ready":
                self.version = str(told["version"])
            case "arrived" if call is not None:
                call.arrived_at_pjsip(now)
            case "ended":
                self.calls.pop(key, None)
                if call is not None:
                    call.ended_at_pjsip(int(told["status"]), str(told["reason"]), now)
                self._owner.tidy()
            case "failed":
                verb, reason = str(told["verb"]), str(told["reason"])
                logger.warning("PJSIP refuses a command", extra={"command": verb, "reason": reason})
                if verb == "dial":
                    self.free(key)
                if call is not None:
                    call.refused_by_pjsip(verb, now)


class Processes:
    """All processes of one endpoint. `died` counts those that ended with calls, or before they had any."""

    def __init__(self) -> None:
        self.crashes = 0
        self.flush: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._all: list[PjsipProcess] = []
        self._check: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._all)

    @property
    def all(self) -> tuple[PjsipProcess, ...]:
        """The processes that run, or are about to."""
        return tuple(self._all)

    def start(self, loop: asyncio.AbstractEventLoop, flush: Callable[[], None]) -> None:
        """Notes on which loop to work. `flush` is called after messages and events of a process."""
        self._loop, self.flush = loop, flush

    def warm(self) -> None:
        """Starts a process in advance, where none is idle."""
        if self._loop is not None and not self._closed and not any(each.idle for each in self._all):
            self._start(self._loop)

    def take(self, account: Account, key: str, call: PjsipSide) -> PjsipProcess:
        """Returns the process that has a slot for `call` from now on. Raises OSError where none starts."""
        assert self._loop is not None
        found = next((each for each in self._all if each.has_room(account)), None)
        found = found or next((each for each in self._all if each.idle), None) or self._start(self._loop)
        found.take(account, key, call)
        self.warm()
        return found

    def tidy(self) -> None:
        """Ends processes that are worn, and idle ones that no call may need soon."""
        idle = [each for each in self._all if each.idle]
        worn = [each for each in self._all if each.worn and not each.calls and not each.dead]
        for each in (*idle[SPARES:], *worn):
            each.end()

    def died(self, process: PjsipProcess, reason: str) -> None:
        """Ends the calls of a process that is gone."""
        self._all.remove(process)
        lost = [each for each in process.calls.values() if each is not None]
        if not process.dismissed:
            self.crashes += 1
            extra = {"pid": process.pid, "reason": reason, "calls": len(lost)}
            logger.error("PJSIP process ended, and its calls with it", extra=extra)
        process.calls.clear()
        for call in lost:
            with boundary(logger, "call of a PJSIP process was not ended", pid=process.pid):
                call.crashed(reason, self._now())
        self.flush()

    async def close(self) -> None:
        """Ends all processes, by force those that do not end by themselves."""
        self._closed = True
        if self._check is not None:
            self._check.cancel()
        lives = [each.life for each in self._all]
        for each in list(self._all):
            each.end()
        if lives:
            await asyncio.wait(lives)  # `end` sets them a term

    def _start(self, loop: asyncio.AbstractEventLoop) -> PjsipProcess:
        process = PjsipProcess(loop, self)
        self._all.append(process)
        if self._check is None:
            self._check = loop.call_later(CHECK_S, self._check_all)
        return process

    def _check_all(self) -> None:
        self._check = None
        for each in self.all:
            each.check(self._now())
        if self._all and self._loop is not None:
            self._check = self._loop.call_later(CHECK_S, self._check_all)

    def _now(self) -> float:
        return self._loop.time() if self._loop is not None else 0.0


def _gone(request: Request) -> bytes:
    """Returns the answer to a request of PJSIP within a call that is over here."""
    status = 487 if request.method == "INVITE" else 200
    return response_to(request, status, to_tag="gone").to_bytes()
