"""What this server adds to a model that hears and speaks by itself: from the end of the caller's turn to the
request that the service gets, and from the service's first sound to the first packet with sound.

The service, the server and the caller are one process, so that all times are of one clock; its CPU time
counts all three. The service waits before it speaks, so that no turn's end is still to be confirmed."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from pipeline.session.agent_turns import AgentTurns
from tests.support.http.chat import FakeChat
from tests.support.http.realtime_call import GREETING, OPENED, Answers, Scene, scene
from tests.support.http.realtime_server import Break

RESULT: Final = Path(__file__).parent / "results" / "realtime.json"
THINKS_S: Final = 0.8
AUDIBLE: Final = 300
KILLS: Final = 5


@contextmanager
def asked(times: list[tuple[float, float]]) -> Iterator[None]:
    """Notes the loop time, and the CPU time, at which the agent is asked for each answer."""
    start = AgentTurns.start

    def noted(self: AgentTurns, *arguments: Any) -> None:
        times.append((asyncio.get_running_loop().time(), time.process_time()))
        start(self, *arguments)

    AgentTurns.start = noted  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        AgentTurns.start = start  # type: ignore[method-assign]


async def turns(there: Scene, count: int) -> None:
    """The caller says something, hears the answer out, and so on."""
    await there.quiet()
    for _ in range(count):
        before = len(there.talk.sound_at)
        await there.says("where is my order")
        await there.hears(partial(_answers, there, before), patience_s=30.0)
        await there.quiet()


def _answers(there: Scene, before: int) -> bool:
    return len(there.talk.sound_at) > before


def first_after(moment: float, heard: list[tuple[float, Any]]) -> float:
    """When the first packet with sound after `moment` arrived."""
    return next(at for at, frame in heard if at > moment and int(np.abs(frame.astype(int)).max()) > AUDIBLE)


def figures(there: Scene, times: list[tuple[float, float]], late: list[float]) -> dict[str, Any]:
    """Milliseconds of each half, what CPU time the first takes, and how late the loop was meanwhile."""
    talk = there.talk
    sent = [at for event, at in zip(talk.got, talk.got_at, strict=True) if event.type == "response.create"]
    begun = [max(each for each in times if each[0] <= at) for at, _ in sent[1:]]
    pairs = list(zip(begun, sent[1:], strict=True))
    rows = {
        "turn over to request": [to[0] - since[0] for since, to in pairs],
        "turn over to request, CPU": [to[1] - since[1] for since, to in pairs],
        "sound to packet": [first_after(at, there.frames) - at for at in talk.sound_at[1:]],
        "a timer of the same loop is late": late,
    }
    return {
        name: {f"p{part}": round(float(np.percentile(values, part)) * 1000, 2) for part in (50, 95)}
        for name, values in rows.items()
    }


async def lateness(late: list[float]) -> None:
    """Notes how late a timer of 5 ms is, over and over: what the machine adds to everything."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + 0.005
        await asyncio.sleep(0.005)
        late.append(loop.time() - due)


async def measure(count: int) -> dict[str, Any]:
    """One call of `count` turns."""
    times: list[tuple[float, float]] = []
    answers: Answers = {OPENED: GREETING, "where is my order": [THINKS_S, "late again"]}
    with tempfile.TemporaryDirectory() as folder, asked(times):
        async with scene(Path(folder), answers) as there:
            late: list[float] = []
            timer = asyncio.create_task(lateness(late))
            began, cpu = time.monotonic(), time.process_time()
            await turns(there, count)
            took_s, cpu_s = time.monotonic() - began, time.process_time() - cpu
            timer.cancel()
            rows = figures(there, times, late)
    return {
        "turns": count,
        "ms": rows,
        "cpu_share_of_all_three": round(cpu_s / took_s, 3),
        "load": [round(each, 1) for each in os.getloadavg()],
    }


async def taken_over() -> float:
    """Milliseconds from the moment at which the service is killed, in answering, to the first sound of the
    cascade, whose model and voice take no time."""
    answers: Answers = {OPENED: GREETING, "where is my order": [Break()]}
    with tempfile.TemporaryDirectory() as folder:
        async with scene(Path(folder), answers, chat=FakeChat(["It is late."])) as there:
            await turns(there, 1)
            await there.hears(lambda: "It is late." in there.voice.said)
            await there.quiet(1.0)
            killed = float(there.talk.sound_at[1])
            return round((first_after(killed, there.frames) - killed) * 1000, 1)


@click.command()
@click.option("--turns", "count", default=30, show_default=True)
@click.option("--write/--no-write", default=True, help="Whether the result is kept.")
def main(count: int, write: bool) -> None:
    """Measures what a realtime model's turns take beside the model."""
    result = asyncio.run(measure(count))
    result["killed to the cascade's first sound, ms"] = [asyncio.run(taken_over()) for _ in range(KILLS)]
    click.echo(json.dumps(result, indent=2))
    if write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
