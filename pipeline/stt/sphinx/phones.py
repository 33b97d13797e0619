"""Compares the fit of words' phones with that of all phones over the same frames, to verify the words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeline.stt.sphinx.model import PHONES, Floats

_INDEX: Final = {name: at for at, name in enumerate(PHONES)}
_RIVALS: Final = np.array([at for name, at in _INDEX.items() if name[0] != "+"])
_CHANGE: Final = 3.0  # cost of a change of phone in the loop, as a natural logarithm
_MOST: Final = 12.0
"""Most that a single frame counts against a phone, so that a click does not decide."""

_FAR: Final = 1e9


def phone_evidence(words: Sequence[tuple[Sequence[str], Floats]], whole: Floats) -> dict[str, float]:
    """Gives the measures of the words' phones. `words`: for each word its phones, and the costs of its frames
    in each state of each phone (`pipeline.stt.sphinx.model`). `whole`: the costs of the frames from the first
    word to the last."""
    gaps = []
    for names, costs in words:
        phones = np.array([_INDEX[name] for name in names])
        labels, _ = aligned(costs, phones.tolist())
        best = costs.min(axis=2)
        gap = np.minimum(best[np.arange(len(costs)), phones[labels]] - best[:, _RIVALS].min(axis=1), _MOST)
        counts = np.bincount(labels, minlength=len(names))
        gaps.append(np.bincount(labels, gap, minlength=len(names))[counts > 0] / counts[counts > 0])
    return {"phone_gap": -float(np.concatenate(gaps).mean()), "loop": looped(whole) / len(whole)}


def aligned(costs: Floats, phones: Sequence[int]) -> tuple[npt.NDArray[np.intp], float]:
    """Aligns the frames to `phones` in order: gives each frame's index in `phones`, and the cost."""
    frames, states = len(costs), 3 * len(phones)
    if frames < states:
        labels = np.arange(frames) * len(phones) // frames
        return labels, float(costs.min(axis=2)[np.arange(frames), np.array(phones)[labels]].sum())
    step = costs[:, phones].reshape(frames, states)
    came = np.zeros((frames, states), bool)
    cost = np.full(states, _FAR)
    cost[0] = step[0, 0]
    for frame in range(1, frames):
        came[frame, 1:] = cost[:-1] < cost[1:]
        cost[1:] = np.minimum(cost[1:], cost[:-1])
        cost += step[frame]
    labels, state = np.empty(frames, np.intp), states - 1
    for frame in range(frames - 1, -1, -1):
        labels[frame] = state // 3
        state -= bool(came[frame, state])
    return labels, float(cost[-1])


def looped(costs: Floats) -> float:
    """Gives the cost of the frames as any sequence of phones."""
    step = costs[:, _RIVALS]
    cost = np.full(step.shape[1:], _FAR)
    cost[:, 0] = step[0, :, 0] + _CHANGE
    for frame in step[1:]:
        enter = cost[:, 2].min() + _CHANGE
        cost[:, 1:] = np.minimum(cost[:, 1:], cost[:, :-1])
        cost[:, 0] = np.minimum(cost[:, 0], enter)
        cost += frame
    return float(cost.min())
