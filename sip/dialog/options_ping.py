"""Asks a carrier's servers by OPTIONS whether they live (RFC 3261 11), and keeps what they answered.

A server that is down is asked less and less often, up to `SLOWEST_S`; calls try it last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from sip.dialog.target_set import Target
from sip.dialog.ua_core import ALLOW, Core
from sip.egress import Egress
from sip.message.headers import CSeq, Headers, NameAddr
from sip.message.message import Request, Response
from sip.message.uri import Uri
from sip.transaction.hop import Hop
from sip.transaction.timers import Alarm

SLOWEST_S = 300.0
"""Longest pause between two questions to a server that is down."""

PATIENCE_S = 4.0
"""Without an answer for so long a server counts as down; a later answer still counts."""

DOWN = frozenset({408, 503})
"""Answers of a server that cannot take calls. Any other, 404 and 405 included, says that it lives."""

Place = tuple[str, str, int]


class Health(StrEnum):
    """Health of one server of a carrier."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"


@dataclass(slots=True)
class ServerHealth:
    """What is known of one server: `status` is that of its last answer, 0 for none, `rtt_ms` its time."""

    hop: Hop
    health: Health = Health.UNKNOWN
    status: int = 0
    rtt_ms: float | None = None
    failures: int = 0


class OptionsPing:
    """Asks the servers of one trunk every `every_s` seconds. `caller` is the From; `changed` is called with
    each server that came up or went down."""

    def __init__(
        self,
        core: Core,
        *,
        every_s: float,
        caller: NameAddr,
        egress: Egress,
        route: Sequence[Uri] = (),
        changed: Callable[[ServerHealth], None] = lambda server: None,
    ) -> None:
        self._core = core
        self._every_s = every_s
        self._caller = caller
        self._egress = egress
        self._route = route
        self._changed = changed
        self._asked: dict[Place, _Question] = {}

    @property
    def servers(self) -> Sequence[ServerHealth]:
        """What is known of each server."""
        return [question.server for question in self._asked.values()]

    def down(self, hop: Hop) -> bool:
        """Whether the server at `hop` is known to be down."""
        question = self._asked.get((hop.transport, hop.host, hop.port))
        return question is not None and question.server.health is Health.DOWN

    def look_at(self, targets: Iterable[Target], now: float) -> None:
        """Asks these servers from now on, and no others."""
        wanted = {(each.hop.transport, each.hop.host, each.hop.port): each for each in targets}
        for place in [place for place in self._asked if place not in wanted]:
            self._asked.pop(place).stop()
        for place, target in wanted.items():
            if place not in self._asked:
                self._asked[place] = _Question(self, target)
                self._asked[place].ask(now)

    def stop(self) -> None:
        """Asks nobody any more. Idempotent."""
        for question in self._asked.values():
            question.stop()
        self._asked.clear()

    def send(self, question: _Question, now: float) -> None:
        """Sends the OPTIONS of a question, which its server answers if it lives."""
        target = question.target
        hop = replace(target.hop, egress=self._egress)
        headers = Headers()
        for each in self._route:
            headers.add("Route", f"<{each}>")
        headers.add("Max-Forwards", "70")
        headers.add("From", str(self._caller.with_tag(self._core.token())))
        headers.add("To", f"<{target.uri.without_params()}>")
        headers.add("Call-ID", self._core.token())
        headers.add("CSeq", str(CSeq(1, "OPTIONS")))
        headers.add("Contact", self._core.contact(hop, self._caller.uri.user))
        headers.add("Accept", "application/sdp")
        headers.add("Allow", ALLOW)
        if self._core.user_agent:
            headers.add("User-Agent", self._core.user_agent)
        self._core.send_request(Request("OPTIONS", target.uri, headers), hop, question, now)

    def take(self, question: _Question, health: Health, now: float) -> None:
        """Notes the result of a question, and times the next one."""
        server, before = question.server, question.server.health
        server.health = health
        server.failures = server.failures + 1 if health is Health.DOWN else 0
        wait_s = min(self._every_s * 2 ** min(server.failures, 10), max(SLOWEST_S, self._every_s))
        question.arm(self._core, now + wait_s * self._core.random.uniform(0.9, 1.0))
        if health is not before:
            self._changed(server)

    def wait(self, question: _Question, now: float) -> None:
        """Waits for the answer for `PATIENCE_S`."""
        question.arm(self._core, now + PATIENCE_S)


class _Question:
    """One server that is asked; the user of its transactions."""

    def __init__(self, ping: OptionsPing, target: Target) -> None:
        self.target = target
        self.server = ServerHealth(target.hop)
        self._ping: OptionsPing | None = ping
        self._asked_at = 0.0
        self._waiting = False
        self._alarm: Alarm | None = None

    def ask(self, now: float) -> None:
        """Sends the question."""
        if self._ping is None:
            return
        self._asked_at, self._waiting = now, True
        self._ping.wait(self, now)
        self._ping.send(self, now)

    def arm(self, core: Core, when: float) -> None:
        """Sets the alarm in place of an earlier one: silence, or the next question."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = core.clock.at(when, self._due)

    def stop(self) -> None:
        """Asks no more."""
        self._ping = None
        if self._alarm is not None:
            self._alarm.cancel()

    def response_received(self, response: Response, now: float) -> None:
        """Takes the answer of a server, which lives unless it says otherwise."""
        if response.status < 200 or self._ping is None:
            return
        self._waiting = False
        self.server.status, self.server.rtt_ms = response.status, (now - self._asked_at) * 1000
        self._ping.take(self, Health.DOWN if response.status in DOWN else Health.UP, now)

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """Notes that the server cannot be reached, or says nothing."""
        if self._waiting:
            self._silent(now)

    def _due(self, now: float) -> None:
        if self._waiting:
            self._silent(now)
        else:
            self.ask(now)

    def _silent(self, now: float) -> None:
        self._waiting = False
        self.server.status, self.server.rtt_ms = 0, None
        if self._ping is not None:
            self._ping.take(self, Health.DOWN, now)
