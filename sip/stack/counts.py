"""The SIP stack's counters of messages, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StackCounts:
    """Messages since the start, for metrics. `strays`: responses and ACKs that belong to nothing; `foreign`:
    requests within a call that came from elsewhere than its far end."""

    received: int = 0
    malformed: int = 0
    refused: int = 0
    transmitted: int = 0
    strays: int = 0
    foreign: int = 0
