"""Formats results/vad.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

COLUMNS: Final = (
    "background",
    "detector",
    "onsets",
    "missed",
    "late",
    "delay p50, ms",
    "p95",
    "voice missed",
    "false voice",
)

_TEXT: Final = """# Voice detectors

`python -m bench vad`, {conditions}.

{reported} recordings ({seconds} s) of {speakers} speakers over µ-law at 8 kHz: the announcer of Debian's
`asterisk-core-sounds-en-wav`, who reads, close to a good microphone, and single words of a second person
(`ktuberling-data`, a children's game). No caller, and two voices only: the figures compare detectors, they do
not promise how callers will be heard. Recordings whose name's SHA-1 is even ({tuning}) tuned: they chose the
mode of webrtcvad. The others are in these tables. `energy` is the server's own detector, which was tuned on
synthetic voices; Silero has its published thresholds.

A recording has voice where its level, before noise is added, is within 30 dB of its loudest 10 ms: a rule
that suits detectors of energy. Noise begins 2 s before the recording. All detectors have the times of a
conversation: a voice begins after 40 ms and ends after 100 ms.

| column | what it says |
|---|---|
| onsets | stretches of voice after 200 ms of none |
| missed | no voice was active in the whole stretch |
| late | active more than 200 ms after the onset |
| delay | from the onset to the end of the frame with the decision; 0 where a voice was active before |
| voice missed | share of the frames of voice that were not active |
| false voice | share of the frames without voice that were active, less the 200 ms after a stretch |

{people}

Share of frames taken for voice in {sounds_s:.0f} s of sounds without a voice (those of `bench people`, 1 to
8 s at a time, each to a new detector that has learnt no noise; babble is six voices at once):

{sounds}

CPU of a frame of 20 ms, µs, all threads counted, in turns, median of five rounds:

{cost}

Modes of webrtcvad on the half that tunes, all backgrounds together:

{modes}
"""


def page(figures: Mapping[str, Any], machine: Mapping[str, Any]) -> str:
    """Returns the page of `figures`, as `python -m bench vad` measures them."""
    detectors = figures["detectors"]
    backgrounds = list(next(iter(detectors.values()))["people"])
    kinds = list(next(iter(detectors.values()))["sounds"])
    return _TEXT.format(
        conditions=f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}",
        reported=figures["recordings"]["reported"],
        tuning=figures["recordings"]["tuning"],
        seconds=figures["reported_s"],
        speakers=len(figures["speakers"]),
        sounds_s=figures["sounds_s"],
        people=table(
            COLUMNS,
            [
                _row(place, name, of["people"][place])
                for place in backgrounds
                for name, of in detectors.items()
            ],
        ),
        sounds=table(
            ("sound", *detectors),
            [(kind, *(f"{of['sounds'][kind]:.0%}" for of in detectors.values())) for kind in kinds],
        ),
        cost=table(tuple(figures["cpu_us"]), [[f"{each:g}" for each in figures["cpu_us"].values()]]),
        modes=table(
            ("", "onsets", "missed", "late", "voice missed", "false voice"),
            [_together(mode, of) for mode, of in figures["webrtcvad_modes_tuning"].items()],
        ),
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a table in Markdown."""
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _row(background: str, name: str, of: Mapping[str, Any]) -> tuple[object, ...]:
    delay = of["delay_ms"]
    shares = (f"{of['voice_missed']:.1%}", f"{of['false_voice']:.1%}")
    return background, name, of["onsets"], of["missed"], of["late"], delay["p50"], delay["p95"], *shares


def _together(mode: str, of: Mapping[str, Any]) -> tuple[object, ...]:
    counted = (sum(each[key] for each in of.values()) for key in ("onsets", "missed", "late"))
    shares = (sum(each[key] for each in of.values()) / len(of) for key in ("voice_missed", "false_voice"))
    return mode, *counted, *(f"{share:.1%}" for share in shares)
