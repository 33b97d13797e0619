"""The recordings that the callers of `bench call --engines local` play: a person, with telephone bandwidth.

From Debian's `asterisk-core-sounds-en-wav`: one announcer, 8 kHz. Files whose name has an odd SHA-1;
recognisers were tuned on the even ones."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

import click
import numpy as np

from bench.call.caller import mulaw
from pipeline.audio import Pcm
from pipeline.audio.wav import read

RECORDINGS: Final = Path("/usr/share/asterisk/sounds/en_US_f_Allison")

_FRAME: Final = 160
_SHORTEST_S: Final = 0.7
_LONGEST_S: Final = 3.2
_QUIET: Final = 300
_FADE: Final = 40


@cache
def utterances() -> tuple[tuple[bytes, ...], ...]:
    """Returns the utterances as frames of 20 ms in G.711 µ-law, without surrounding silence. Raises
    ClickException where the recordings are not installed."""
    files = sorted(RECORDINGS.rglob("*.wav"))
    if not files:
        raise click.ClickException(f"no recordings in {RECORDINGS}: apt install asterisk-core-sounds-en-wav")
    said = (_spoken(path) for path in files if _is_odd(path))
    chosen = (each for each in said if _SHORTEST_S <= len(each) / 8000 <= _LONGEST_S)
    return tuple(tuple(mulaw(frame) for frame in each.reshape(-1, _FRAME)) for each in chosen)


def _is_odd(path: Path) -> bool:
    name = path.relative_to(RECORDINGS).with_suffix("").as_posix()
    return int(hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest(), 16) % 2 == 1


def _spoken(path: Path) -> Pcm:
    """Returns whole frames, from the first loud one to the last, with a fade-out."""
    samples, rate_hz = read(path)
    whole: Pcm = samples[: len(samples) // _FRAME * _FRAME].copy()
    if rate_hz != 8000:
        return whole[:0]
    loud = np.flatnonzero(np.abs(whole.reshape(-1, _FRAME).astype(np.int32)).max(axis=1) > _QUIET)
    if not len(loud):
        return whole[:0]
    kept: Pcm = whole[loud[0] * _FRAME : (loud[-1] + 1) * _FRAME]
    kept[-_FADE:] = (kept[-_FADE:] * np.linspace(1, 0, _FADE)).astype(np.int16)
    return kept
