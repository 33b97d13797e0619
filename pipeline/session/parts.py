"""The engines and the agent that a session hands to its parts."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.agent import Conversation, Opening
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.leg import Leg
from pipeline.result import SessionObserver, SessionResult
from pipeline.session.prompts import Phrases
from pipeline.speech import TextToSpeech


@dataclass(frozen=True, slots=True)
class Resumption:
    """A conversation that goes on after a transfer that failed. `before`: its result so far; `began`: loop
    time at which it began."""

    opening: Opening
    before: SessionResult
    began: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionParts:
    """The engines and the agent of one conversation. `voices`: the first speaks, the others are its
    fallbacks, in order. `detector`: the end-of-turn detector; None: the words alone decide."""

    leg: Leg
    agent: Conversation
    voices: tuple[TextToSpeech, ...]
    phrases: Phrases
    observer: SessionObserver | None
    detector: EndOfTurnDetector | None = None
