"""Measures nanoseconds of CPU per 20 ms frame, beside the usual alternatives: `python -m bench kernels`.

The contenders of a row are timed in turn in the same process, several rounds, and the medians are compared,
so that the machine's noise affects all. All get frames, as on a call, and not whole files."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import av
import click
import numpy as np
import soxr
import webrtcvad
from scipy import signal

from bench import report
from bench.kernels import speech_codecs
from bench.kernels.silence import Listener, listeners
from bench.support.concealment import Concealment
from pipeline.audio import Pcm, dtmf, frame_samples, kernels
from pipeline.audio.resample import Resampler
from pipeline.audio.vad import EnergyVad

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import audioop  # in Python until 3.12: what most telephony code in Python uses today

Run = Callable[[], object]

_ROUND_NS: Final = 20_000_000
_RNG: Final = np.random.default_rng(20)


@dataclass(frozen=True, slots=True)
class Case:
    """One row: `contenders` by name, this server's kernel first."""

    name: str
    contenders: dict[str, Run]
    note: str = ""


def _speechlike(rate_hz: int) -> Pcm:
    """Returns a frame of noise at the level of a voice."""
    return _RNG.normal(0, 3000, frame_samples(rate_hz)).astype(np.int16)


def _g711() -> Iterator[Case]:
    pcm = _speechlike(8000)
    octets, out = np.zeros(160, np.uint8), np.zeros(160, np.int16)
    kernels.ulaw_encode(pcm, octets)
    linear = np.zeros(256, np.int16)
    kernels.ulaw_decode(np.arange(256, dtype=np.uint8), linear)
    raw_pcm, raw_octets = pcm.tobytes(), octets.tobytes()
    decoder: Any = av.CodecContext.create("pcm_mulaw", "r")
    decoder.sample_rate, decoder.layout = 8000, "mono"
    yield Case(
        "µ-law decode",
        {
            "ours": lambda: kernels.ulaw_decode(octets, out),
            "numpy table": lambda: linear.take(octets, out=out, mode="clip"),
            "audioop": lambda: audioop.ulaw2lin(raw_octets, 2),
            "PyAV": lambda: decoder.decode(av.Packet(raw_octets)),
        },
    )
    yield Case(
        "µ-law encode",
        {
            "ours": lambda: kernels.ulaw_encode(pcm, octets),
            "audioop": lambda: audioop.lin2ulaw(raw_pcm, 2),
        },
    )
    yield Case(
        "A-law encode",
        {
            "ours": lambda: kernels.alaw_encode(pcm, octets),
            "audioop": lambda: audioop.lin2alaw(raw_pcm, 2),
        },
    )


def _levels() -> Iterator[Case]:
    a, b, out = _speechlike(8000), _speechlike(8000), np.zeros(160, np.int16)
    raw_a, raw_b = a.tobytes(), b.tobytes()
    yield Case(
        "mix two, saturating",
        {
            "ours": lambda: kernels.mix(a, b, out),
            "numpy": lambda: np.clip(a.astype(np.int32) + b, -32768, 32767).astype(np.int16),
            "audioop": lambda: audioop.add(raw_a, raw_b, 2),
        },
    )
    yield Case(
        "RMS",
        {
            "ours": lambda: kernels.rms(a),
            "numpy": lambda: np.sqrt(np.mean(a.astype(np.float64) ** 2)),
            "audioop": lambda: audioop.rms(raw_a, 2),
        },
    )


