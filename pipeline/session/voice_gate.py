"""Decides whether a change in the line's audio is the caller's voice or noise."""

from __future__ import annotations

from typing import Final

from pipeline.endpointing.prosody import is_pitched
from pipeline.session.audio_input import AudioInput, Sound
from pipeline.settings import SessionSettings
from pipeline.turns.events import State
from pipeline.turns.machine import Turns

BOTH_SPEAK: Final = frozenset((State.OVERLAPPING, State.OVERLAPPED, State.DUCKED, State.JUDGING))
PAUSED: Final = frozenset((State.ENDPOINTING, State.PRESUMING, State.REPLYING))
"""States in which the caller pauses."""

BURST_MS: Final = 200
"""Least length of a voice that counts as the caller's in a pause on a noisy line. A shorter voice counts only
with words, and so does a longer one after speech that turned out to be noise."""


class VoiceGate:
    """Decides for one conversation which sounds of the line count as the caller's voice."""

    __slots__ = ("_audio_input", "_settings")

    def __init__(self, audio_input: AudioInput, settings: SessionSettings) -> None:
        self._audio_input = audio_input
        self._settings = settings

    def in_pause(self, sound: Sound, turns: Turns, now: float) -> Sound | None:
        """The change that a sound in a pause of the caller's (`PAUSED`) counts as: `sound` itself, or on a
        noisy line `Sound.STARTED` for a voice with words or of `BURST_MS`; None for noise and background
        speech."""
        if not turns.noise.is_noisy(now):
            return None if sound is Sound.MURMURED else sound
        lasts = (
            sound is not Sound.MURMURED
            and self._audio_input.run_ms >= BURST_MS
            and not turns.noise.last_speech_was_noise
        )
        return Sound.STARTED if lasts or turns.says_more(self._audio_input.partial()) else None

    def is_long(self, state: State) -> bool:
        """Whether the voice has lasted long enough to interrupt the agent in `state`: `barge_in_ms`, or
        `hush_ms` over the agent with a pitch, which no cough has."""
        audio_input, settings = self._audio_input, self._settings
        if audio_input.voiced_ms >= settings.barge_in_ms:
            return True
        if state not in BOTH_SPEAK or audio_input.voiced_ms < settings.hush_ms:
            return False
        return is_pitched(audio_input.recent(), audio_input.rate_hz)
