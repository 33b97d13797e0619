"""The findings of `mediaserver doctor` about speech: where the weights are, what was chosen and why, what it
is good for, and how many calls a core carries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from mediaserver.cli.finding import Finding
from mediaserver.engine_pool.choice import AgentChoice, Chosen
from mediaserver.models.places import models_in, places
from pipeline.engines import local_weights

SYNTHETIC_MODEL: Final = "micro_whisper"
"""The part of a path by which the model of this repository is recognised."""

PUBLISHED: Final = 0.5
"""The share of the measured capacity that is reported: the rest is for other work of a call, and for busy
moments."""

DECODES_A_SECOND: Final = 0.3
"""Decodes per second of one caller: an answer every five seconds, every second one decoded again because the
caller went on."""

SPOKEN_SHARE: Final = 0.5
"""The share of a call in which the agent speaks."""

GOOD_FOR: Final[Mapping[str, str]] = {
    local_weights.WHISPER.name: (
        "understands people in English over a telephone line (a recorded announcer: 0.5 % of digits wrong, "
        "7 % of the words of prompts), names and words by themselves less surely; no other language"
    ),
    local_weights.PIPER.name: "speaks English with a neural voice; no other language",
    local_weights.KOKORO.name: (
        "speaks English with the voices of Japanese speakers, one call a core, hardly two; no other language"
    ),
}
"""What the packages of the extra `local` can and cannot do, as measured (docs/engines.md)."""


def weights_findings(data_dir: Path) -> Iterator[Finding]:
    """Yields where the weights on this machine are, and what is wrong with them. Reads files: not for the
    event loop."""
    for found in local_weights.found():
        name = f"weights of {found.weights.name}"
        if found.whole:
            yield Finding(name, True, f"by pip, {found.directory}; {GOOD_FOR[found.weights.name]}")
        else:
            yield Finding(name, found.directory is None, found.problem)
    for model in models_in(places(data_dir)):
        known = ", ".join(model.languages) or "many languages"
        about = f"{model.directory}; engine {model.engine}, {known}" if model.engine else str(model.directory)
        yield Finding(f"weights of {model.name}", not model.problem, model.problem or about)


def speech_findings(name: str, made_of: AgentChoice, chosen: Sequence[Chosen]) -> Iterator[Finding]:
    """Yields for one agent what "auto" became, what the recogniser is good for, and how many such calls a
    core carries."""
    for each in chosen:
        if each.engine is not None:
            yield Finding(name, True, f"auto: {each}")
    told = any(each.wanted.kind == "stt" for each in chosen)
    yield from _hearing(name, made_of, told=told)
    yield from _capacity(name, chosen)


def _hearing(name: str, made_of: AgentChoice, *, told: bool) -> Iterator[Finding]:
    """Yields a remark on a recogniser with narrow limits. `told`: what "auto" says of it was reported
    already."""
    if made_of.stt.name == "pocketsphinx" and not told:
        yield Finding(
            name,
            True,
            "pocketsphinx understands people only within the answers that the script expects, and listens "
            f'until there is a Whisper: engine = "auto" with {local_weights.INSTALL}, or "faster-whisper" '
            'with model = "DIRECTORY"',
        )
    if SYNTHETIC_MODEL in str(made_of.stt.options.get("model", "")):
        yield Finding(
            name,
            True,
            "micro-Whisper knows only 183 words of synthetic voices, nothing of people: it is for tests and "
            'the demo; for people use engine = "auto", or the directory of a real Whisper model',
        )


def _capacity(name: str, chosen: Sequence[Chosen]) -> Iterator[Finding]:
    figures = []
    core_s = 0.0
    for each in chosen:
        if each.cpu_ms:
            figures.append(f"{PUBLISHED * 1000 / each.cpu_ms:.1f} answers understood")
            core_s += each.cpu_ms / 1000 * DECODES_A_SECOND
        if each.cpu_ratio:
            figures.append(f"{PUBLISHED / each.cpu_ratio:.0f} s of speech made")
            core_s += each.cpu_ratio * SPOKEN_SHARE
    if figures:
        calls = max(1, int(PUBLISHED / core_s))
        yield Finding(
            name,
            True,
            f"a core carries {calls} such calls at once; it has {' or '.join(figures)} in a second (half of "
            "what was measured)",
        )
