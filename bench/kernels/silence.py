"""Measures the CPU cost of digital silence after a voice, for every kernel with state.

In µ-law's 0xFF, A-law's 0xD5 and the pauses of DTX all samples have one value. The state of a recursive
filter then decays for as long as the silence lasts, and must not become subnormal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypeAlias

import numpy as np

from bench.kernels import subnormals
from bench.support.concealment import RATES_HZ, Concealment
from pipeline.audio import FRAME_MS, LINE_RATES_HZ, Pcm, frame_samples
from pipeline.audio.dtmf import DtmfDetector
from pipeline.audio.echo_gate import EchoGate
from pipeline.audio.resample import Resampler
from pipeline.audio.vad import EnergyVad, VadSettings
from pipeline.call_progress.classifier import CallProgressClassifier
from pipeline.endpointing.prosody import prosody_of

MOST: Final = 1.5
"""The most that a frame of silence may cost, as a multiple of a frame of voice."""

MOST_UNSEARCHED: Final = 0.9
"""The same for the echo gate of a silent caller, which searches no delay."""

MEMORYLESS: Final = frozenset(
    {"ulaw_decode", "alaw_decode", "ulaw_encode", "alaw_encode", "rms", "rms_dbfs", "peak", "mix"}
)
"""Kernels without state: the output depends on the input alone."""

Step: TypeAlias = Callable[[Pcm, Pcm], object]
"""Processes one frame: the received frame, and the frame that is sent at the same time."""

_VOICE_FRAMES: Final = 300
_SILENT_FRAMES: Final = 3000  # a minute: the slowest memory, the echo's correlation, takes 42 s to decay
_ALAW_QUIET: Final = 8  # linear for 0xD5
_ECHO_FRAMES: Final = 4
_PITCH_FRAMES: Final = 50


@dataclass(frozen=True, slots=True)
class Listener:
    """One row. `kernel`: the measured function of `pipeline.audio.kernels`; `begin`: makes a step with
    initial state. `quiet`: the linear value of silence. `heard`, `played`: whether the received and the sent
    audio become silent after the voice. `most`: the limit of the cost in silence, as a multiple of the cost
    in voice."""

    name: str
    kernel: str
    rate_hz: int
    begin: Callable[[], Step]
    quiet: int = 0
    heard: bool = True
    played: bool = True
    most: float = MOST

    def in_voice(self) -> Callable[[], object]:
        """Returns a function that processes one frame of voice per call, after a warm-up with voice."""
        step, frames = self.begin(), self._frames()
        for _ in range(_VOICE_FRAMES):
            step(*next(frames))
        return lambda: step(*next(frames))

    def in_silence(self) -> Callable[[], object]:
        """Returns a function that processes one frame of silence per call, after voice and a minute of
        silence."""
        run = self._falls_silent()
        for _ in range(_SILENT_FRAMES):
            run()
        return run

    def meets_subnormals(self) -> bool:
        """Whether subnormal numbers occur in the first minute of silence after a voice; False where the
        processor has no such flag."""
        run = self._falls_silent()
        return subnormals.KNOWN and any(subnormals.met(run) for _ in range(_SILENT_FRAMES))

    def _falls_silent(self) -> Callable[[], object]:
        step, frames = self.begin(), self._frames()
        for _ in range(_VOICE_FRAMES):
            step(*next(frames))
        silence = np.full(frame_samples(self.rate_hz), self.quiet, np.int16)

        def run() -> object:
            heard, played = next(frames)
            return step(silence if self.heard else heard, silence if self.played else played)

        return run

    def _frames(self) -> Iterator[tuple[Pcm, Pcm]]:
        """Yields received and sent frames: noise at the level of a voice is sent, and its echo is received 14
        dB lower."""
        random = np.random.default_rng(20)
        voice = random.normal(0, 3000, (50, frame_samples(self.rate_hz)))
        played, heard = voice.astype(np.int16), (0.2 * voice).astype(np.int16)
        for number in count():
            yield heard[(number - _ECHO_FRAMES) % 50], played[number % 50]


def listeners() -> list[Listener]:
    """Returns every row."""
    pairs = ((8000, 16000), (16000, 8000), (22050, 8000), (24000, 8000), (48000, 16000))
    return [
        *(each for rate_hz in LINE_RATES_HZ for each in _at(rate_hz)),
        *(_resampling(from_hz, to_hz) for from_hz, to_hz in pairs),
    ]


def _at(rate_hz: int) -> Iterator[Listener]:
    def row(name: str, kernel: str, begin: Callable[[], Step], **silence: Any) -> Listener:
        return Listener(f"{name}, {rate_hz // 1000} kHz", kernel, rate_hz, begin, **silence)

    wide = VadSettings(narrow=False)
    yield row("VAD", "energy_vad_step", lambda: _of(EnergyVad(rate_hz).push))
    yield row("VAD, A-law", "energy_vad_step", lambda: _of(EnergyVad(rate_hz).push), quiet=_ALAW_QUIET)
    yield row("VAD without narrow bands", "energy_vad_step", lambda: _of(EnergyVad(rate_hz, wide).push))
    yield row("DTMF detector", "dtmf_step", lambda: _of(DtmfDetector(rate_hz).push))
    yield row("line tones", "line_step", lambda: _line(rate_hz))
    if rate_hz in RATES_HZ:
        yield row("concealment, every other frame lost", "pitch_period", lambda: _lossy(rate_hz))
    yield row("pitch of a second", "prosody", lambda: _pitch(rate_hz))
    yield row(
        "echo gate, silent caller", "echo_share", lambda: _echo(rate_hz), played=False, most=MOST_UNSEARCHED
    )
    yield row("echo gate, silence played", "echo_remember", lambda: _echo(rate_hz), heard=False)
    yield row("echo gate, all silent", "echo_thin", lambda: _echo(rate_hz))


def _of(push: Callable[[Pcm], object]) -> Step:
    return lambda heard, _: push(heard)


def _resampling(from_hz: int, to_hz: int) -> Listener:
    name = f"{from_hz / 1000:g} to {to_hz / 1000:g} kHz"
    return Listener(name, "polyphase", from_hz, lambda: _of(Resampler(from_hz, to_hz)))


def _line(rate_hz: int) -> Step:
    line, frames = CallProgressClassifier(rate_hz), count()
    return lambda heard, _: line.push(heard, next(frames) * FRAME_MS / 1000)


def _lossy(rate_hz: int) -> Step:
    concealment, frames = Concealment(rate_hz), count()
    return lambda heard, _: concealment.conceal() if next(frames) % 2 else concealment.good(heard)


def _pitch(rate_hz: int) -> Step:
    recent = np.zeros((_PITCH_FRAMES, frame_samples(rate_hz)), np.int16)

    def step(heard: Pcm, _: Pcm) -> object:
        recent[:-1] = recent[1:]
        recent[-1] = heard
        return prosody_of(recent.reshape(-1), rate_hz)

    return step


def _echo(rate_hz: int) -> Step:
    gate, frames = EchoGate(rate_hz), count()

    def step(heard: Pcm, played: Pcm) -> object:
        now = next(frames) * FRAME_MS / 1000
        gate.played(played, now)
        return gate.is_echo(heard, now)

    return step
