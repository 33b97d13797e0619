"""What a Whisper model makes of an utterance, before it is believed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the model makes of one utterance; named as faster-whisper's segments name it. `whole`: it came to
    its end within the tokens that it was given."""

    text: str
    avg_logprob: float
    no_speech_prob: float
    whole: bool = True
