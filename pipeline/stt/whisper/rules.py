"""Rules that accept or reject a Whisper model's text, against hallucinated sentences.

The limits were measured on recorded people, tones, noise and silence at 8 kHz (`python -m bench people`,
docs/engines.md). An agent acts upon a wrong sentence and asks again after none, so doubtful texts are
rejected.
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
"""Highest no-speech probability of speech, at a window of 12 s (p99 0.55). Other audio begins at 0.53; its
texts below this limit are rejected by their confidence."""

LOOP_COMPRESSION: Final = 2.4  # the limit of Whisper's paper, section 4.5
WORDS_A_SECOND: Final = 6.0
"""Most words and digits in a second of voice: recorded people say at most 3.8, loops begin at 8.7."""

MISHEARD: Final = ((0.6, FAR), (0.8, 0.12))
"""Pairs of a confidence and a share of sounds: below the confidence, a text that differs in so many sounds
from an expected answer may be that answer. A text of higher confidence is taken as it is."""

OTHER_WINDOW_S: Final = 15
"""Window of a second decode after a loop: loops depend on the window's length, and hardly any remained."""

LEARNED_WINDOW_S: Final = 30
"""The window of Whisper's training."""

TOKENS: Final = 12
TOKENS_A_SECOND: Final = 10
"""Most tokens of a first decode, so that a loop costs little; a longer text is decoded once more."""

_SAID_OFTEN: Final = re.compile(r"(?<!\S)(\S+(?: \S+){0,2}?)(?: \1){2,}(?: \S{1,12}$)?(?!\S)")


def voiced_s(samples: Pcm, rate_hz: int) -> float:
    """Gives the seconds of voice in `samples` (int16 at `rate_hz`), by `EnergyVad`."""
    vad, step, voiced = EnergyVad(rate_hz), frame_samples(rate_hz), 0
    quiet = silence(rate_hz, 20)
    for _ in range(25):  # the detector needs silence to find the noise floor
        vad.push(quiet)
    for start in range(0, len(samples) - step + 1, step):
        voiced += vad.push(samples[start : start + step]).active
    return voiced / 50


def most_tokens(voiced: float) -> int:
    """Gives the most tokens of a first decode of `voiced` seconds of voice."""
    return TOKENS + math.ceil(TOKENS_A_SECOND * voiced)


def is_loop(decoded: Decoded, voiced: float, language: str) -> bool:
    """Whether the text repeats itself, or is too long for `voiced` seconds of voice."""
    text = plain_words(decoded.text)
    words, raw = text.split(), decoded.text.encode()
    if not decoded.whole or len(raw) > LOOP_COMPRESSION * len(zlib.compress(raw)):
        return True
    if len(words) > 1 and len(set(words)) == 1 and not spoken_digits(words[0], lexicon(language)):
        return True
    count = sum(len(word) if word.isdecimal() else 1 for word in words)
    return count > 2 and count > WORDS_A_SECOND * voiced


def is_row(text: str, language: str) -> bool:
    """Whether `text` is one digit several times ("5 5", "nine nine nine"), which looks like a loop."""
    words = plain_words(text).split()
    digits = spoken_digits(" ".join(words), lexicon(language))
    return len(set(digits)) == 1 and len(digits) > 1 and (len(digits) > 2 or len(words) == 2)


def confirmed(decoded: Decoded, again: Decoded, language: str) -> Decoded:
    """Gives the second decode; without text if either is one repeated digit (`is_row`) and their digits
    differ."""
    first, second = (spoken_digits(plain_words(each.text), lexicon(language)) for each in (decoded, again))
    row = is_row(decoded.text, language) or is_row(again.text, language)
    return replace(again, text="") if row and first != second else again


def row_window_s(window_s: int, longest_s: float) -> int:
    """Gives the window for a second decode of one repeated digit: that of Whisper's training, which counts
    best, whereas shorter windows give a digit too many."""
    return LEARNED_WINDOW_S if window_s < LEARNED_WINDOW_S else another_window_s(window_s, longest_s)


def another_window_s(window_s: int, longest_s: float) -> int:
    """Gives the window for a second decode of a loop that came with `window_s`."""
    had = max(window_s, math.ceil(longest_s) + 1)
    if had < OTHER_WINDOW_S:
        return OTHER_WINDOW_S
    return had + 3 if had + 3 <= 30 else max(OTHER_WINDOW_S, math.ceil(longest_s) + 1)


def said_once(text: str, language: str) -> str:
    """Removes the repetitions of a loop; gives "" for a loop with digits, whose number is unknown."""
    once = _SAID_OFTEN.sub(r"\1", text)
    return "" if once != text and spoken_digits(text, lexicon(language)) else once


def is_figures(text: str, language: str) -> bool:
    """Whether a text (in the form of `plain_words`) has only digits and digit words. Whisper may write a
    number in several ways, which share the probability, so that a right number has less confidence."""
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
    """Gives the accepted words of `decoded`, "" for none. `loops`: the second decode is a loop too. Digits
    alone (except one repeated digit) and the expected `phrases` need half of `min_confidence`. A text of low
    confidence that sounds like one of `phrases` is replaced by that phrase."""
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
