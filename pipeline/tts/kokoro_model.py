"""Runs the Kokoro model on torch. Imported only in the process of a voice, since torch takes 5 s and 400 MB.

Phonemes come from espeak-ng through misaki's `EspeakG2P`. misaki's English front end, which
`kokoro.KPipeline` uses, downloads a spaCy model and is therefore not used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from kokoro.model import KModel
from misaki.espeak import EspeakG2P

from pipeline.tts.subprocess_server import Emit, Refusal
from pipeline.tts.subprocess_wire import Word

FRAME_SAMPLES = 600
"""Samples of a frame, the unit of the model's phoneme durations: 25 ms at 24 kHz."""

_WORD = re.compile(r"\S+")


class KokoroVoices:
    """A `Synthesiser` with one Kokoro model, which loads each voice at its first use."""

    rate_hz = 24000

    def __init__(self, *, model: str, config: str, device: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self._model = KModel(repo_id="local", config=config, model=model).to(device).eval()
        self._voices: dict[str, Any] = {}
        self._phonemes: dict[str, Any] = {}

    def speak(self, request: Mapping[str, Any], emit: Emit) -> None:
        """Synthesises the request's `text` with the file `voice`, at `speed`, in `language` (espeak-ng's
        name). Raises as `Synthesiser.speak`."""
        text = str(request["text"])
        phonemes = self._phonemes_of(text, str(request["language"]))
        if not phonemes:
            return
        pack = self._voice(str(request["voice"]))
        if len(phonemes) > len(pack):
            raise Refusal("the text is too long for one chunk")
        with torch.no_grad():
            made = self._model(phonemes, pack[len(phonemes) - 1], float(request["speed"]), return_output=True)
        samples = np.clip(np.asarray(made.audio, np.float32) * 32767, -32768, 32767).astype("<i2")
        durations = [] if made.pred_dur is None else made.pred_dur.tolist()
        emit(samples.tobytes(), self._words(text, phonemes, durations))

    def _phonemes_of(self, text: str, language: str) -> str:
        if language not in self._phonemes:
            self._phonemes[language] = EspeakG2P(language=language)
        phonemes, _ = self._phonemes[language](text)
        return "".join(each for each in phonemes if each in self._model.vocab)

    def _voice(self, path: str) -> Any:
        if path not in self._voices:
            try:
                self._voices[path] = torch.load(path, map_location="cpu", weights_only=True)
            except (OSError, RuntimeError, ValueError) as error:
                raise Refusal(f"{path} is not a voice: {error}") from error
        return self._voices[path]

    @staticmethod
    def _words(text: str, phonemes: str, durations: Sequence[int]) -> list[Word]:
        """The beginnings of the text's words. `durations`: of the phonemes, with a start and an end mark.
        Where the numbers of spoken and written words differ ("of the", "2026"), they are mapped
        proportionally."""
        written = [match.start() for match in _WORD.finditer(text)]
        spoken = [match.start() for match in _WORD.finditer(phonemes)]
        if len(durations) != len(phonemes) + 2 or not written or not spoken:
            return []
        begins = [0, *accumulate(durations)]
        samples = [begins[start + 1] * FRAME_SAMPLES for start in spoken]
        return [
            Word(position, samples[index * len(samples) // len(written)])
            for index, position in enumerate(written)
        ]
