"""Recorded prompts in five languages, their silences within and at their ends, over a line of 8 kHz.

Debian's `asterisk-core-sounds-LANGUAGE-wav` (CC BY-SA or CC BY) are downloaded by apt-get and unpacked in a
folder; nothing is installed. One speaker a package, by its name the same one in English and Spanish. Files
have the same names in all languages, so that a prompt is in the same half in each."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import click
import numpy as np

from bench.embedded_stt.corpus import LINE_HZ
from bench.vad.corpus import GAP_MS, on_line, stretches
from pipeline.audio import Pcm, silence
from pipeline.audio.resample import resample
from pipeline.audio.wav import read

SPEAKERS: Final = {
    "en": ("en_US_f_Allison", "Allison Smith"),
    "es": ("es_MX_f_Allison", "Allison Smith"),
    "fr": ("fr_CA_f_June", "June Wallack"),
    "it": ("it_IT_m_Carlo", "Carlo Flora"),
    "ru": ("ru_RU_f_IvrvoiceRU", "ivrvoice.ru"),
}
"""The folder of each language and its speaker, by Debian's copyright files."""

_BEGUN: Final = """
    at-tone-time-exactly conf-enteringno conf-thereare confbridge-there-are dir-multi1 dir-pls-enter
    followme/call-from for if-correct-press is is-set-to priv-callpending queue-holdtime queue-less-than
    queue-quantity1 queue-thereare telephone-number to-call-this-number vm-and vm-for vm-from
    vm-from-extension vm-from-phonenumber vm-num-i-have vm-onefor vm-press vm-savedto vm-theperson vm-youhave
    with you-entered your
"""
BEGUN: Final = frozenset(_BEGUN.split())
"""Recordings after which Asterisk plays more of the same sentence: "there are currently", "press one for"."""

_NO_SENTENCES: Final = ("digits", "letters", "phonetic", "silence")
_LEAST_MS: Final = 300
_SENTENCE_MS: Final = 800
_LONGEST_S: Final = 20
_TAIL_MS: Final = 30
SILENCE_MS: Final = 200
LONG_PAUSE_MS: Final = 400


@dataclass(frozen=True, slots=True)
class Prompt:
    """One recording at 8 kHz. `name`: its path in the package, which decides the half."""

    language: str
    name: str
    samples: Pcm

    @property
    def tunes(self) -> bool:
        """Whether the SHA-1 of the file's name is even."""
        return int(hashlib.sha1(self.name.encode(), usedforsecurity=False).hexdigest(), 16) % 2 == 0

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return self.name.removesuffix(".wav")


@dataclass(frozen=True, slots=True)
class Stop:
    """A silence of a speaker. `kind`: "end", "begun" (of a recording in `BEGUN`), "short pause", "long
    pause"; `audio`: what was said before it, over the line, and `SILENCE_MS` of silence."""

    prompt: Prompt
    kind: str
    audio: Pcm
    voiced_ms: int


def unpacked(folder: Path) -> Path:
    """Downloads and unpacks the packages that `folder` lacks. Raises `ClickException`."""
    folder.mkdir(parents=True, exist_ok=True)
    for language, (voice, _) in SPEAKERS.items():
        if not (folder / "usr/share/asterisk/sounds" / voice).is_dir():
            package = f"asterisk-core-sounds-{language}-wav"
            fetched = subprocess.run(["apt-get", "download", package], cwd=folder, check=False)
            files = sorted(folder.glob(f"{package}_*.deb"))
            if fetched.returncode or not files:
                raise click.ClickException(f"apt-get does not download {package}")
            subprocess.run(["dpkg-deb", "-x", files[-1].name, "."], cwd=folder, check=True)
    return folder / "usr/share/asterisk/sounds"


def prompts(sounds: Path, language: str) -> Iterator[Prompt]:
    """Yields the recordings of one language, without digits, letters and tones."""
    root = sounds / SPEAKERS[language][0]
    for path in sorted(root.rglob("*.wav")):
        name = path.relative_to(root).as_posix()
        if name.split("/")[0] in _NO_SENTENCES or "tone." in name or "beep" in name:
            continue
        samples, rate_hz = read(path)
        if samples.any() and samples.size < _LONGEST_S * rate_hz:
            yield Prompt(language, name, resample(samples, rate_hz, LINE_HZ))


def stops(prompt: Prompt) -> Iterator[Stop]:
    """Yields the silences of 200 ms and more within a recording, then the one at its end."""
    voice = stretches(prompt.samples)
    begun = voice[0][0] if voice else 0
    for (_, ended), (goes_on, until) in pairwise(voice):
        if ended - begun >= _LEAST_MS and until - goes_on >= _LEAST_MS and goes_on - ended >= GAP_MS:
            kind = "long pause" if goes_on - ended >= LONG_PAUSE_MS else "short pause"
            yield _stop(prompt, kind, begun, ended)
    if not voice:
        return
    is_begun = prompt.stem in BEGUN
    if voice[-1][1] - begun >= (_LEAST_MS if is_begun else _SENTENCE_MS):
        yield _stop(prompt, "begun" if is_begun else "end", begun, voice[-1][1])


def _stop(prompt: Prompt, kind: str, begun_ms: int, ended_ms: int) -> Stop:
    """Cuts at the last voice. The silence after it is the same at a pause and at an end, so that a room's
    noise tells nothing."""
    said = prompt.samples[begun_ms * LINE_HZ // 1000 : (ended_ms + _TAIL_MS) * LINE_HZ // 1000]
    quiet = silence(LINE_HZ, SILENCE_MS - _TAIL_MS)
    audio = on_line(np.concatenate((silence(LINE_HZ, 1000), said, quiet)))
    return Stop(prompt, kind, audio, ended_ms - begun_ms)
