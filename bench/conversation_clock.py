"""Conversations without a network and without waiting: the real `Session` between a scripted caller and
stand-in models, on a clock that jumps to whatever is due next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from bench.conversation_baseline import VadOnly
from bench.conversation_caller import FRAME, Caller, Placed, Truth, recording
from bench.conversation_models import Agent, Fault, Recogniser, Voice
from bench.conversation_scenarios import Script
from bench.conversation_sounds import RATE_HZ, reading
from bench.virtual_clock import VirtualLoop
from pipeline.agent import AgentEvent
from pipeline.audio import Pcm
from pipeline.leg import AudioSource, LegListener
from pipeline.outcome import SessionObserver, SessionResult
from pipeline.session import Session
from pipeline.settings import SessionSettings
from pipeline.turn_judge import TurnJudge

PTIME_S: Final = 0.02
_JUDGE: Final = TurnJudge()


@dataclass(slots=True)
class Taped:
    """What was on the wire of one call, seen from the caller's socket: samples at 8 kHz from the answer on,
    where each cue lay, and beside it what the system says happened. `decisions`: (second, name) for the
    pictures."""

    sent: Pcm
    heard: Pcm
    placed: list[Placed]
    events: list[AgentEvent] = field(default_factory=list)
    result: SessionResult | None = None
    decisions: list[tuple[float, str]] = field(default_factory=list)


class Talk(Protocol):
    """What can be put on a leg: a session, or the baseline."""

    def run(self) -> Awaitable[SessionResult | None]:
        """Until the leg ends."""


class Line:
    """The leg between them: 20 ms in and 20 ms out, with the losses and the delay of the script."""

    rate_hz = RATE_HZ

    def __init__(self, caller: Caller, script: Script, seed: int) -> None:
        self._caller = caller
        self._script = script
        self._rng = np.random.default_rng(seed)
        self._listener: LegListener | None = None
        self._source: AudioSource | None = None
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._tick = 0
        self._last_out = -1.0
        self._before = np.zeros(FRAME, np.int16)
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """See `pipeline.leg.Leg`."""
        self._listener, self._source = listener, source
        if self._timer is not None:
            self._timer.cancel()
        if source is not None:
            source.on_ready(self._speak)
            self._schedule()

    async def hang_up(self) -> None:
        """See `pipeline.leg.Leg`."""
        self._listener = None

    async def send_dtmf(self, digits: str) -> None:
        """Not listened to."""

    def _schedule(self) -> None:
        self._timer = self._loop.call_at(self._start + (self._tick + 1) * PTIME_S, self._turn)

    def _turn(self) -> None:
        spoken_s = self._tick * PTIME_S
        frame = self._caller.frame(spoken_s)
        self._loop.call_later(self._script.jitter_s, self._deliver, frame, self._tick * FRAME)
        key = self._caller.pressed(spoken_s)
        if key and self._listener is not None:
            self._listener.digit_received(key, self._loop.time())
        self._tick += 1
        self._speak()
        if self._caller.finished(spoken_s, self._script.ending, self._script.limit_s):
            if self._listener is not None:
                self._listener.leg_ended("normal", self._loop.time())
        elif self._listener is not None:
            self._schedule()

    def _deliver(self, frame: Pcm, position: int) -> None:
        if self._listener is None:
            return
        lost = self._script.loss > 0 and self._rng.random() < self._script.loss
        if lost:
            frame = self._before // 2
        self._before = frame
        self._listener.audio_received(frame, position, self._loop.time(), concealed=lost)

    def _speak(self) -> None:
        now = self._loop.time()
        if self._source is None or now - self._last_out < PTIME_S - 1e-4:
            return
        frame = self._source.read()
        if frame is not None:
            self._last_out = now
            self._caller.hears(frame.copy(), now - self._start)
            self._source.sent(now)


class _Deciding(SessionObserver):
    def __init__(self) -> None:
        self.decisions: list[tuple[float, str]] = []

    def state_changed(self, state: str, now: float) -> None:
        self.decisions.append((now, state))


def converse(
    script: Script, seed: int, *, settings: SessionSettings | None = None, vad_only: bool = False
) -> Taped:
    """One call, on a clock of its own."""
    reading()  # made before the clock begins: it takes a process, and real time
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_converse(script, seed, settings or SessionSettings(), vad_only))


async def _converse(script: Script, seed: int, settings: SessionSettings, vad_only: bool) -> Taped:
    loop = asyncio.get_running_loop()
    start = loop.time()
    truth = Truth()
    caller = Caller(script.cues, truth, origin=start)
    caller.background, caller.echo = script.background, script.echo
    line = Line(caller, script, seed)
    agent = Agent(script.part, script.fault)
    watching = _Deciding()
    stt, tts = Recogniser(truth, script.fault), Voice(script.fault)
    talk: Talk
    if vad_only:
        talk = VadOnly(line, agent, stt, tts)
    else:
        spare = (Voice(),) if script.fault is Fault.TTS_STALLS else ()
        talk = Session(
            leg=line,
            agent=agent,
            stt=stt,
            tts=tts,
            settings=settings,
            fallback_tts=spare,
            observer=watching,
            judge=_JUDGE,
        )
    result = await talk.run()
    seconds = loop.time() - start
    return Taped(
        np.concatenate(caller.sent),
        recording(caller.heard, seconds),
        caller.placed,
        agent.events,
        result,
        [(now - start, state) for now, state in watching.decisions],
    )
