"""One picture a scenario: both sides of one call, and what turn-taking decided when."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib import pyplot

from bench import report
from bench.conversation_handset import Taped
from bench.conversation_sounds import RATE_HZ
from pipeline.audio import Pcm

FOLDER: Final = report.RESULTS / "conversation"
_COLOURS: Final = {
    "hearing": "#2a9d8f",
    "endpointing": "#e9c46a",
    "presuming": "#f4a261",
    "replying": "#e76f51",
    "speaking": "#264653",
    "ducked": "#9b5de5",
    "judging": "#9b5de5",
    "halted": "#d00000",
    "doubting": "#d00000",
}
_STEP: Final = RATE_HZ // 100


def draw(name: str, taped: Taped, verdict: str) -> Path:
    """results/conversation/NAME.png."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(3, 1, figsize=(9, 3.6), sharex=True, height_ratios=(3, 3, 1))
    for number, (label, samples, colour) in enumerate(
        (("caller", taped.sent, "#2a9d8f"), ("agent", taped.heard, "#264653"))
    ):
        at, low, high = _outline(samples)
        axes[number].fill_between(at, low, high, color=colour, linewidth=0)
        axes[number].set_ylabel(label, fontsize=8)
        axes[number].set_yticks([])
        for placed in taped.placed:
            axes[number].axvspan(placed.start_s, placed.end_s, color="#2a9d8f", alpha=0.12, linewidth=0)
    _states(axes[2], taped)
    axes[2].set_xlabel("seconds since the answer (shaded: the caller's part; synthetic voices)", fontsize=8)
    axes[0].set_title(f"{name}: {verdict}", fontsize=9)
    figure.tight_layout()
    path = FOLDER / f"{name.replace(',', '').replace(' ', '-')}.png"
    figure.savefig(path, dpi=72)
    pyplot.close(figure)
    return path


def _states(axes: Any, taped: Taped) -> None:
    end_s = taped.heard.size / RATE_HZ
    decisions = [*taped.decisions, (end_s, "ended")]
    for (start_s, state), (until_s, _) in pairwise(decisions):
        axes.barh(0, until_s - start_s, left=start_s, color=_COLOURS.get(state, "#cccccc"), height=1.0)
        if until_s - start_s > end_s / 25:
            axes.text((start_s + until_s) / 2, 0, state, fontsize=6, ha="center", va="center", color="white")
    axes.set_yticks([])
    axes.set_ylabel("turn", fontsize=8)


def _outline(samples: Pcm) -> tuple[Any, Any, Any]:
    frames = samples[: samples.size // _STEP * _STEP].reshape(-1, _STEP)
    return np.arange(len(frames)) * (_STEP / RATE_HZ), frames.min(axis=1), frames.max(axis=1)
