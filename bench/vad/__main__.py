"""Compares the voice detectors that an agent may name, on recorded people: `python -m bench vad`.

The half of the recordings that tunes chose the mode of webrtcvad; the figures are of the other half. Every
detector gets the same frames and the times of a conversation (`pipeline.session.audio_input.VAD`)."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import click
import numpy as np
import numpy.typing as npt
import webrtcvad

from bench import report
from bench.conversation.noises import babble
from bench.people import corpus as people
from bench.vad.corpus import NOISES, Recording, on_line, recordings
from bench.vad.page import page
from pipeline.audio import FRAME_MS, Pcm, frame_samples
from pipeline.audio.other_vads import DETECTORS, VoiceDetector, WebrtcVad, voice_detector
from pipeline.session.audio_input import VAD

RATE_HZ: Final = 8000
EARLY_MS: Final = 100
"""Milliseconds before an onset in which a beginning of voice still belongs to the onset."""

LATE_MS: Final = 200
"""Milliseconds after which an onset that was found is late."""

SOUNDS_S: Final = 300.0
ROUNDS: Final = 5

Make = Callable[[], VoiceDetector]


def kinds() -> dict[str, Make]:
    """Returns what makes each detector that an agent may name."""
    return {name: partial(voice_detector(name), RATE_HZ, VAD) for name in DETECTORS}


def modes() -> dict[str, Make]:
    """Returns what makes webrtcvad in each of its modes."""
    return {f"mode {mode}": partial(WebrtcVad, webrtcvad, RATE_HZ, VAD, mode=mode) for mode in range(4)}


def heard(detector: VoiceDetector, samples: Pcm) -> npt.NDArray[np.bool_]:
    """Returns for every frame of `samples` whether a voice was active."""
    size = frame_samples(RATE_HZ)
    frames = samples[: samples.size // size * size].reshape(-1, size)
    return np.fromiter((detector.push(frame).active for frame in frames), np.bool_, len(frames))


def found(active: npt.NDArray[np.bool_], voice: Sequence[tuple[int, int]]) -> list[float | None]:
    """Returns for each stretch of voice the delay in milliseconds until it was active, None where it never
    was. The delay counts to the end of the frame with the decision; a voice that was active before has 0."""
    delays: list[float | None] = []
    for begins, ends in voice:
        first = max(0, begins - EARLY_MS) // FRAME_MS
        inside = np.flatnonzero(active[first : -(-ends // FRAME_MS) + 1])
        at_ms = None if inside.size == 0 else float((first + inside[0] + 1) * FRAME_MS - begins)
        delays.append(None if at_ms is None else max(0.0, at_ms))
    return delays


def frames_wrong(
    active: npt.NDArray[np.bool_], voice: Sequence[tuple[int, int]]
) -> tuple[int, int, int, int]:
    """Returns frames of voice, those of them that were not active, frames without voice, and those of them
    that were active. Frames within `LATE_MS` after a stretch count for neither: the hang-over is wanted."""
    at_ms = np.arange(active.size) * FRAME_MS
    inside, beside = np.zeros(active.size, np.bool_), np.zeros(active.size, np.bool_)
    for begins, ends in voice:
        inside |= (at_ms >= begins) & (at_ms + FRAME_MS <= ends)
        beside |= (at_ms + FRAME_MS > begins) & (at_ms < ends + LATE_MS)
    outside = ~inside & ~beside
    return int(inside.sum()), int((inside & ~active).sum()), int(outside.sum()), int((outside & active).sum())


def on_people(make: Make, corpus: Iterable[Recording], background: str) -> dict[str, Any]:
    """Returns the figures of one detector on recordings over one background."""
    delays: list[float | None] = []
    counts = np.zeros(4, np.int64)
    for each in corpus:
        active = heard(make(), each.over(background))
        delays += found(active, each.voice)
        counts += frames_wrong(active, each.voice)
    caught = [delay for delay in delays if delay is not None]
    return {
        "onsets": len(delays),
        "missed": len(delays) - len(caught),
        "late": sum(delay > LATE_MS for delay in caught),
        "delay_ms": {f"p{rank}": round(float(np.percentile(caught or [0], rank))) for rank in (50, 95)},
        "voice_missed": round(float(counts[1] / counts[0]), 4),
        "false_voice": round(float(counts[3] / counts[2]), 4),
    }


def without_voice(seconds: float) -> dict[str, list[Pcm]]:
    """Returns sounds of each kind without a voice: those of `bench people`, and babble, which is voices."""
    made: dict[str, list[Pcm]] = defaultdict(list)
    for kind, samples in people.sounds(seconds, RATE_HZ):
        made[kind].append(samples)
    rng = np.random.default_rng(3)
    made["babble at -40 dBov"] = [on_line(babble(rng, seconds / 20, -40.0))]
    return dict(made)


def on_sounds(make: Make, sounds: Mapping[str, Sequence[Pcm]]) -> dict[str, float]:
    """Returns the share of frames that were taken for voice, by the kind of sound."""
    shares = {}
    for kind, pieces in sounds.items():
        active = np.concatenate([heard(make(), each) for each in pieces])
        shares[kind] = round(float(active.mean()), 3)
    return shares


def cost_us(makes: Mapping[str, Make], samples: Pcm) -> dict[str, float]:
    """Returns the CPU time of a frame in microseconds, all threads counted: the detectors in turns, the
    median of `ROUNDS`."""
    count = samples.size // frame_samples(RATE_HZ)
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for name, make in makes.items():
            detector = make()
            begun = time.process_time_ns()
            heard(detector, samples)
            times[name].append((time.process_time_ns() - begun) / count / 1000)
    return {name: round(statistics.median(each), 2) for name, each in times.items()}


def measure(corpus: Sequence[Recording]) -> dict[str, Any]:
    """Returns all figures, as in results/vad.json."""
    tuning = [each for each in corpus if each.tunes]
    reported = [each for each in corpus if not each.tunes]
    chosen = {
        name: {background: on_people(make, tuning, background) for background in NOISES}
        for name, make in modes().items()
    }
    figures: dict[str, Any] = {}
    sounds = without_voice(SOUNDS_S)
    for name, make in kinds().items():
        click.echo(f"measuring: {name}", err=True)
        figures[name] = {
            "people": {background: on_people(make, reported, background) for background in NOISES},
            "sounds": on_sounds(make, sounds),
        }
    spoken = np.concatenate([each.over("quiet line") for each in reported[:20]])
    return {
        "recordings": {"tuning": len(tuning), "reported": len(reported)},
        "speakers": sorted({each.speaker for each in corpus}),
        "reported_s": round(sum(each.samples.size for each in reported) / RATE_HZ),
        "sounds_s": SOUNDS_S,
        "webrtcvad_modes_tuning": chosen,
        "cpu_us": cost_us(kinds(), spoken),
        "detectors": figures,
    }


@click.command()
@click.option("--short", is_flag=True, help="Take a tenth of the recordings, and save nothing.")
def main(*, short: bool) -> None:
    """Compares voice detectors on recorded people: late and missed onsets, false voice, CPU of a frame."""
    corpus = list(recordings())
    figures = measure(corpus[::10] if short else corpus)
    text = page(figures, report.machine())
    click.echo(text)
    if short:
        return
    report.save("vad", figures)
    (report.RESULTS / "vad.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
