"""Finds stage directions in a model's words ("[laughs]", "*smiles*", "(sighs)"), which nobody says."""

from __future__ import annotations

import re
from typing import Final

_DOES: Final = (
    "laughs|chuckles|giggles|smiles|grins|smirks|sighs|nods|winks|pauses|whispers|gasps|coughs|sneezes|yawns"
    "|groans|hums|shrugs|sobs|sniffs|sniffles|exhales|inhales|blushes|frowns|snorts|cheers|waves|beams"
    "|clears (?:\\w+ )?throat|shakes (?:\\w+ )?head|takes a (?:deep )?breath"
    "|يضحك|تضحك|يبتسم|تبتسم|يتنهد|تتنهد|يهمس|تهمس|يسعل|تسعل|يتوقف|تتوقف"
)
_DOING: Final = (
    "laughing|chuckling|giggling|smiling|grinning|sighing|nodding|winking|whispering|gasping|yawning|humming"
    "|shrugging|sobbing|sniffling|exhaling|inhaling|blushing|clearing (?:\\w+ )?throat|laughter|deep breath"
    "|ضاحكاً|ضاحكا|مبتسماً|مبتسما|ضحكة|ابتسامة|تنهيدة"
)
_SO: Final = r"(?:\w{1,15}ly,? )?"
_THEN: Final = r"(?:,? [a-z'\u0620-\u064a]{1,15}){0,4}"
_DIRECTION: Final = re.compile(
    rf"(?i:(?P<mark>\*{{1,2}}|_{{1,2}}){_SO}(?:{_DOES}|{_DOING}){_THEN}[.…]{{0,3}}(?P=mark)"
    rf"|\({_SO}(?:{_DOES}){_THEN}[.…]{{0,3}}\))"
    r"|\[[^\W\d_A-Z][^\W\d_A-Z'’-]{1,15}(?: [^\W\d_A-Z'’-]{1,15}){0,3}\](?!\()"
)
_OPEN: Final = re.compile(r"(?<![\w*])\*{1,2}(?:[^\W\d_][^*\n]{0,60})?\Z|\((?:[^\W\d_A-Z][^()\n]{0,40})?\Z")


def unfinished(text: str) -> int:
    """Where a direction may begin that `text` breaks off in; the length of `text` for none."""
    opened = _OPEN.search(text, max(0, len(text) - 64))
    return opened.start() if opened else len(text)


def without_directions(text: str) -> str:
    """Takes the stage directions out of `text`, which may hold several."""
    return _DIRECTION.sub(" ", text) if any(mark in text for mark in "*_([") else text
