"""Who takes part in a conversation."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.agent import Conversation
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.leg import Leg
from pipeline.result import SessionObserver
from pipeline.session.prompts import Phrases
from pipeline.speech import TextToSpeech


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionParts:
    """Who takes part. `voices`: the first speaks, the others when it cannot. `judge`: says whether the
    caller is done; without one their words alone do."""

    leg: Leg
    agent: Conversation
    voices: tuple[TextToSpeech, ...]
    phrases: Phrases
    observer: SessionObserver | None
    judge: EndOfTurnDetector | None = None
