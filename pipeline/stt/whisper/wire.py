"""Messages between the server and the process of a Whisper model (`pipeline.confinement.messages`).

There is a stream socket for each thread of the process, with one request on it at a time; the greeting comes
on the first. Samples are float32, 16 kHz, one utterance after another.

| direction | head | samples |
|---|---|---|
| to the server, once | multilingual: whether the model knows more than English; or failed, or absent | |
| to the process | lengths (samples of each utterance), language, hotwords, window_s, most | all utterances |
| to the server | texts: the fields of `Decoded`, for each; or failed: what kind of error it was | |
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decoded:
    """The decoded text of one utterance; field names are those of faster-whisper's segments. `whole`: the
    text ended within the allowed tokens."""

    text: str
    avg_logprob: float
    no_speech_prob: float
    whole: bool = True

    @property
    def confidence(self) -> float:
        """The geometric mean of the text's token probabilities."""
        return math.exp(min(0.0, self.avg_logprob))
