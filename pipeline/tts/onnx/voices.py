"""Runs Piper and Kokoro on onnxruntime, with espeak-ng's phonemes. Imported only in the process of a voice:
libespeak-ng is GPL-3, and a model takes 150 to 300 MB."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.tts.espeak_library import EspeakLibrary, VoiceUnknown
from pipeline.tts.onnx.kokoro_letters import kokoro_letters
from pipeline.tts.onnx.model import KOKORO_DURATIONS, session
from pipeline.tts.onnx.spoken_letters import Letters, letters_of
from pipeline.tts.subprocess_server import Emit, Refusal
from pipeline.tts.subprocess_wire import Word

_HOP: Final = 256
"""Samples of one frame of a Piper voice."""

_GAIN: Final = 1.4
"""Gain of all Piper voices, whose audio peaks at 0.4 to 0.7 of full scale. Scaling each clause to the same
peak, as the program `piper` does, would make a short clause louder than the next."""

_FRAME: Final = 600
"""Samples of one frame of Kokoro: 25 ms at 24 kHz."""

_QUIET: Final = 0.006
_LEAD_MS: Final = 20
_PAUSES_MS: Final = {",": 140, ";": 180, ":": 180, ".": 260, "!": 260, "?": 260}
"""Silence that is kept before the first sound of Kokoro and, by the punctuation at the end, after the last;
the model makes 0.3 s before and up to 0.7 s after."""

Floats = npt.NDArray[np.float32]


class PiperVoice:
    """A Piper voice on onnxruntime, as a `Synthesiser`."""

    def __init__(self, *, model: str, config: str, threads: int) -> None:
        """`config`: the voice's JSON. Raises OSError, KeyError, ValueError, RuntimeError (onnxruntime's)."""
        read = json.loads(Path(config).read_text())
        self.rate_hz = int(read["audio"]["sample_rate"])
        self._ids: dict[str, list[int]] = read["phoneme_id_map"]
        scales = read["inference"]
        self._scales = [float(scales[name]) for name in ("noise_scale", "length_scale", "noise_w")]
        self._speakers = int(read.get("num_speakers", 1))
        self._library = EspeakLibrary()
        self._sounds = partial(self._library.phonemes, voice=str(read["espeak"]["voice"]))
        self._session = session([model], threads=threads)

    def speak(self, request: Mapping[str, Any], emit: Emit) -> None:
        """Synthesises the request's `text` at `speed` with number `speaker` of the voice. Raises as
        `Synthesiser.speak`."""
        letters = _letters(str(request["text"]), self._sounds)
        ids, places = self._encoded(letters)
        noise, length, noise_w = self._scales
        scales = np.array([noise, length / float(request["speed"]), noise_w], np.float32)
        inputs = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": scales,
        }
        if self._speakers > 1:
            inputs["sid"] = np.array([int(request["speaker"]) % self._speakers], np.int64)
        made = self._session.run(None, inputs)
        words = _words(letters, places, _begins(made, _HOP, len(ids)))
        emit(_pcm(np.asarray(made[0], np.float32).ravel() * _GAIN), words)

    def _encoded(self, letters: Letters) -> tuple[list[int], list[int]]:
        """The model's input, and the place of each letter in it (for an unknown letter, the next place)."""
        blank = self._ids["_"]
        ids, places = [*self._ids["^"], *blank], []
        for letter in letters.text:
            places.append(len(ids))
            for part in unicodedata.normalize("NFD", letter):
                if part in self._ids:
                    ids += [*self._ids[part], *blank]
        return [*ids, *self._ids["$"]], places


class KokoroVoice:
    """A Kokoro model on onnxruntime with its voices, as a `Synthesiser`."""

    rate_hz = 24000

    def __init__(self, *, parts: list[str], sha256: str, voices: str, vocabulary: str, threads: int) -> None:
        """`parts`: the model's files in order; `sha256`: of the joined files. `voices`: an .npz of style
        vectors by name. Raises OSError, KeyError, ValueError, RuntimeError (onnxruntime's)."""
        self._vocabulary: dict[str, int] = json.loads(Path(vocabulary).read_text())["vocab"]
        with np.load(voices) as styles:
            self._styles: dict[str, Floats] = dict(styles.items())
        self._library = EspeakLibrary()
        self._session = session(parts, threads=threads, sha256=sha256, durations=KOKORO_DURATIONS)

    def speak(self, request: Mapping[str, Any], emit: Emit) -> None:
        """Synthesises the request's `text` with `voice`, at `speed`, in `language` (espeak-ng's name). Raises
        as `Synthesiser.speak`."""
        language = str(request["language"])
        text = str(request["text"])
        letters = _letters(text, lambda words: self._sounds(words, language))
        ids, places = [0], []
        for letter in letters.text:
            places.append(len(ids))
            ids += [self._vocabulary[letter]] if letter in self._vocabulary else []
        ids.append(0)
        style = self._style(str(request["voice"]))
        if len(ids) - 2 > len(style):
            raise Refusal("the text is too long for one chunk")
        inputs = {
            "tokens": np.array([ids], np.int64),
            "style": style[max(0, len(ids) - 3)].astype(np.float32),
            "speed": np.array([float(request["speed"])], np.float32),
        }
        made = self._session.run(None, inputs)
        words = _words(letters, places, _begins(made, _FRAME, len(ids)))
        samples, dropped = self._trimmed(np.asarray(made[0], np.float32).ravel(), text)
        emit(_pcm(samples), [Word(each.position, max(0, each.sample - dropped)) for each in words])

    def _sounds(self, words: str, language: str) -> str:
        return kokoro_letters(
            self._library.phonemes(words, voice=language, tie="^"), british="gb" in language
        )

    def _style(self, voice: str) -> Floats:
        if voice not in self._styles:
            raise Refusal(f"no voice called {voice}; there are {', '.join(sorted(self._styles))}")
        return self._styles[voice]

    def _trimmed(self, samples: Floats, text: str) -> tuple[Floats, int]:
        """Removes most of the silence around `samples`; gives the rest and the number removed before."""
        loud = np.flatnonzero(np.abs(samples) > _QUIET)
        if not len(loud):
            return samples[:0], 0
        marks = text.rstrip("\"')]»”’ ")[-1:]
        first = max(0, int(loud[0]) - self.rate_hz * _LEAD_MS // 1000)
        last = int(loud[-1]) + 1 + self.rate_hz * _PAUSES_MS.get(marks, 60) // 1000
        kept = samples[first:last]
        return np.pad(kept, (0, last - first - len(kept))), first


def _letters(text: str, sounds: Callable[[str], str]) -> Letters:
    try:
        return letters_of(text, sounds)
    except VoiceUnknown as error:
        raise Refusal(f"espeak-ng has no phonemes for {error}") from error


def _begins(made: list[Any], unit: int, ids: int) -> list[int] | None:
    """The first sample of each id, by the durations in the second output; None without that output."""
    if len(made) < 2 or np.size(made[1]) != ids:
        return None
    ends = np.cumsum(np.asarray(made[1]).ravel())
    return [0, *(int(end) * unit for end in ends)]


def _words(letters: Letters, places: list[int], begins: list[int] | None) -> list[Word]:
    if begins is None:
        return []
    return [
        Word(position, begins[places[letter]] if letter < len(places) else begins[-1])
        for position, letter in letters.words
    ]


def _pcm(samples: Floats) -> bytes:
    return np.clip(samples * 32767, -32768, 32767).astype("<i2").tobytes()
