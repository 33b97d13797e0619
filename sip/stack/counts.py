"""The SIP stack's counters of messages, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StackCounts:
    """Messages since the start, for metrics. `strays`: responses and ACKs that match no transaction or
    dialog; `foreign`: requests within a dialog from another host than its far end's."""

    received: int = 0
    malformed: int = 0
    refused: int = 0
    transmitted: int = 0
    strays: int = 0
    foreign: int = 0
