"""Draws one picture per scenario: both sides of one call, the caller's words, and the states of
turn-taking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import numpy as np
from matplotlib import pyplot
from matplotlib.patches import Patch

from bench import report
from bench.conversation.caller import Placed
from bench.conversation.figures.metrics import Outcome, summary
from bench.conversation.handset import Taped
from bench.conversation.sounds import RATE_HZ
from pipeline.audio import Pcm

FOLDER: Final = report.RESULTS / "conversation"
_CALLER: Final = "#2a9d8f"
_AGENT: Final = "#264653"
_MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    "opening": ("agent about to speak", "#dddddd"),
    "speaking": ("agent speaks", _AGENT),
    "listening": ("the floor is the caller's", "#bbbbbb"),
    "hearing": ("caller speaks", _CALLER),
    "endpointing": ("is that the end?", "#e9c46a"),
    "presuming": ("probably: an answer is prepared, unheard", "#f4a261"),
    "replying": ("the turn is taken", "#e76f51"),
    "overlapping": ("both speak, too short to tell", "#cdb4f5"),
    "overlapped": ("both speak, too short to tell", "#cdb4f5"),
    "ducked": ("agent lowers its voice", "#9b5de5"),
    "judging": ("agent lowers its voice", "#9b5de5"),
    "halted": ("agent pauses", "#d00000"),
    "doubting": ("agent pauses", "#d00000"),
    "keying": ("keys come in", "#3a86ff"),
    "waiting": ("agent is silent on purpose", "#888888"),
    "leaving": ("last words", "#6c757d"),
    "closing": ("last words", "#6c757d"),
}
"""The legend and the colour of each state."""

_DECISIVE: Final = ("ducked", "halted", "replying")
_STEP: Final = RATE_HZ // 100
_BEFORE_S, _AFTER_S = 3.0, 5.0
_PHRASE_GAP_S: Final = 0.2
_LINE: Final = 22


def draw(name: str, taped: Taped, found: Outcome) -> Path:
    """Draws results/conversation/NAME.png, from shortly before the caller's first cue to shortly after the
    last."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(3, 1, figsize=(9, 4.4), sharex=True, height_ratios=(3, 3, 1))
    for axis, label, samples, colour in (
        (axes[0], "caller", taped.sent, _CALLER),
        (axes[1], "agent", taped.heard, _AGENT),
    ):
        at, low, high = _outline(samples)
        axis.fill_between(at, low, high, color=colour, linewidth=0)
        axis.set_ylabel(label, fontsize=8)
        axis.set_yticks([])
        for placed in taped.placed:
            axis.axvspan(placed.start_s, placed.end_s, color=_CALLER, alpha=0.12, linewidth=0)
    axes[0].set_ylim(top=axes[0].get_ylim()[1] * 1.7)  # space for the words
    for start_s, text in (phrase for placed in taped.placed for phrase in _phrases(placed)):
        axes[0].text(
            start_s, 0.95, text, fontsize=6.5, va="top", transform=axes[0].get_xaxis_transform(), clip_on=True
        )
    _states(axes, taped)
    axes[2].set_xlim(*_window(taped))
    axes[2].set_xlabel("seconds since the answer (shaded: the caller's part; synthetic voices)", fontsize=8)
    axes[0].set_title(f"{name}: {_verdict(found)}", fontsize=9)
    figure.tight_layout()
    path = FOLDER / f"{name.replace(',', '').replace(' ', '-')}.png"
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
    return path


def _states(axes: Any, taped: Taped) -> None:
    """Draws the bar of states with its legend, and lines through both voices at decisive states."""
    ended = (taped.heard.size / RATE_HZ, "ended")
    legend: dict[str, str] = {}
    before = ""
    for (start_s, state), (until_s, _) in pairwise([*taped.decisions, ended]):
        if state not in _MEANINGS:
            continue
        meaning, colour = _MEANINGS[state]
        axes[2].barh(0, until_s - start_s, left=start_s, color=colour, height=1.0)
        legend[meaning] = colour
        decided, before = state in _DECISIVE and meaning != before, meaning
        if decided:
            for axis in axes[:2]:
                axis.axvline(start_s, color=colour, linewidth=1, linestyle="--")
    axes[2].set_yticks([])
    axes[2].set_ylabel("turn", fontsize=8)
    axes[2].legend(
        handles=[Patch(color=colour, label=meaning) for meaning, colour in legend.items()],
        loc="upper center",
        bbox_to_anchor=(0.5, -1.3),
        ncol=4,
        fontsize=7,
        frameon=False,
    )


def _window(taped: Taped) -> tuple[float, float]:
    end_s = taped.heard.size / RATE_HZ
    if not taped.placed:
        return 0.0, end_s
    return max(0.0, taped.placed[0].start_s - _BEFORE_S), min(end_s, taped.placed[-1].end_s + _AFTER_S)


def _verdict(found: Outcome) -> str:
    """Returns whether the call went as wanted, or why not, with its figures."""
    figures = summary([found])
    parts = ["as wanted" if found.good else found.why]
    for figure, words in (
        ("lowered_ms", "10 dB lower after {:.0f} ms"),
        ("yield_ms", "silent after {:.0f} ms"),
        ("response_ms", "answered after {:.0f} ms"),
    ):
        if figures[figure]["count"]:
            parts.append(words.format(figures[figure]["p50"]))
    return "; ".join(parts)


def _phrases(placed: Placed) -> Iterator[tuple[float, str]]:
    """Yields the caller's words with their times, in stretches without a pause; or the keys."""
    if placed.cue.keys:
        yield placed.start_s, f"keys {placed.cue.keys}"
    if placed.cue.sound is None:
        return
    text, start_s, end_s = "", 0.0, -1.0
    for word in placed.cue.sound.words:
        if text and word.start_s - end_s > _PHRASE_GAP_S:
            yield start_s, fill(text, _LINE)
            text = ""
        if not text:
            start_s = placed.start_s + word.start_s
        text, end_s = f"{text} {word.text}".strip(), word.end_s
    if text:
        yield start_s, fill(text, _LINE)


def _outline(samples: Pcm) -> tuple[Any, Any, Any]:
    frames = samples[: samples.size // _STEP * _STEP].reshape(-1, _STEP)
    return np.arange(len(frames)) * (_STEP / RATE_HZ), frames.min(axis=1), frames.max(axis=1)
