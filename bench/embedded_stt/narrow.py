"""Computes `pipeline.stt.sphinx.narrow`: how a line of 8 kHz changes the acoustic model's cepstra.

The same sentences in both forms, wide as synthesised and narrow over µ-law, frame by frame: a linear
regression of the narrow cepstra on the wide ones, which uses neither the words spoken nor those recognised.
Prints the module; `python -m bench embedded-stt-narrow > pipeline/stt/sphinx/narrow.py`. Takes half a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
import numpy as np
import pocketsphinx

from bench.embedded_stt.corpus import RATE_HZ, flite, on_the_line, widened
from bench.micro_whisper.corpus import OUT_OF_VOCABULARY
from bench.training.weights import Matrix
from pipeline.audio import Pcm, silence

VOICES: Final = ("slt", "rms", "awb", "kal16")
SENTENCES: Final = (
    *OUT_OF_VOCABULARY,
    "six thick thistle sticks",
    "she had your dark suit in greasy wash water all year",
    "don't ask me to carry an oily rag like that",
    "seven zebras have crossed the frozen river",
    "judge chuck jones chose the cheapest fish",
)
CEPSTRA: Final = 13
_SPOKEN: Final = 0.45
"""Quantile of the level below which frames are pauses."""

_HEAD: Final = '''"""What a line of 8 kHz makes of the acoustic model's cepstra, as MLLR of its means.

Made by `python -m bench embedded-stt-narrow`: row by column, narrow cepstrum by wide cepstrum."""

from __future__ import annotations

from typing import Final

TRANSFORM: Final = ('''

_TAIL: Final = ''')


def mllr() -> str:
    """Returns the MLLR file of pocketsphinx: one class, three streams (cepstra and their two derivatives),
    and for each stream the matrix, an offset of zero, and the factors of the variances."""
    size = len(TRANSFORM)
    rows = [*TRANSFORM, (0.0,) * size, (1.0,) * size]
    stream = "\\n".join([str(size), *(" ".join(map(str, row)) for row in rows)])
    return "\\n".join(["1", "3", *[stream] * 3, ""])'''


def cepstra(utterances: Iterable[Pcm]) -> Iterator[Matrix]:
    """Yields the cepstra of pocketsphinx's front end for utterances at 16 kHz: (frames, 13) each."""
    with TemporaryDirectory() as folder:
        phones = pocketsphinx.get_model_path("en-us/en-us-phone.lm.bin")
        settings = {"lm": None, "dict": None, "allphone": phones, "mfclogdir": folder, "loglevel": "FATAL"}
        decoder = pocketsphinx.Decoder(pocketsphinx.Config(**settings, beam=1e-3, pbeam=1e-3))
        for samples in utterances:
            decoder.start_utt()
            decoder.process_raw(samples.tobytes())
            decoder.end_utt()
            (written,) = Path(folder).iterdir()
            octets = written.read_bytes()
            written.unlink()
            yield np.frombuffer(octets, ">f4", offset=4).reshape(-1, CEPSTRA).astype(float)


def delay(wide: Pcm, narrow: Pcm) -> int:
    """Returns the delay of the line's filters in samples."""
    length = min(len(wide), len(narrow)) - 400
    return max(
        range(400), key=lambda lag: float(np.dot(narrow[lag : lag + length] * 1.0, wide[:length] * 1.0))
    )


def both(voice: str, text: str) -> tuple[Pcm, Pcm]:
    """Returns an utterance at 16 kHz as synthesised and over the line, aligned."""
    spoken = flite(text, voice)
    narrow = widened(on_the_line(spoken, RATE_HZ))
    pause_ms = 300
    wide = np.concatenate([silence(RATE_HZ, pause_ms), spoken, silence(RATE_HZ, 500)])
    late = np.concatenate([np.zeros(delay(wide, narrow), np.int16), wide])
    length = min(len(late), len(narrow))
    return late[:length], narrow[:length]


def regression(wide: Matrix, narrow: Matrix) -> Matrix:
    """Returns the matrix that maps wide cepstra to narrow ones, without the constant."""
    known = np.c_[wide, np.ones(len(wide))]
    return np.asarray(np.linalg.lstsq(known, narrow, rcond=None)[0][:CEPSTRA].T)


@click.command()
def main() -> None:
    """Fits the adaptation of the acoustic model to a line of 8 kHz, and prints the module."""
    spoken = [both(voice, text) for voice in VOICES for text in SENTENCES]
    rows: list[Matrix] = []
    for wide, narrow in zip(
        cepstra(wide for wide, _ in spoken), cepstra(narrow for _, narrow in spoken), strict=True
    ):
        length = min(len(wide), len(narrow))
        loud = wide[:length, 0] > np.quantile(wide[:length, 0], _SPOKEN)
        rows.append(np.c_[wide[:length][loud], narrow[:length][loud]])
    every = np.concatenate(rows)
    click.echo(_HEAD)
    for row in regression(every[:, :CEPSTRA], every[:, CEPSTRA:]):
        click.echo("    (" + ", ".join(f"{value:.3f}" for value in row) + "),")
    click.echo(_TAIL)
