"""A conversation without a network and without waiting: a virtual clock, a leg, and stand-ins for the
models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bench.support.virtual_clock import VirtualLoop
from pipeline.agent import AgentAct, AgentEvent, AgentReport
from pipeline.audio import Pcm, frame_samples
from pipeline.errors import EngineError
from pipeline.latency import TurnLatency
from pipeline.leg import AudioSource, LegListener
from pipeline.media.recording import RecordingWriter
from pipeline.result import SessionObserver, SessionResult, TurnRecord
from pipeline.session.prompts import Phrases
from pipeline.session.session import Session
from pipeline.settings import SessionSettings
from pipeline.speech import Expected, HeardWord, Hypothesis, SpeechChunk, SpokenWord
from pipeline.transcript import Role, TranscriptEntry

T = TypeVar("T")

RATE_HZ = 8000


# The clock --------------------------------------------------------------------------------------------------


def play(scene: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs `scene` on a virtual clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scene())


# The caller -------------------------------------------------------------------------------------------------


def voice(duration_s: float, *, rate_hz: int = RATE_HZ) -> Pcm:
    """Something that every detector takes for speech: a buzz of 120 Hz with formants, -20 dBFS."""
    time_s = np.arange(round(duration_s * rate_hz)) / rate_hz
    wave = sum(np.sin(2 * np.pi * 120 * k * time_s) / k for k in range(1, 20))
    return (
        np.asarray(3000 * wave * (1 + 0.3 * np.sin(2 * np.pi * 4 * time_s)), np.float64)
        .clip(-32768, 32767)
        .astype(np.int16)
    )


class FakeLeg:
    """A leg on the loop's clock: every 20 ms a frame in and a frame out.

    `timeline`: what the caller says, (second, samples). `frames`: what went out, (moment, samples), and
    `started_at` the moment that both count from.
    """

    def __init__(self, timeline: Iterable[tuple[float, Pcm]] = (), *, rate_hz: int = RATE_HZ) -> None:
        self.rate_hz = rate_hz
        self.frames: list[tuple[float, Pcm]] = []
        self.dtmf = ""
        self.hung_up = 0
        self.held = False
        self.suppresses_silence = False
        self.started_at = 0.0
        self.listener: LegListener | None = None
        self.source: AudioSource | None = None
        self._timeline = list(timeline)
        self._keys: list[tuple[float, str]] = []
        self._ends: tuple[float, str] | None = None
        self._tick = 0
        self._next: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop

    def keys(self, at_s: float, digits: str, gap_s: float = 0.2) -> None:
        """The caller keys `digits` from `at_s` on."""
        self._keys += [(at_s + index * gap_s, digit) for index, digit in enumerate(digits)]

    def ends(self, at_s: float, reason: str = "normal") -> None:
        """The caller hangs up."""
        self._ends = (at_s, reason)

    def says(self, at_s: float, samples: Pcm) -> None:
        """The caller says something."""
        self._timeline.append((at_s, samples))

    def plays(
        self, says: Iterable[tuple[float, Pcm]], keys: Iterable[tuple[float, str]], ends_s: float | None
    ) -> None:
        """The caller says, keys and hangs up as told."""
        self._timeline += says
        for at_s, digits in keys:
            self.keys(at_s, digits)
        if ends_s is not None:
            self.ends(ends_s)

    def resume(self) -> None:
        """The far end takes the call off hold."""
        self.held = False

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        self.listener, self.source = listener, source
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if source is not None:
            source.on_ready(self._wake)
            self._loop = asyncio.get_running_loop()
            self.started_at = self._loop.time()
            self._schedule()

    async def hang_up(self) -> None:
        self.hung_up += 1

    async def send_dtmf(self, digits: str) -> None:
        self.dtmf += digits

    @property
    def heard(self) -> Pcm:
        """Everything that went out, one frame after the other."""
        return (
            np.concatenate([samples for _, samples in self.frames]) if self.frames else np.zeros(0, np.int16)
        )

    def gaps(self) -> list[float]:
        """Silences between what went out, in seconds, the first one from the start."""
        moments = [self.started_at, *(moment for moment, _ in self.frames)]
        return [b - a - 0.02 for a, b in pairwise(moments)]

    def _schedule(self) -> None:
        self._next = self._loop.call_at(self.started_at + (self._tick + 1) * 0.02, self._turn)

    def _turn(self) -> None:
        now = self._loop.time()
        tick, self._tick = self._tick, self._tick + 1
        self._schedule()
        self._hear(tick, now)
        if self.listener is not None:
            self._speak(now)

    def _hear(self, tick: int, now: float) -> None:
        n = frame_samples(self.rate_hz)
        frame, spoken = np.zeros(n, np.int16), False
        for second, samples in self._timeline:
            offset = tick * n - round(second * self.rate_hz)
            piece = samples[max(0, offset) : max(0, offset + n)]
            if piece.size and offset > -n:
                frame[max(0, -offset) : max(0, -offset) + piece.size] += piece[: n - max(0, -offset)]
                spoken = True
        if self.listener is not None and (spoken or not self.suppresses_silence):
            self.listener.audio_received(frame, tick * n, now, concealed=False)
        while self._keys and self._keys[0][0] <= now - self.started_at and self.listener is not None:
            self.listener.digit_received(self._keys.pop(0)[1], now)
        if self._ends is not None and self._ends[0] <= now - self.started_at and self.listener is not None:
            reason, self._ends = self._ends[1], None
            self.listener.leg_ended(reason, now)

    def _speak(self, now: float) -> None:
        if self.source is None or self.held or (self.frames and now - self.frames[-1][0] < 0.0199):
            return
        frame = self.source.read()
        if frame is not None:
            self.frames.append((now, frame.copy()))
            self.source.sent(now)

    def _wake(self) -> None:
        self._speak(self._loop.time())


# The models -------------------------------------------------------------------------------------------------


@dataclass
class FakeListening:
    """Understands what the test says the caller says. `words_so_far`: of the partial result."""

    stt: FakeStt
    expected: Expected | None
    samples: int = 0
    closed: bool = False
    pushed: list[Pcm] = field(default_factory=list)
    text: str | None = None
    words_so_far: str = ""

    def push(self, samples: Pcm) -> None:
        self.samples += samples.size
        self.pushed.append(samples.copy())

    def partial(self) -> str:
        return self.words_so_far

    async def result(self) -> Hypothesis:
        self.stt.asked += 1
        if self.stt.delay_s:
            await asyncio.sleep(self.stt.delay_s)
        if self.stt.fails:
            raise EngineError("recogniser down", retryable=True)
        self.text = self.stt.understand(self)
        words = tuple(
            HeardWord(word, 100 * index, 100 * index + 90) for index, word in enumerate(self.text.split())
        )
        return Hypothesis(self.text, 0.9 if self.text else 0.0, words)

    def close(self) -> None:
        self.closed = True


class FakeStt:
    """Gives `texts` one after the other, one for each utterance."""

    def __init__(self, *texts: str, delay_s: float = 0.0, fails: bool = False) -> None:
        self.texts = list(texts)
        self.delay_s = delay_s
        self.fails = fails
        self.asked = 0
        self.listenings: list[FakeListening] = []

    def understand(self, listening: FakeListening) -> str:
        return listening.text or (self.texts.pop(0) if self.texts else "")

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> FakeListening:
        self.listenings.append(FakeListening(self, expected))
        return self.listenings[-1]


class FakeTts:
    """Says every word in 300 ms at 16 kHz, one chunk a word. The n-th word is a tone of its own level, so
    that a test can hear which it was. `breaks`: what happens at which word of which request."""

    rate_hz = 16000
    WORD_MS = 300

    def __init__(self, *, delay_s: float = 0.0, has_words: bool = True) -> None:
        self.delay_s = delay_s
        self.has_words = has_words
        self.asked: list[str] = []
        self.fail_at: dict[int, int] = {}  # request: word
        self.stall_at: dict[int, int] = {}
        self.always_fails = False
        self.retryable = True
        self.closed_early = 0

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        request = len(self.asked)
        self.asked.append(text)
        size = self.rate_hz * self.WORD_MS // 1000
        finished = False
        try:
            for index, word in enumerate(text.split()):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if self.always_fails or self.fail_at.get(request) == index:
                    raise EngineError("voice down", retryable=self.retryable)
                if self.stall_at.get(request) == index:
                    await asyncio.sleep(3600)
                samples = np.full(size, 1000 + 10 * index, np.int16)
                spoken = (SpokenWord(word, index * size, (index + 1) * size),) if self.has_words else ()
                yield SpeechChunk(samples, spoken)
            finished = True
        finally:
            self.closed_early += not finished


WORD_S = FakeTts.WORD_MS / 1000


def spoken(text: str) -> Pcm:
    """A voice for as long as `text` takes."""
    return voice(len(text.split()) * WORD_S)


class FakeAgent:
    """Answers each event with the next of `answers`: acts, an exception to raise, or seconds to think."""

    def __init__(self, *answers: Sequence[AgentAct | Exception | float]) -> None:
        self.answers = list(answers)
        self.events: list[AgentEvent] = []
        self.closed_early = 0

    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        self.events.append(event)
        acts = self.answers.pop(0) if self.answers else ()
        finished = not acts
        try:
            for index, act in enumerate(acts):
                finished = index == len(acts) - 1
                if isinstance(act, Exception):
                    raise act
                if isinstance(act, float):
                    await asyncio.sleep(act)
                else:
                    yield act
        finally:
            self.closed_early += not finished

    def report(self) -> AgentReport:
        return AgentReport(disposition="reported", reached_goal=True, answers={"day": "monday"})


class Watching(SessionObserver):
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.turns: list[TurnRecord] = []
        self.entries: list[TranscriptEntry] = []
        self.states: list[str] = []

    def turn_completed(self, turn: TurnRecord) -> None:
        self.turns.append(turn)

    def transcript_added(self, entry: TranscriptEntry) -> None:
        self.entries.append(entry)

    def state_changed(self, state: str, now: float) -> None:
        self.states.append(state)


class Spelling(FakeStt):
    """Understands a word for every 300 ms of voice pushed; what it says of silence is nothing."""

    def understand(self, listening: FakeListening) -> str:
        voiced = sum(1 for frame in listening.pushed if np.abs(frame).max() > 500)
        said = self.texts[min(self.listenings.index(listening), len(self.texts) - 1)].split()
        return " ".join(said[: round(voiced * 0.02 / WORD_S)])


class Streaming(Spelling):
    """The same, and says what it has so far without being asked for a result."""

    def listen(self, **about: Any) -> FakeListening:
        listening = super().listen(**about)
        listening.partial = lambda: self.understand(listening)  # type: ignore[method-assign]
        return listening


class Bilingual(FakeStt):
    """Notes the language that it listens for."""

    def __init__(self, *texts: str) -> None:
        super().__init__(*texts)
        self.languages: list[str] = []

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> FakeListening:
        self.languages.append(language)
        return super().listen(rate_hz=rate_hz, language=language, expected=expected)


class Polyglot(FakeTts):
    """Notes what it says, and in which language."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str]] = []

    def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        self.said.append((language, text))
        return super().speak(text, language=language)


