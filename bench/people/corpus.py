"""Recordings of people, and non-speech sounds of a line, for `python -m bench people`.

People: Debian's `asterisk-core-sounds-en-wav` (8 kHz, here over µ-law) and `-g722` (the same recordings at 16
kHz): one announcer, no caller. Single words of a second person come from `ktuberling-data`, a children's
game. They are halved by the SHA-1 of a file's name: the even half tunes, the odd half is reported; a number,
which is joined from the files of its digits, is halved by its digits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import av
import numpy as np
import numpy.typing as npt

from bench.embedded_stt import corpus as ears_corpus
from bench.embedded_stt.corpus import LINE_HZ, PROMPTS, RATE_HZ, Spoken, on_the_line
from pipeline.audio import Pcm, silence
from pipeline.audio.resample import resample
from pipeline.audio.wav import read

WORDS: Final = Path("/usr/share/ktuberling/sounds/en")
TEXTS: Final = Path(__file__).with_name("texts.txt")
PACKAGES: Final = {
    "asterisk-core-sounds-en-wav": PROMPTS / "vm-goodbye.wav",
    "asterisk-core-sounds-en-g722": PROMPTS / "vm-goodbye.g722",
    "ktuberling-data": WORDS / "hat.ogg",
}
"""Debian packages, with one file of each."""

NUMBERS: Final = 120
ANNOUNCER: Final = "announcer"
PLAYER: Final = "player"
LONGEST_S: Final = 15

_NO_ANSWERS: Final = frozenset(
    ["and", "at", "for", "from", "i'm", "invalid", "is", "oh", "press", "sorry", "transfer", "with", "your"]
)
"""Texts of `ears_corpus` that answer no question, or that their files do not contain."""


def said(rate_hz: int) -> list[Spoken]:
    """Returns all recordings with known words, over a line of 8 or 16 kHz."""
    found = [
        Spoken(f"{name.rpartition('/')[2]}.wav", ANNOUNCER, text, _line(name, rate_hz))
        for name, text in sorted(texts().items())
    ]
    found += [
        Spoken(path.name, PLAYER, _word(path), _on_line(decoded(path), rate_hz))
        for path in sorted(WORDS.glob("*.ogg"))
    ]
    return [each for each in found if len(each.samples) < LONGEST_S * rate_hz]


def numbers(rate_hz: int) -> Iterator[Spoken]:
    """Yields numbers of 3 to 10 recorded digits, with pauses as in dictation."""
    dice = random.Random(5)
    for _ in range(NUMBERS):
        digits = [dice.randrange(10) for _ in range(dice.choice([3, 4, 6, 7, 10]))]
        pieces: list[Pcm] = []
        for digit in digits:
            samples, of_hz = _sound(f"digits/{digit}", rate_hz)
            pieces += [_trimmed(samples), silence(of_hz, dice.choice([60, 120, 200, 400]))]
        text = "".join(map(str, digits))
        yield Spoken(text, ANNOUNCER, text, _on_line((np.concatenate(pieces), of_hz), rate_hz))


def sounds(seconds: float, rate_hz: int) -> Iterator[tuple[str, Pcm]]:
    """Yields `seconds` of tones, noise, music, knocks and silence, 1 to 8 s each, with their kind."""
    dice, kinds, left = np.random.default_rng(7), list(_SOUNDS), seconds
    place = 0
    while left > 0:
        length = float(dice.choice([1, 2, 4, 8]))
        kind = kinds[place % len(kinds)]
        made = _SOUNDS[kind](dice, np.arange(int(length * LINE_HZ)) / LINE_HZ)
        narrow = np.clip(made, -32768, 32767).astype(np.int16)
        yield kind, _on_line((narrow, LINE_HZ), rate_hz)
        place, left = place + 1, left - length


@cache
def texts() -> dict[str, str]:
    """Returns the words of the English recordings whose words are known, by their names."""
    words = {name: text for name, text in ears_corpus.texts().items() if text.split()[0] not in _NO_ANSWERS}
    for line in TEXTS.read_text(encoding="utf-8").splitlines():
        name, colon, text = line.partition(":")
        if colon and not name.startswith("#"):
            words[name] = text.strip()
    return {name: text for name, text in words.items() if (PROMPTS / f"{name}.wav").is_file()}


def _word(path: Path) -> str:
    return {"broccolli": "broccoli", "palmtree": "palm tree", "fallingstar": "falling star"}.get(
        path.stem.rpartition("_")[2], path.stem.rpartition("_")[2]
    )


def _line(name: str, rate_hz: int) -> Pcm:
    return _on_line(_sound(name, rate_hz), rate_hz)


def _sound(name: str, rate_hz: int) -> tuple[Pcm, int]:
    if rate_hz == LINE_HZ:
        return read(PROMPTS / f"{name}.wav")
    return decoded(PROMPTS / f"{name}.g722")


def _on_line(sound: tuple[Pcm, int], rate_hz: int) -> Pcm:
    samples, of_hz = sound
    if rate_hz == LINE_HZ:
        return on_the_line(samples, of_hz)
    wide = resample(samples, of_hz, RATE_HZ)
    return np.concatenate([silence(RATE_HZ, 300), wide, silence(RATE_HZ, 500)])


def decoded(path: Path) -> tuple[Pcm, int]:
    """Decodes one channel of a file by PyAV, at 16 kHz."""
    with av.open(str(path), format="g722" if path.suffix == ".g722" else None) as container:
        resampler = av.AudioResampler("s16", "mono", RATE_HZ)
        frames = [made for frame in container.decode(audio=0) for made in resampler.resample(frame)]
    return np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames]).astype(np.int16), RATE_HZ


def _trimmed(samples: Pcm) -> Pcm:
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > 0.03 * np.abs(samples.astype(np.int32)).max())
    return samples[max(0, loud[0] - 400) : loud[-1] + 800]


# Non-speech sounds ------------------------------------------------------------------------------------------

Times = npt.NDArray[np.float64]


def _tone(at: Times, *hz: float, on_s: float = 0.0, off_s: float = 0.0, level: float = 5000) -> Times:
    made = np.asarray(sum(level * np.sin(2 * np.pi * each * at) for each in hz))
    return made * (at % (on_s + off_s) < on_s) if on_s else made


def _noise(dice: np.random.Generator, at: Times, level: float) -> Times:
    return dice.normal(0, level, len(at))


def _brown(dice: np.random.Generator, at: Times, level: float) -> Times:
    made = np.cumsum(dice.normal(0, 1, len(at)))
    made -= np.convolve(made, np.ones(400) / 400, "same")
    return np.asarray(made / made.std() * level)


def _music(dice: np.random.Generator, at: Times) -> Times:
    base = 220 * 2 ** (dice.integers(0, 12) / 12)
    chord = (at // 0.5).astype(int) % 4
    made = np.zeros(len(at))
    for number, ratios in enumerate(((1, 1.26, 1.5), (1.12, 1.33, 1.68), (1, 1.2, 1.5), (0.89, 1.12, 1.33))):
        for ratio in ratios:
            for partial in (1, 2, 3):
                tone = np.sin(2 * np.pi * base * ratio * partial * at) / partial
                made += (chord == number) * 3000 * np.exp(-3 * (at % 0.5)) * tone
    return made


def _melody(dice: np.random.Generator, at: Times) -> Times:
    steps = 2 ** (dice.integers(0, 12, 64) / 12)[(at // 0.35).astype(int)]
    pitch = 220 * steps * (1 + 0.01 * np.sin(2 * np.pi * 5.5 * at))
    return np.asarray(4000 * np.sin(2 * np.pi * np.cumsum(pitch) / LINE_HZ))


def _coughs(dice: np.random.Generator, at: Times) -> Times:
    made, place = np.zeros(len(at)), 0
    while place < len(at):
        count = min(int(LINE_HZ * dice.uniform(0.12, 0.35)), len(at) - place)
        shape = 5000 * np.exp(-np.linspace(0, 5, count)) * np.minimum(1, np.linspace(0, 30, count))
        burst = np.convolve(dice.normal(0, 1, count), np.ones(4) / 2, "same")
        made[place : place + count] = burst * shape
        place += count + int(LINE_HZ * dice.uniform(0.1, 0.8))
    return made


def _breath(dice: np.random.Generator, at: Times) -> Times:
    return np.asarray(
        np.convolve(dice.normal(0, 900, len(at)), np.ones(6) / 6, "same") * np.sin(np.pi * at) ** 2
    )


def _knocks(dice: np.random.Generator, at: Times) -> Times:
    since = at % 0.26
    return 9000 * np.exp(-since * 80) * np.sin(2 * np.pi * 300 * since)


_SOUNDS: Final[Mapping[str, Callable[[np.random.Generator, Times], Times]]] = {
    "dial tone": lambda dice, at: _tone(at, 350, 440),
    "ringback": lambda dice, at: _tone(at, 440, 480),
    "busy tone": lambda dice, at: _tone(at, 480, 620, on_s=0.5, off_s=0.5),
    "reorder tone": lambda dice, at: _tone(at, 480, 620, on_s=0.25, off_s=0.25),
    "beeps": lambda dice, at: _tone(at, 1000, on_s=0.3, off_s=0.4),
    "short beeps": lambda dice, at: _tone(at, 1400, on_s=0.12, off_s=0.2),
    "keys": lambda dice, at: _tone(at, 770, 1336, on_s=0.1, off_s=0.1),
    "fax": lambda dice, at: _tone(at, 1100, on_s=0.5, off_s=3.0),
    "modem": lambda dice, at: _tone(at, 2100),
    "quiet noise": lambda dice, at: _noise(dice, at, 50),
    "noise": lambda dice, at: _noise(dice, at, 300),
    "loud noise": lambda dice, at: _noise(dice, at, 1500),
    "rumble": lambda dice, at: _brown(dice, at, 300),
    "loud rumble": lambda dice, at: _brown(dice, at, 1500),
    "music": _music,
    "melody": _melody,
    "coughs": _coughs,
    "breath": _breath,
    "knocks": _knocks,
    "silence": lambda dice, at: np.zeros(len(at)),
    "line hum": lambda dice, at: _tone(at, 50, 150, level=200),
}


def halves(corpus: Sequence[Spoken]) -> tuple[list[Spoken], list[Spoken]]:
    """Returns the half that tunes, and the half that is reported."""
    return [each for each in corpus if each.tunes], [each for each in corpus if not each.tunes]
