"""One thing that the model says: its sound as it comes, and the words beside it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final, Protocol

import numpy as np

from pipeline.agent import VoicedPiece
from pipeline.agents.llm.realtime.messages import NARROW_HZ, WIDE_HZ
from pipeline.audio import Pcm
from pipeline.audio.kernels import ulaw_decode
from pipeline.errors import EngineEndless
from pipeline.net.untrusted import clean_text
from pipeline.transcript import heard_words, placed_words

LONGEST_S: Final = 300.0
"""Most sound of one item: a model that makes more may never stop."""

LONGEST_TEXT: Final = 20_000

_NOTHING: Final = np.zeros(0, np.int16)


class Cutter(Protocol):
    """The line that an item comes over. `narrow`: sound is µ-law at 8 kHz, else int16 at 24 kHz."""

    narrow: bool

    def cut(self, item: SpokenItem, heard_ms: int) -> None:
        """Notes that no more than the first `heard_ms` of an item is heard."""


class SpokenItem:
    """One message of the model (`pipeline.agent.OwnSpeech`), and its place in the history
    (`pipeline.agents.llm.history.Said`)."""

    def __init__(self, line: Cutter, item_id: str, *, content_index: int) -> None:
        self.line = line
        self.item_id = item_id
        self.content_index = content_index
        self.rate_hz = NARROW_HZ if line.narrow else WIDE_HZ
        self.broke_off = self.forgotten = False
        self._odd = b""
        self._samples = 0
        self._text = ""
        self._waiting: deque[VoicedPiece] = deque()
        self._over = False
        self._changed = asyncio.Event()

    @property
    def ms(self) -> int:
        """Milliseconds of sound that have come."""
        return self._samples * 1000 // self.rate_hz

    @property
    def text(self) -> str:
        """The words so far; where they broke off, those whose sound came."""
        text = " ".join(self._text.split())
        if not self.broke_off:
            return text
        places = placed_words(
            text, (), samples=self._samples, rate_hz=self.rate_hz, complete=False, slowest=True
        )
        return " ".join(word.text for word in heard_words(places, self._samples))

    @property
    def spoken(self) -> str:
        """The same: nobody puts what the model says into other words."""
        return self.text

    # The line's side ----------------------------------------------------------------------------------------

    def sounds(self, octets: bytes) -> None:
        """Takes sound. Raises `EngineEndless` for more than anybody says at once."""
        samples = self._decoded(octets)
        self._samples += samples.size
        if self._samples > LONGEST_S * self.rate_hz:
            raise EngineEndless("the model does not stop talking")
        self._give(samples, "")

    def reads(self, text: str) -> None:
        """Takes words, which may break off within one."""
        if self._over or len(self._text) + len(text) > LONGEST_TEXT:
            return
        plain = clean_text(text).replace("\n", " ")
        plain = plain if self._text else plain.lstrip()
        self._text += plain
        self._give(_NOTHING, plain)

    def finish(self, *, broke_off: bool = False) -> None:
        """Notes that no more comes."""
        if not self._over:
            self._over, self.broke_off = True, broke_off
            self._changed.set()

    # The session's side -------------------------------------------------------------------------------------

    async def pieces(self) -> AsyncGenerator[VoicedPiece, None]:
        """The sound as it comes, each piece with the words that came before it."""
        while self._waiting or not self._over:
            while self._waiting:
                yield self._waiting.popleft()
            self._changed.clear()
            if not self._over:
                await self._changed.wait()

    def cut(self, heard_ms: int) -> None:
        """Notes that no more than the first `heard_ms` is heard."""
        self._waiting.clear()
        self.line.cut(self, heard_ms)
        self.finish()

    def _give(self, samples: Pcm, text: str) -> None:
        if not self._over:
            self._waiting.append(VoicedPiece(samples, text))
            self._changed.set()

    def _decoded(self, octets: bytes) -> Pcm:
        if self.line.narrow:
            samples = np.empty(len(octets), np.int16)
            ulaw_decode(np.frombuffer(octets, np.uint8), samples)
            return samples
        octets = self._odd + octets
        even = len(octets) & ~1
        self._odd = octets[even:]
        return np.frombuffer(octets[:even], "<i2").astype(np.int16)
