"""The figures as a picture: SVG, written by hand, since nothing of the installation draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

import numpy as np

from mediaserver.benchmark.calls import Run

_WIDTH: Final = 360
_HEIGHT: Final = 240
_MARGIN: Final = (52, 58, 16, 44)  # left, top, right, bottom
_LINE: Final = "#264653"
_MARK: Final = "#e76f51"
_POINTS: Final = 400


def svg(run: Run, found: Mapping[str, Any]) -> str:
    """Three panels: the share of turns answered, of interruptions heeded and of packets come, within so many
    milliseconds."""
    turns = [turn for record in run.records for turn in record.turns]
    panels: tuple[tuple[str, list[float], tuple[int, ...]], ...] = (
        ("voice to voice", [ms for turn in turns if (ms := turn.voice_to_voice_ms) is not None], (50, 95)),
        ("barge-in", [ms for turn in turns if (ms := turn.barge_in_ms) is not None], (50, 95)),
        (
            "gap between packets",
            [1000 * gap for record in run.records for gap in record.heard.gaps_s],
            (50, 99),
        ),
    )
    about = found["conditions"]
    title = f"{about['target']}: {found['calls']['answered']} calls, {found['turns']['begun']} turns"
    beneath = f"{about['codec']}, {about['concurrent']} calls at once, {about['speech']}"
    left, _, right, _ = _MARGIN
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {3 * _WIDTH} {_HEIGHT}" '
            f'width="{3 * _WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="11">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{left}" y="18" font-size="13">{escape(title)}</text>',
            f'<text x="{3 * _WIDTH - right}" y="18" text-anchor="end" fill="#666">{escape(beneath)}</text>',
            *(
                line
                for place, (name, values, ranks) in enumerate(panels)
                for line in _panel(place * _WIDTH, name, values, ranks)
            ),
            "</svg>\n",
        )
    )


def _panel(x: int, name: str, values: Sequence[float], ranks: Sequence[int]) -> Iterator[str]:
    left, top, right, bottom = _MARGIN
    width, height = _WIDTH - left - right, _HEIGHT - top - bottom
    yield f'<g transform="translate({x + left} {top})">'
    yield f'<text x="0" y="-10" font-weight="bold">{name} ({len(values)})</text>'
    marks = [f"p{rank} {np.percentile(values, rank):.0f}" for rank in ranks if values]
    yield f'<text x="{width}" y="-10" text-anchor="end" fill="{_MARK}">{", ".join(marks)}</text>'
    for share in (0, 25, 50, 75, 100):
        y = height * (1 - share / 100)
        yield f'<line x1="0" x2="{width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{share} %</text>'
    if values:
        yield from _curve(np.sort(np.asarray(values)), (width, height), ranks)
    else:
        yield f'<text x="{width / 2}" y="{height / 2}" text-anchor="middle" fill="#666">none</text>'
    yield "</g>"


def _curve(values: Any, size: tuple[int, int], ranks: Sequence[int]) -> Iterator[str]:
    """The distribution as steps, with the `ranks` marked."""
    width, height = size
    step = _step(float(values[-1]))
    scale = width / (step * max(1, np.ceil(values[-1] / step)))
    for number in range(int(width / scale / step + 1.5)):
        at = number * step * scale
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{height}" y2="{height + 4}" stroke="#888"/>'
        yield f'<text x="{at:.1f}" y="{height + 16}" text-anchor="middle">{number * step:g}</text>'
    yield f'<text x="{width}" y="{height + 32}" text-anchor="end">ms</text>'
    shares = np.linspace(0, 100, min(len(values), _POINTS) + 1)
    points = zip(np.percentile(values, shares, method="inverted_cdf"), shares, strict=True)
    path = f"M0 {height}" + "".join(
        f"H{max(0.0, ms) * scale:.1f}V{height * (1 - share / 100):.1f}" for ms, share in points
    )
    yield f'<path d="{path}H{width}" fill="none" stroke="{_LINE}" stroke-width="1.5"/>'
    for rank in ranks:
        at = max(0.0, float(np.percentile(values, rank))) * scale
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height}" stroke="{_MARK}"/>'


def _step(most: float) -> float:
    """Of the marks below: 1, 2 or 5 of some power of ten, five or six marks in all."""
    wanted = max(most, 1.0) / 5
    power = 10.0 ** np.floor(np.log10(wanted))
    return float(next(power * each for each in (1, 2, 5, 10) if power * each >= wanted))
