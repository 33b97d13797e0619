"""The place of one call in a process of PJSIP."""

from __future__ import annotations

from dataclasses import dataclass

from sip.dialog.ua_core import Core
from sip.dialog.usage import InviteSettings
from sip.message.message import Request, Response, response_to
from sip.pjsip.channel import command
from sip.pjsip.messages import Names, request_to_pjsip, response_to_pjsip
from sip.pjsip.processes import Account, PjsipProcess, PjsipSide, Processes
from sip.states import HangupCause
from sip.transaction.transaction import ServerTransaction


@dataclass(slots=True)
class Served:
    """A request of the far end that PJSIP was handed. `offer`: its session description. `body`: what was
    answered, or offered in the answer. `response`: the last one that was sent."""

    transaction: ServerTransaction
    handed: Request
    offer: bytes
    body: bytes = b""
    response: Response | None = None


class Slot:
    """What passes between a call and its process; nothing does without a process. `key` is the call's Call-ID
    in PJSIP, `tag` PJSIP's own; `goodbye`: why this side hangs up, None while it does not."""

    def __init__(self, core: Core, settings: InviteSettings, processes: Processes) -> None:
        self.process: PjsipProcess | None = None
        self.key = self.tag = ""
        self.goodbye: HangupCause | None = None
        self._core, self._settings, self._processes = core, settings, processes

    def board(self, side: PjsipSide) -> None:
        """Takes a slot for `side`. Raises OSError where no process starts."""
        self.tag, self.key = "", self._core.token() + self._core.token()
        self.process = self._processes.take(Account.of(self._settings), self.key, side)

    def command(self, verb: str, **fields: object) -> None:
        """Asks PJSIP for a change of the call."""
        if self.process is not None:
            self.process.send(command(verb, self.key, **fields))

    def send(self, message: Request | Response) -> None:
        """Sends PJSIP a message as it is."""
        if self.process is not None:
            self.process.send(message.to_bytes())

    def hand(self, request: Request, peer_tag: str, branch: str = "", *, described: bool) -> Request:
        """Hands on a request of the far end; returns it as PJSIP gets it."""
        branch = branch or self.branch()
        names = Names(self.key, self.tag, peer_tag, self.relay)
        handed = request_to_pjsip(request, names, branch, described=described)
        self.send(handed)
        return handed

    def give(self, asked: Request, response: Response, *, described: bool) -> None:
        """Hands on the far end's response to PJSIP's request `asked`."""
        self.send(response_to_pjsip(asked, response, self.relay, described=described))

    def reply(self, request: Request, status: int) -> None:
        """Answers PJSIP in the far end's place."""
        self.send(response_to(request, status, to_tag=None if status == 100 else "relay"))

    def branch(self) -> str:
        """Returns a new branch of a Via."""
        return f"z9hG4bK{self._core.token()}"

    @property
    def relay(self) -> str:
        """The "host:port" of PJSIP's peer."""
        return self.process.relay if self.process is not None else "127.0.0.1"

    def leave(self) -> None:
        """Leaves it to PJSIP to end its call, of which nothing more is heard."""
        if self.process is not None:
            self.process.leave(self.key)
        self.process = None

    def free(self) -> None:
        """Frees the slot, for PJSIP has no call."""
        if self.process is not None:
            self.process.free(self.key)
        self.process = None

    @property
    def works(self) -> bool:
        """Whether the process has started, and has not been given up."""
        return self.process is not None and bool(self.process.version) and not self.process.dead

    def kill(self) -> None:
        """Ends the process, which has not done what it was asked."""
        if self.process is not None:
            self.process.kill()
