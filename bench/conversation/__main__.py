"""Measures eighteen scenarios of turn-taking from the audio on the wire: `python -m bench conversation`.

Scripted callers with exact ground truth talk to the session on a virtual clock, thousands of calls in a few
minutes, and to a running server over SIP and RTP; a VAD-only conversation gets the same calls.
bench/README.md explains the figures."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from types import MappingProxyType
from typing import Any, Final

import click

from bench import report
from bench.call.processes import before_others
from bench.conversation import end_of_turn
from bench.conversation import wire as conversation_wire
from bench.conversation.figures import report as conversation_report
from bench.conversation.figures.metrics import Outcome, outcome, summary
from bench.conversation.figures.plot import draw
from bench.conversation.handset import Taped
from bench.conversation.scenarios import PHRASES, SCENARIOS, Dice, Script
from bench.conversation.sounds import Phrasebook, Sound, adopt, reading
from bench.conversation.virtual import converse
from bench.conversation.wire import CODECS_OFFERED, Call

CALLS: Final = 300
SHORT_CALLS: Final = 12
LEAST_CALLS: Final = 60
"""The least calls of a scenario, where several scenarios share a rate."""

WIRE_CALLS: Final = 6
"""Calls of every scenario over SIP and RTP, in each codec."""

WIRE_CALLS_OF: Final[Mapping[str, int]] = MappingProxyType({"response": 100, "loss": 100, "in noise": 20})
"""Calls over SIP and RTP by metric, where more are needed. A p95 is a row of the table: of 30 calls it rests
on two, and one in forty answers comes half a second late because a lost syllable left the end of the turn in
doubt; of 100 it rests on five. In noise one frame more or less decides whether an answer comes at once or
half a second later, in Opus for a third of the answers, so that the median of a few calls jumps by such a
step."""

_BATCH: Final = 25


_books: list[Phrasebook] = []


def phrasebook() -> Phrasebook:
    """Returns the phrases with their speech, made once for all processes."""
    if not _books:
        _books.append(Phrasebook(PHRASES))
    return _books[0]


def _adopt(book: Phrasebook, read: Sound) -> None:
    """Initialises a process with the phrases, so that a call sounds the same in every process, over SIP and
    RTP and on the virtual clock."""
    _books[:] = [book]
    adopt(read)


def script(name: str, seed: int) -> Script:
    """Returns the script of call number `seed` of a scenario."""
    return SCENARIOS[name].make(Dice(phrasebook(), name, seed))


def call(name: str, seed: int, *, codec: str = "pcmu", vad_only: bool = False) -> tuple[Taped, Outcome]:
    """Runs one call on the virtual clock; returns the recording and the outcome."""
    played = script(name, seed)
    taped = converse(played, seed, codec=codec, vad_only=vad_only)
    return taped, outcome(played, taped)


def calls(name: str, seeds: Sequence[int], *, codec: str = "pcmu", vad_only: bool = False) -> list[Outcome]:
    """Runs several calls on the virtual clock; returns the outcomes."""
    logging.disable(logging.ERROR)  # some engines are made to fail
    return [call(name, seed, codec=codec, vad_only=vad_only)[1] for seed in seeds]


def share(name: str, count: int) -> int:
    """Returns how many of a rate's `count` calls this scenario gets."""
    metric = SCENARIOS[name].metric
    beside = sum(scenario.metric == metric for scenario in SCENARIOS.values())
    return max(-(-count // beside), min(count, LEAST_CALLS))


def processes() -> ProcessPoolExecutor:
    """Returns a pool of one process per core, all with the same voices."""
    return ProcessPoolExecutor(
        len(os.sched_getaffinity(0)),
        mp_context=get_context("spawn"),
        initializer=_adopt,
        initargs=(phrasebook(), reading()),
    )


def measure(names: Sequence[str], count: int) -> dict[str, Any]:
    """Measures every scenario, with the session and with the baseline."""
    figures: dict[str, Any] = {"calls": count, "session": {}, "vad_only": {}, "first_bad": {}}
    with processes() as pool:
        for name in names:
            click.echo(f"measuring: {name}", err=True)
            each_has = share(name, count)
            batches = [range(first, min(first + _BATCH, each_has)) for first in range(0, each_has, _BATCH)]
            for label, vad_only in (("session", False), ("vad_only", True)):
                found = [
                    each
                    for part in pool.map(partial(calls, name, vad_only=vad_only), batches)
                    for each in part
                ]
                figures[label][name] = summary(found)
                if not vad_only:
                    figures["first_bad"][name] = [seed for seed, each in enumerate(found) if not each.good][
                        :5
                    ]
    return figures


def wire(count: int, names: Sequence[str], *, realtime: bool = False) -> list[dict[str, Any]]:
    """Measures scenarios over SIP and RTP, in both codecs, beside the same calls on the virtual clock."""
    more = WIRE_CALLS_OF if count > 1 else {}
    of = {name: max(count, more.get(SCENARIOS[name].metric, 0)) for name in names}
    most = max(of.values())
    keys = [
        (name, codec, seed)
        for seed in range(most)
        for name in names
        for codec in CODECS_OFFERED
        if seed < of[name]
    ]
    click.echo(f"measuring: {len(keys)} calls over SIP and RTP", err=True)
    played = [Call(script(name, seed), codec, seed) for name, codec, seed in keys]
    with before_others(wanted=realtime):
        tapes = conversation_wire.measure(played)
    found = {key: outcome(each.script, taped) for key, each, taped in zip(keys, played, tapes, strict=True)}
    pairs = [(name, codec) for name in names for codec in CODECS_OFFERED]
    with processes() as pool:
        virtual = [pool.submit(calls, name, range(of[name]), codec=codec) for name, codec in pairs]
        return [
            conversation_wire.compared(
                name, codec, [found[name, codec, seed] for seed in range(of[name])], there.result()
            )
            for (name, codec), there in zip(pairs, virtual, strict=True)
        ]


def pictures(names: Sequence[str]) -> Mapping[str, str]:
    """Draws the first call of each scenario."""
    drawn = {}
    for name in names:
        taped, found = call(name, 0)
        path = draw(name, taped, found)
        drawn[name] = str(path.relative_to(report.RESULTS))
    return drawn


@click.command()
@click.option(
    "--calls", "count", default=CALLS, show_default=True, type=click.IntRange(1), help="Calls for each rate."
)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(SCENARIOS)),
    help="Measure these scenarios alone, and save nothing.",
)
@click.option(
    "--wire-calls",
    type=click.IntRange(0),
    help=f"Calls over SIP and RTP for each scenario and codec.  [default: {WIRE_CALLS}, none with --only]",
)
@click.option("--realtime", is_flag=True, help="Run the calls over SIP and RTP under SCHED_RR (needs root).")
@click.option("--short", is_flag=True, help="Measure for about a minute, and save nothing.")
def main(count: int, only: Sequence[str], wire_calls: int | None, *, realtime: bool, short: bool) -> None:
    """Measures turn-taking: response and yield times, false cut-offs and false interruptions."""
    names = list(only or SCENARIOS)
    figures = measure(names, SHORT_CALLS if short else count)
    if wire_calls is None:
        wire_calls = int(short) or WIRE_CALLS * (not only)
    if wire_calls:
        figures["wire"] = wire(wire_calls, names[:1] if short else names, realtime=realtime)
    if not only:
        figures["end_of_turn"] = end_of_turn.measure(phrasebook(), SHORT_CALLS * 4 if short else count)
    conversation_report.show(figures)
    click.echo(f"first calls that were not as wanted: {figures['first_bad']}")
    if only or short:
        return
    report.save("conversation", figures)
    page = report.RESULTS / "conversation.md"
    page.write_text(conversation_report.page(figures, pictures(names)) + "\n", encoding="utf-8")
