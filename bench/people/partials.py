"""Measures the age of interim words: decoded at once, on a virtual clock.

The age of a word is the time from its end (by Whisper's alignment of the whole utterance) until two decodes
agree on the word, plus the CPU time of the decode: the age on an idle core."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final

import numpy as np

from bench.embedded_stt.corpus import LINE_HZ, Spoken
from bench.people.questions import LANGUAGE
from bench.support.processes import children
from mediaserver.engine_pool import warm_up
from pipeline.audio.resample import resample
from pipeline.speech import Expected, Hypothesis
from pipeline.stt.faster_whisper import MODEL_RATE_HZ, FasterWhisper, local_directory
from pipeline.stt.whisper import model as whisper_model
from pipeline.stt.whisper.listening import UtteranceFormat, WhisperListening
from pipeline.text.fold import plain_words

EVERY_S: Final = (0.3, 0.5, 1.0)
SPEAKERS: Final = 15
SHORTEST_WORDS: Final = 8


class AtOnce:
    """Decodes interim words within the call that asks for these, and measures the CPU time. `every_s`:
    seconds between two decodes."""

    def __init__(self, engine: FasterWhisper, every_s: float) -> None:
        self.cpu_s: list[float] = []
        self._engine = engine
        self._every_s = every_s

    def submit(
        self, samples: Any, rate_hz: int, language: str, expected: Expected | None
    ) -> Future[Hypothesis]:
        """Submits an utterance for its final result."""
        return self._engine.submit(samples, rate_hz, language, expected)

    def submit_spare(self, samples: Any, rate_hz: int, language: str) -> Future[Hypothesis]:
        """Decodes the utterance so far; the returned result is complete."""
        began = cpu_s()
        decoded = self._engine.submit_spare(samples, rate_hz, language)
        decoded.result()
        self.cpu_s.append(cpu_s() - began)
        return decoded

    def spare_pause_s(self) -> float:
        """Returns the seconds between two decodes."""
        return self._every_s


def measure(engine: FasterWhisper, corpus: Sequence[Spoken]) -> list[dict[str, Any]]:
    """Measures the age of interim words, and returns a row for each interval between decodes."""
    spoken = [each for each in corpus if len(each.text.split()) >= SHORTEST_WORDS][:SPEAKERS]
    model = whisper_model.load(local_directory(), threads=1, device="cpu", compute_type="int8")
    ends = [list(_ends(model, each)) for each in spoken]
    return [_row(engine, every_s, spoken, ends) for every_s in EVERY_S]


def _row(
    engine: FasterWhisper, every_s: float, spoken: Sequence[Spoken], ends: Sequence[list[tuple[str, float]]]
) -> dict[str, Any]:
    ages: list[float] = []
    cpu_s, wrong, words = 0.0, 0, 0
    for each, known in zip(spoken, ends, strict=True):
        at_once = AtOnce(engine, every_s)
        for place, (word, second) in enumerate(_stable(at_once, each, every_s)):
            words += 1
            if place < len(known) and known[place][0] == word:
                ages.append(second + at_once.cpu_s[-1] - known[place][1])
            else:
                wrong += 1
        cpu_s += sum(at_once.cpu_s)
    speech_s = sum(len(each.samples) / LINE_HZ - 0.8 for each in spoken)  # less the silence at its ends
    return {
        "every_s": every_s,
        "age_s_p50": round(float(np.median(ages)), 2),
        "age_s_p95": round(float(np.percentile(ages, 95)), 2),
        "cpu_s_a_second_of_speech": round(cpu_s / speech_s, 3),
        "differ_from_the_result": [wrong, words],
        "speech_s": round(speech_s),
    }


def _stable(at_once: AtOnce, spoken: Spoken, every_s: float) -> Iterator[tuple[str, float]]:
    """Yields each interim word when it is stable, with the seconds of audio pushed until then."""
    line = UtteranceFormat(LINE_HZ, LANGUAGE, None)
    listening = WhisperListening(at_once, line, partial_every=round(every_s * LINE_HZ))
    seen = 0
    for start in range(0, len(spoken.samples), LINE_HZ // 50):
        listening.push(spoken.samples[start : start + LINE_HZ // 50])
        known = listening.partial().split()
        for word in known[seen:]:
            yield word, (start + LINE_HZ // 50) / LINE_HZ
        seen = len(known)
    listening.close()


def _ends(model: Any, spoken: Spoken) -> Iterator[tuple[str, float]]:
    """Yields the words of the whole utterance, with the second at which each ends."""
    audio = resample(spoken.samples, LINE_HZ, MODEL_RATE_HZ).astype(np.float32) / np.float32(32768)
    segments, _ = model.transcribe(
        audio, language=LANGUAGE, beam_size=1, temperature=0.0, word_timestamps=True, without_timestamps=True
    )
    for segment in segments:
        for each in segment.words:
            for word in plain_words(each.word).split():
                yield word, each.end


def cpu_s() -> float:
    """Returns the CPU seconds (user and system) of this process and its running children."""
    return time.process_time() + sum(map(warm_up.cpu_s, children(os.getpid())))
