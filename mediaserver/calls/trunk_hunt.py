"""The trunks of an agent that carry a number, and a call that hunts through them in order.

A call goes on to the next trunk where it would go on to the next host of one trunk (`sip.dialog.target_set`):
nothing could be sent, a server said that it cannot take the call, or nobody said anything. Once a phone may
have rung it goes nowhere else."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mediaserver.admin.directory import Directory
from mediaserver.calls.signalling.stir import StirSigner
from mediaserver.errors import InvalidNumber, InvalidRequest
from mediaserver.numbers.e164 import accepted, format_for_trunk, in_use, normalise
from mediaserver.numbers.users import LINE, USER, user_named
from mediaserver.settings import AgentSettings, TrunkSettings
from mediaserver.telemetry.trunk_metrics import TrunkFigures
from mediaserver.wiring import caller_id
from sip.call import Call, CallFailed
from sip.endpoint import Endpoint
from sip.errors import SipError
from sip.states import HangupCause
from sip.trunk import Trunk

UNKNOWN_USER: Final = "No user of that name may be called by this agent"
NO_TRUNK: Final = "No SIP trunk configured for this agent"
WRONG_FORMAT: Final = "Phone number format does not match SIP trunk configuration"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Line:
    """A trunk that carries a number: the number in the carrier's format, and the caller ID that is shown.
    `called`, `caller`: both as E.164, "" for what is none. Made by `line_of`."""

    trunk: TrunkSettings
    dial_number: str
    caller_id: str | None
    called: str = ""
    caller: str = ""


def line_of(
    directory: Directory, agent: AgentSettings, trunk: TrunkSettings, *, number: str, dial_number: str
) -> Line:
    """Returns how `agent` calls an E.164 `number`, or "user:NAME", over `trunk`."""
    shown = caller_id(agent, trunk)
    company = directory.company(agent.company)
    try:
        ours = agent.phone_number or normalise(shown or "", company.country if company is not None else None)
    except InvalidNumber:
        ours = ""
    if not agent.phone_number and not in_use(ours):  # an extension that reads like a number
        ours = ""
    return Line(trunk, dial_number, shown, "" if user_named(number) else number, ours)


def lines_of(directory: Directory, agent: AgentSettings, number: str) -> list[Line]:
    """Returns the trunks of `agent` that carry an E.164 `number`, in order; for "user:NAME" the line of the
    company's users. Raises `InvalidRequest` where the agent has no trunk, none of them carries the number, or
    it may not call that user."""
    if name := user_named(number):
        return [_line_of_users(directory, agent, name)]
    trunks = [trunk for name in agent.trunk_names if (trunk := directory.trunk(name)) is not None]
    if not trunks:
        raise InvalidRequest(NO_TRUNK)
    found = []
    for trunk in trunks:
        dial_number = format_for_trunk(number, trunk.number_format)
        carried = number.removeprefix("+").startswith(trunk.dial_prefixes or ("",))
        if carried and accepted(dial_number, trunk.accepts):
            found.append(line_of(directory, agent, trunk, number=number, dial_number=dial_number))
    if not found:
        raise InvalidRequest(WRONG_FORMAT)
    return found


def _line_of_users(directory: Directory, agent: AgentSettings, name: str) -> Line:
    user = directory.user(agent.company, name)
    line = directory.trunk(f"{LINE}{agent.company}")
    if user is None or line is None or not user.may_be_called or not user.reaches(agent.id):
        raise InvalidRequest(UNKNOWN_USER)
    return line_of(directory, agent, line, number=f"{USER}{name}", dial_number=name)


async def signed(
    signer: StirSigner | None,
    line: Line,
    headers: Mapping[str, str],
    *,
    given_up: Callable[[], bool] = lambda: False,
) -> Mapping[str, str]:
    """Returns the header fields of an INVITE over `line`, with its signature where the trunk has a service
    for that. Raises `CallFailed` where it must not leave without, and where the call was `given_up`
    meanwhile."""
    if signer is None:
        return headers
    headers = await signer.sign(line.trunk, headers, caller=line.caller, called=line.called)
    if given_up():
        raise CallFailed("the call was given up", 487, HangupCause.CANCELLED)
    return headers


class TrunkHunt:
    """One call over `lines`, the first at first. `headers` returns the header fields of the INVITE over a
    line, or raises `CallFailed` where none may leave; `take` says whether the call may go over a further line
    now, and is asked before the INVITE leaves.
    `passed`: trunks that did not take the call, with the SIP status, 408 where nobody answered."""

    def __init__(
        self,
        endpoint: Endpoint,
        lines: Sequence[Line],
        *,
        headers: Callable[[Line], Awaitable[Mapping[str, str]]],
        take: Callable[[Line], Awaitable[bool]],
        figures: TrunkFigures,
        ring_timeout_s: float | None = None,
    ) -> None:
        self.passed: list[dict[str, Any]] = []
        self._endpoint = endpoint
        self._line, *self._further = lines
        self._headers = headers
        self._take = take
        self._figures = figures
        self._ring_timeout_s = ring_timeout_s

    async def call(self, *, call_id: str, sip_call_id: str | None = None) -> Call:
        """Places the call and returns it with its first INVITE sent. Raises as `sip.trunk.Trunk.call` does,
        where the last line could not be dialled."""
        while True:
            line = self._line
            try:
                with self._figures.placing(line.trunk.id):
                    headers = await self._headers(line)
                    self._call = await self._trunk.call(
                        line.dial_number,
                        caller_id=line.caller_id,
                        ring_timeout_s=self._ring_timeout_s,
                        headers=headers,
                        call_id=call_id,
                        sip_call_id=sip_call_id,
                        go_on=self._go_on if self._further else None,
                    )
            except CallFailed as failed:
                if not await self._next(failed.code):
                    raise
            else:
                return self._call

    async def _go_on(self, status: int) -> bool:
        call = self._call
        self._figures.passed_over(self._line.trunk.id, status)
        while await self._next(status):
            line = self._line
            try:
                with self._figures.placing(line.trunk.id):
                    headers = await self._headers(line)
                    await self._trunk.go_on(
                        call,
                        line.dial_number,
                        caller_id=line.caller_id,
                        ring_timeout_s=self._ring_timeout_s,
                        headers=headers,
                        spare=bool(self._further),
                    )
            except CallFailed as failed:
                status = failed.code
            except (SipError, OSError) as error:
                log.info("call goes no further", extra={"call_id": call.id, "reason": str(error)})
                return False
            else:
                named = {"call_id": call.id, "trunk": line.trunk.id}
                log.info("call goes over another trunk", extra=named | {"sip_status": status})
                return True
        return False

    async def _next(self, status: int) -> bool:
        """Turns to the next line that takes the call."""
        while self._further:
            line = self._further.pop(0)
            if line.trunk.id in self._endpoint.trunks and await self._take(line):
                self.passed.append({"trunkId": self._line.trunk.id, "status": status})
                self._line = line
                return True
        return False

    @property
    def _trunk(self) -> Trunk:
        trunk = self._endpoint.trunks.get(self._line.trunk.id)
        if trunk is None:
            raise CallFailed("the trunk cannot be used", 503, HangupCause.UNREACHABLE)
        return trunk