def _resampling(from_hz: int, to_hz: int) -> Case:
    frame = _speechlike(from_hz)
    raw = frame.tobytes()
    ours = Resampler(from_hz, to_hz)
    stream = soxr.ResampleStream(from_hz, to_hz, 1, dtype="int16", quality="HQ")
    converter = av.AudioResampler(format="s16", layout="mono", rate=to_hz)
    common = int(np.gcd(from_hz, to_hz))

    def by_av() -> object:
        wrapped = av.AudioFrame.from_ndarray(frame[None, :], format="s16", layout="mono")
        wrapped.sample_rate = from_hz
        return [part.to_ndarray() for part in converter.resample(wrapped)]

    return Case(
        f"{from_hz / 1000:g} to {to_hz / 1000:g} kHz",
        {
            "ours": lambda: ours(frame),
            "soxr HQ": lambda: stream.resample_chunk(frame),
            "PyAV": by_av,
            "scipy": lambda: signal.resample_poly(frame, to_hz // common, from_hz // common),
            "audioop": lambda: audioop.ratecv(raw, 2, 1, from_hz, to_hz, None),
        },
        note=f"soxr holds back {_held_back_ms(from_hz, to_hz):.0f} ms, ours {_delay_ms(ours):.1f}",
    )


def _held_back_ms(from_hz: int, to_hz: int) -> float:
    """Returns the most audio in milliseconds that soxr's stream holds back."""
    stream = soxr.ResampleStream(from_hz, to_hz, 1, dtype="int16", quality="HQ")
    frame = _speechlike(from_hz)
    given, worst = 0, 0.0
    for count in range(1, 200):
        given += stream.resample_chunk(frame).size
        worst = max(worst, 20.0 * count - 1000.0 * given / to_hz)
    return worst


def _delay_ms(resampler: Resampler) -> float:
    return 1000.0 * resampler.delay_samples / resampler.to_hz


def _vad(rate_hz: int) -> Case:
    frame = _speechlike(rate_hz)
    raw = frame.tobytes()
    ours, other = EnergyVad(rate_hz), webrtcvad.Vad(2)
    return Case(
        f"VAD, {rate_hz // 1000} kHz",
        {"ours": lambda: ours.push(frame), "webrtcvad": lambda: other.is_speech(raw, rate_hz)},
    )


def _losses() -> Iterator[Case]:
    frame, tone = _speechlike(8000), dtmf.tone("5", 8000, 20)
    detector, kept, lossy = dtmf.DtmfDetector(8000), Concealment(8000), Concealment(8000)

    def one_lost() -> object:
        lossy.conceal()
        return lossy.good(frame)

    yield Case(
        "DTMF detector", {"ours": lambda: detector.push(tone), "numpy FFT alone": lambda: np.fft.rfft(tone)}
    )
    yield Case("concealment, frame received", {"ours": lambda: kept.good(frame)})
    yield Case("concealment, frame lost and next", {"ours": one_lost})


def cases() -> list[Case]:
    """Returns every row of the table."""
    pairs = ((8000, 16000), (16000, 8000), (22050, 8000), (24000, 8000), (48000, 16000))
    return [
        *_g711(),
        *(Case(name, contenders, note) for name, contenders, note in speech_codecs.rows()),
        *_levels(),
        *(_resampling(from_hz, to_hz) for from_hz, to_hz in pairs),
        _vad(8000),
        _vad(16000),
        *_losses(),
    ]


def measured(case: Case, rounds: int) -> dict[str, float]:
    """Returns the median CPU nanoseconds per call of each contender."""
    counts = {name: _count(run) for name, run in case.contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in counts}
    for _ in range(rounds):
        for name, run in case.contenders.items():
            times[name].append(_timed(run, counts[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def _count(run: Run) -> int:
    """Returns how many calls make a round of about 20 ms."""
    _timed(run, 20)
    return max(20, int(_ROUND_NS / max(1.0, _timed(run, 50))))


def _timed(run: Run, count: int) -> float:
    begun = time.thread_time_ns()
    for _ in range(count):
        run()
    return (time.thread_time_ns() - begun) / count


def in_silence(listener: Listener, rounds: int) -> dict[str, Any]:
    """Measures the cost in digital silence beside that in a voice, in turns, and whether subnormal numbers
    occur."""
    case = Case(listener.name, {"voice": listener.in_voice(), "silence": listener.in_silence()})
    times = measured(case, rounds)
    ratio = round(times["silence"] / times["voice"], 2)
    subnormal = listener.meets_subnormals()
    return {
        "ns": times,
        "ratio": ratio,
        "subnormal": subnormal,
        "most": listener.most,
        "met": ratio <= listener.most and not subnormal,
    }


def silences(rounds: int) -> dict[str, dict[str, Any]]:
    """Measures and prints the rows of digital silence."""
    found = {each.name: in_silence(each, rounds) for each in listeners()}
    rows = [
        [
            name,
            *(f"{each['ns'][what]:,.0f}" for what in ("voice", "silence")),
            each["ratio"],
            f"≤ {each['most']:g}",
            "met" if each["subnormal"] else "",
            "" if each["met"] else "MISSED",
        ]
        for name, each in found.items()
    ]
    columns = ["kernel", "voice, ns", "silence, ns", "silence / voice", "limit", "subnormal numbers", ""]
    report.show("CPU per 20 ms frame of digital silence after a voice", columns, rows)
    return found


@click.command()
@click.option("--rounds", default=9, show_default=True, type=click.IntRange(1), help="Rounds per row.")
def main(rounds: int) -> None:
    """Nanoseconds per 20 ms frame of each kernel and of the usual alternatives; fails where digital silence
    costs more than a voice."""
    kernels.warm()
    rows: list[list[object]] = []
    figures: dict[str, dict[str, object]] = {}
    for case in cases():
        times = measured(case, rounds)
        figures[case.name] = {"ns": times, "note": case.note}
        others = [f"{name} {ns / times['ours']:.1f}x" for name, ns in times.items() if name != "ours"]
        rows.append([case.name, f"{times['ours']:,.0f}", ", ".join(others), case.note])
    report.show("CPU per 20 ms frame", ["kernel", "ours, ns", "the others cost, times ours", "note"], rows)
    silent = silences(rounds)
    told = {"unit": "ns of CPU per 20 ms frame, median", "rounds": rounds, "rows": figures, "silence": silent}
    saved = report.save("kernels", told)
    click.echo(saved.relative_to(report.RESULTS.parent))
    dear = [name for name, each in silent.items() if not each["met"]]
    if dear:
        raise click.ClickException(f"dearer in digital silence than in a voice: {', '.join(dear)}")
