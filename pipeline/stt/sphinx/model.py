"""Evaluates how well frames fit the states of each phone in pocketsphinx's acoustic model.

pocketsphinx gives scores relative to the best of the active ones, so that two searches cannot be compared.
This module reads the same densities from the model's files (en-us, "ptm": one codebook per phone, three
streams: cepstra and their two derivatives) and evaluates those of all phones, without context.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pocketsphinx

from pipeline.stt.sphinx.narrow import TRANSFORM

Floats = npt.NDArray[np.float32]

PHONES: Final = (
    *("+NSN+", "+SPN+", "AA", "AE", "AH", "AO", "AW", "AY", "B", "CH", "D", "DH", "EH", "ER", "EY", "F", "G"),
    *("HH", "IH", "IY", "JH", "K", "L", "M", "N", "NG", "OW", "OY", "P", "R", "S", "SH", "SIL", "T", "TH"),
    *("UH", "UW", "V", "W", "Y", "Z", "ZH"),
)
"""The phones in the order of the model's definition."""

STATES: Final = 3
"""Number of states of a phone, in a row."""

CEPSTRA: Final = 13

_STREAMS: Final = 3
_DENSITIES: Final = 128
_HEADER: Final = b"endhdr\n"
_WEIGHT: Final = 0.1024  # natural logarithms in one step of a mixture weight
_BLOCK: Final = 32  # frames of a block, which fits a core's cache
_LEAST_VARIANCE: Final = 1e-4  # pocketsphinx's varfloor
_LEAST_LIKELY: Final = 1e-30


class PhoneModel:
    """The densities of the acoustic model. `narrow`: transformed for a line of 8 kHz. `means`: of the
    cepstra. Raises OSError or ValueError where the model's files are not those of en-us."""

    def __init__(self, means: str, *, narrow: bool) -> None:
        folder = Path(pocketsphinx.get_model_path("en-us/en-us"))
        self._cepstral = np.array(means.split(","), np.float32)
        centres = _parameters(folder / "means")
        variances = np.maximum(_parameters(folder / "variances"), _LEAST_VARIANCE)
        if narrow:
            centres = centres @ np.array(TRANSFORM, np.float32).T
        precise = 1 / variances
        constant = -0.5 * (np.log(2 * np.pi * variances) + centres * centres * precise).sum(axis=-1)
        self._constant = constant[:, :, None]
        both = np.concatenate([-0.5 * precise, centres * precise], axis=-1)
        self._factors = np.ascontiguousarray(both.transpose(0, 1, 3, 2))
        self._weights = _mixtures(folder / "sendump")

    def costs(self, cepstra: Floats, first: int, last: int) -> Floats:
        """Negative logarithms of how likely the frames `first` to `last` are in each state: (frames, phones,
        states). `cepstra`: (frames, 13), of the whole utterance."""
        streams = _streams(cepstra - self._cepstral)[:, first : last + 1]
        blocks = [self._block(streams[:, at : at + _BLOCK]) for at in range(0, streams.shape[1], _BLOCK)]
        return np.concatenate(blocks)

    def _block(self, streams: Floats) -> Floats:
        found = np.zeros((len(PHONES), streams.shape[1], STATES), np.float32)
        for stream, value in enumerate(streams):
            # A product for each phone: each is too small for the threads of a BLAS, which would cost more.
            scores = np.matmul(np.concatenate([value * value, value], axis=1), self._factors[stream])
            scores += self._constant[stream]
            best = scores.max(axis=2, keepdims=True)
            scores -= best
            np.exp(scores, out=scores)
            found -= np.log(np.matmul(scores, self._weights[stream]) + _LEAST_LIKELY) + best
        return found.transpose(1, 0, 2)


def _streams(centred: Floats) -> Floats:
    """The cepstra and their two derivatives, as the front end of pocketsphinx takes them: (3, frames, 13)."""
    around = np.pad(centred, ((3, 3), (0, 0)), mode="edge")
    at = [around[shift : len(centred) + shift] for shift in range(7)]
    return np.stack([at[3], at[5] - at[1], (at[6] - at[2]) - (at[4] - at[0])])


def _parameters(path: Path) -> Floats:
    """Means or variances: (streams, phones, densities, cepstra)."""
    octets = path.read_bytes()
    start = octets.index(_HEADER) + len(_HEADER) + 4
    sizes = np.frombuffer(octets, "<i4", 7, start).tolist()
    if sizes[:3] != [len(PHONES), _STREAMS, _DENSITIES] or sizes[3:6] != [CEPSTRA] * 3:
        raise ValueError(f"{path.name} is not that of the model en-us")
    values = np.frombuffer(octets, "<f4", sizes[6], start + 28)
    return values.reshape(len(PHONES), _STREAMS, _DENSITIES, CEPSTRA).transpose(1, 0, 2, 3).astype(np.float32)


def _mixtures(path: Path) -> Floats:
    """The weight of each density in each state: (streams, phones, densities, states)."""
    octets = path.read_bytes()
    at = 0
    while size := int.from_bytes(octets[at : at + 4], "little"):
        at += 4 + size
    rows, senones = np.frombuffer(octets, "<i4", 2, at + 4).tolist()
    if rows != _DENSITIES or len(octets) - at - 12 != _STREAMS * rows * senones:
        raise ValueError(f"{path.name} is not that of the model en-us")
    steps = np.frombuffer(octets, np.uint8, offset=at + 12).reshape(_STREAMS, rows, senones)
    of_phones = steps[:, :, : len(PHONES) * STATES].reshape(_STREAMS, rows, len(PHONES), STATES)
    return np.ascontiguousarray(np.exp(-_WEIGHT * of_phones.astype(np.float32)).transpose(0, 2, 1, 3))
