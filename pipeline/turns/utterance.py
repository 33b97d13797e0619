"""The record of the caller's utterance: when the voice began and paused, and the words known so far."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field

from pipeline.turns.events import FinalTranscript


def word_count(text: str) -> int:
    """Number of words in `text`, separated by white space."""
    return len(text.split())


@dataclass(slots=True)
class CallerUtterance:
    """The caller's utterance under way, or the last one. Moments are loop time in seconds and begin at
    `now`."""

    now: InitVar[float]
    heard_since: float = field(init=False)
    """The begin of the utterance's first voice."""
    voice_since: float = field(init=False)
    """The begin of the voice since the last pause."""
    silent_since: float = field(init=False)
    """The caller's last voiced sample; on a noisy line the caller's last word."""
    voiced_until: float = field(init=False)
    """The last voiced sample, on a noisy line too."""
    voiced_ms: int = 0
    words: FinalTranscript | None = None
    """The final transcript; None while it is awaited."""
    partial: str = ""
    """The interim words of a voice that goes on, or of a voice over the agent."""
    worded_at: float = field(init=False)
    """The moment at which the last new word of `partial` became known."""
    asked_at: float = field(init=False)
    """The moment of the last request for a final transcript."""
    asked_after: str = ""
    """The interim words at the last repeated request for a final transcript."""
    overdue_at: float = field(init=False)
    """The moment at which a final transcript is late."""

    def __post_init__(self, now: float) -> None:
        self.heard_since = self.voice_since = self.silent_since = self.voiced_until = now
        self.worded_at = self.asked_at = self.overdue_at = now

    def begin(self, now: float) -> None:
        """Begins a new utterance at loop time `now`."""
        self.heard_since = self.worded_at = now
        self.partial = ""
        self.go_on(now)

    def go_on(self, now: float) -> None:
        """Notes that the voice began, also after a pause; drops a final transcript of the words before."""
        self.words, self.asked_after = None, ""
        self.voice_since = now

    def pause(self, silent_since: float, voiced_ms: int) -> None:
        """Notes that the voice stopped at `silent_since`, with `voiced_ms` of voice in the utterance."""
        self.silent_since = self.voiced_until = silent_since
        self.voiced_ms = voiced_ms

    def is_more(self, text: str) -> bool:
        """Whether `text` has more words than `partial`."""
        return word_count(text) > word_count(self.partial)

    def note_words(self, text: str, now: float) -> None:
        """Notes the interim words `text`, which have a new word."""
        self.partial, self.worded_at = text, now

    @property
    def known(self) -> str:
        """The interim or the final words, whichever are more."""
        return max(self.partial, self.text, key=word_count)

    @property
    def text(self) -> str:
        """The words of the final transcript, "" where there is none."""
        return self.words.text if self.words is not None else ""

    @property
    def is_empty(self) -> bool:
        """Whether there is a final transcript without words, and the recogniser did not fail."""
        return self.words is not None and not self.words.text and not self.words.failed

    def is_understood(self, turn: int) -> bool:
        """Whether the final transcript is that of `turn` and has words."""
        return self.words is not None and self.words.turn == turn and bool(self.words.text)

    @property
    def is_asked_whole(self) -> bool:
        """Whether a final transcript was asked for since the voice began."""
        return self.asked_at > self.voice_since

    def wordless_s(self, now: float) -> float:
        """Seconds for which the voice that goes on has had no new word."""
        return now - max(self.worded_at, self.voice_since)
