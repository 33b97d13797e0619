"""`mediaserver bench` from its options to its exit status."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import click
from rich.console import Console

from mediaserver.benchmark.calls import CallPlan, PlacedCalls, Record, Run
from mediaserver.benchmark.options import Options
from mediaserver.benchmark.own_node import CannotTakeCalls, Order, own_node
from mediaserver.benchmark.plot import svg
from mediaserver.benchmark.report import complaint, conditions, figures, lines, table, why
from mediaserver.benchmark.sayings import NoSpeech, Recorded, Saying, recorded, sayings, synthesised
from mediaserver.benchmark.target import CallTarget, CallTargetRefused, target
from mediaserver.local_node import NodeFailed
from mediaserver.settings import Settings
from pipeline.errors import EngineError
from sip.errors import SipError
from sip.sdp.media_plan import CODECS

EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2
EXIT_STOPPED: Final = 130

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""SIGHUP: the terminal is gone."""


class Interruption:
    """Ctrl-C: the first one hangs up what has been called, the next ends the program. Before the first
    call one is enough."""

    def __init__(self, whole: asyncio.Task[Any]) -> None:
        self.stop = asyncio.Event()
        self.calling = False
        self._whole = whole

    def asked(self) -> None:
        """Stops the run on one of `_SIGNALS`: no further call is placed, and those that are up are ended."""
        if self.calling and not self.stop.is_set():
            _say("hanging up")
        else:
            self._whole.cancel()
        self.stop.set()  # whatever becomes of the cancellation: nothing is called after this


def main(options: Options, settings: Settings | None = None) -> int:
    """Has the calls, writes what was asked for; returns the exit status. `settings`: of one's own agent."""
    logging.disable(logging.CRITICAL)  # what matters of a call is in its record
    try:
        return asyncio.run(_bench(options, settings))
    except asyncio.CancelledError:
        return EXIT_STOPPED


async def _bench(options: Options, settings: Settings | None) -> int:
    whole, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert whole is not None
    interruption = Interruption(whole)
    for number in _SIGNALS:
        if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup
        loop.add_signal_handler(number, interruption.asked)
    try:
        said, speech = await _speech(options)
        async with _called(options, settings) as to:
            plan = CallPlan(target=to, **options.plan)
            run = await _have(plan, said, interruption)
        about = conditions(plan, said, agent=options.agent_id, speech=speech)
    except (CallTargetRefused, NoSpeech, CannotTakeCalls) as refused:
        return _said(str(refused), EXIT_REFUSED)
    except (NodeFailed, EngineError, SipError, OSError) as error:
        return _said(str(error), EXIT_FAILED)
    try:
        return await _tell(run, figures(run, about), options)
    except OSError as error:  # a full disk, a pipe that nobody reads
        return _said(str(error), EXIT_STOPPED if run.stopped else EXIT_FAILED)


async def _speech(options: Options) -> tuple[list[Saying], str]:
    """What is said, at the line's rate, and whose voice it is."""
    found: Sequence[Recorded]
    if options.speech:
        found = [await asyncio.to_thread(recorded, path) for path in options.speech]
        whose = f"{len(found)} recordings" if len(found) > 1 else "1 recording"
    else:
        found, whose = await synthesised(), "espeak-ng's voice"
    codec = options.plan["codec"]
    return sayings(found, CODECS[codec].rate_hz), whose


@asynccontextmanager
async def _called(options: Options, settings: Settings | None) -> AsyncIterator[CallTarget]:
    """Whom to call; a node of one's own runs for as long as the block."""
    if settings is None:
        yield await target(options.to, sure=options.sure)
        return
    order = Order(
        config=options.config,
        agent_id=options.agent_id,
        variables=options.variables,
        codec=options.plan["codec"],
        calls=options.plan["concurrent"],
    )
    _say(f"starting a node with the agent {options.agent_id}")
    async with own_node(settings, order) as address:
        yield await target(address, sure=True)


async def _have(plan: CallPlan, said: Sequence[Saying], interruption: Interruption) -> Run:
    _say(f"calling {plan.target}, {plan.calls} times; Ctrl-C hangs up")
    gc.collect()
    gc.freeze()  # what is alive stays: a collection in the middle of a call would be noted as late packets
    interruption.calling = True
    try:
        return await PlacedCalls(plan, said, stop=interruption.stop, told=_progress).have()
    finally:
        interruption.calling = False


def _progress(record: Record) -> None:
    if record.set_up_ms is not None and not record.ended_s:
        what = f"answered after {record.set_up_ms:.0f} ms"
    elif record.answered_s is None:
        what = f"not answered: {why(record)}"
    else:
        what = f"{record.answered_turns} of {len(record.turns)} turns answered"
    _say(f"call {record.number}: {what}")


async def _tell(run: Run, found: dict[str, Any], options: Options) -> int:
    for path, text in (
        (options.json, json.dumps(found, ensure_ascii=False, indent=2) + "\n"),
        (options.plot, svg(run, found) if options.plot is not None else ""),
    ):
        if path is not None:
            await asyncio.to_thread(path.write_text, text, encoding="utf-8")
    if found["calls"]["answered"]:
        Console().print(table(found))
        click.echo("\n".join(lines(found)))
    if run.stopped:
        return EXIT_STOPPED
    wrong = "; ".join(run.faults) or complaint(found)
    return _said(wrong, EXIT_FAILED) if wrong else 0


def _said(reason: str, status: int) -> int:
    _say(reason)
    return status


def _say(line: str) -> None:
    """To whoever watches: nothing depends on it, and the terminal may be gone."""
    with suppress(OSError):
        click.echo(line, err=True)
