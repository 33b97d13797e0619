"""What of a Whisper model's text is believed: the rules against sentences that nobody said.

Measured on recorded people, tones, noise and silence at 8 kHz (`python -m bench people`, docs/engines.md). A
wrong sentence is acted upon, none is asked for again: in doubt, nothing was said.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pipeline.audio import Pcm, frame_samples, silence
from pipeline.audio.vad import EnergyVad
from pipeline.speech import HeardWord, Hypothesis
from pipeline.stt.whisper.sound_alike import FAR, sounding_like
from pipeline.stt.whisper.wire import Decoded
from pipeline.text.fold import folded, plain_words
from pipeline.text.lexicon import lexicon
from pipeline.text.spoken_numbers import spoken_digits

NO_SPEECH: Final = 0.6
"""Speech has at most this probability of being none, at a window of 12 s (p99 0.55); what is none begins at
0.53, and its rest falls to its confidence."""

LOOP_COMPRESSION: Final = 2.4  # Whisper's own; its paper, 4.5
WORDS_A_SECOND: Final = 6.0
"""Words and figures for each second of voice: recorded people say 3.8 at most, loops begin at 8.7."""

MISHEARD: Final = ((0.6, FAR), (0.8, 0.12))
"""Below this confidence, a text with so many other sounds may be one of the expected answers, misspelt. What
the model is surer of is what was said."""

OTHER_WINDOW_S: Final = 15
"""A loop is a chance of the window's length: decoded once more with this one, hardly any was left."""

LEARNED_WINDOW_S: Final = 30

TOKENS: Final = 12
TOKENS_A_SECOND: Final = 10
"""What is written at the most, that a loop costs little; a text that is longer is decoded once more."""

_SAID_OFTEN: Final = re.compile(r"(?<!\S)(\S+(?: \S+){0,2}?)(?: \1){2,}(?: \S{1,12}$)?(?!\S)")


def voiced_s(samples: Pcm, rate_hz: int) -> float:
    """How much voice there is in `samples`, as the line's detector finds it."""
    vad, step, voiced = EnergyVad(rate_hz), frame_samples(rate_hz), 0
    quiet = silence(rate_hz, 20)
    for _ in range(25):  # what is voice is known by what came before it
        vad.push(quiet)
    for start in range(0, len(samples) - step + 1, step):
        voiced += vad.push(samples[start : start + step]).active
    return voiced / 50


def most_tokens(voiced: float) -> int:
    """What a text of so many seconds of voice has at the most."""
    return TOKENS + math.ceil(TOKENS_A_SECOND * voiced)


def is_loop(decoded: Decoded, voiced: float, language: str) -> bool:
    """Whether the model has said something over and over, in `voiced` seconds of voice."""
    text = plain_words(decoded.text)
    words, raw = text.split(), decoded.text.encode()
    if not decoded.whole or len(raw) > LOOP_COMPRESSION * len(zlib.compress(raw)):
        return True
    if len(words) > 1 and len(set(words)) == 1 and not spoken_digits(words[0], lexicon(language)):
        return True
    count = sum(len(word) if word.isdecimal() else 1 for word in words)
    return count > 2 and count > WORDS_A_SECOND * voiced


def is_row(text: str, language: str) -> bool:
    """Whether one figure is said several times in `text` ("5 5", "nine nine nine"), by its writing or by its
    word: a loop looks the same."""
    words = plain_words(text).split()
    digits = spoken_digits(" ".join(words), lexicon(language))
    return len(set(digits)) == 1 and len(digits) > 1 and (len(digits) > 2 or len(words) == 2)


def confirmed(decoded: Decoded, again: Decoded, language: str) -> Decoded:
    """What a second window says; nothing where either says one figure in a row and the two are not the same
    number, however they are written."""
    first, second = (spoken_digits(plain_words(each.text), lexicon(language)) for each in (decoded, again))
    row = is_row(decoded.text, language) or is_row(again.text, language)
    return replace(again, text="") if row and first != second else again


def row_window_s(window_s: int, longest_s: float) -> int:
    """The window to decode one figure in a row with. Shorter ones write one too many; the one that the models
    learned with counts best."""
    return LEARNED_WINDOW_S if window_s < LEARNED_WINDOW_S else another_window_s(window_s, longest_s)


def another_window_s(window_s: int, longest_s: float) -> int:
    """The window to decode a loop with, that came of `window_s`."""
    had = max(window_s, math.ceil(longest_s) + 1)
    if had < OTHER_WINDOW_S:
        return OTHER_WINDOW_S
    return had + 3 if had + 3 <= 30 else max(OTHER_WINDOW_S, math.ceil(longest_s) + 1)


def said_once(text: str, language: str) -> str:
    """A loop's words without the repetitions; "" where figures or number words are among them, of which
    nobody knows how many were said."""
    once = _SAID_OFTEN.sub(r"\1", text)
    return "" if once != text and spoken_digits(text, lexicon(language)) else once


def is_figures(text: str, language: str) -> bool:
    """Whether a text (see `plain_words`) is a number and nothing else. Whisper may write one in several ways,
    which share the probability: a right number has less of it than right words."""
    units = lexicon(language).units
    words = [folded(word) for word in text.split()]
    return any(word.isdecimal() for word in words) and all(
        word.isdecimal() or units.get(word, 10) < 10 for word in words
    )


def believed(
    decoded: Decoded,
    *,
    language: str,
    min_confidence: float,
    loops: bool = False,
    phrases: Sequence[str] = (),
) -> Hypothesis:
    """What is believed of `decoded`, which `loops` even now. Figures alone (but one figure in a row) need
    half of `min_confidence`, and so does one of the expected `phrases`; what is not sure and sounds like one
    of them is taken for it."""
    if decoded.no_speech_prob > NO_SPEECH:
        return Hypothesis("")
    text, confidence = plain_words(decoded.text), decoded.confidence
    figures, row = is_figures(text, language), is_row(text, language)
    if loops:
        text = "" if figures or row else said_once(text, language)
    enough = min_confidence / 2 if not row and (figures or text in phrases) else min_confidence
    if not text or confidence < enough:
        return Hypothesis("", confidence=confidence)
    within = next((share for below, share in MISHEARD if confidence < below), 0.0)
    text = sounding_like(text, phrases, language, within=within) or text
    return Hypothesis(
        text, confidence, tuple(HeardWord(word, confidence=confidence) for word in text.split())
    )
