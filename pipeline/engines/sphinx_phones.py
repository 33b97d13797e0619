"""The phones of words beside all phones, over the same frames: what says whether the words were said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeline.engines.sphinx_model import PHONES, Floats

_INDEX: Final = {name: at for at, name in enumerate(PHONES)}
_RIVALS: Final = np.array([at for name, at in _INDEX.items() if name[0] != "+"])
_CHANGE: Final = 3.0  # what the loop pays for another phone, as a natural logarithm
_MOST: Final = 12.0
"""A frame counts against a phone by no more than this: a click is not a word."""

_FAR: Final = 1e9


def phone_evidence(words: Sequence[tuple[Sequence[str], Floats]]) -> dict[str, float]:
    """What the phones of words say for them. `words`: of each its phones, and the costs of its frames in each
    state of each phone (`pipeline.engines.sphinx_model`)."""
    gaps, ranks, phones, gains, frames = [], [], [], [], 0
    lengths: list[int] = []
    for names, costs in words:
        labels, cost = aligned(costs, [_INDEX[name] for name in names])
        gains.append(looped(costs) - cost)
        frames += len(costs)
        best = costs.min(axis=2)
        own = best[np.arange(len(costs)), np.array([_INDEX[name] for name in names])[labels]]
        gap = np.minimum(own - best[:, _RIVALS].min(axis=1), _MOST)
        gaps.append(gap)
        ranks.append((best[:, _RIVALS] < own[:, None] - 1e-4).sum(axis=1))
        counts = np.bincount(labels, minlength=len(names))
        sums = np.bincount(labels, gap, minlength=len(names))
        phones.append(sums[counts > 0] / counts[counts > 0])
        lengths += counts[counts > 0].tolist()
    gap, rank, phone = np.concatenate(gaps), np.concatenate(ranks), np.concatenate(phones)
    each = [gain / len(costs) for gain, (_, costs) in zip(gains, words, strict=True)]
    worst = np.sort(phone)[-3:]
    return {
        "gain": sum(gains) / frames,
        "worst_gain": min(each),
        "gap": -float(gap.mean()),
        "first": float((rank == 0).mean()),
        "third": float((rank < 3).mean()),
        "eighth": float((rank < 8).mean()),
        "rank": -float(np.log1p(rank).mean()),
        "phone_gap": -float(phone.mean()),
        "worst_phone": -float(phone.max()),
        "bad_phones": -float(worst.mean()),
        "uneven": float(phone.std()),
        "hasty": float(np.mean(np.array(lengths) <= 3)),
        "rhythm": float(np.log(lengths).std()),
    }


def aligned(costs: Floats, phones: Sequence[int]) -> tuple[npt.NDArray[np.intp], float]:
    """Which of `phones`, one behind the other, each frame belongs to, and what that costs."""
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
    """What the frames cost as any phones one behind the other."""
    step = costs[:, _RIVALS]
    cost = np.full(step.shape[1:], _FAR)
    cost[:, 0] = step[0, :, 0] + _CHANGE
    for frame in step[1:]:
        enter = cost[:, 2].min() + _CHANGE
        cost[:, 1:] = np.minimum(cost[:, 1:], cost[:, :-1])
        cost[:, 0] = np.minimum(cost[:, 0], enter)
        cost += frame
    return float(cost.min())
