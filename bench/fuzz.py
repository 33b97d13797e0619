"""Runs damaged SIP and SDP through every parser that a peer can reach, for hours.

The tests run a few hundred cases of the same strategies. Asserts that only MalformedMessage and MalformedSdp
are raised, that every refused request with a Via can be answered, that an accepted message can be serialised
and parsed again, and that a whole hostile conversation with the SIP stack leaves no transaction, dialog or
timer after its timers have fired. Measures the share refused, and the slowest case in CPU time, because a
datagram that takes a second to refuse stops every call on the event loop."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from bench import report
from sip.errors import MalformedMessage, MalformedSdp
from sip.message.framing import StreamParser
from sip.message.message import MalformedRequest, Request, Response, parse, response_to
from sip.sdp.media_plan import G722, OPUS, PCMA, PCMU
from sip.sdp.negotiation import Capabilities, accept, answer, make_offer
from tests.support.hostile import fuzz
from tests.support.hostile.fuzz_stack import conversations, survive

_OURS = Capabilities("192.0.2.1", 20000, (PCMU, PCMA, G722, OPUS))
_OFFER = make_offer(_OURS, session_id=1, version=1)


@dataclass(slots=True)
class _Tally:
    """The outcomes of one target's cases."""

    outcomes: Counter[str] = field(default_factory=Counter)
    slowest_ms: float = 0.0
    slowest_bytes: int = 0
    total_s: float = 0.0

    def add(self, outcome: str, spent_s: float, size: int) -> None:
        """Adds one case."""
        self.outcomes[outcome] += 1
        self.total_s += spent_s
        if spent_s * 1000 > self.slowest_ms:
            self.slowest_ms, self.slowest_bytes = spent_s * 1000, size

    def row(self, name: str) -> list[object]:
        """Returns the row of the table."""
        cases = self.outcomes.total()
        accepted = self.outcomes["accepted"]
        mean_us = self.total_s / max(cases, 1) * 1e6
        return [name, cases, accepted, cases - accepted, mean_us, self.slowest_ms, self.slowest_bytes]


def _datagram(data: bytes) -> str:
    try:
        message = parse(data)
    except MalformedMessage as found:
        _answered(found)
        return str(found.code)
    if _meaning(parse(message.to_bytes())) != _meaning(message):
        raise AssertionError("a message changed its meaning on the way")
    return "accepted"


def _meaning(message: Request | Response) -> tuple[object, ...]:
    return (
        message.vias,
        message.from_,
        message.to,
        message.call_id,
        message.cseq,
        message.contacts,
        message.body,
    )


def _stream(pieces: list[bytes]) -> str:
    stream = StreamParser()
    events = [event for piece in pieces for event in stream.receive(piece)]
    for event in events:
        if isinstance(event, MalformedMessage):
            _answered(event)
        elif isinstance(event, Request | Response):
            parse(event.to_bytes())
    return "broken" if stream.broken else "accepted"


def _description(data: bytes) -> str:
    outcome = "accepted"
    for negotiate in (lambda: answer(data, _OURS, session_id=1, version=1), lambda: accept(data, _OFFER)):
        try:
            negotiate()
        except MalformedSdp as found:
            outcome = str(found.code)
    return outcome


def _conversation(data: list[bytes]) -> str:
    return "accepted" if survive(data) else "unanswered"


def _answered(found: MalformedMessage) -> None:
    if isinstance(found, MalformedRequest):
        response_to(found.request, found.code, to_tag="t").to_bytes()


def _length(case: bytes | list[bytes]) -> int:
    return len(case) if isinstance(case, bytes) else sum(map(len, case))


def _run(strategy: SearchStrategy[object], target: Callable[[object], str], cases: int, start: int) -> _Tally:
    tally = _Tally()

    @seed(start)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def one(case: object) -> None:
        if tally.outcomes.total() % 1000 == 0:
            gc.collect()
        began = time.thread_time()
        outcome = target(case)
        tally.add(outcome, time.thread_time() - began, _length(case))  # type: ignore[arg-type]

    gc.disable()  # hypothesis's garbage, whose collection would count as a slow case
    try:
        one()
    finally:
        gc.enable()
    return tally


_TARGETS: dict[str, tuple[SearchStrategy[object], Callable[[object], str]]] = {
    "SIP datagram": (fuzz.datagrams(), _datagram),  # type: ignore[dict-item]
    "SIP stream": (fuzz.streams(), _stream),  # type: ignore[dict-item]
    "SDP offer and answer": (fuzz.offers(), _description),  # type: ignore[dict-item]
    "SIP stack": (conversations(), _conversation),  # type: ignore[dict-item]
}

_COLUMNS = ("target", "cases", "accepted", "refused", "mean µs", "slowest ms", "slowest bytes")


@click.command()
@click.option("--cases", default=100_000, show_default=True, type=click.IntRange(1), help="Cases in all.")
@click.option("--seed", "start", default=1, show_default=True, help="The same seed gives the same cases.")
@click.option(
    "--into",
    default=report.RESULTS,
    show_default="bench/results",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of fuzz.json.",
)
def main(cases: int, start: int, into: Path) -> None:
    """Damaged SIP and SDP through every parser."""
    share = -(-cases // len(_TARGETS))
    tallies = {name: _run(strategy, target, share, start) for name, (strategy, target) in _TARGETS.items()}
    report.show("Hostile input", _COLUMNS, [tally.row(name) for name, tally in tallies.items()])
    figures = {
        name: {
            "outcomes": dict(sorted(tally.outcomes.items())),
            "mean_us": tally.total_s / max(tally.outcomes.total(), 1) * 1e6,
            "slowest_ms": tally.slowest_ms,
            "slowest_bytes": tally.slowest_bytes,
        }
        for name, tally in tallies.items()
    }
    click.echo(report.save("fuzz", {"cases": cases, "seed": start, "targets": figures}, folder=into))