# The call ---------------------------------------------------------------------------------------------------


def converse(
    agent: Any,
    leg: FakeLeg | None = None,
    *,
    says: Iterable[tuple[float, Pcm]] = (),
    keys: Iterable[tuple[float, str]] = (),
    ends_s: float | None = None,
    written: Iterable[tuple[float, str]] = (),
    later: Iterable[tuple[float, Callable[[Session], object]]] = (),
    record_to: Path | None = None,
    stt: Any = None,
    tts: Any = None,
    settings: SessionSettings | None = None,
    **more: Any,
) -> tuple[SessionResult, FakeLeg]:
    """Plays one call to its end. What the caller says, keys and writes stands behind its second, and so does
    what else happens `later`; the caller hangs up at `ends_s`. `more`: for the session."""
    leg = leg or FakeLeg()
    leg.plays(says, keys, ends_s)

    async def call() -> SessionResult:
        used = settings or SessionSettings()
        parts = {"phrases": await Phrases.prepare([FakeTts()], used), **more}
        async with recording_to(record_to) as recording:
            session = Session(
                leg=leg, agent=agent, stt=stt or FakeStt(), tts=tts or FakeTts(), settings=used,
                recording=recording, **parts,
            )  # fmt: skip
            for at_s, text in written:
                asyncio.get_running_loop().call_later(at_s, session.write, text)
            for at_s, happens in later:
                asyncio.get_running_loop().call_later(at_s, happens, session)
            return await session.run()

    return play(call), leg


@asynccontextmanager
async def recording_to(path: Path | None, rate_hz: int = RATE_HZ) -> AsyncIterator[Any]:
    """A recording in `path` that begins now; None where there is to be none."""
    if path is None:
        yield None
        return
    writer = RecordingWriter()
    writer.start()
    try:
        yield writer.open(path, rate_hz=rate_hz, now=asyncio.get_running_loop().time())
    finally:
        await writer.close()


def texts(result: SessionResult, role: Role) -> list[str]:
    """What one side said, as the transcript has it."""
    return [entry.text for entry in result.transcript if entry.role is role]


def latency_of(turn: TurnRecord) -> TurnLatency:
    """The latency of a turn that has one."""
    assert turn.latency is not None
    return turn.latency


def agent_texts(result: SessionResult) -> list[str]:
    """What the agent said, as the transcript has it."""
    return texts(result, Role.AGENT)
