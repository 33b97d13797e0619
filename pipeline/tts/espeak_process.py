"""The espeak-ng process: `python -m pipeline.tts.espeak_process`.

espeak-ng is GPL-3.0-or-later: in a helper process it stays a separate program, and a crash of its C code
costs one sentence instead of every call. Synthesis runs at 1600 times real time: a sentence takes a few
milliseconds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.confinement.confinement import Confinement
from pipeline.tts.espeak_library import EspeakLibrary, Sink, VoiceUnknown, WordEvent
from pipeline.tts.subprocess_server import Emit, Refusal, serve
from pipeline.tts.subprocess_wire import Word

_FIRST_CHUNK_MS = 240
_LATER_CHUNK_MS = 500
"""Lengths of the first chunk and of later ones. The library gives 60 ms at a time, and every message wakes
the server's event loop; the first chunk is short, a word or two, so that playout can begin."""


class EspeakVoices:
    """A `Synthesiser` with all voices of libespeak-ng."""

    def __init__(self) -> None:
        self._library = EspeakLibrary()
        self.rate_hz = self._library.rate_hz

    def speak(self, request: Mapping[str, Any], emit: Emit) -> None:
        """Synthesises the request's `text` with `voice`, or with `otherwise` where there is no such voice or
        `voice` is "", at its `rate_wpm`, `pitch` and `volume`. Raises as `Synthesiser.speak`."""
        gathered, words = bytearray(), list[Word]()
        enough = self._bytes(_FIRST_CHUNK_MS)

        def gather(samples: bytes, events: list[WordEvent]) -> bool:
            nonlocal enough
            words.extend(Word(max(event.position, 0), event.sample) for event in events)
            gathered.extend(samples)
            if len(gathered) < enough:
                return emit(b"", [])
            unwanted = emit(bytes(gathered), words)
            gathered.clear()
            words.clear()
            enough = self._bytes(_LATER_CHUNK_MS)
            return unwanted

        parameters = {name: int(request[name]) for name in ("rate_wpm", "pitch", "volume")}
        voices = [str(request[name]) for name in ("voice", "otherwise") if request[name]]
        self._speak(str(request["text"]), gather, voices, parameters)
        emit(bytes(gathered), words)

    def _speak(self, text: str, sink: Sink, voices: Sequence[str], parameters: Mapping[str, int]) -> None:
        """Synthesises with the first of `voices` that the library has. Raises `Refusal` for none."""
        for place, voice in enumerate(voices, 1):
            try:
                self._library.speak(text, sink, voice=voice, parameters=parameters)
            except VoiceUnknown as error:
                if place == len(voices):
                    raise Refusal(f"no voice called {error}") from error
            else:
                return

    def _bytes(self, duration_ms: int) -> int:
        return self.rate_hz * 2 * duration_ms // 1000


if __name__ == "__main__":
    sys.exit(serve(EspeakVoices, Confinement(memory_mb=256)))
